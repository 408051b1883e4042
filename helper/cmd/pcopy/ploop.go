package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"kernel.org/pub/linux/libs/security/libcap/cap"

	"github.com/livefleet/handover/helper/internal/confine"
	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/loop"
	"github.com/livefleet/handover/helper/internal/passes"
	"github.com/livefleet/handover/helper/internal/ploopcopy"
	"github.com/livefleet/handover/helper/internal/report"
	"github.com/livefleet/handover/helper/internal/transport"
	"github.com/livefleet/handover/helper/internal/wire/dialect"
)

// defaultDialect is a sender's, and falls back automatically.
const defaultDialect = "ploop-1.12"

type ploopCommands struct{ *app }

func (a ploopCommands) ploop() *cobra.Command {
	g := group("ploop", "Copy a running disk to or from a host that has only `ploop copy`", a.ploopSend(), a.ploopReceive(), a.ploopCopy())
	g.Example = `  pcopy ploop send --dialect ploop-1.12 --device /dev/vg0/web1 --to /vz/private/101/root.hdd/root.hds -- ssh node7 ploop
  pcopy ploop receive --dialect ploop-1.12 -d /srv/images/web1.hds`
	return g
}

// oldStatuses has a command end with the old programs' exit status where its words are wrong.
func oldStatuses(c *cobra.Command, word string) {
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return wrong(usageError(word + ": " + err.Error())) })
	c.Args = func(c *cobra.Command, args []string) error {
		if n := c.ArgsLenAtDash(); n > 0 || n < 0 && len(args) > 0 {
			return wrong(usageError(fmt.Sprintf("%s: %q is a word too many: usage: %s", word, args[0], c.UseLine())))
		}
		return nil
	}
}

// peer is where the other side is.
type peer struct {
	out, in, feedback int
	socket            string
	command           []string // behind "--": how to run the old program over there
	to                string
	file              string // the copy stays on this host
}

// wrong is a call that cannot be understood, with the old exit status for it.
func wrong(err error) error { return dialect.Fail(dialect.Parameter, err) }

// sending are the flags of ploop send.
type sending struct {
	peer
	source       ploopcopy.Source
	dialect      string
	freeze, thaw string
	timeout      int
}

func (a ploopCommands) ploopSend() *cobra.Command {
	var s sending
	c := &cobra.Command{Use: "send --device DEV [--to FILE -- COMMAND…]", Short: "Send a disk that is in use to an old ploop copy", RunE: func(c *cobra.Command, args []string) error {
		if c.ArgsLenAtDash() >= 0 {
			s.command = append([]string{}, args...)
		}
		return a.sendDialect(c.Context(), s)
	}}
	oldStatuses(c, "send")
	s.flags(c.Flags())
	return c
}

func (s *sending) flags(f *pflag.FlagSet) {
	f.StringVar(&s.dialect, "dialect", defaultDialect, "the peer's dialect: "+strings.Join(dialect.Names(), ", "))
	f.StringVarP(&s.source.Device, "device", "s", "", "the block device to send")
	f.StringVar(&s.source.Image, "ploop-image", "", "with --tracker=ploop: the image below the device")
	f.StringVar(&s.source.Tracker, "tracker", "auto", "the write tracker: auto, ebpf, ploop, hash or none")
	f.IntVar(&s.source.Cluster, "cluster", ploopcopy.DefaultCluster, "bytes of a cluster")
	f.StringVarP(&s.freeze, "freeze-command", "F", "", "a shell command that stops the writes before the last pass")
	f.StringVar(&s.thaw, "thaw-command", "", "a shell command that lets them go on if the copy fails")
	f.IntVar(&s.timeout, "timeout", 60, "seconds that each of these commands may take")
	f.IntVarP(&s.out, "output-fd", "o", 1, "the file descriptor that the disk goes to")
	f.IntVarP(&s.feedback, "feedback-fd", "f", -1, "the file descriptor that the peer answers on; -1: it does not answer")
	f.StringVar(&s.socket, "socket", "", "with ploop-7 and ploop-9: the unix socket of the peer")
	f.StringVar(&s.to, "to", "", "the file that the command behind -- writes")
	f.StringVarP(&s.file, "file", "d", "", "a new file on this host to copy to, in place of a peer")
}

