package main

import (
	"context"
	"errors"
	"flag"
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

	"golang.org/x/sys/unix"
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

// defaultDialect is what `pcopy copy` speaks, and what falls back by itself.
const defaultDialect = "ploop-1.12"

// speaksDialect reports whether a send or receive is one with an old peer.
func speaksDialect(args []string) bool {
	return slices.ContainsFunc(args, func(a string) bool {
		return strings.HasPrefix(strings.TrimLeft(a, "-"), "dialect") && strings.HasPrefix(a, "-")
	})
}

// copyLikePloop takes the arguments of `ploop copy`, so that whatever calls that
// may call this.
func copyLikePloop(ctx context.Context, args []string) error {
	if slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "-d") || strings.HasPrefix(a, "--file") }) {
		return receiveDialect(ctx, args)
	}
	return sendDialect(ctx, args)
}

// letters takes values off the letters that they are attached to, as in -i0: that
// is how the old programs are called.
func letters(args []string) []string {
	var apart []string
	for _, a := range args {
		if len(a) > 2 && a[0] == '-' && strings.IndexByte("iofsdF", a[1]) >= 0 {
			apart = append(apart, a[:2], strings.TrimPrefix(a[2:], "="))
			continue
		}
		apart = append(apart, a)
	}
	return apart
}

// peer is where the other side is.
type peer struct {
	out, in, feedback int
	socket            string
	command           []string // behind "--": how to run the old program over there
	to                string
}

// wrong is a call that cannot be understood, with the old exit status for it.
func wrong(err error) error { return dialect.Fail(dialect.Parameter, err) }

func sendDialect(ctx context.Context, args []string) error {
	var p peer
	if i := slices.Index(args, "--"); i >= 0 {
		args, p.command = args[:i], args[i+1:]
	}
	f := flag.NewFlagSet("send", flag.ContinueOnError)
	name := f.String("dialect", defaultDialect, "")
	var s ploopcopy.Source
	f.StringVar(&s.Device, "device", "", "")
	f.StringVar(&s.Device, "s", "", "")
	f.StringVar(&s.Image, "ploop-image", "", "")
	f.StringVar(&s.Tracker, "tracker", "auto", "")
	f.IntVar(&s.Cluster, "cluster", ploopcopy.DefaultCluster, "")
	var freeze, thaw string
	f.StringVar(&freeze, "freeze-command", "", "")
	f.StringVar(&freeze, "F", "", "")
	f.StringVar(&thaw, "thaw-command", "", "")
	timeout := f.Int("timeout", 60, "")
	f.IntVar(&p.out, "o", 1, "")
	f.IntVar(&p.feedback, "f", -1, "")
	f.StringVar(&p.socket, "socket", "", "")
	f.StringVar(&p.to, "to", "", "")
	if _, err := parse(f, letters(args), 0, 0); err != nil {
		return wrong(err)
	}
	v, err := dialect.Find(*name)
	if err != nil {
		return err
	}
	if err := s.Check(); err != nil {
		return wrong(fmt.Errorf("send: %w: name it with --device", err))
	}
	if *timeout <= 0 {
		return wrong(usageError(fmt.Sprintf("send: --timeout %d: a number of seconds above 0", *timeout)))
	}
	if s.Image != "" && s.Tracker != "ploop" {
		return wrong(usageError("send: --ploop-image is for a ploop device and its own tracker: pass --tracker=ploop with it, or leave it out"))
	}
	s.Freeze, s.Thaw = shell(freeze, *timeout), shell(thaw, *timeout)
	if err := lowerSender(&s); err != nil {
		return err
	}
	conn, closePeer, err := p.dial(ctx, v, &s)
	if err != nil {
		return err
	}
	sent, err := ploopcopy.Send(ctx, conn, s, report.NewWriter(os.Stderr))
	// How the peer ended says more than that it is gone.
	if cerr := closePeer(); cerr != nil {
		err = errors.Join(cerr, err)
	}
	if err != nil {
		return err
	}
	return printUnless(p.out == 1 && p.command == nil && p.socket == "", sent)
}

