package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// half is one direction of a connection, kept in memory.
type half struct {
	io.Reader
	io.Writer
}

func (half) Close() error { return nil }

// written returns the bytes that frames become, after the preamble.
func written(t testing.TB, frames ...Frame) []byte {
	t.Helper()
	var b bytes.Buffer
	c := NewConn(half{Writer: &b})
	for i := range frames {
		if err := c.Write(&frames[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(b.Bytes(), preamble) {
		t.Fatalf("no preamble: % x", b.Bytes()[:preambleSize])
	}
	return b.Bytes()[preambleSize:]
}

// reader reads a preamble and then b.
func reader(b []byte) *Conn {
	return NewConn(half{io.MultiReader(bytes.NewReader(preamble), bytes.NewReader(b)), io.Discard})
}

var preamble = []byte("HANDOVER\x01\x00\x01\x00\x00\x00\x00\x00")

// One frame of each type, byte by byte, made by another implementation of the
// package comment. They are the format: whoever has to change one of them has
// made a new version.
var golden = []struct {
	frame Frame
	hex   string
}{
	{Frame{Type: Data, Stream: 1, Pos: 0x10000, Length: 4, Payload: []byte("data")},
		"486f4600010100000100000004000000" +
			"00000100000000000400000000000000" +
			"0000000000000000eb5b5adee78c0d74" +
			"64617461"},
	{Frame{Type: Zero, Stream: 2, Pos: 0x20000, Length: 1 << 40},
		"486f4600010200000200000000000000" +
			"00000200000000000000000000010000" +
			"000000000000000017393fcc17393fcc"},
	{Frame{Type: Discard, Stream: 3, Length: 0x1000},
		"486f4600010300000300000000000000" +
			"00000000000000000010000000000000" +
			"000000000000000060b3839b60b3839b"},
	{Frame{Type: Chunk, Flags: 0x8001, Stream: 0xfffffffe, Pos: 9, Length: 5, Payload: []byte("chunk")},
		"486f460001040180feffffff05000000" +
			"09000000000000000500000000000000" +
			"000000000000000068975999bb9b5661" +
			"6368756e6b"},
	{Frame{Type: Control, Length: 16, Payload: []byte(`{"do":"barrier"}`)},
		"486f4600010500000000000010000000" +
			"00000000000000001000000000000000" +
			"00000000000000005491bc6e43fc4128" +
			"7b22646f223a2262617272696572227d"},
	{Frame{Type: Packed, Flags: 0x0102, Stream: 1, Pos: 0x40000, Length: 0x20000, Payload: []byte("packed")},
		"486f4600010602010100000006000000" +
			"00000400000000000000020000000000" +
			"0000000000000000e4c1b89a8e5ad8cb" +
			"7061636b6564"},
	{Frame{Type: Fence, Pos: 3},
		"486f4600010700000000000000000000" +
			"03000000000000000000000000000000" +
			"0000000000000000e44dc8f5e44dc8f5"},
}

func equal(a, b Frame) bool {
	return a.Type == b.Type && a.Flags == b.Flags && a.Stream == b.Stream && a.Pos == b.Pos && a.Length == b.Length && bytes.Equal(a.Payload, b.Payload)
}

func TestGolden(t *testing.T) {
	for _, g := range golden {
		if got := hex.EncodeToString(written(t, g.frame)); got != g.hex {
			t.Errorf("%s frame:\n got %s\nwant %s", g.frame.Type, got, g.hex)
		}
		b, err := hex.DecodeString(g.hex)
		if err != nil {
			t.Fatal(err)
		}
		c := reader(b)
		var f Frame
		if err := c.Read(&f); err != nil || !equal(f, g.frame) {
			t.Errorf("%s frame: %v, %+v", g.frame.Type, err, f)
		}
		if err := c.Read(&f); err != io.EOF {
			t.Errorf("after the %s frame: %v", g.frame.Type, err)
		}
		if got, want := c.Received(), int64(preambleSize+len(b)); got != want {
			t.Errorf("received %d bytes, should be %d", got, want)
		}
	}
}

func randomFrame(r *rand.Rand) Frame {
	f := Frame{Type: Type(1 + r.IntN(7)), Flags: uint16(r.Uint32()), Stream: r.Uint32(), Pos: r.Int64N(1 << 50)}
	if f.Type.carriesPayload() || f.Type == Packed {
		f.Payload = make([]byte, 1+r.IntN(200_000))
		for i := range f.Payload {
			f.Payload[i] = byte(i) ^ byte(f.Stream)
		}
	}
	switch {
	case f.Type.carriesPayload():
		f.Length = int64(len(f.Payload))
	case f.Type == Packed:
		f.Length = 1 + r.Int64N(MaxPayload)
	case f.Type != Fence:
		f.Length = r.Int64N(1 << 50)
	}
	return f
}

func TestRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var frames []Frame
	for range 200 {
		frames = append(frames, randomFrame(r))
	}
	frames = append(frames, Frame{Type: Data, Length: MaxPayload, Payload: make([]byte, MaxPayload)}, Frame{Type: Data}, Frame{Type: Zero, Pos: math.MaxInt64})
	c := reader(written(t, frames...))
	var f Frame
	for i, want := range frames {
		before := cap(f.Payload)
		if err := c.Read(&f); err != nil || !equal(f, want) {
			t.Fatalf("frame %d: %v", i, err)
		}
		if before >= len(want.Payload) && cap(f.Payload) != before {
			t.Fatalf("frame %d: %d bytes of memory were not used again", i, before)
		}
	}
	if err := c.Read(&f); err != io.EOF {
		t.Error(err)
	}
}

// The memory of payloads may be somebody else's, who is asked for it with the
// length that is needed and may say no.
func TestTakeMemory(t *testing.T) {
	c := reader(written(t, Frame{Type: Data, Payload: []byte("one")}, Frame{Type: Zero, Length: 9}, Frame{Type: Data, Payload: []byte("three")}, Frame{Type: Chunk, Payload: []byte("x")}))
	var taken [][]byte
	enough := errors.New("no more memory")
	c.TakeMemory(func(size int) ([]byte, error) {
		if len(taken) == 2 {
			return nil, enough
		}
		taken = append(taken, make([]byte, size, 64))
		return taken[len(taken)-1], nil
	})
	var f Frame
	for _, want := range []string{"one", "", "three"} {
		f.Payload = nil
		if err := c.Read(&f); err != nil || string(f.Payload) != want {
			t.Fatalf("%q: %v", f.Payload, err)
		}
	}
	if err := c.Read(&f); err != enough {
		t.Error(err)
	}
	if len(taken) != 2 || string(taken[0]) != "one" || string(taken[1]) != "three" {
		t.Errorf("%q", taken)
	}
}

// Whatever single bit is flipped on the way, nothing is delivered.
func TestEveryFlippedBitIsSeen(t *testing.T) {
	for _, g := range golden {
		good := written(t, g.frame)
		for i := range len(good) * 8 {
			bad := bytes.Clone(good)
			bad[i/8] ^= 1 << (i % 8)
			var f Frame
			c := reader(bad)
			if err := c.Read(&f); !errors.Is(err, ErrCorrupt) {
				t.Fatalf("%s frame, bit %d: %v", g.frame.Type, i, err)
			}
			if !equal(f, Frame{}) {
				t.Fatalf("%s frame, bit %d: delivered %+v", g.frame.Type, i, f)
			}
			if err := c.Read(&f); !errors.Is(err, ErrCorrupt) {
				t.Fatalf("%s frame, bit %d: the error is forgotten: %v", g.frame.Type, i, err)
			}
		}
	}
}

// Payloads of two frames of one length that change places are seen too.
func TestPayloadOfAnotherFrame(t *testing.T) {
	a := written(t, Frame{Type: Data, Pos: 0, Payload: []byte("aaaa")})
	b := written(t, Frame{Type: Data, Pos: 4096, Payload: []byte("bbbb")})
	mixed := append(bytes.Clone(a[:44]), b[44:]...) // with the sum that goes with it
	if err := reader(mixed).Read(&Frame{}); !errors.Is(err, ErrCorrupt) {
		t.Error(err)
	}
}

func TestTruncation(t *testing.T) {
	for _, g := range golden {
		good := written(t, g.frame)
		for n := 1; n < len(good); n++ {
			var f Frame
			err := reader(good[:n]).Read(&f)
			if !errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) || !equal(f, Frame{}) {
				t.Fatalf("%s frame, %d of %d bytes: %v, %+v", g.frame.Type, n, len(good), err, f)
			}
		}
	}
}

// forge makes a frame whose sums are right and whose header is not.
func forge(change func(header []byte)) []byte {
	b := make([]byte, headerSize)
	copy(b, magic)
	b[4], b[5] = MaxVersion, byte(Zero)
	change(b)
	sum := crc32.Checksum(b[:40], castagnoli)
	binary.LittleEndian.PutUint32(b[40:], sum)
	binary.LittleEndian.PutUint32(b[44:], sum)
	return b
}

func TestForgedHeaders(t *testing.T) {
	for _, c := range []struct {
		change func([]byte)
		is     error
		text   string
	}{
		{func(b []byte) { b[0] = 'X' }, ErrCorrupt, "where a frame should begin stand the bytes 58 6f 46 00"},
		{func(b []byte) { b[4] = 0 }, ErrVersion, "a frame of version 0, this side understands version 1"},
		{func(b []byte) { b[4] = 2 }, ErrVersion, "a frame of version 2, this side understands version 1"},
		{func(b []byte) { b[5] = 0 }, ErrCorrupt, "a frame of unknown type 0"},
		{func(b []byte) { b[5] = 8 }, ErrCorrupt, "a frame of unknown type 8"},
		{func(b []byte) { b[5], b[12] = 6, 1 }, ErrCorrupt, "a packed frame of 1 bytes about a range of 0, which has 1 to 4194304"},
		{func(b []byte) { b[5], b[24] = 6, 1 }, ErrCorrupt, "a packed frame of 0 bytes about a range of 1"},
		{func(b []byte) { b[5], b[12], b[24], b[26] = 6, 1, 1, 0x40 }, ErrCorrupt, "a packed frame of 1 bytes about a range of 4194305"},
		{func(b []byte) { b[5], b[24] = 7, 1 }, ErrCorrupt, "a fence frame of length 1, which it must not have"},
		{func(b []byte) { b[12] = 1 }, ErrCorrupt, "a zero frame with 1 bytes of payload, which it must not have"},
		{func(b []byte) { b[5] = 1; b[24] = 1 }, ErrCorrupt, "a data frame that says length 1 with 0 bytes of payload"},
		{func(b []byte) { b[5] = 1; binary.LittleEndian.PutUint32(b[12:], MaxPayload+1) }, ErrCorrupt, "a data frame with 4194305 bytes of payload, more than the 4194304 allowed"},
		{func(b []byte) { b[5] = 5; binary.LittleEndian.PutUint32(b[12:], 1<<32-1) }, ErrCorrupt, "a control frame with 4294967295 bytes of payload"},
		{func(b []byte) { b[23] = 0x80 }, ErrCorrupt, "impossible range"},
		{func(b []byte) { b[31] = 0x80 }, ErrCorrupt, "impossible range"},
		{func(b []byte) { b[23], b[31] = 0x7f, 0x7f }, ErrCorrupt, "impossible range"},
		{func(b []byte) { b[32] = 1 }, ErrCorrupt, "reserved bytes"},
	} {
		var f Frame
		err := reader(forge(c.change)).Read(&f)
		if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.text) || !equal(f, Frame{}) {
			t.Errorf("%v, %+v; should say %q", err, f, c.text)
		}
	}
}