func (a ploopCommands) sendDialect(ctx context.Context, asked sending) error {
	p, s := &asked.peer, &asked.source
	v, err := dialect.Find(asked.dialect)
	if err != nil {
		return err
	}
	if err := s.Check(); err != nil {
		return wrong(fmt.Errorf("send: %w: name it with --device", err))
	}
	if asked.timeout <= 0 {
		return wrong(usageError(fmt.Sprintf("send: --timeout %d: a number of seconds above 0", asked.timeout)))
	}
	if s.Image != "" && s.Tracker != "ploop" {
		return wrong(usageError("send: --ploop-image is for a ploop device and its own tracker: pass --tracker=ploop with it, or leave it out"))
	}
	s.Freeze, s.Thaw = shell(asked.freeze, asked.timeout), shell(asked.thaw, asked.timeout)
	if err := lowerSender(s); err != nil {
		return err
	}
	conn, closePeer, err := p.dial(ctx, v, s)
	if err != nil {
		return err
	}
	sent, err := ploopcopy.Send(ctx, conn, *s, report.NewWriter(os.Stderr))
	// How the peer ended says more than that it is gone.
	if cerr := closePeer(); cerr != nil {
		err = errors.Join(cerr, err)
	}
	if err != nil {
		return err
	}
	return a.printUnless(p.out == 1 && p.command == nil && p.socket == "" && p.file == "", sent)
}

// lowerSender drops the rights that a sender does not use itself, before the peer has
// said anything. The commands that it runs have all of root's rights.
func lowerSender(s *ploopcopy.Source) error {
	if os.Geteuid() != 0 {
		return nil
	}
	keep := []cap.Value{confine.Least, cap.KILL} // a command that takes too long
	// An unknown need is kept: Send reports the device's fault.
	if mountpoint, err := loop.MountpointOf(s.Device); s.Tracker != passes.Untracked || mountpoint != "" || err != nil {
		keep = append(keep, cap.SYS_ADMIN, cap.SYS_RESOURCE) // the tracker, and freezing the file system
	}
	return confine.Lower(keep...)
}

// shell makes a user's line a command, as the old programs did.
func shell(line string, seconds int) *hooks.Command {
	if line == "" {
		return nil
	}
	return &hooks.Command{Argv: []string{"/bin/sh", "-c", line}, Timeout: seconds}
}

// printUnless answers in JSON, on standard error if standard output is taken.
func (a ploopCommands) printUnless(taken bool, v any) error {
	if taken {
		return a.printTo(os.Stderr, v)
	}
	return a.print(v)
}

// dial makes the connection to an old receiver.
func (p *peer) dial(ctx context.Context, v dialect.Version, s *ploopcopy.Source) (dialect.Sender, func() error, error) {
	if p.file == "" && p.command == nil && p.socket == "" {
		if file, err := openFile(p.out); err != nil || file != nil {
			return localCopy(s)(file, err)
		}
	}
	switch {
	case p.file != "" && (p.command != nil || p.socket != "" || p.feedback >= 0):
		return nil, nil, wrong(usageError("send: -d copies to a file of this host, where there is no peer: leave -f, --socket and the command behind -- out"))
	case p.file != "":
		return localCopy(s)(ploopcopy.NewLocal(p.file))
	case p.command != nil && (p.socket != "" || p.feedback >= 0 || v.Packets):
		return nil, nil, wrong(usageError("send: a command behind -- is run with its standard streams, which is for the 1.x dialects, without -f and --socket"))
	case p.command != nil && p.to == "":
		return nil, nil, wrong(usageError("send: --to is missing: the file that the command behind -- shall write"))
	case p.command != nil:
		return p.run(ctx, v, s)
	case v.Packets:
		return p.dialSocket(ctx, v, s)
	case p.socket != "":
		return nil, nil, wrong(usageError("send: --socket is for ploop-7 and ploop-9; the 1.x dialects go over descriptors: -o and -f"))
	}
	return p.dialDescriptors(v, s)
}

// dialDescriptors speaks 1.x over descriptors that the caller has joined.
func (p *peer) dialDescriptors(v dialect.Version, s *ploopcopy.Source) (dialect.Sender, func() error, error) {
	out, err := stream("send: -o", p.out, pipeOrSocket)
	if err != nil {
		return nil, nil, wrong(err)
	}
	opt := dialect.Options1{Block: s.Cluster}
	feedback := io.Closer(nopCloser{})
	if p.feedback >= 0 {
		fb, err := stream("send: -f", p.feedback, pipeOrSocket)
		if err != nil {
			return nil, nil, errors.Join(wrong(err), out.Close())
		}
		opt.Feedback, feedback = fb, fb
	}
	closeAll := func() error { return errors.Join(out.Close(), feedback.Close()) }
	conn, err := dialect.NewSender1(v, out, opt)
	if err != nil {
		return nil, nil, errors.Join(err, closeAll())
	}
	s.Fresh = true // such receivers make a new file or fail
	return conn, closeAll, nil
}

