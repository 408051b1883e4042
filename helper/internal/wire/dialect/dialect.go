// Package dialect speaks with old peers: the programs of `ploop copy`, in the formats
// that they had. It reads the peer's format into the frames that the rest of pcopy
// knows, and writes such frames in the peer's format.
//
// All numbers are in the host's byte order, as the old programs wrote them.
//
// # 1.10 to 1.12
//
// A stream goes one way. A frame is a header of 16 bytes and then the payload:
//
//	offset  size  field
//	     0     4  marker: 0x4cc0ac3d
//	     4     4  size of the payload
//	     8     8  pos: byte offset in the image
//
// Size 0 at pos 0 is the end; it is not answered. From 1.11 on size 4 at pos 0 is the
// sync command. Its payload is the image's own first four bytes, so an older
// receiver, which takes it for data, changes nothing. A 1.12 receiver that was given
// a feedback descriptor answers each sync command there, with the eight bytes
// "SUCCESS\n" or "FAILURE\n". Without feedback a sender waits for five seconds and
// hopes. Everything else is data.
//
// # 9.x
//
// A socket, both ways. A packet is a header of 24 bytes, then, where that was
// agreed, the payload's MD5, also when there is no payload, and then the payload:
//
//	offset  size  field
//	     0     4  marker: 0x4cc0ac3e
//	     4     4  type: 0 data, 1 command, 2 data that is not answered,
//	              3 data of the device, 4 changed-block tracking
//	     8     4  size of the payload
//	    12     4  nothing
//	    16     8  pos
//
// The receiver answers each packet but those of type 2 with an int, so a sender
// has one packet under way at a time. 0 is good; a positive number is an exit status
// of the receiver, which may go on nevertheless. A command's number is the first four bytes of its payload:
//
//	0  sync. With a pos that is not 0 it is the handshake, pos being the features
//	   that the sender would like: 1 MD5, 2 device. It goes out without MD5. The
//	   answer is the features that are agreed, negated; 0 is that of a receiver
//	   which knows none. The real receivers answer -1, MD5 alone, to any request
//	   with MD5 in it: a slip in their code that is part of the format by now.
//	1  finish. A packet of size 0 is one, too. Everything goes to the disk first.
//	2  a ploop image is to be made, 3 a qcow2 image: pos is the disk's size and
//	   size a cluster's, both in sectors; the payload is as long as that says. The
//	   disk has to be whole clusters. Data goes through the image's device now
//	4  mount, which receivers refuse: 38
//	5  unmount: answered when all is on the disk and the device is let go. A
//	   receiver that was asked for an image does not sync at 0, and answers 1
//	   before it closes anything, so a sender sends 5 first
//
// The receivers of 7.x and 8.x know types 0 and 2 alone and no command; they write
// to their file. There, too, a packet of size 0 is the end.
package dialect

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/livefleet/handover/helper/internal/wire"
)

// Version holds the features of a generation of peers.
type Version struct {
	Name    string
	Syncs   bool // knows the sync command
	Answers bool // and answers it, where it has a feedback descriptor
	Packets bool // speaks the 9.x format
	Plain   bool // of it data alone
}

// Versions are all that are known, by the names that a user gives.
var Versions = []Version{
	{Name: "ploop-1.10"},
	{Name: "ploop-1.11", Syncs: true},
	{Name: "ploop-1.12", Syncs: true, Answers: true},
	{Name: "ploop-7", Packets: true, Plain: true},
	{Name: "ploop-9", Packets: true},
}

// Find looks a version up by its name.
func Find(name string) (Version, error) {
	i := slices.IndexFunc(Versions, func(v Version) bool { return v.Name == name })
	if i < 0 {
		return Version{}, Fail(Parameter, fmt.Errorf("there is no dialect %q: choose one of %s", name, strings.Join(Names(), ", ")))
	}
	return Versions[i], nil
}

// Names are the names of all dialects.
func Names() []string {
	names := make([]string, len(Versions))
	for i, v := range Versions {
		names[i] = v.Name
	}
	return names
}

// Code is an exit status of the old programs.
type Code int

// The exit statuses that callers of the old programs know.
const (
	Create    Code = 1 // the file is there already, or cannot be made
	Device    Code = 2
	Call      Code = 3 // an ioctl: the tracker's, or the freeze
	Open      Code = 4
	Read      Code = 6
	Write     Code = 7
	System    Code = 12 // the freeze command failed
	Protocol  Code = 13
	Loop      Code = 14
	Fsync     Code = 16
	Parameter Code = 38
)

// Failure is an error that has an exit status of its own.
type Failure struct {
	code Code
	err  error
}

// Fail gives an error its exit status. One that it has already stays.
func Fail(code Code, err error) error {
	var f *Failure
	if err == nil || errors.As(err, &f) {
		return err
	}
	return &Failure{code, err}
}

func (f *Failure) Error() string { return f.err.Error() }
func (f *Failure) Unwrap() error { return f.err }

// ExitCode is the status with which the old program would have ended.
func (f *Failure) ExitCode() int { return int(f.code) }

// Request is a sender's request beside data; it travels in the Flags of a Control
// frame.
type Request uint16

