package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/ploopcopy"
	"github.com/livefleet/handover/helper/internal/transport"
	"github.com/livefleet/handover/helper/internal/wire/dialect"
)

// imageFormats are the words behind -t. Only the programs of 9.x know it.
var imageFormats = []string{"raw", "ploop1", "expanded", "preallocated"}

// copying are the words of `ploop copy`, of all releases: each ignores those that are
// the other side's.
type copying struct {
	sending
	input  int
	format string
	limit  int64
}

// ploopCopy takes the arguments of `ploop copy`, so that a script that calls that
// may call this.
func (a ploopCommands) ploopCopy() *cobra.Command {
	var asked copying
	c := &cobra.Command{Use: "copy (-s DEV … | -d FILE …)", Short: "Copy a running disk with the arguments of ploop copy 1.x to 9.x"}
	oldStatuses(c, "copy")
	f := c.Flags()
	asked.flags(f)
	f.IntVarP(&asked.input, "input-fd", "i", 0, "the file descriptor that the disk comes from")
	f.StringVarP(&asked.format, "image-format", "t", "", "the peer makes an image, as those of 9.x do: "+strings.Join(imageFormats, ", "))
	f.Int64Var(&asked.limit, "max-size", ploopcopy.DefaultLimit, "bytes that the disk may have")
	c.RunE = func(c *cobra.Command, args []string) error {
		if c.ArgsLenAtDash() >= 0 {
			asked.command = append([]string{}, args...)
		}
		return a.copyDialect(c.Context(), asked, f.Changed("dialect"))
	}
	return c
}

func (a ploopCommands) copyDialect(ctx context.Context, asked copying, named bool) error {
	switch {
	case asked.source.Device == "" && asked.file == "":
		return wrong(usageError("copy: name the device to send with -s, or the file to write with -d"))
	case asked.format != "" && !slices.Contains(imageFormats, asked.format):
		return wrong(usageError(fmt.Sprintf("copy: -t %s: choose one of %s", asked.format, strings.Join(imageFormats, ", "))))
	case asked.source.Device == "":
		r := receiving{peer: asked.peer, limit: asked.limit}
		r.to, r.in = asked.file, asked.input
		if named {
			r.dialect = asked.dialect
		}
		return a.receiveDialect(ctx, r)
	case asked.format != "" && !named:
		asked.dialect = "ploop-9"
	}
	if asked.dialect != "ploop-9" { // whose image is made over there
		if err := asked.source.BelowPloop(); err != nil {
			return wrong(err)
		}
	}
	return a.sendDialect(ctx, asked.sending)
}

// withoutVerbosity leaves out the words by which callers of the old program ask it to be
// talkative: they stand before its verb.
func withoutVerbosity(args []string) []string {
	n := 0
	for n < len(args) && strings.HasPrefix(args[n], "-v") && strings.Trim(args[n][1:], "v0123456789") == "" {
		n++
	}
	if n > 0 && n < len(args) && args[n] == "copy" {
		return args[n:]
	}
	return args
}

// The kinds of descriptors that the old programs speak over.
var (
	pipeOrSocket = []uint32{unix.S_IFIFO, unix.S_IFSOCK}
	socketAlone  = []uint32{unix.S_IFSOCK}
)

// kindOf finds out the kind of a descriptor, and demands that it is one of these.
func kindOf(word string, fd int, kinds []uint32) (uint32, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, usageError(fmt.Sprintf("%s: there is no open file descriptor %d", word, fd))
	}
	kind := st.Mode & unix.S_IFMT
	if len(kinds) > 0 && !slices.Contains(kinds, kind) {
		name := "a pipe or a socket"
		if len(kinds) == 1 {
			name = "a socket, since the peer answers on it"
		}
		return kind, usageError(fmt.Sprintf("%s: descriptor %d has to be %s: pass another one", word, fd, name))
	}
	return kind, nil
}

// stream is a descriptor that leads to a peer.
func stream(word string, fd int, kinds []uint32) (io.ReadWriteCloser, error) {
	if _, err := kindOf(word, fd, kinds); err != nil {
		return nil, err
	}
	return transport.Descriptor(fd)
}

// openFile is a descriptor that is a file, to which a copy goes as it is; nil if it is
// something else.
func openFile(fd int) (*ploopcopy.Local, error) {
	kind, err := kindOf("send: -o", fd, nil)
	if err != nil || kind != unix.S_IFREG {
		return nil, err
	}
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(own), fmt.Sprintf("descriptor %d", fd))
	l, err := ploopcopy.LocalFile(f)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return l, nil
}

// localCopy is a file in a peer's place.
func localCopy(s *ploopcopy.Source) func(*ploopcopy.Local, error) (dialect.Sender, func() error, error) {
	return func(l *ploopcopy.Local, err error) (dialect.Sender, func() error, error) {
		if err != nil {
			return nil, nil, wrong(err)
		}
		s.Fresh = true
		return l, l.Close, nil
	}
}

// begun is a stream of which the first bytes were looked at.
type begun struct {
	io.ReadWriteCloser
	first []byte
}

func (b *begun) Read(p []byte) (int, error) {
	if len(b.first) == 0 {
		return b.ReadWriteCloser.Read(p)
	}
	n := copy(p, b.first)
	b.first = b.first[n:]
	return n, nil
}

// SetDeadline is the stream's own.
func (b *begun) SetDeadline(at time.Time) error {
	if d, ok := b.ReadWriteCloser.(interface{ SetDeadline(time.Time) error }); ok {
		return d.SetDeadline(at)
	}
	return os.ErrNoDeadline
}

// spoken finds out a sender's dialect by its first bytes. A sender that is given
// feedback is one of 1.12.
func spoken(ctx context.Context, in io.ReadWriteCloser, feedback bool) (dialect.Version, io.ReadWriteCloser, error) {
	b := &begun{ReadWriteCloser: in}
	name := defaultDialect
	if !feedback {
		stop := context.AfterFunc(ctx, func() { _ = b.SetDeadline(time.Unix(1, 0)) })
		defer stop()
		first := make([]byte, 4)
		n, err := io.ReadFull(in, first)
		b.first = first[:n]
		if ctx.Err() != nil {
			return dialect.Version{}, b, dialect.Fail(dialect.Read, context.Cause(ctx))
		}
		// A stream that has ended, or is none, is for the receiver to tell.
		if err == nil && binary.NativeEndian.Uint32(first) == dialect.Marker9 {
			name = "ploop-9"
		}
	}
	v, err := dialect.Find(name)
	return v, b, err
}