func TestPreambles(t *testing.T) {
	hello := func(lo, hi, rest byte) string {
		return string([]byte{'H', 'A', 'N', 'D', 'O', 'V', 'E', 'R', lo, 0, hi, 0, rest, 0, 0, 0})
	}
	for _, c := range []struct{ bytes, text string }{
		{hello(2, 3, 0), "the other side speaks another version: it understands versions 2 to 3, this side version 1: install the same pcopy on both hosts"},
		{hello(0, 0, 0), "it understands version 0, this side version 1"},
		{hello(2, 1, 0), "makes no sense"},
		{hello(1, 1, 1), "makes no sense"},
		{"SSH-2.0-OpenSSH_9", `the other side is no pcopy: its first bytes are "SSH-2.0-OpenSSH_"`},
		{"bash", `the other side is no pcopy: its first bytes are "bash"`},
		{"", "the other side closed the connection before it had said hello"},
		{"HAND", "the other side closed the connection before it had said hello"},
	} {
		err := NewConn(half{strings.NewReader(c.bytes), io.Discard}).Read(&Frame{})
		if err == nil || err == io.EOF || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%q: %v; should say %q", c.bytes, err, c.text)
		}
	}
	// A newer one that still understands us is welcome.
	if err := NewConn(half{strings.NewReader(hello(1, 9, 0)), io.Discard}).Read(&Frame{}); err != io.EOF {
		t.Error(err)
	}
}

