// Package wire is the one format in which two pcopy processes talk.
//
// A connection carries two independent streams of bytes, one each way. Each
// begins with a preamble, and is then nothing but frames. All numbers are little
// endian.
//
// The preamble, 16 bytes:
//
//	offset  size  field
//	     0     8  magic: "HANDOVER"
//	     8     2  oldest version of this format that the writer understands
//	    10     2  newest version, the one that it would like to speak
//	    12     4  zero
//
// Both sides speak the newest version that both understand. If there is none,
// the reader says so and names both ranges.
//
// A frame, 48 bytes of header and then the payload:
//
//	offset  size  field
//	     0     4  magic: "HoF" and a zero byte
//	     4     1  version
//	     5     1  type
//	     6     2  flags, their meaning belongs to the type
//	     8     4  stream: which volume, which tree; Control frames may use it too
//	    12     4  payload length in bytes, at most 4 MiB
//	    16     8  pos: byte offset in the volume
//	    24     8  length: of the range that the frame is about
//	    32     8  zero
//	    40     4  CRC-32C of the header's bytes 0 to 39
//	    44     4  CRC-32C of the header's bytes 0 to 39 and the payload
//
// The header has a sum of its own so that a damaged payload length is seen before
// anything is read or waited for on its word. The second sum covers both, so that a
// payload cannot be taken for that of another frame. (It leaves the first sum out: a
// CRC that continues over its own value forgets everything before it.)
//
// The types:
//
//	1  Data     payload = the bytes of the volume at pos; length = payload length
//	2  Zero     the range pos, length is all zeroes; no payload
//	3  Discard  the content of the range pos, length is not needed; no payload
//	4  Chunk    payload = a piece of a byte stream; length = payload length
//	5  Control  payload = JSON, which belongs to the session; length = payload length
//	6  Packed   payload = the bytes of the volume at pos, packed; flags say how, and
//	            length is that of the range, 1 byte to 4 MiB; only if both sides agreed
//	7  Fence    frames before it on all connections of the session count before
//	            frames after it on any; pos = its number; no payload, length 0
//
// A frame that breaks any of this is an error, nothing of it is delivered, and the
// connection is of no further use: the side that sees the error closes it.
package wire

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// The versions of this format that this program understands.
const (
	MinVersion = 1
	MaxVersion = 1
)

// MaxPayload is the most that one frame can carry.
const MaxPayload = 4 << 20

const (
	headerSize   = 48
	preambleSize = 16
	magic        = "HoF\x00"
	hello        = "HANDOVER"
	bufferSize   = 64 << 10
)

// Type is the kind of a frame.
type Type uint8

// The types of frames.
const (
	Data    Type = 1
	Zero    Type = 2
	Discard Type = 3
	Chunk   Type = 4
	Control Type = 5
	Packed  Type = 6
	Fence   Type = 7
)

func (t Type) String() string {
	switch t {
	case Data:
		return "data"
	case Zero:
		return "zero"
	case Discard:
		return "discard"
	case Chunk:
		return "chunk"
	case Control:
		return "control"
	case Packed:
		return "packed"
	case Fence:
		return "fence"
	}
	return fmt.Sprintf("type %d", uint8(t))
}

// carriesPayload reports whether frames of this type have a payload that is as
// long as the frame says its length is.
func (t Type) carriesPayload() bool { return t == Data || t == Chunk || t == Control }

func (t Type) known() bool { return t >= Data && t <= Fence }

// Frame is one message. Length is the length of the payload for the types that
// carry it as it is, and the length of the range for the others.
type Frame struct {
	Type    Type
	Flags   uint16
	Stream  uint32
	Pos     int64
	Length  int64
	Payload []byte
}