// The requests.
const (
	// Barrier asks for everything so far to be put on the disk, and Answer.
	Barrier Request = iota + 1
	// Done says that a packet was dealt with, and asks for its Answer.
	Done
	// Make says how large the disk will be: the frame's Pos. Answer.
	Make
	// Mount asks for something that no receiver does. Answer.
	Mount
	// End is the last one: all goes to the disk, then Answer.
	End
)

// Receiver is a connection from an old sender. Read gives Data frames of stream 0 and
// Control frames with a Request; Answer gives the awaited answer, before the next
// Read.
type Receiver interface {
	Read(f *wire.Frame) error
	// TakeMemory has Read ask for the memory of each payload, as wire.Conn does.
	TakeMemory(take func(size int) ([]byte, error))
	Answer(good bool) error
	Interrupt(why error)
}

// Sender is a connection to an old receiver. Data and Zero frames are written.
type Sender interface {
	Write(f *wire.Frame) error
	Flush() error
	Interrupt(why error)
	// Barrier returns when the sent data are on the peer's disk, as far as the peer
	// can say so. first are the image's own first four bytes.
	Barrier(first [4]byte) error
	// End says that this was all.
	End() error
}

// piece is the most that one frame out of a Receiver carries, and the zeroes that
// go out at a time.
const piece = 1 << 20

// zeroes stands for a Zero frame to a peer that knows none.
var zeroes = make([]byte, piece)

// pieces calls send for each part of a frame about the image: an old peer knows
// data only.
func pieces(f *wire.Frame, block int, send func(p []byte, pos int64) error) error {
	switch f.Type {
	case wire.Data:
		for p, pos := f.Payload, f.Pos; len(p) > 0; {
			n := min(len(p), block)
			if err := send(p[:n], pos); err != nil {
				return err
			}
			p, pos = p[n:], pos+int64(n)
		}
	case wire.Zero, wire.Discard:
		for n, pos := f.Length, f.Pos; n > 0; {
			part := min(n, int64(block), piece)
			if err := send(zeroes[:part], pos); err != nil {
				return err
			}
			n, pos = n-part, pos+part
		}
	default:
		return fmt.Errorf("dialect: an old peer cannot be sent a %s frame", f.Type)
	}
	return nil
}

// link is a stream of bytes whose calls can be interrupted.
type link struct {
	rw     io.ReadWriter
	memory func(size int) ([]byte, error)
	broken atomic.Pointer[error]
	once   sync.Once
	cut    chan struct{} // closed by Interrupt
}

func newLink(rw io.ReadWriter) *link { return &link{rw: rw, cut: make(chan struct{})} }

// TakeMemory has payloads put into memory of the caller's.
func (l *link) TakeMemory(take func(size int) ([]byte, error)) { l.memory = take }

// room is memory for a payload of n bytes of f, which is at most a piece.
func (l *link) room(f *wire.Frame, n int) ([]byte, error) {
	switch {
	case l.memory != nil:
		b, err := l.memory(n)
		if err != nil {
			return nil, err
		}
		return b[:n], nil
	case cap(f.Payload) < n:
		return make([]byte, n, piece), nil
	}
	return f.Payload[:n], nil
}

type deadliner interface{ SetDeadline(time.Time) error }

// Interrupt ends a call that waits for the other side: it returns why.
func (l *link) Interrupt(why error) {
	l.broken.CompareAndSwap(nil, &why)
	l.once.Do(func() { close(l.cut) })
	if d, ok := l.rw.(deadliner); ok {
		_ = d.SetDeadline(time.Unix(1, 0))
	}
}

// limit sets a time limit for the calls that follow, or takes it away.
func (l *link) limit(d time.Duration) {
	if dl, ok := l.rw.(deadliner); ok && l.broken.Load() == nil {
		at := time.Time{}
		if d > 0 {
			at = time.Now().Add(d)
		}
		_ = dl.SetDeadline(at)
	}
	if why := l.broken.Load(); why != nil {
		l.Interrupt(*why) // it came in between
	}
}

func (l *link) cause(err error) error {
	if why := l.broken.Load(); why != nil {
		return *why
	}
	return err
}

// wait lets some time go by.
func (l *link) wait(d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-l.cut:
		return *l.broken.Load()
	}
}

// readFull reads all of b. The error names it by the text.
func (l *link) readFull(b []byte, what string) error { return Fail(Read, l.readAll(b, what)) }

// readAnswer reads all of a peer's answer. To a sender without one, the peer has broken
// the protocol.
func (l *link) readAnswer(b []byte, what string) error { return Fail(Protocol, l.readAll(b, what)) }

func (l *link) readAll(b []byte, what string) error {
	n, err := io.ReadFull(l.rw, b)
	if err == nil {
		return nil
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("dialect: the stream ended after %d of %d bytes of %s: %w", n, len(b), what, l.cause(err))
}

func (l *link) write(b []byte) error {
	if _, err := l.rw.Write(b); err != nil {
		return Fail(Write, fmt.Errorf("dialect: sending: %w", l.cause(err)))
	}
	return nil
}

// inside refuses a range that no image has. A receiver's own limit is for its writer
// to check.
func inside(pos uint64, size int64) error {
	if pos > 1<<62 || int64(pos)+size > 1<<62 {
		return Fail(Protocol, fmt.Errorf("dialect: the sender names %d bytes at %d, where no image has any", size, pos))
	}
	return nil
}
