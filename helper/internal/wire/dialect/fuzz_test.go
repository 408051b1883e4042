package dialect

import (
	"errors"
	"io"
	"testing"

	"github.com/livefleet/handover/helper/internal/wire"
)

// hold reads everything and holds it to what a Receiver promises.
func hold(t *testing.T, r Receiver, in []byte) {
	var f wire.Frame
	var given int
	for {
		err := r.Read(&f)
		if err != nil {
			var coded *Failure
			if err != io.EOF && !errors.As(err, &coded) {
				t.Fatalf("an error without an exit status: %v", err)
			}
			return
		}
		switch f.Type {
		case wire.Data:
			if f.Pos < 0 || f.Length != int64(len(f.Payload)) || f.Length == 0 || f.Length > piece || f.Pos+f.Length < 0 {
				t.Fatalf("data at %d, length %d, with %d bytes", f.Pos, f.Length, len(f.Payload))
			}
			if given += len(f.Payload); given > len(in) {
				t.Fatal("more came out than went in")
			}
		case wire.Control:
			if q := Request(f.Flags); q < Barrier || q > End || f.Pos < 0 {
				t.Fatalf("request %d about %d", q, f.Pos)
			}
			if err := r.Answer(true); err != nil {
				t.Fatal(err)
			}
		default:
			t.Fatalf("a %s frame", f.Type)
		}
	}
}

func FuzzFrames1(f *testing.F) {
	f.Add(append(one(3, 100, []byte("abc")), append(one(4, 0, []byte("With")), one(0, 0, nil)...)...), uint8(2))
	for i, bad := range bad1 {
		f.Add(bad.in, uint8(i))
	}
	f.Fuzz(func(t *testing.T, in []byte, v uint8) {
		var feedback io.ReadWriter
		if v %= 3; Versions[v].Answers {
			feedback = reading()
		}
		r, err := NewReceiver1(Versions[v], reading(in), feedback)
		if err != nil {
			t.Fatal(err)
		}
		hold(t, r, in)
	})
}

func FuzzPackets9(f *testing.F) {
	data := []byte("some bytes")
	f.Add(append(nine(1, 4, 3, number(0, 4)), nine(3, 10, 512, sum(data), data)...))
	f.Add(append(nine(1, 64, 1<<30, number(3, 64)), nine(0, 0, 0)...))
	for _, bad := range bad9 {
		f.Add(bad.in)
	}
	f.Fuzz(func(t *testing.T, in []byte) { hold(t, NewReceiver9(reading(in)), in) })
}

// FuzzAnswers: whatever a receiver answers, a sender ends, and with an exit
// status if not well.
func FuzzAnswers(f *testing.F) {
	f.Add(answers(-1, 0, 0, 0, 0), []byte("SUCCESS\n"))
	f.Add(answers(0, 0, -1), []byte("FAILURE\n"))
	f.Fuzz(func(t *testing.T, nine, one []byte) {
		ended := func(err error) {
			var coded *Failure
			if err != nil && !errors.As(err, &coded) {
				t.Fatalf("an error without an exit status: %v", err)
			}
		}
		send := func(s Sender, err error) {
			for _, step := range []func() error{
				func() error { return err },
				func() error { return s.Write(&wire.Frame{Type: wire.Data, Length: 3, Payload: []byte("abc")}) },
				func() error { return s.Barrier([4]byte{}) },
				func() error { return s.End() },
			} {
				if err := step(); err != nil {
					ended(err)
					return
				}
			}
		}
		send(NewSender9(reading(nine), Options9{Disk: 512}))
		send(NewSender1(Versions[2], reading(), Options1{Feedback: reading(one)}))
	})
}
