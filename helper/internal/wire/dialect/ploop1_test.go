package dialect

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/livefleet/handover/helper/internal/wire"
)

func TestSender1(t *testing.T) {
	first := [4]byte{'W', 'i', 't', 'h'}
	for _, c := range []struct {
		version string
		sync    []byte
	}{{"ploop-1.10", nil}, {"ploop-1.11", one(4, 0, first[:])}, {"ploop-1.12", one(4, 0, first[:])}} {
		out := reading()
		s, err := NewSender1(version(t, c.version), out, Options1{Block: 512, Blind: time.Microsecond})
		if err != nil {
			t.Fatal(err)
		}
		data := bytes.Repeat([]byte("x"), 1000)
		for _, f := range []wire.Frame{
			{Type: wire.Data, Pos: 4096, Length: 1000, Payload: data},
			{Type: wire.Zero, Pos: 1 << 40, Length: 1024},
			{Type: wire.Discard, Pos: 512, Length: 512},
		} {
			if err := s.Write(&f); err != nil {
				t.Fatal(err)
			}
		}
		for _, step := range []func() error{func() error { return s.Barrier(first) }, s.End, s.End, s.Flush} {
			if err := step(); err != nil {
				t.Fatal(err)
			}
		}
		want := bytes.Join([][]byte{
			one(512, 4096, data[:512]), one(488, 4608, data[:488]),
			one(512, 1<<40, make([]byte, 512)), one(512, 1<<40+512, make([]byte, 512)), one(512, 512, make([]byte, 512)),
			c.sync, one(0, 0, nil),
		}, nil)
		if !bytes.Equal(out.out.Bytes(), want) {
			t.Errorf("%s: %d bytes on the wire, %d expected, or others", c.version, out.out.Len(), len(want))
		}
	}
	s, err := NewSender1(version(t, "ploop-1.11"), reading(), Options1{})
	if err != nil {
		t.Fatal(err)
	}
	says(t, s.Write(&wire.Frame{Type: wire.Data, Length: 4, Payload: []byte("four")}), Parameter, "four bytes at the start of an image are no data in ploop-1.11")
	if err := s.Write(&wire.Frame{Type: wire.Control}); err == nil {
		t.Error("a control frame was sent")
	}
}

func TestFeedback(t *testing.T) {
	for answer, c := range map[string]struct {
		code Code
		says string
	}{
		"SUCCESS\n":  {},
		"FAILURE\n":  {Fsync, "the receiver could not sync its image"},
		"SUCCESS\r":  {Protocol, `the receiver answered a sync command with "SUCCESS\r"`},
		"SUCC":       {Protocol, "the stream ended after 4 of 8 bytes of the answer to a sync command"},
		"FAILURE\nx": {Fsync, "could not sync"},
	} {
		s, err := NewSender1(version(t, "ploop-1.12"), reading(), Options1{Feedback: reading([]byte(answer))})
		if err != nil {
			t.Fatal(err)
		}
		err = s.Barrier([4]byte{})
		if c.says == "" {
			if err != nil {
				t.Error(err)
			}
			continue
		}
		says(t, err, c.code, c.says)
	}
	for _, name := range []string{"ploop-1.10", "ploop-1.11"} {
		_, err := NewSender1(version(t, name), reading(), Options1{Feedback: reading()})
		says(t, err, Parameter, name+" knows no feedback descriptor")
		_, err = NewReceiver1(version(t, name), reading(), reading())
		says(t, err, Parameter, name+" knows no feedback descriptor")
	}
}

