package dialect

import (
	"bytes"
	"crypto/md5"
	"errors"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/livefleet/handover/helper/internal/wire"
)

func sum(b []byte) []byte {
	s := md5.Sum(b)
	return s[:]
}

// packet is what a sender writes: its padding is zero.
func packet(typ, size uint32, pos uint64, rest ...[]byte) []byte {
	b := nine(typ, size, pos, rest...)
	clear(b[12:16])
	return b
}

func TestSender9(t *testing.T) {
	data := bytes.Repeat([]byte("y"), 1500)
	for _, c := range []struct {
		name      string
		handshake int32
		md5       bool
	}{{"the real ones", -1, true}, {"both features", -3, true}, {"the device alone", -2, false}, {"an old one", 0, false}} {
		sock := reading(answers(c.handshake, 0, 0, 0, 0, 0, 0))
		s, err := NewSender9(sock, Options9{Block: 1024, Disk: 1<<30 - 512})
		if err != nil {
			t.Fatal(c.name, err)
		}
		if err := s.Write(&wire.Frame{Type: wire.Data, Pos: 4096, Length: 1500, Payload: data}); err != nil {
			t.Fatal(c.name, err)
		}
		for _, step := range []func() error{func() error { return s.Barrier([4]byte{}) }, s.End, s.End, s.Flush} {
			if err := step(); err != nil {
				t.Fatal(c.name, err)
			}
		}
		with := func(b []byte) []byte {
			if c.md5 {
				return sum(b)
			}
			return nil
		}
		want := bytes.Join([][]byte{
			packet(1, 4, 3, number(0, 4)),
			packet(1, 4, 1<<21, with(number(2, 4)), number(2, 4)), // whole clusters, in sectors
			packet(3, 1024, 4096, with(data[:1024]), data[:1024]),
			packet(3, 476, 5120, with(data[:476]), data[:476]),
			packet(1, 4, 0, with(number(0, 4)), number(0, 4)),
			packet(1, 4, 0, with(number(5, 4)), number(5, 4)),
			packet(1, 0, 0, with(nil)),
		}, nil)
		if !bytes.Equal(sock.out.Bytes(), want) {
			t.Errorf("%s: %d bytes on the wire, %d expected, or others", c.name, sock.out.Len(), len(want))
		}
	}
	// A cluster of 1 MiB has 2048 sectors, and so many bytes has the command.
	sock := reading(answers(0, 0))
	if _, err := NewSender9(sock, Options9{Disk: 100 << 20}); err != nil {
		t.Fatal(err)
	}
	if want := append(packet(1, 4, 3, number(0, 4)), packet(1, 2048, 204800, number(2, 2048))...); !bytes.Equal(sock.out.Bytes(), want) {
		t.Errorf("%d bytes on the wire, %d expected, or others", sock.out.Len(), len(want))
	}
}

// A receiver of 7.x or 8.x hears data and the end.
func TestPlainSender9(t *testing.T) {
	sock := reading(answers(0, 0))
	s, err := NewSender9(sock, Options9{Plain: true})
	if err != nil {
		t.Fatal(err)
	}
	err = s.Write(&wire.Frame{Type: wire.Data, Pos: 512, Length: 4, Payload: []byte("data")})
	if err := errors.Join(err, s.Barrier([4]byte{}), s.End()); err != nil {
		t.Fatal(err)
	}
	if want := append(packet(0, 4, 512, []byte("data")), packet(1, 0, 0)...); !bytes.Equal(sock.out.Bytes(), want) {
		t.Errorf("% x on the wire, and not % x", sock.out.Bytes(), want)
	}
	_, err = NewSender9(reading(), Options9{Plain: true, Disk: 512})
	says(t, err, Parameter, "a receiver that knows no commands makes no image")
}