type nopCloser struct{}

func (nopCloser) Close() error { return nil }

func (p *peer) dialSocket(ctx context.Context, v dialect.Version, s *ploopcopy.Source) (dialect.Sender, func() error, error) {
	var rw io.ReadWriteCloser
	var err error
	if p.socket != "" {
		rw, err = transport.DialUnix(ctx, p.socket)
	} else {
		rw, err = stream("send: -o", p.out, socketAlone)
	}
	if err != nil {
		return nil, nil, wrong(err)
	}
	size, err := sizeOf(s.Device)
	if err != nil {
		return nil, nil, errors.Join(dialect.Fail(dialect.Device, err), rw.Close())
	}
	opt := dialect.Options9{Block: s.Cluster, Plain: v.Plain}
	if !v.Plain {
		opt.Disk = size
	}
	conn, err := dialect.NewSender9(rw, opt)
	if err != nil {
		return nil, nil, errors.Join(err, rw.Close())
	}
	s.Fresh = !v.Plain // it was asked to make an image; the file of others may have existed before
	return conn, rw.Close, nil
}

// safeFile is a path that a remote shell does not change.
var safeFile = regexp.MustCompile(`^/[A-Za-z0-9_./:=@%+,-]*$`)

// run starts the old program, found out whether it gives feedback, and has its
// standard streams as the connection. Its exit status is part of the outcome.
func (p *peer) run(ctx context.Context, v dialect.Version, s *ploopcopy.Source) (dialect.Sender, func() error, error) {
	if len(p.command) == 0 || !safeFile.MatchString(p.to) {
		return nil, nil, wrong(usageError(fmt.Sprintf("send: --to %q and the command %q: an absolute path without characters that a shell understands, and a command behind --", p.to, p.command)))
	}
	// Releases before 1.12 know no -i, and read their standard input.
	argv := append(slices.Clone(p.command), "copy", "-d", p.to)
	answers := false
	if v.Answers {
		var err error
		if answers, err = probePeer(ctx, p.command); err != nil {
			return nil, nil, err
		}
	}
	if answers {
		argv = append(argv, "-i0", "-f1")
	}
	child, err := transport.Command(argv)
	if err != nil {
		return nil, nil, wrong(err)
	}
	opt := dialect.Options1{Block: s.Cluster}
	if answers {
		opt.Feedback = child
	}
	conn, err := dialect.NewSender1(v, child, opt)
	if err != nil {
		return nil, nil, errors.Join(err, child.Close())
	}
	s.Fresh = true
	return conn, child.Close, nil
}

// probeLimit is how long a peer may take to report its features.
const probeLimit = time.Minute

// probePeer asks an old program whether it knows feedback: one that does not,
// says that the parameter is wrong.
func probePeer(ctx context.Context, command []string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	argv := append(slices.Clone(command), "copy", "-i0", "-f1", "-d", os.DevNull)
	c := exec.CommandContext(ctx, argv[0], argv[1:]...)
	c.WaitDelay = time.Second
	// A pipe: of a file or a device the old program says that the parameter is wrong.
	c.Stdin = strings.NewReader("")
	out, err := c.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return true, nil
	case ctx.Err() != nil:
		return false, fmt.Errorf("send: `%s` has not answered within %s", strings.Join(argv, " "), probeLimit)
	case !errors.As(err, &exit) || exit.ExitCode() < 0 || slices.Contains([]int{126, 127, 255}, exit.ExitCode()):
		return false, fmt.Errorf("send: `%s` could not be run: %w: %s", strings.Join(argv, " "), err, strings.TrimSpace(string(out)))
	}
	return exit.ExitCode() != int(dialect.Parameter), nil
}

func sizeOf(path string) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return f.Seek(0, io.SeekEnd)
}

// receiving are the flags of ploop receive.
type receiving struct {
	peer
	dialect string
	limit   int64
}

