package pipeline

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"

	"github.com/livefleet/handover/helper/internal/blockmap"
	"github.com/livefleet/handover/helper/internal/codec"
	"github.com/livefleet/handover/helper/internal/ledger"
	"github.com/livefleet/handover/helper/internal/wire"
)

func (m *store) ReadAt(p []byte, off int64) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := copy(p, m.b[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// line is a sender and a receiver, and everything that the two can have, in
// this process.
type line struct {
	sender  *Sender
	control *wire.Conn
	ended   chan error
	volumes []*written
}

// written is a volume that is written to while it is copied.
type written struct {
	b           []byte
	earlier     []byte // content that comes back
	there       *store
	vol         Volume
	ledger      *ledger.Ledger // of the destination
	pending     *blockmap.Map
	firstIsDone bool
}

func newLine(t *testing.T, r *rand.Rand) *line {
	t.Helper()
	var near []FrameWriter
	var far []*wire.Conn
	for range 1 + r.IntN(4) {
		a, b := net.Pipe()
		n, f := wire.NewConn(a), wire.NewConn(b)
		near, far = append(near, n), append(far, f)
		t.Cleanup(func() { n.Close(); f.Close() })
	}
	l := &line{control: near[0].(*wire.Conn), ended: make(chan error, 1)}
	var err error
	l.sender, err = NewSender(near, SendOptions{
		Encoder: encoder(t, compressions[r.IntN(len(compressions))]),
		Readers: 1 + r.IntN(4), Slots: 1 + r.IntN(6), RunBytes: 1 + r.Int64N(10*4096),
	})
	if err != nil {
		t.Fatal(err)
	}
	rec := NewReceiver(far[0], nil, ReceiveOptions{Writers: 1 + r.IntN(5), Memory: 1 + r.Int64N(1<<20)})
	for _, f := range far[1:] {
		rec.Join(f)
	}
	for stream := range uint32(1 + r.IntN(2)) {
		cluster := 4096 << r.IntN(2)
		v := &written{b: make([]byte, 1+r.IntN(40*cluster))}
		size := int64(len(v.b))
		v.earlier = content(r, size+4)
		v.there = &store{b: make([]byte, size), slow: r.IntN(20) == 0}
		v.ledger = ledger.New(size, cluster, t.TempDir(), 0)
		v.pending = blockmap.New(size, cluster)
		v.pending.MarkAll()
		v.vol = Volume{Stream: stream, Source: made{size, func(p []byte, off int64) (int, error) { return copy(p, v.b[off:]), nil }}}
		v.vol.Ledger = ledger.New(size, cluster, t.TempDir(), 0)
		if r.IntN(2) == 0 {
			if v.vol.History, err = codec.NewHistory(cluster, r.Int64N(40<<10)); err != nil {
				t.Fatal(err)
			}
		}
		l.volumes = append(l.volumes, v)
		rec.Add(stream, v.there, v.ledger)
	}
	go func() {
		l.ended <- rec.Run(t.Context(), stopAtControl, noChunk)
		for _, f := range far {
			f.Close() // nobody takes more
		}
	}()
	return l
}

// scribble writes to a volume, and marks what it wrote.
func (v *written) scribble(r *rand.Rand) {
	for range r.IntN(30) {
		at := r.IntN(len(v.b))
		part := v.b[at:min(at+1+r.IntN(12000), len(v.b))]
		switch r.IntN(5) {
		case 2:
			copy(part, v.earlier[at:])
		case 0:
			clear(part)
		case 1:
			for i := range part {
				part[i] = "the same words again "[i%21]
			}
		default:
			part = part[:1+r.IntN(len(part))]
			for i := range part {
				part[i] = byte(r.Uint32())
			}
		}
		v.pending.MarkRange(int64(at), int64(len(part)))
	}
}

// seeds is how many histories of a copy are tried; the suite tries thousands,
// without the race detector.
var seeds = flag.Uint64("seeds", 100, "histories of a copy that are tried")

// Whatever is written between passes, by whatever way it is packed, over however
// many connections it goes: in the end the destination is the source, and the
// ledgers of both sides say so.
func TestPassesKeepBothSidesAlike(t *testing.T) {
	for seed := range *seeds {
		r := rand.New(rand.NewPCG(seed, 9))
		l := newLine(t, r)
		for range 1 + r.IntN(6) {
			for _, v := range l.volumes {
				v.scribble(r)
				m := v.pending.Swap()
				if _, err := l.sender.Send(t.Context(), v.vol, m, Pass{SkipZero: !v.firstIsDone}); err != nil {
					t.Fatal(seed, err, <-l.ended)
				}
				v.firstIsDone = true
			}
		}
		if err := l.control.Write(&end); err != nil {
			t.Fatal(seed, err)
		}
		if err := <-l.ended; err != nil {
			t.Fatal(seed, err)
		}
		for i, v := range l.volumes {
			if !bytes.Equal(v.b, v.there.b) {
				t.Fatalf("seed %d, volume %d: the sides differ", seed, i)
			}
			if v.ledger.Total() != v.vol.Ledger.Total() {
				t.Fatalf("seed %d, volume %d: the ledgers differ, and the content does not", seed, i)
			}
			if off, differs, err := v.ledger.Check(v.there); err != nil || differs {
				t.Fatalf("seed %d, volume %d: the ledger is wrong at %d, %v", seed, i, off, err)
			}
		}
	}
}

// A byte that is changed between the sender's reading and the receiver's writing,
// wherever that is, is in neither's frames wrong, and yet in the ledgers.
func TestTheLedgersSeeWhatFramesDoNot(t *testing.T) {
	const size, cluster = 1 << 20, 64 << 10
	b := bytes.Repeat([]byte("words, "), size/7+1)[:size]
	for _, compression := range compressions {
		near, far := pipe(t)
		there := &store{b: make([]byte, size)}
		sent, written := ledger.New(size, cluster, t.TempDir(), 0), ledger.New(size, cluster, t.TempDir(), 0)
		rec := NewReceiver(&flipping{Conn: far}, nil, ReceiveOptions{})
		rec.Add(1, there, written)
		ended := make(chan error, 1)
		go func() {
			ended <- rec.Run(t.Context(), stopAtControl, noChunk)
			far.Close() // nobody takes more
		}()
		m := blockmap.New(size, cluster)
		m.MarkAll()
		vol := Volume{Stream: 1, Source: made{size, func(p []byte, off int64) (int, error) { return copy(p, b[off:]), nil }}, Ledger: sent}
		_, serr := send(t.Context(), t, near, vol, m, SendOptions{Encoder: encoder(t, compression), RunBytes: cluster}, Pass{})
		serr = errors.Join(serr, near.Write(&end))
		if err := <-ended; err != nil { // it could not even be unpacked
			says(t, err, "store at offset ")
			continue
		}
		if serr != nil {
			t.Fatal(serr)
		}
		if bytes.Equal(b, there.b) {
			t.Fatal("nothing was flipped")
		}
		if sent.Total() == written.Total() {
			t.Errorf("%s: not seen", compression)
		}
	}
}

// flipping changes a byte of one payload behind the frame's own sum.
type flipping struct {
	*wire.Conn
	n int
}

func (f *flipping) Read(fr *wire.Frame) error {
	err := f.Conn.Read(fr)
	if f.n++; f.n == 4 && len(fr.Payload) > 0 {
		fr.Payload[len(fr.Payload)/2] ^= 0x10
	}
	return err
}

// What comes behind a fence on one connection waits for what comes before it on
// all, and a fence that is not due is an error.
func TestFences(t *testing.T) {
	const conns = 3
	m := &store{b: make([]byte, 100)}
	under := make(chan struct{})
	m.fail = func(off int64) error {
		if off == 0 {
			<-under
		}
		return nil
	}
	var near, far [conns]*wire.Conn
	for i := range near {
		near[i], far[i] = pipe(t)
	}
	rec := NewReceiver(far[0], nil, ReceiveOptions{})
	rec.Add(1, m, nil)
	ended := make(chan error, 1)
	rec.Join(far[1])
	go func() { ended <- rec.Run(t.Context(), stopAtControl, noChunk) }()
	rec.Join(far[2])
	write := func(i int, f wire.Frame) {
		t.Helper()
		if err := errors.Join(near[i].Write(&f), near[i].Flush()); err != nil {
			t.Fatal(err)
		}
	}
	write(1, wire.Frame{Type: wire.Data, Stream: 1, Pos: 0, Payload: []byte("slow")})
	for i := range near {
		write(i, wire.Frame{Type: wire.Fence, Pos: 1})
	}
	go func() {
		for range 1000 { // nothing is written meanwhile
			m.mu.Lock()
			b := string(m.b[:6])
			m.mu.Unlock()
			if strings.Contains(b, "late") {
				t.Error("what comes behind the fence was written first")
			}
		}
		close(under)
	}()
	write(2, wire.Frame{Type: wire.Data, Stream: 1, Pos: 2, Payload: []byte("late")})
	for i := range near {
		write(i, wire.Frame{Type: wire.Fence, Pos: 2})
	}
	if err := near[0].Write(&end); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if got := string(m.b[:6]); got != "sllate" {
		t.Errorf("%q", got)
	}
}

// A connection that ends has the fence fail to which it did not come, whether others
// wait there already or not, and none of those that it came to.
func TestAConnectionThatEndsBeforeAFence(t *testing.T) {
	const fences = 3
	for came := 1; came <= fences; came++ {
		t.Run(fmt.Sprintf("it came to %d", came), func(t *testing.T) {
			for range 100 {
				var near, far [3]*wire.Conn
				for i := range near {
					near[i], far[i] = pipe(t)
				}
				rec := NewReceiver(far[0], nil, ReceiveOptions{})
				rec.Join(far[1])
				rec.Join(far[2])
				ended := make(chan error, 1)
				go func() { ended <- rec.Run(t.Context(), stopAtControl, noChunk) }()
				for i, n := range []int{fences, fences, came} {
					go func() {
						for f := 1; f <= n; f++ {
							_ = errors.Join(near[i].Write(&wire.Frame{Type: wire.Fence, Pos: int64(f)}), near[i].Flush())
						}
						if i == 2 {
							near[i].Close()
						} else if i == 0 {
							_ = errors.Join(near[i].Write(&end), near[i].Flush())
						}
					}()
				}
				err := <-ended
				if came == fences && err != nil || came < fences && !errors.Is(err, io.EOF) {
					t.Fatal(err)
				}
				if came < fences {
					says(t, err, fmt.Sprintf("a connection has ended before fence %d", came+1))
				}
			}
		})
	}
}

func TestFurtherConnectionsRefuse(t *testing.T) {
	for _, c := range []struct {
		frame wire.Frame
		on    int
		text  string
	}{
		{wire.Frame{Type: wire.Fence, Pos: 2}, 1, "fence 2 came, and 1 was due"},
		{wire.Frame{Type: wire.Fence, Pos: 0}, 0, "fence 0 came, and 1 was due"},
		{wire.Frame{Type: wire.Control, Payload: []byte("{}")}, 1, "a control frame on a connection that is only for volumes"},
		{wire.Frame{Type: wire.Chunk, Payload: []byte("x")}, 1, "a chunk frame on a connection that is only for volumes"},
		{wire.Frame{Type: wire.Data, Stream: 9, Payload: []byte("x")}, 1, "for volume 9, which was never announced"},
	} {
		var near, far [2]*wire.Conn
		for i := range near {
			near[i], far[i] = pipe(t)
		}
		rec := NewReceiver(far[0], nil, ReceiveOptions{})
		rec.Join(far[1])
		ended := make(chan error, 1)
		go func() { ended <- rec.Run(t.Context(), noControl, noChunk) }()
		if err := errors.Join(near[c.on].Write(&c.frame), near[c.on].Flush()); err != nil {
			t.Fatal(err)
		}
		says(t, <-ended, c.text)
	}
}

// A further connection that breaks ends the send, and whatever waits at a fence
// ends with the rest.
func TestABrokenFurtherConnection(t *testing.T) {
	const size, cluster = 4 << 20, 64 << 10
	var near, far [2]*wire.Conn
	for i := range near {
		near[i], far[i] = pipe(t)
	}
	rec := NewReceiver(far[0], nil, ReceiveOptions{})
	rec.Add(1, &store{b: make([]byte, size)}, nil)
	rec.Join(far[1])
	ended := make(chan error, 1)
	go func() { ended <- rec.Run(t.Context(), stopAtControl, noChunk) }()
	s, err := NewSender([]FrameWriter{near[0], near[1]}, SendOptions{RunBytes: cluster})
	if err != nil {
		t.Fatal(err)
	}
	m := blockmap.New(size, cluster)
	m.MarkAll()
	reads := 0
	vol := Volume{Stream: 1, Source: made{size, func(p []byte, _ int64) (int, error) {
		if reads++; reads == 20 {
			near[1].Close()
		}
		p[0] = 1
		return len(p), nil
	}}}
	s.opt.Readers = 1
	if _, err := s.Send(t.Context(), vol, m, Pass{}); !errors.Is(err, wire.ErrClosed) {
		t.Error(err)
	}
	go func() { // it waits at the fence, if the break did not end it by itself
		f := wire.Frame{Type: wire.Fence, Pos: 1}
		_ = errors.Join(near[0].Write(&f), near[0].Flush())
	}()
	if err := <-ended; !errors.Is(err, io.ErrUnexpectedEOF) { // it broke between two frames
		says(t, err, "a connection has ended before fence 1")
	}
	near[0].Close()
}