func TestSender9Fails(t *testing.T) {
	begin := func(opt Options9, a ...int32) (Sender, error) { return NewSender9(reading(answers(a...)), opt) }
	_, err := begin(Options9{}, 1)
	says(t, err, Protocol, "the receiver answered the handshake with 1")
	_, err = begin(Options9{}, -4)
	says(t, err, Protocol, "the receiver answered the handshake with -4")
	_, err = begin(Options9{})
	says(t, err, Protocol, "the stream ended after 0 of 4 bytes of an answer")
	_, err = begin(Options9{Disk: 512}, 0, 5)
	says(t, err, Protocol, "the receiver was asked to make an image and answered 5")
	for _, block := range []int{100, 32 << 20} {
		_, err = begin(Options9{Block: block})
		says(t, err, Parameter, fmt.Sprintf("packets of %d bytes: whole sectors, at most 16777216 bytes", block))
	}
	for answer, meant := range map[int32]string{-7: "-7", 7: "7 (a write failed)", 38: "38 (it does not know such packets)"} {
		s, err := begin(Options9{}, 0, answer)
		if err != nil {
			t.Fatal(err)
		}
		says(t, s.Write(&wire.Frame{Type: wire.Data, Pos: 512, Length: 1, Payload: []byte{1}}), Write, "could not write 1 bytes at 512: it answered "+meant)
	}
	s, err := begin(Options9{Disk: 512}, 0, 0, 3)
	if err != nil {
		t.Fatal(err)
	}
	says(t, s.End(), Fsync, "the receiver was asked to unmount and answered 3")
	s, err = begin(Options9{}, 0, -1, 3)
	if err != nil {
		t.Fatal(err)
	}
	says(t, s.Barrier([4]byte{}), Fsync, "the receiver was asked to sync and answered -1")
	says(t, s.End(), Fsync, "the receiver was asked to finish and answered 3")

	here, there := net.Pipe()
	defer there.Close()
	go func() { // takes everything and says nothing
		b := make([]byte, 1<<16)
		for {
			if _, err := there.Read(b); err != nil {
				return
			}
		}
	}()
	_, err = NewSender9(here, Options9{Limit: time.Millisecond})
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
}

func TestReceiver9(t *testing.T) {
	data := []byte("some bytes")
	for _, c := range []struct {
		name     string
		in       [][]byte
		requests string
		answers  []int32
	}{
		{"plain", [][]byte{packet(3, 10, 512, data), packet(1, 0, 0)}, "[2 5]", []int32{0, 0}},
		{"an unanswered one", [][]byte{nine(2, 10, 512, data), nine(0, 10, 0, data), nine(1, 4, 0, number(1, 4))}, "[2 5]", []int32{0, 0}},
		{
			"MD5", [][]byte{nine(1, 4, 3, number(0, 4)), nine(1, 2048, 1<<20, sum(number(2, 2048)), number(2, 2048)), nine(3, 10, 512, sum(data), data), nine(0, 0, 0, sum(nil))},
			"[1 3 2 5]",
			[]int32{-1, 0, 0, 0},
		},
		{"the device alone", [][]byte{nine(1, 4, 2, number(0, 4)), nine(3, 10, 512, data), nine(1, 0, 0)}, "[1 2 5]", []int32{0, 0, 0}},
		{"other commands", [][]byte{nine(1, 4, 0, number(0, 4)), nine(1, 4, 0, number(4, 4)), nine(1, 4, 0, number(5, 4)), nine(1, 64, 1<<30, number(3, 64)), nine(4, 10, 0, data), nine(3, 10, 512, data), nine(0, 0, 0)}, "[1 4 1 3 2 2 5]", []int32{0, 38, 0, 0, 0, 0, 0}},
	} {
		sock := reading(c.in...)
		image, requests, err := read(NewReceiver9(sock), true)
		if err != nil || fmt.Sprint(requests) != c.requests || !bytes.Equal(sock.out.Bytes(), answers(c.answers...)) {
			t.Errorf("%s: %v, answered % x: %v", c.name, requests, sock.out.Bytes(), err)
		}
		if image[512] != 's' || image[521] != 's' {
			t.Errorf("%s: %v", c.name, image)
		}
	}
	sock := reading(nine(1, 4, 3, number(0, 4)), nine(1, 4, 0, number(0, 4)), nine(1, 0, 0))
	if _, _, err := read(NewReceiver9(sock), false); err != nil || !bytes.Equal(sock.out.Bytes(), answers(7, 7, 7)) {
		t.Errorf("bad answers are % x, and agree on nothing: %v", sock.out.Bytes(), err)
	}
}