func TestWriteRefuses(t *testing.T) {
	c := NewConn(half{Writer: io.Discard})
	for _, w := range []struct {
		frame Frame
		text  string
	}{
		{Frame{}, "refusing to send a frame of unknown type 0"},
		{Frame{Type: Data, Payload: make([]byte, MaxPayload+1)}, "more than the 4194304 allowed"},
		{Frame{Type: Data, Length: 3, Payload: make([]byte, 2)}, "says length 3 with 2 bytes"},
		{Frame{Type: Zero, Pos: -1, Length: 1}, "impossible range"},
		{Frame{Type: Zero, Pos: math.MaxInt64, Length: 1}, "impossible range"},
		{Frame{Type: Discard, Length: 1, Payload: []byte{1}}, "which it must not have"},
	} {
		if err := c.Write(&w.frame); err == nil || !strings.Contains(err.Error(), w.text) {
			t.Errorf("%+v: %v; should say %q", w.frame.Type, err, w.text)
		}
	}
	if err := c.Write(&Frame{Type: Zero, Length: 1}); err != nil {
		t.Error("a refused frame broke the connection:", err)
	}
}

// Many writers, both ways at once, on a connection that holds nothing back.
func TestConcurrentWriters(t *testing.T) {
	pa, pb := net.Pipe()
	a, b := NewConn(pa), NewConn(pb)
	defer a.Close()
	defer b.Close()
	const writers, each = 4, 50
	var wg sync.WaitGroup
	for _, side := range []*Conn{a, b} {
		for w := range writers {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for i := range each {
					typ := Data
					if i == each-1 {
						typ = Control // flushes
					}
					payload := bytes.Repeat([]byte{byte(w)}, 1000*w+i)
					if err := side.Write(&Frame{Type: typ, Stream: uint32(w), Pos: int64(i), Payload: payload}); err != nil {
						t.Error(err)
						return
					}
				}
			}()
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			var next [writers]int64
			var f Frame
			for range writers * each {
				if err := side.Read(&f); err != nil {
					t.Error(err)
					return
				}
				w := f.Stream
				if f.Pos != next[w] || len(f.Payload) != 1000*int(w)+int(f.Pos) || bytes.Count(f.Payload, []byte{byte(w)}) != len(f.Payload) {
					t.Errorf("writer %d: frame %d with %d bytes came, %d was due", w, f.Pos, len(f.Payload), next[w])
					return
				}
				next[w]++
			}
		}()
	}
	wg.Wait()
	if a.Sent() == 0 || a.Sent() != b.Received() || b.Sent() != a.Received() {
		t.Error(a.Sent(), b.Received(), b.Sent(), a.Received())
	}
}