// The possible faults of a frame from the other side; errors.Is tells them apart.
var (
	ErrCorrupt = errors.New("the stream is damaged")
	ErrVersion = errors.New("the other side speaks another version")
	ErrClosed  = errors.New("the connection was closed on this side")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Conn sends and receives frames over one connection. Any number of goroutines
// may write; one may read.
type Conn struct {
	rw io.ReadWriteCloser

	wmu  sync.Mutex
	w    *bufio.Writer
	werr error
	head [headerSize]byte // under wmu

	r       *bufio.Reader
	rerr    error
	greeted bool // the peer's preamble has been read
	rhead   [headerSize]byte
	memory  func(size int) ([]byte, error)

	sent, received atomic.Int64
	sending        atomic.Int64          // nanoseconds
	broken         atomic.Pointer[error] // why Interrupt cut the connection
	closed         atomic.Bool
}

// NewConn makes a connection of frames out of a connection of bytes. It sends
// and receives nothing itself: the preamble goes out with the first flush, or
// when this side begins to read.
func NewConn(rw io.ReadWriteCloser) *Conn {
	c := &Conn{rw: rw}
	c.w = bufio.NewWriterSize(counter{rw, &c.sent, &c.sending}, bufferSize)
	c.r = bufio.NewReaderSize(rw, bufferSize)
	var p [preambleSize]byte
	copy(p[:], hello)
	binary.LittleEndian.PutUint16(p[8:], MinVersion)
	binary.LittleEndian.PutUint16(p[10:], MaxVersion)
	_, c.werr = c.w.Write(p[:]) // into an empty buffer that is larger: no I/O yet
	return c
}

// counter counts the bytes that really left, and the time that it took to send them.
type counter struct {
	w     io.Writer
	n, ns *atomic.Int64
}

func (c counter) Write(p []byte) (int, error) {
	began := time.Now()
	n, err := c.w.Write(p)
	c.ns.Add(int64(time.Since(began)))
	c.n.Add(int64(n))
	return n, err
}

// Sent and Received are the bytes that crossed the wire so far, headers included.
func (c *Conn) Sent() int64     { return c.sent.Load() }
func (c *Conn) Received() int64 { return c.received.Load() }

// Sending is how long writing to the connection below has taken so far: its own
// work and waiting for the other side.
func (c *Conn) Sending() time.Duration { return time.Duration(c.sending.Load()) }

// Backlog is how many bytes the connection below has taken and not yet sent, if it
// knows.
func (c *Conn) Backlog() (bytes int, known bool) {
	if b, ok := c.rw.(interface{ Backlog() (int, bool) }); ok {
		return b.Backlog()
	}
	return 0, false
}

// HungUp says whether the other side has closed the connection, if that below knows.
func (c *Conn) HungUp() bool {
	h, ok := c.rw.(interface{ HungUp() bool })
	return ok && h.HungUp()
}

// HeldUp is the total time in which the other side accepted no data that this side
// had ready. It is zero if the connection below does not know.
func (c *Conn) HeldUp() time.Duration {
	if h, ok := c.rw.(interface{ HeldUp() time.Duration }); ok {
		return h.HeldUp()
	}
	return 0
}

// TakeMemory has Read ask take for the memory of each payload, instead of using the
// frame's own. So the reader bounds the memory of all frames together: take may wait.
// It gets the length that the frame says, which is within MaxPayload, before any of
// the payload is read.
func (c *Conn) TakeMemory(take func(size int) ([]byte, error)) { c.memory = take }

// check says whether a frame can be put on the wire, or was rightly there.
func (f *Frame) check(payload int64) error {
	switch {
	case !f.Type.known():
		return fmt.Errorf("a frame of unknown %s", f.Type)
	case payload > MaxPayload:
		return fmt.Errorf("a %s frame with %d bytes of payload, more than the %d allowed", f.Type, payload, MaxPayload)
	case f.Pos < 0 || f.Length < 0 || f.Pos > math.MaxInt64-f.Length:
		return fmt.Errorf("a %s frame about the impossible range at %d, length %d", f.Type, f.Pos, f.Length)
	case f.Type.carriesPayload() && f.Length != payload:
		return fmt.Errorf("a %s frame that says length %d with %d bytes of payload", f.Type, f.Length, payload)
	case f.Type == Packed && (payload == 0 || f.Length == 0 || f.Length > MaxPayload):
		return fmt.Errorf("a %s frame of %d bytes about a range of %d, which has 1 to %d", f.Type, payload, f.Length, MaxPayload)
	case f.Type == Fence && f.Length != 0:
		return fmt.Errorf("a %s frame of length %d, which it must not have", f.Type, f.Length)
	case f.Type != Packed && !f.Type.carriesPayload() && payload != 0:
		return fmt.Errorf("a %s frame with %d bytes of payload, which it must not have", f.Type, payload)
	}
	return nil
}

// Write puts one frame on its way. The frame may stay in a buffer until the next
// Control frame or Flush. For types that carry a payload, Length may be left zero.
// The frame and its payload may be reused when Write returns. After an error the
// connection cannot be written any more.
func (c *Conn) Write(f *Frame) error {
	h := *f
	if h.Type.carriesPayload() && h.Length == 0 {
		h.Length = int64(len(f.Payload))
	}
	if err := h.check(int64(len(f.Payload))); err != nil {
		return fmt.Errorf("wire: refusing to send %w", err)
	}

	c.wmu.Lock()
	defer c.wmu.Unlock()
	if c.werr != nil {
		return c.werr
	}
	b := c.head[:]
	copy(b, magic)
	b[4] = MaxVersion
	b[5] = byte(h.Type)
	binary.LittleEndian.PutUint16(b[6:], h.Flags)
	binary.LittleEndian.PutUint32(b[8:], h.Stream)
	binary.LittleEndian.PutUint32(b[12:], uint32(len(f.Payload)))
	binary.LittleEndian.PutUint64(b[16:], uint64(h.Pos))
	binary.LittleEndian.PutUint64(b[24:], uint64(h.Length))
	clear(b[32:40])
	sum := crc32.Checksum(b[:40], castagnoli)
	binary.LittleEndian.PutUint32(b[40:], sum)
	binary.LittleEndian.PutUint32(b[44:], crc32.Update(sum, castagnoli, f.Payload))

	_, err := c.w.Write(b)
	if err == nil {
		_, err = c.w.Write(f.Payload)
	}
	if err == nil && h.Type == Control {
		err = c.w.Flush()
	}
	return c.wrote(err)
}

// Flush sends the rest of the buffer.
func (c *Conn) Flush() error {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	if c.werr != nil {
		return c.werr
	}
	return c.wrote(c.w.Flush())
}

// SendError is the error that ended writing, the same value that Write has returned.
// It is nil while writing works.
func (c *Conn) SendError() error {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	return c.werr
}

// wrote keeps the first error of writing; the caller holds wmu.
func (c *Conn) wrote(err error) error {
	if err != nil && c.werr == nil {
		c.werr = fmt.Errorf("wire: sending: %w", c.cause(err))
	}
	return c.werr
}

// cause puts the reason of an interruption in the place of the error that it
// brought about below.
func (c *Conn) cause(err error) error {
	if why := c.broken.Load(); why != nil {
		return *why
	}
	if c.closed.Load() {
		return ErrClosed
	}
	return err
}

// Read waits for the next frame. It keeps f.Payload's memory and only replaces
// it when it is too small. It returns io.EOF, as it is, if the other side closed
// the connection between two frames; any other end is an error that is not
// io.EOF. After an error f is empty, and Read keeps returning that error.
func (c *Conn) Read(f *Frame) error {
	if c.rerr == nil {
		c.rerr = c.read(f)
	}
	if c.rerr != nil {
		*f = Frame{Payload: f.Payload[:0]}
	}
	return c.rerr
}

func (c *Conn) read(f *Frame) error {
	if !c.greeted {
		// The other side may be waiting for our preamble while we have nothing
		// to say yet. Sent from here directly, two readers on an unbuffered
		// connection would wait for each other.
		go c.Flush() //nolint:errcheck // kept in c.werr
		if err := c.readPreamble(); err != nil {
			return err
		}
		c.greeted = true
	}
	b := c.rhead[:]
	n, err := io.ReadFull(c.r, b)
	c.received.Add(int64(n))
	if err == io.EOF && c.broken.Load() == nil && !c.closed.Load() {
		return io.EOF
	}
	if err != nil {
		return fmt.Errorf("wire: the connection ended after %d of %d bytes of a frame's header: %w", n, headerSize, c.cause(noEOF(err)))
	}

	if string(b[:4]) != magic {
		return fmt.Errorf("wire: %w: where a frame should begin stand the bytes % x", ErrCorrupt, b[:4])
	}
	sum := crc32.Checksum(b[:40], castagnoli)
	if want := binary.LittleEndian.Uint32(b[40:]); sum != want {
		return fmt.Errorf("wire: %w: the checksum of a frame's header is %08x and should be %08x", ErrCorrupt, sum, want)
	}
	// From here on the header is intact: the other side meant to send it.
	if v := b[4]; v < MinVersion || v > MaxVersion {
		return fmt.Errorf("wire: %w: a frame of version %d, this side understands %s", ErrVersion, v, versions(MinVersion, MaxVersion))
	}
	if binary.LittleEndian.Uint64(b[32:]) != 0 {
		return fmt.Errorf("wire: %w: reserved bytes of a frame's header are set", ErrCorrupt)
	}
	h := Frame{
		Type:    Type(b[5]),
		Flags:   binary.LittleEndian.Uint16(b[6:]),
		Stream:  binary.LittleEndian.Uint32(b[8:]),
		Pos:     int64(binary.LittleEndian.Uint64(b[16:])),
		Length:  int64(binary.LittleEndian.Uint64(b[24:])),
		Payload: f.Payload[:0],
	}
	size := binary.LittleEndian.Uint32(b[12:])
	if err := h.check(int64(size)); err != nil {
		return fmt.Errorf("wire: %w: the other side sent %w", ErrCorrupt, err)
	}
	switch {
	case size == 0:
	case c.memory != nil:
		if h.Payload, err = c.memory(int(size)); err != nil {
			return err
		}
	case uint32(cap(h.Payload)) < size:
		h.Payload = make([]byte, 0, roundUp(size))
	}
	h.Payload = h.Payload[:size]
	n, err = io.ReadFull(c.r, h.Payload)
	c.received.Add(int64(n))
	if err != nil {
		return fmt.Errorf("wire: the connection ended after %d of %d bytes of a %s frame's payload: %w", n, size, h.Type, c.cause(noEOF(err)))
	}
	sum = crc32.Update(sum, castagnoli, h.Payload)
	if want := binary.LittleEndian.Uint32(b[44:]); sum != want {
		return fmt.Errorf("wire: %w: the checksum of a %s frame (stream %d, pos %d, %d bytes) is %08x and should be %08x",
			ErrCorrupt, h.Type, h.Stream, h.Pos, size, sum, want)
	}
	*f = h
	return nil
}

func (c *Conn) readPreamble() error {
	var p [preambleSize]byte
	n, err := io.ReadFull(c.r, p[:])
	c.received.Add(int64(n))
	if said := min(n, len(hello)); string(p[:said]) != hello[:said] {
		return fmt.Errorf("wire: %w: the other side is no pcopy: its first bytes are %q", ErrCorrupt, p[:n])
	}
	if err != nil {
		return fmt.Errorf("wire: the other side closed the connection before it had said hello: %w", c.cause(noEOF(err)))
	}
	lo, hi := binary.LittleEndian.Uint16(p[8:]), binary.LittleEndian.Uint16(p[10:])
	if lo > hi || binary.LittleEndian.Uint32(p[12:]) != 0 {
		return fmt.Errorf("wire: %w: the preamble % x makes no sense", ErrCorrupt, p)
	}
	if hi < MinVersion || lo > MaxVersion {
		return fmt.Errorf("wire: %w: it understands %s, this side %s: install the same pcopy on both hosts",
			ErrVersion, versions(lo, hi), versions(MinVersion, MaxVersion))
	}
	return nil
}

func versions(lo, hi uint16) string {
	if lo == hi {
		return fmt.Sprintf("version %d", lo)
	}
	return fmt.Sprintf("versions %d to %d", lo, hi)
}

// noEOF is for places where an end is not an end but a break.
func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// roundUp keeps a reused payload from growing by a little each time.
func roundUp(n uint32) uint32 {
	const step = 64 << 10
	return min((n+step-1)/step*step, MaxPayload)
}

// Interrupt ends a Read that waits, or a Write that is stuck: both return why.
// The connection cannot be used afterwards, since it may stand in the middle of
// a frame; Close is still to be called.
func (c *Conn) Interrupt(why error) {
	c.broken.CompareAndSwap(nil, &why)
	if d, ok := c.rw.(interface{ SetDeadline(time.Time) error }); ok && d.SetDeadline(time.Unix(1, 0)) == nil {
		return
	}
	_ = c.rw.Close() // nothing else ends a call on such a connection
}

// Close closes the connection below. Frames that were written and not flushed
// are lost, and Close says so: call Flush first. Close does not wait for a Write
// that is stuck; it ends it.
func (c *Conn) Close() error {
	if c.closed.Swap(true) {
		return nil
	}
	err := c.rw.Close()
	c.wmu.Lock() // a stuck Write has come back by now: its connection is closed
	defer c.wmu.Unlock()
	if c.werr == nil {
		if n := c.w.Buffered(); n > preambleSize && err == nil {
			err = fmt.Errorf("wire: closed with %d bytes not sent", n)
		}
		c.werr = fmt.Errorf("wire: sending: %w", ErrClosed)
	}
	if errors.Is(err, net.ErrClosed) && c.broken.Load() != nil {
		return nil // Interrupt was first
	}
	return err
}