// A packet longer than a piece is given in pieces, and answered once.
func TestLongPacket(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789abcdef"), 3<<20/16)
	sock := reading(nine(3, uint32(len(data)), 1<<20, data), nine(0, 0, 0))
	r := NewReceiver9(sock)
	var f wire.Frame
	var got []byte
	for {
		if err := r.Read(&f); err != nil {
			t.Fatal(err)
		}
		if f.Type == wire.Control {
			break
		}
		if f.Pos != 1<<20+int64(len(got)) || len(f.Payload) > piece {
			t.Fatalf("%d bytes at %d", len(f.Payload), f.Pos)
		}
		got = append(got, f.Payload...)
	}
	if !bytes.Equal(got, data) {
		t.Error("other bytes")
	}
}

var bad9 = []struct {
	name string
	in   []byte
	code Code
	says string
}{
	{"nothing", nil, Read, "the stream ended after 0 of 24 bytes of a header"},
	{"half a header", nine(0, 4, 0)[:20], Read, "the stream ended after 20 of 24 bytes of a header"},
	{"half a payload", nine(0, 9, 0, []byte("12345")), Read, "the stream ended after 5 of 9 bytes of a payload"},
	{"another marker", one(4, 0, make([]byte, 20)), Protocol, "is 0x4cc0ac3d, and not the marker 0x4cc0ac3e"},
	{"an unknown type", nine(5, 4, 0, number(0, 4)), Protocol, "a packet of the unknown type 5"},
	{"an unknown command", nine(1, 4, 0, number(6, 4)), Protocol, "the unknown command 6"},
	{"half a command", nine(1, 3, 0, []byte("123")), Protocol, "a command of 3 bytes, and its number alone has 4"},
	{"a length that lies", nine(0, 16<<20, 0, []byte("short")), Read, "the stream ended after 5 of 1048576 bytes of a payload"},
	{"a length beyond all", nine(0, 0xffffffff, 0), Protocol, "a packet of 4294967295 bytes, more than the 16777216 that a cluster can have"},
	{"a negative position", nine(3, 8, 1<<63), Protocol, "where no image has any"},
	{"a disk of nothing", nine(1, 4, 0, number(2, 4)), Protocol, "an image for a disk of 0 sectors was asked for, in clusters of 4"},
	{"a disk of half clusters", nine(1, 8, 700, number(2, 8)), Protocol, "an image for a disk of 700 sectors was asked for, in clusters of 8"},
	{"a disk beyond all", nine(1, 4, 1<<55, number(2, 4)), Protocol, "an image for a disk of 36028797018963968 sectors was asked for"},
	{"another MD5", bytes.Join([][]byte{nine(1, 4, 1, number(0, 4)), nine(3, 4, 512, sum([]byte("good")), []byte("bad!"))}, nil), Protocol, "the 4 bytes at 512 are not those that were sent: their MD5 is "},
	{"no MD5", bytes.Join([][]byte{nine(1, 4, 1, number(0, 4)), nine(3, 0, 0)}, nil), Read, "the stream ended after 0 of 16 bytes of an MD5"},
}

func TestBadPackets9(t *testing.T) {
	for _, bad := range bad9 {
		t.Run(bad.name, func(t *testing.T) {
			image, _, err := read(NewReceiver9(reading(bad.in)), true)
			says(t, err, bad.code, bad.says)
			if len(image) != 0 {
				t.Errorf("%d bytes were given nevertheless", len(image))
			}
		})
	}
}
