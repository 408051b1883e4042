package dialect

import (
	"crypto/md5" //nolint:gosec // the format has it, against accidents
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/livefleet/handover/helper/internal/wire"
)

// Marker9 begins each packet of 7.x to 9.x, and nothing of 1.x.
const Marker9 = 0x4cc0ac3e

const (
	header9Size = 24
	sector      = 512
)

// The types of packets.
const (
	typeData uint32 = iota
	typeCommand
	typeAsync
	typeDevice
	typeCBT
)

// The commands.
const (
	cmdSync uint32 = iota
	cmdFinish
	cmdInitPloop
	cmdInitQCOW
	cmdMount
	cmdUnmount
)

// The features.
const (
	featureMD5 = 1 << iota
	featureDevice
)

// maxPacket is the most that a packet carries: its MD5 is known only when all of
// it was read. It is ploop's largest cluster.
const maxPacket = 16 << 20

// sender9 writes the format of 9.x.
type sender9 struct {
	*link
	block int
	limit time.Duration
	plain bool // the image itself travels: no commands
	made  bool // the receiver has made an image, and writes through its device
	md5   bool
	ended bool
	buf   []byte
}

// Options9 are how the 9.x format is spoken; the zero value is good.
type Options9 struct {
	Block int           // bytes of data in a packet, 1 MiB
	Limit time.Duration // how long an answer may take, FeedbackLimit
	// Plain is for receivers of 7.x and 8.x: they know no commands and no features,
	// and write all data to their file, as those of 1.x do.
	Plain bool
	// Disk, if it is not 0, has the receiver make a ploop image for a disk of so
	// many bytes, rounded up to whole clusters of Block.
	Disk int64
}

