package dialect

import (
	"encoding/binary"
	"fmt"
	"io"
	"time"

	"github.com/livefleet/handover/helper/internal/wire"
)

const (
	marker1     = 0x4cc0ac3d
	header1Size = 16
	syncSize    = 4
	answerSize  = 8

	success = "SUCCESS\n"
	failure = "FAILURE\n"
)

// BlindWait is how long a sender waits for a sync without a confirmation.
const BlindWait = 5 * time.Second

// FeedbackLimit is how long a peer may take to confirm a sync; a disk may have
// gigabytes to write.
const FeedbackLimit = 10 * time.Minute

// sender1 writes the format of 1.10 to 1.12.
type sender1 struct {
	*link
	version  Version
	block    int
	feedback *link // nil: there is none
	blind    time.Duration
	limit    time.Duration
	ended    bool
	buf      []byte
}

// Options1 are how the 1.x format is spoken; the zero value is good.
type Options1 struct {
	Block int // bytes of data in a frame, 1 MiB
	// Feedback is where the peer's answers to sync commands come in; nil for none.
	Feedback io.ReadWriter
	Blind    time.Duration // how long to wait where there is none, BlindWait
	Limit    time.Duration // and where there is, FeedbackLimit
}

// NewSender1 speaks to a receiver of version v.
func NewSender1(v Version, out io.ReadWriter, opt Options1) (Sender, error) {
	s := &sender1{link: newLink(out), version: v, block: opt.Block, blind: opt.Blind, limit: opt.Limit}
	if s.block == 0 {
		s.block = piece
	}
	if s.blind == 0 {
		s.blind = BlindWait
	}
	if s.limit == 0 {
		s.limit = FeedbackLimit
	}
	if opt.Feedback != nil {
		if !v.Answers {
			return nil, Fail(Parameter, fmt.Errorf("dialect: %s knows no feedback descriptor", v.Name))
		}
		s.feedback = newLink(opt.Feedback)
	}
	return s, nil
}

func (s *sender1) Interrupt(why error) {
	s.link.Interrupt(why)
	if s.feedback != nil {
		s.feedback.Interrupt(why)
	}
}

func (s *sender1) frame(payload []byte, pos int64) error {
	// One write for both: a reader of a pipe that gets half of it is waiting.
	s.buf = s.buf[:0]
	s.buf = binary.NativeEndian.AppendUint32(s.buf, marker1)
	s.buf = binary.NativeEndian.AppendUint32(s.buf, uint32(len(payload)))
	s.buf = binary.NativeEndian.AppendUint64(s.buf, uint64(pos))
	s.buf = append(s.buf, payload...)
	return s.write(s.buf)
}

// Write sends a frame about the image.
func (s *sender1) Write(f *wire.Frame) error {
	return pieces(f, s.block, func(p []byte, pos int64) error {
		if len(p) == syncSize && pos == 0 {
			return Fail(Parameter, fmt.Errorf("dialect: four bytes at the start of an image are no data in %s: an image has whole sectors", s.version.Name))
		}
		return s.frame(p, pos)
	})
}

// Flush has nothing to do: nothing waits here.
func (s *sender1) Flush() error { return nil }

// Barrier sends the sync command, and waits for the answer or for a while. A peer
// of 1.10 knows no such command.
func (s *sender1) Barrier(first [4]byte) error {
	if !s.version.Syncs {
		return nil
	}
	if err := s.frame(first[:], 0); err != nil {
		return err
	}
	if s.feedback == nil {
		return s.wait(s.blind)
	}
	var answer [answerSize]byte
	s.feedback.limit(s.limit)
	if err := s.feedback.readAnswer(answer[:], "the answer to a sync command"); err != nil {
		return err
	}
	switch string(answer[:]) {
	case success:
		return nil
	case failure:
		return Fail(Fsync, fmt.Errorf("dialect: the receiver could not sync its image"))
	}
	return Fail(Protocol, fmt.Errorf("dialect: the receiver answered a sync command with %q", answer))
}

// End sends the end frame. It is sent once: a second would not be read.
func (s *sender1) End() error {
	if s.ended {
		return nil
	}
	s.ended = true
	return s.frame(nil, 0)
}

// receiver1 reads the format of 1.10 to 1.12.
type receiver1 struct {
	*link
	version  Version
	feedback *link
	pos      int64 // of the rest of a payload that is longer than a piece
	left     int64
	sync     bool // a sync command waits for its answer
	ended    bool
	head     [header1Size]byte
}

// NewReceiver1 hears a sender of version v, and answers it on feedback if that is
// not nil.
func NewReceiver1(v Version, in io.ReadWriter, feedback io.ReadWriter) (Receiver, error) {
	r := &receiver1{link: newLink(in), version: v}
	if feedback != nil {
		if !v.Answers {
			return nil, Fail(Parameter, fmt.Errorf("dialect: %s knows no feedback descriptor", v.Name))
		}
		r.feedback = newLink(feedback)
	}
	return r, nil
}

func (r *receiver1) Interrupt(why error) {
	r.link.Interrupt(why)
	if r.feedback != nil {
		r.feedback.Interrupt(why)
	}
}

// Read gives the next frame. A payload of any length comes in pieces, so nothing
// is held in memory on the sender's word.
func (r *receiver1) Read(f *wire.Frame) error {
	if r.ended {
		return io.EOF
	}
	if r.left == 0 {
		if err := r.readFull(r.head[:], "a header"); err != nil {
			return err
		}
		if m := binary.NativeEndian.Uint32(r.head[:]); m != marker1 {
			return Fail(Protocol, fmt.Errorf("dialect: where a frame should begin is %#08x, and not the marker %#08x: does the sender speak another version?", m, marker1))
		}
		size, pos := int64(binary.NativeEndian.Uint32(r.head[4:])), binary.NativeEndian.Uint64(r.head[8:])
		if err := inside(pos, size); err != nil {
			return err
		}
		switch {
		case size == 0 && pos == 0:
			r.ended = true
			*f = wire.Frame{Type: wire.Control, Flags: uint16(End), Payload: f.Payload[:0]}
			return nil
		case size == 0:
			return Fail(Protocol, fmt.Errorf("dialect: a frame of no bytes at %d, and the end of a transfer is at 0", pos))
		case size == syncSize && pos == 0 && r.version.Syncs:
			var first [syncSize]byte
			if err := r.readFull(first[:], "a sync command"); err != nil {
				return err
			}
			r.sync = true
			*f = wire.Frame{Type: wire.Control, Flags: uint16(Barrier), Payload: f.Payload[:0]}
			return nil
		}
		r.pos, r.left = int64(pos), size
	}
	n := int(min(r.left, piece))
	payload, err := r.room(f, n)
	if err != nil {
		return err
	}
	if err := r.readFull(payload, "a payload"); err != nil {
		return err
	}
	*f = wire.Frame{Type: wire.Data, Pos: r.pos, Length: int64(n), Payload: payload}
	r.pos, r.left = r.pos+int64(n), r.left-int64(n)
	return nil
}

// Answer answers a sync command, if there is a way to. The end is not answered.
func (r *receiver1) Answer(good bool) error {
	if !r.sync || r.feedback == nil {
		return nil
	}
	r.sync = false
	if good {
		return r.feedback.write([]byte(success))
	}
	return r.feedback.write([]byte(failure))
}