func (a ploopCommands) ploopReceive() *cobra.Command {
	var r receiving
	c := &cobra.Command{Use: "receive -d FILE", Short: "Receive a disk from an old ploop copy", RunE: func(c *cobra.Command, _ []string) error {
		return a.receiveDialect(c.Context(), r)
	}}
	oldStatuses(c, "receive")
	r.flags(c.Flags())
	return c
}

func (r *receiving) flags(f *pflag.FlagSet) {
	f.StringVar(&r.dialect, "dialect", defaultDialect, "the peer's dialect: "+strings.Join(dialect.Names(), ", "))
	f.StringVarP(&r.to, "file", "d", "", "the file that is to be written")
	f.IntVarP(&r.in, "input-fd", "i", 0, "the file descriptor that the disk comes from")
	f.IntVarP(&r.feedback, "feedback-fd", "f", -1, "the file descriptor for answers to the peer; -1: none")
	f.StringVar(&r.socket, "socket", "", "with ploop-7 and ploop-9: the unix socket to listen on")
	f.Int64Var(&r.limit, "max-size", ploopcopy.DefaultLimit, "bytes that the disk may have")
}

func (a ploopCommands) receiveDialect(ctx context.Context, asked receiving) error {
	p, limit := &asked.peer, asked.limit
	v, err := dialect.Version{}, error(nil) // as the sender's first bytes say
	if asked.dialect != "" {
		v, err = dialect.Find(asked.dialect)
	}
	if err != nil {
		return err
	}
	switch {
	case p.to == "":
		return wrong(usageError("receive: -d is missing: the file that is to be written"))
	case limit <= 0:
		return wrong(usageError(fmt.Sprintf("receive: --max-size %d: a number of bytes above 0", limit)))
	case p.socket != "" && !v.Packets:
		return wrong(usageError("receive: --socket is for ploop-7 and ploop-9; the 1.x dialects come over descriptors: -i and -f"))
	case p.feedback >= 0 && v.Packets:
		return wrong(usageError("receive: it answers on its socket: leave -f out"))
	}
	conn, closePeer, err := p.listen(ctx, v)
	if err != nil {
		return err
	}
	// Old peers do not identify themselves: this one can reach no more than the file.
	if dir := filepath.Dir(p.to); isDirectory(dir) { // if not, Receive says so
		if err := confine.To(confine.Rules{Write: []string{dir}}); err != nil && !errors.Is(err, confine.ErrNoLandlock) {
			return errors.Join(err, closePeer())
		}
	}
	got, err := ploopcopy.Receive(ctx, conn, p.to, limit, report.NewWriter(os.Stderr))
	err = errors.Join(err, closePeer())
	if err != nil {
		return err
	}
	return a.printUnless(p.feedback == 1 || p.in == 1, got)
}

func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// listen makes the connection from an old sender.
func (p *peer) listen(ctx context.Context, v dialect.Version) (dialect.Receiver, func() error, error) {
	if p.socket != "" {
		conn, err := acceptOne(ctx, p.socket)
		if err != nil {
			return nil, nil, wrong(err)
		}
		return dialect.NewReceiver9(conn), conn.Close, nil
	}
	in, err := stream("receive: -i", p.in, pipeOrSocket)
	if err != nil {
		return nil, nil, wrong(err)
	}
	if v.Name == "" {
		if v, in, err = spoken(ctx, in, p.feedback >= 0); err != nil {
			return nil, nil, errors.Join(err, in.Close())
		}
	}
	if v.Packets {
		if _, err := kindOf("receive: -i", p.in, socketAlone); err != nil {
			return nil, nil, errors.Join(wrong(err), in.Close())
		}
		return dialect.NewReceiver9(in), in.Close, nil
	}
	if p.feedback < 0 {
		conn, err := dialect.NewReceiver1(v, in, nil)
		return conn, in.Close, err
	}
	feedback, err := stream("receive: -f", p.feedback, pipeOrSocket)
	if err != nil {
		return nil, nil, errors.Join(wrong(err), in.Close())
	}
	conn, err := dialect.NewReceiver1(v, in, feedback)
	if err != nil {
		return nil, nil, errors.Join(err, in.Close(), feedback.Close())
	}
	return conn, func() error { return errors.Join(in.Close(), feedback.Close()) }, nil
}

// acceptOne waits for one connection on a unix socket.
func acceptOne(ctx context.Context, path string) (net.Conn, error) {
	l, err := transport.ListenUnix(path)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	conn, err := l.Accept()
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return conn, err
}