// lowerSender gives up what a sender does not do itself, before the peer has said
// anything. The commands that it runs have what root has.
func lowerSender(s *ploopcopy.Source) error {
	if os.Geteuid() != 0 {
		return nil
	}
	keep := []cap.Value{confine.Least, cap.KILL} // a command that takes too long
	// What cannot be found out is kept: Send says what is wrong with the device.
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
func printUnless(taken bool, v any) error {
	if taken {
		return printTo(os.Stderr, v)
	}
	return print(v)
}

// dial makes the connection to an old receiver.
func (p *peer) dial(ctx context.Context, v dialect.Version, s *ploopcopy.Source) (dialect.Sender, func() error, error) {
	switch {
	case p.command != nil && (p.socket != "" || p.feedback >= 0 || v.Packets):
		return nil, nil, wrong(usageError("send: a command behind -- is run with its standard streams, which is for the 1.x dialects, without -f and --socket"))
	case p.command != nil && p.to == "":
		return nil, nil, wrong(usageError("send: --to is missing: the file that the command behind -- shall write"))
	case p.command != nil:
		return p.run(ctx, v, s)
	case v.Packets:
		return p.dialSocket(ctx, s)
	case p.socket != "":
		return nil, nil, wrong(usageError("send: --socket is for ploop-9; the 1.x dialects go over descriptors: -o and -f"))
	}
	if _, err := unix.IoctlGetTermios(p.out, unix.TCGETS); err == nil {
		return nil, nil, wrong(usageError(fmt.Sprintf("send: descriptor %d is a terminal, which is no receiver: pass -o", p.out)))
	}
	out, err := transport.Descriptor(p.out)
	if err != nil {
		return nil, nil, wrong(err)
	}
	opt := dialect.Options1{Block: s.Cluster}
	feedback := io.Closer(nopCloser{})
	if p.feedback >= 0 {
		fb, err := transport.Descriptor(p.feedback)
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

func (p *peer) dialSocket(ctx context.Context, s *ploopcopy.Source) (dialect.Sender, func() error, error) {
	var rw io.ReadWriteCloser
	var err error
	if p.socket != "" {
		rw, err = transport.DialUnix(ctx, p.socket)
	} else {
		rw, err = transport.Descriptor(p.out)
	}
	if err != nil {
		return nil, nil, wrong(err)
	}
	size, err := sizeOf(s.Device)
	if err != nil {
		return nil, nil, errors.Join(wrong(err), rw.Close())
	}
	conn, err := dialect.NewSender9(rw, dialect.Options9{Block: s.Cluster, Disk: size})
	if err != nil {
		return nil, nil, errors.Join(err, rw.Close())
	}
	s.Fresh = true // it was asked to make an image
	return conn, rw.Close, nil
}

// safeFile is what a remote shell leaves as it is.
var safeFile = regexp.MustCompile(`^/[A-Za-z0-9_./:=@%+,-]*$`)

// run starts the old program, found out whether it gives feedback, and has its
// standard streams as the connection. Its exit status is part of the outcome.
func (p *peer) run(ctx context.Context, v dialect.Version, s *ploopcopy.Source) (dialect.Sender, func() error, error) {
	if len(p.command) == 0 || !safeFile.MatchString(p.to) {
		return nil, nil, wrong(usageError(fmt.Sprintf("send: --to %q and the command %q: an absolute path without characters that a shell understands, and a command behind --", p.to, p.command)))
	}
	argv := append(slices.Clone(p.command), "copy", "-i0", "-d", p.to)
	answers := false
	if v.Answers {
		var err error
		if answers, err = probePeer(ctx, p.command); err != nil {
			return nil, nil, err
		}
	}
	if answers {
		argv = append(argv, "-f1")
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

// probeLimit is how long a peer may take to say what it can do.
const probeLimit = time.Minute

// probePeer asks an old program whether it knows feedback: one that does not,
// says that the parameter is wrong.
func probePeer(ctx context.Context, command []string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	argv := append(slices.Clone(command), "copy", "-i0", "-f1", "-d", os.DevNull)
	c := exec.CommandContext(ctx, argv[0], argv[1:]...)
	c.WaitDelay = time.Second
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

func receiveDialect(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("receive", flag.ContinueOnError)
	name := f.String("dialect", defaultDialect, "")
	var p peer
	f.StringVar(&p.to, "file", "", "")
	f.StringVar(&p.to, "d", "", "")
	f.IntVar(&p.in, "i", 0, "")
	f.IntVar(&p.feedback, "f", -1, "")
	f.StringVar(&p.socket, "socket", "", "")
	limit := f.Int64("max-size", ploopcopy.DefaultLimit, "")
	if _, err := parse(f, letters(args), 0, 0); err != nil {
		return wrong(err)
	}
	v, err := dialect.Find(*name)
	if err != nil {
		return err
	}
	switch {
	case p.to == "":
		return wrong(usageError("receive: -d is missing: the file that is to be written"))
	case *limit <= 0:
		return wrong(usageError(fmt.Sprintf("receive: --max-size %d: a number of bytes above 0", *limit)))
	case p.socket != "" && !v.Packets:
		return wrong(usageError("receive: --socket is for ploop-9; the 1.x dialects come over descriptors: -i and -f"))
	case p.feedback >= 0 && v.Packets:
		return wrong(usageError("receive: ploop-9 answers on its socket: leave -f out"))
	}
	conn, closePeer, err := p.listen(ctx, v)
	if err != nil {
		return err
	}
	// Old peers say nothing of who they are: whoever this one is, the file is all that it
	// gets at.
	if dir := filepath.Dir(p.to); isDirectory(dir) { // if not, Receive says so
		if err := confine.To(confine.Rules{Write: []string{dir}}); err != nil && !errors.Is(err, confine.ErrNoLandlock) {
			return errors.Join(err, closePeer())
		}
	}
	got, err := ploopcopy.Receive(ctx, conn, p.to, *limit, report.NewWriter(os.Stderr))
	err = errors.Join(err, closePeer())
	if err != nil {
		return err
	}
	return printUnless(p.feedback == 1 || p.in == 1, got)
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
	in, err := transport.Descriptor(p.in)
	if err != nil {
		return nil, nil, wrong(err)
	}
	if v.Packets {
		return dialect.NewReceiver9(in), in.Close, nil
	}
	if p.feedback < 0 {
		conn, err := dialect.NewReceiver1(v, in, nil)
		return conn, in.Close, err
	}
	feedback, err := transport.Descriptor(p.feedback)
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