// Two sides that only read get each other's preamble all the same.
func TestTwoReaders(t *testing.T) {
	pa, pb := net.Pipe()
	a, b := NewConn(pa), NewConn(pb)
	read := make(chan error, 2)
	for _, c := range []*Conn{a, b} {
		go func() { read <- c.Read(&Frame{}) }()
	}
	for a.Received() < preambleSize || b.Received() < preambleSize {
		time.Sleep(time.Millisecond)
	}
	a.Close()
	b.Close()
	for range 2 {
		if err := <-read; err == nil {
			t.Error("a frame came out of nowhere")
		}
	}
}

func TestInterrupt(t *testing.T) {
	why := errors.New("the operator said stop")
	for name, act := range map[string]func(*Conn) error{
		"read": func(c *Conn) error { return c.Read(&Frame{}) },
		"write": func(c *Conn) error {
			return c.Write(&Frame{Type: Control, Payload: make([]byte, 1<<20)}) // nobody takes it
		},
	} {
		for kind, wrap := range map[string]func(net.Conn) io.ReadWriteCloser{
			"with deadlines": func(c net.Conn) io.ReadWriteCloser { return c },
			"without":        func(c net.Conn) io.ReadWriteCloser { return bare{c} },
		} {
			near, far := net.Pipe()
			defer far.Close()
			c := NewConn(wrap(near))
			ended := make(chan error, 1)
			go func() { ended <- act(c) }()
			time.Sleep(time.Millisecond) // usually enough to be inside; right either way
			c.Interrupt(why)
			if err := <-ended; !errors.Is(err, why) {
				t.Errorf("%s %s: %v", name, kind, err)
			}
			if err := act(c); !errors.Is(err, why) {
				t.Errorf("%s %s, again: %v", name, kind, err)
			}
			if err := c.Close(); err != nil {
				t.Errorf("%s %s, close: %v", name, kind, err)
			}
		}
	}
}