// NewSender9 speaks to a receiver of 9.x over a socket. It has shaken hands when
// it returns.
func NewSender9(socket io.ReadWriter, opt Options9) (Sender, error) {
	s := &sender9{link: newLink(socket), block: opt.Block, limit: opt.Limit, plain: opt.Plain, made: opt.Disk != 0}
	if s.block == 0 {
		s.block = piece
	}
	if s.limit == 0 {
		s.limit = FeedbackLimit
	}
	if opt.Plain && opt.Disk != 0 {
		return nil, Fail(Parameter, errors.New("dialect: a receiver that knows no commands makes no image"))
	}
	if s.block > maxPacket || s.block%sector != 0 {
		return nil, Fail(Parameter, fmt.Errorf("dialect: packets of %d bytes: whole sectors, at most %d bytes", s.block, maxPacket))
	}
	if !opt.Plain {
		answer, err := s.ask(typeCommand, command(cmdSync, 4), featureMD5|featureDevice)
		if err != nil {
			return nil, err
		}
		// The features come negated. A feature that was not asked for cannot be
		// agreed.
		if answer > 0 || answer < -(featureMD5|featureDevice) {
			return nil, Fail(Protocol, fmt.Errorf("dialect: the receiver answered the handshake with %d", answer))
		}
		s.md5 = -answer&featureMD5 != 0
	}
	if opt.Disk != 0 {
		// Any other size is answered with a no.
		clusters := (opt.Disk + int64(s.block) - 1) / int64(s.block)
		if err := s.command(command(cmdInitPloop, s.block/sector), clusters*int64(s.block/sector), Protocol, "make an image"); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// command is the payload of one: its number, and as many bytes as there must be.
func command(number uint32, size int) []byte {
	b := make([]byte, max(size, 4))
	binary.NativeEndian.PutUint32(b, number)
	return b
}

// ask sends a packet and waits for its answer.
func (s *sender9) ask(typ uint32, payload []byte, pos int64) (int32, error) {
	s.buf = s.buf[:0]
	for _, v := range []uint32{Marker9, typ, uint32(len(payload)), 0} {
		s.buf = binary.NativeEndian.AppendUint32(s.buf, v)
	}
	s.buf = binary.NativeEndian.AppendUint64(s.buf, uint64(pos))
	if s.md5 {
		sum := md5.Sum(payload) //nolint:gosec
		s.buf = append(s.buf, sum[:]...)
	}
	s.buf = append(s.buf, payload...)
	s.link.limit(s.limit)
	if err := s.write(s.buf); err != nil {
		return 0, err
	}
	var answer [4]byte
	if err := s.readAnswer(answer[:], "an answer"); err != nil {
		return 0, err
	}
	return int32(binary.NativeEndian.Uint32(answer[:])), nil
}

// command asks for something, and 0 is the one good answer; code is for others.
func (s *sender9) command(payload []byte, pos int64, code Code, what string) error {
	answer, err := s.ask(typeCommand, payload, pos)
	if err == nil && answer != 0 {
		err = Fail(code, fmt.Errorf("dialect: the receiver was asked to %s and answered %d", what, answer))
	}
	return err
}

// Write sends a frame about the image, a packet at a time. A receiver answers data
// with 0, or with the exit status that it would end with; some go on nevertheless.
func (s *sender9) Write(f *wire.Frame) error {
	typ := typeDevice
	if s.plain {
		typ = typeData
	}
	return pieces(f, s.block, func(p []byte, pos int64) error {
		answer, err := s.ask(typ, p, pos)
		if err == nil && answer != 0 {
			err = Fail(Write, fmt.Errorf("dialect: the receiver could not write %d bytes at %d: it answered %d%s", len(p), pos, answer, meaning(answer)))
		}
		return err
	})
}

// meaning puts an answer into words, as an exit status of the old programs.
func meaning(answer int32) string {
	switch Code(answer) {
	case Write:
		return " (a write failed)"
	case Parameter:
		return " (it does not know such packets)"
	}
	return ""
}

// Flush has nothing to do: nothing waits here.
func (s *sender9) Flush() error { return nil }

// Barrier has the receiver sync, if it knows how.
func (s *sender9) Barrier([4]byte) error {
	if s.plain {
		return nil
	}
	return s.command(command(cmdSync, 4), 0, Fsync, "sync")
}

// End has the receiver put everything on its disk and let go. Of a receiver that
// writes through a device, only the answer to the unmount says that all is there:
// it answers the finish before it closes anything.
func (s *sender9) End() error {
	if s.ended {
		return nil
	}
	s.ended = true
	if s.made {
		if err := s.command(command(cmdUnmount, 4), 0, Fsync, "unmount"); err != nil {
			return err
		}
	}
	return s.command(nil, 0, Fsync, "finish")
}

// receiver9 reads the format of 9.x.
type receiver9 struct {
	*link
	md5    bool
	ask    Request // the next Read's request, beside data; 0 for none
	answer int32   // the answer to a good end of it
	due    bool    // the sender waits for an answer
	agree  bool    // MD5 begins after it
	ended  bool
	packet []byte
	data   []byte // of packet, not given yet
	pos    int64
	head   [header9Size]byte
}

// NewReceiver9 hears a sender of 9.x on a socket.
func NewReceiver9(socket io.ReadWriter) Receiver {
	return &receiver9{link: newLink(socket)}
}

// Read gives the next frame: the pieces of a packet, and then the request to
// answer it.
func (r *receiver9) Read(f *wire.Frame) error {
	for {
		switch {
		case len(r.data) > 0:
			n := min(len(r.data), piece)
			payload, err := r.room(f, n)
			if err != nil {
				return err
			}
			copy(payload, r.data)
			*f = wire.Frame{Type: wire.Data, Pos: r.pos, Length: int64(n), Payload: payload}
			r.data, r.pos = r.data[n:], r.pos+int64(n)
			return nil
		case r.ask != 0:
			*f = wire.Frame{Type: wire.Control, Flags: uint16(r.ask), Pos: r.pos, Payload: f.Payload[:0]}
			r.ended = r.ask == End
			r.ask = 0
			return nil
		case r.ended:
			return io.EOF
		}
		if err := r.next(); err != nil {
			return err
		}
	}
}

// next reads a packet and handles it.
func (r *receiver9) next() error {
	if err := r.readFull(r.head[:], "a header"); err != nil {
		return err
	}
	u32 := func(at int) uint32 { return binary.NativeEndian.Uint32(r.head[at:]) }
	marker, typ, size, pos := u32(0), u32(4), int64(u32(8)), binary.NativeEndian.Uint64(r.head[16:])
	if marker != Marker9 {
		return Fail(Protocol, fmt.Errorf("dialect: where a packet should begin is %#08x, and not the marker %#08x: does the sender speak another version?", marker, Marker9))
	}
	r.answer, r.due = 0, typ != typeAsync // also to a packet that is refused
	switch {
	case typ > typeCBT:
		return Fail(Protocol, fmt.Errorf("dialect: a packet of the unknown type %d", typ))
	case size > maxPacket:
		return Fail(Protocol, fmt.Errorf("dialect: a packet of %d bytes, more than the %d that a cluster can have", size, maxPacket))
	}
	if err := inside(pos, size); err != nil {
		return err
	}
	r.pos = int64(pos)
	var sum [md5.Size]byte
	if r.md5 {
		if err := r.readFull(sum[:], "an MD5"); err != nil {
			return err
		}
	}
	if err := r.payload(int(size)); err != nil {
		return err
	}
	if r.md5 && md5.Sum(r.packet) != sum { //nolint:gosec
		return Fail(Protocol, fmt.Errorf("dialect: the %d bytes at %d are not those that were sent: their MD5 is %x and should be %x", size, pos, md5.Sum(r.packet), sum)) //nolint:gosec
	}

	switch {
	case size == 0:
		r.ask, r.due = End, true
	case typ == typeCommand:
		return r.command(pos)
	case typ == typeCBT:
		// It says which blocks the next incremental backup has to take. There is
		// no such record here, so the next backup is a full one.
		r.ask = Done
	default:
		r.data = r.packet
		if r.due {
			r.ask = Done
		}
	}
	return nil
}

// payload reads a packet's payload. The memory grows with the bytes that really come,
// not with the sender's claim.
func (r *receiver9) payload(size int) error {
	r.packet = r.packet[:0]
	for len(r.packet) < size {
		n := min(size-len(r.packet), piece)
		at := len(r.packet)
		if cap(r.packet) < at+n {
			r.packet = append(make([]byte, 0, max(at+n, min(2*at, size))), r.packet...)
		}
		r.packet = r.packet[:at+n]
		if err := r.readFull(r.packet[at:], "a payload"); err != nil {
			return err
		}
	}
	return nil
}

func (r *receiver9) command(pos uint64) error {
	if len(r.packet) < 4 {
		return Fail(Protocol, fmt.Errorf("dialect: a command of %d bytes, and its number alone has 4", len(r.packet)))
	}
	switch number := binary.NativeEndian.Uint32(r.packet); number {
	case cmdSync:
		r.ask = Barrier
		if pos&featureMD5 != 0 {
			// The real ones' answer to any features with MD5 among them.
			r.answer, r.agree = -featureMD5, true
		}
	case cmdFinish:
		r.ask = End
	case cmdInitPloop, cmdInitQCOW:
		if pos == 0 || pos > math.MaxInt64/sector || pos%uint64(len(r.packet)) != 0 {
			return Fail(Protocol, fmt.Errorf("dialect: an image for a disk of %d sectors was asked for, in clusters of %d", pos, len(r.packet)))
		}
		r.ask, r.pos = Make, int64(pos)*sector
	case cmdMount:
		r.ask, r.answer = Mount, int32(Parameter)
	case cmdUnmount:
		r.ask = Barrier // nothing is mounted; only the written data matter
	default:
		return Fail(Protocol, fmt.Errorf("dialect: the unknown command %d", number))
	}
	return nil
}

// Answer answers the packet that was read last. A bad answer is positive: a handshake
// that is answered with -1 has agreed on MD5.
func (r *receiver9) Answer(good bool) error {
	if !r.due {
		return nil
	}
	r.due = false
	answer := r.answer
	if !good {
		answer = int32(Write)
		r.agree = false
	}
	var b [4]byte
	binary.NativeEndian.PutUint32(b[:], uint32(answer))
	if err := r.write(b[:]); err != nil {
		return err
	}
	r.md5 = r.md5 || r.agree
	r.agree = false
	return nil
}