// A peer that never answers is waited for only so long, and not at all once the
// copy has failed elsewhere.
func TestWaitingForFeedbackEnds(t *testing.T) {
	here, there := net.Pipe()
	defer there.Close()
	s, err := NewSender1(version(t, "ploop-1.12"), reading(), Options1{Feedback: here, Limit: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	err = s.Barrier([4]byte{})
	says(t, err, Protocol, "the answer to a sync command")
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
	why := errors.New("the disk is gone")
	for name, opt := range map[string]Options1{"with feedback": {Feedback: here, Limit: time.Hour}, "blind": {Blind: time.Hour}} {
		s, err := NewSender1(version(t, "ploop-1.12"), reading(), opt)
		if err != nil {
			t.Fatal(err)
		}
		go s.Interrupt(why)
		if err := s.Barrier([4]byte{}); !errors.Is(err, why) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// read takes everything out of a receiver: the image that it stands for, and the
// requests, each answered at once.
func read(r Receiver, answer bool) (image map[int64]byte, requests []Request, err error) {
	image = map[int64]byte{}
	var f wire.Frame
	for {
		if err := r.Read(&f); err != nil {
			if err == io.EOF {
				err = nil
			}
			return image, requests, err
		}
		if f.Type == wire.Control {
			requests = append(requests, Request(f.Flags))
			if err := r.Answer(answer); err != nil {
				return image, requests, err
			}
			continue
		}
		for i, c := range f.Payload {
			image[f.Pos+int64(i)] = c
		}
	}
}

func TestReceiver1(t *testing.T) {
	in := [][]byte{one(3, 100, []byte("abc")), one(4, 0, []byte("With")), one(4, 8, []byte("8888")), one(5, 0, []byte("12345")), one(0, 0, nil), []byte("what follows the end is not looked at")}
	for _, c := range []struct {
		version  string
		feedback bool
		requests string
		said     string
	}{
		{"ploop-1.10", false, "[5]", ""},
		{"ploop-1.11", false, "[1 5]", ""},
		{"ploop-1.12", false, "[1 5]", ""},
		{"ploop-1.12", true, "[1 5]", "SUCCESS\n"},
	} {
		var feedback io.ReadWriter
		said := reading()
		if c.feedback {
			feedback = said
		}
		r, err := NewReceiver1(version(t, c.version), reading(in...), feedback)
		if err != nil {
			t.Fatal(err)
		}
		image, requests, err := read(r, true)
		if err != nil || fmt.Sprint(requests) != c.requests || said.out.String() != c.said {
			t.Errorf("%s: %v, answered %q: %v", c.version, requests, said.out.String(), err)
		}
		if len(image) != 12 || image[100] != 'a' || image[8] != '8' || image[0] != '1' || image[4] != '5' {
			t.Errorf("%s: %v", c.version, image)
		}
	}
	said := reading()
	r, err := NewReceiver1(version(t, "ploop-1.12"), reading(one(4, 0, []byte("With"))), said)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := read(r, false); err == nil || said.out.String() != "FAILURE\n" {
		t.Errorf("a failed sync was answered with %q", said.out.String())
	}
}

var bad1 = []struct {
	name string
	in   []byte
	code Code
	says string
}{
	{"nothing", nil, Read, "the stream ended after 0 of 16 bytes of a header"},
	{"half a header", one(9, 0, nil)[:9], Read, "the stream ended after 9 of 16 bytes of a header"},
	{"half a payload", one(9, 0, []byte("12345")), Read, "the stream ended after 5 of 9 bytes of a payload"},
	{"half a sync command", one(4, 0, []byte("12")), Read, "the stream ended after 2 of 4 bytes of a sync command"},
	{"no end", one(2, 0, []byte("12")), Read, "the stream ended after 0 of 16 bytes of a header"},
	{"another marker", nine(0, 4, 0), Protocol, "is 0x4cc0ac3e, and not the marker 0x4cc0ac3d: does the sender speak another version?"},
	{"noise", bytes.Repeat([]byte{7}, 100), Protocol, "is 0x07070707, and not the marker"},
	{"a negative position", one(8, 1<<63, nil), Protocol, "the sender names 8 bytes at 9223372036854775808, where no image has any"},
	{"a position that goes over", one(0xffffffff, 1<<62, nil), Protocol, "where no image has any"},
	{"an end that is elsewhere", one(0, 512, nil), Protocol, "a frame of no bytes at 512"},
	{"a length that lies", one(0xffffffff, 0, []byte("short")), Read, "the stream ended after 5 of 1048576 bytes of a payload"},
}

func TestBadFrames1(t *testing.T) {
	for _, bad := range bad1 {
		t.Run(bad.name, func(t *testing.T) {
			r, err := NewReceiver1(version(t, "ploop-1.12"), reading(bad.in), nil)
			if err != nil {
				t.Fatal(err)
			}
			_, _, err = read(r, true)
			says(t, err, bad.code, bad.says)
		})
	}
}

func TestFind(t *testing.T) {
	_, err := Find("ploop-2")
	says(t, err, Parameter, `there is no dialect "ploop-2": choose one of ploop-1.10, ploop-1.11, ploop-1.12, ploop-7, ploop-9`)
	if Fail(Read, nil) != nil {
		t.Error("no error has no exit status")
	}
	says(t, Fail(Write, Fail(Fsync, errors.New("full"))), Fsync, "full")
}