// bare is a connection that can only be closed.
type bare struct{ io.ReadWriteCloser }

func TestClose(t *testing.T) {
	pa, pb := net.Pipe()
	defer pb.Close()
	c := NewConn(pa)
	if err := c.Write(&Frame{Type: Data, Payload: []byte("lost")}); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err == nil || !strings.Contains(err.Error(), "closed with 68 bytes not sent") {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error("a second close:", err)
	}
	if err := c.Write(&Frame{Type: Control}); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if err := c.Read(&Frame{}); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	// Closing ends a write that nobody takes.
	pa, pb = net.Pipe()
	defer pb.Close()
	c = NewConn(pa)
	ended := make(chan error, 1)
	go func() { ended <- c.Write(&Frame{Type: Control, Payload: make([]byte, 1<<20)}) }()
	time.Sleep(time.Millisecond)
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

func TestTypeNames(t *testing.T) {
	if got := fmt.Sprint(Data, Zero, Discard, Chunk, Control, Type(9)); got != "data zero discard chunk control type 9" {
		t.Error(got)
	}
}

// FuzzRead gives the reader anything at all. It must not fail otherwise than by
// an error, and what it delivers must be a frame that Write would write.
func FuzzRead(f *testing.F) {
	var all []byte
	for _, g := range golden {
		b, err := hex.DecodeString(g.hex)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(b[:len(b)-1])
		all = append(all, b...)
	}
	f.Add(all)
	f.Add(forge(func(b []byte) { b[4] = 2 }))
	f.Add(forge(func(b []byte) { b[12] = 255 }))
	f.Fuzz(func(t *testing.T, b []byte) {
		// Most inputs fail at the first sum; with the sums made right the rest
		// of the reader is reached.
		fixed := bytes.Clone(b)
		if len(fixed) >= headerSize {
			sum := crc32.Checksum(fixed[:40], castagnoli)
			binary.LittleEndian.PutUint32(fixed[40:], sum)
			if size := binary.LittleEndian.Uint32(fixed[12:]); uint64(size) <= uint64(len(fixed)-headerSize) {
				binary.LittleEndian.PutUint32(fixed[44:], crc32.Update(sum, castagnoli, fixed[headerSize:headerSize+size]))
			}
		}
		for _, input := range [][]byte{b, fixed} {
			c := reader(input)
			var fr Frame
			var again []byte
			for {
				if err := c.Read(&fr); err != nil {
					if err == io.EOF && !bytes.Equal(again, input) {
						t.Fatalf("%d bytes were read as frames that are %d bytes", len(input), len(again))
					}
					break
				}
				again = append(again, written(t, fr)...)
				if !bytes.HasPrefix(input, again) {
					t.Fatalf("read %+v, which is not what was there", fr)
				}
			}
		}
	})
}
