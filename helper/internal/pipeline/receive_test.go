package pipeline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/codec"
	"github.com/livefleet/handover/helper/internal/image"
	"github.com/livefleet/handover/helper/internal/wire"
)

// store is a Target that makes trouble for an unordered receiver: a write takes
// a random little while and goes in two halves.
type store struct {
	mu    sync.Mutex
	b     []byte
	slow  bool
	under int // calls under way
	calls int
	fail  func(off int64) error
}

func (m *store) Path() string { return "store" }
func (m *store) Size() int64  { return int64(len(m.b)) }

func (m *store) do(off int64, n int, write func(from, to int64)) error {
	m.mu.Lock()
	m.under++
	m.calls++
	fail := m.fail
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		m.under--
		m.mu.Unlock()
	}()
	if fail != nil {
		if err := fail(off); err != nil {
			return err
		}
	}
	middle, end := off+int64(n)/2, off+int64(n)
	for _, part := range [][2]int64{{off, middle}, {middle, end}} {
		if m.slow {
			time.Sleep(time.Duration(rand.IntN(200)) * time.Microsecond)
		}
		m.mu.Lock()
		write(part[0], part[1])
		m.mu.Unlock()
	}
	return nil
}

func (m *store) WriteAt(p []byte, off int64) (int, error) {
	err := m.do(off, len(p), func(from, to int64) { copy(m.b[from:to], p[from-off:]) })
	return len(p), err
}

func (m *store) Zero(off, n int64) error {
	return m.do(off, int(n), func(from, to int64) { clear(m.b[from:to]) })
}

func (m *store) Discard(off, n int64) error { return m.Zero(off, n) }

// receive runs a receiver until a Control frame, and returns how it ended.
func receive(t *testing.T, far *wire.Conn, opt ReceiveOptions, targets map[uint32]Target) <-chan error {
	t.Helper()
	r := NewReceiver(far, nil, opt)
	for stream, tg := range targets {
		r.Add(stream, tg, nil)
	}
	ended := make(chan error, 1)
	go func() { ended <- r.Run(t.Context(), stopAtControl, noChunk) }()
	return ended
}

// Of all that is written to a place, what came last stays: byte by byte, for any
// interleaving of frames of any kind and length, over borders of all kinds.
func TestLastWrittenWins(t *testing.T) {
	const size = 4*MiB + 77
	for seed := range uint64(4) {
		r := rand.New(rand.NewPCG(seed, 4))
		targets := map[uint32]Target{}
		want := map[uint32][]byte{}
		for stream := range uint32(2) {
			targets[stream] = &store{b: bytes.Repeat([]byte{0xee}, size), slow: true}
			want[stream] = bytes.Repeat([]byte{0xee}, size)
		}
		near, far := pipe(t)
		ended := receive(t, far, ReceiveOptions{Writers: 1 + r.IntN(6), Memory: 1 + r.Int64N(20*MiB)}, targets)
		hot := r.Int64N(size - MiB) // most frames go to one place, over and over
		for i := range 150 {
			f := wire.Frame{Type: wire.Data, Stream: uint32(r.IntN(2))}
			n := 1 + r.Int64N(3*MiB/2)
			if r.IntN(2) == 0 {
				n = 1 + r.Int64N(5000)
			}
			f.Pos = min(hot+r.Int64N(MiB), size-n)
			if r.IntN(4) == 0 {
				f.Pos = r.Int64N(size - n)
			}
			switch r.IntN(6) {
			case 0:
				f.Type, f.Length = wire.Zero, n
				if r.IntN(8) == 0 {
					f.Pos, f.Length = 1000, r.Int64N(size-1000)
				}
				clear(want[f.Stream][f.Pos : f.Pos+f.Length])
			case 1:
				f.Type, f.Length = wire.Discard, n
				clear(want[f.Stream][f.Pos : f.Pos+n])
			default:
				f.Payload = bytes.Repeat([]byte{byte(i), byte(i >> 8), byte(r.Uint32())}, int(n/3)+1)[:n]
				copy(want[f.Stream][f.Pos:], f.Payload)
				packed, how := codec.Pack(make([]byte, codec.Room(int(n))), f.Payload, codec.Packing(r.IntN(3)))
				if how != codec.Plain {
					f.Type, f.Flags, f.Length, f.Payload = wire.Packed, uint16(how), n, packed
				}
			}
			if err := near.Write(&f); err != nil {
				t.Fatal(err)
			}
		}
		if err := near.Write(&end); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		for stream, tg := range targets {
			if got := tg.(*store).b; !bytes.Equal(got, want[stream]) {
				for i := range got {
					if got[i] != want[stream][i] {
						t.Fatalf("seed %d, volume %d: byte %d is %#x, and %#x came last", seed, stream, i, got[i], want[stream][i])
					}
				}
			}
		}
	}
}

// A receiver that gave frames to any worker would fail the test above: this one
// shows that the test can see it.
func TestLastWrittenWinsCanFail(t *testing.T) {
	differs := false
	for range 50 {
		m := &store{b: make([]byte, 4096), slow: true}
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				m.WriteAt(bytes.Repeat([]byte{byte(i)}, 4096), 0) //nolint:errcheck
			}()
		}
		wg.Wait()
		differs = differs || m.b[0] != 7 || m.b[4095] != 7
	}
	if !differs {
		t.Error("writes without any order came out in order fifty times")
	}
}

// Writes are under way side by side, and before a Control frame is handed over
// all that came before it is written.
func TestFenceBeforeControl(t *testing.T) {
	const size = 16 * MiB
	m := &store{b: make([]byte, size), slow: true}
	// The first two writes wait for each other: only side by side they get on.
	met := make(chan struct{})
	var calls atomic.Int64
	m.fail = func(int64) error {
		switch calls.Add(1) {
		case 1:
			select {
			case <-met:
			case <-time.After(20 * time.Second):
				return errors.New("a second write does not begin while the first is under way")
			}
		case 2:
			close(met)
		}
		return nil
	}
	near, far := pipe(t)
	r := NewReceiver(far, nil, ReceiveOptions{Writers: 4})
	r.Add(1, m, nil)
	controls := 0
	ended := make(chan error, 1)
	go func() {
		ended <- r.Run(t.Context(), func(_ context.Context, f *wire.Frame) error {
			controls++
			m.mu.Lock()
			defer m.mu.Unlock()
			if m.under != 0 {
				return fmt.Errorf("%d writes are under way at a control frame", m.under)
			}
			for i, b := range m.b {
				if b != byte(controls) {
					return fmt.Errorf("control frame %d: byte %d is %d", controls, i, b)
				}
			}
			if string(f.Payload) != fmt.Sprint(controls) {
				return fmt.Errorf("control frame %d says %q", controls, f.Payload)
			}
			if controls == 3 {
				return ErrStop
			}
			return nil
		}, noChunk)
		far.Close() // so that this side does not wait for ever if it ended too early
	}()
	for round := range 3 {
		for off := int64(0); off < size; off += MiB {
			f := wire.Frame{Type: wire.Data, Stream: 1, Pos: off, Payload: bytes.Repeat([]byte{byte(round + 1)}, MiB)}
			if err := near.Write(&f); err != nil {
				t.Fatal(<-ended, err)
			}
		}
		if err := near.Write(&wire.Frame{Type: wire.Control, Payload: fmt.Append(nil, round+1)}); err != nil {
			t.Fatal(<-ended, err)
		}
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if got := r.Received(); got.Written != 3*size || got.Frames != 3*size/MiB {
		t.Errorf("%+v", got)
	}
}

func TestChunksAreInOrder(t *testing.T) {
	near, far := pipe(t)
	r := NewReceiver(far, nil, ReceiveOptions{})
	r.Add(1, &store{b: make([]byte, MiB)}, nil)
	var seen []string
	ended := make(chan error, 1)
	go func() {
		ended <- r.Run(t.Context(),
			func(_ context.Context, f *wire.Frame) error {
				seen = append(seen, "control")
				if len(seen) == 5 {
					return ErrStop
				}
				return nil
			},
			func(f *wire.Frame) error {
				seen = append(seen, fmt.Sprintf("%d:%s", f.Stream, f.Payload))
				return nil
			})
	}()
	for _, f := range []wire.Frame{
		{Type: wire.Chunk, Stream: 9, Payload: []byte("a")},
		{Type: wire.Data, Stream: 1, Payload: []byte("data")},
		{Type: wire.Chunk, Stream: 8, Payload: []byte("b")},
		{Type: wire.Control},
		{Type: wire.Chunk, Stream: 9, Payload: []byte("c")},
		{Type: wire.Control},
	} {
		if err := near.Write(&f); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(seen); got != "[9:a 8:b control 9:c control]" {
		t.Error(got)
	}
}

// The first error of a write is what Run returns, though it came from a worker
// while the receiver waits for the next frame, and nothing is written after it.
func TestWriteErrorEndsTheSession(t *testing.T) {
	m := &store{b: make([]byte, 4*MiB)}
	m.fail = func(off int64) error {
		if off == 2*MiB {
			return fmt.Errorf("image: /volume: writing at offset %d: %w", off, unix.ENOSPC)
		}
		return nil
	}
	near, far := pipe(t)
	ended := receive(t, far, ReceiveOptions{}, map[uint32]Target{1: m})
	for off := int64(0); off < 3*MiB; off += MiB {
		if err := near.Write(&wire.Frame{Type: wire.Data, Stream: 1, Pos: off, Payload: make([]byte, MiB)}); err != nil {
			break
		}
	}
	near.Flush()   //nolint:errcheck // the other side may be gone already
	err := <-ended // although this side neither goes on nor closes
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	says(t, err, "image: /volume: writing at offset 2097152: no space left on device")
}

// After a write that failed no Control frame is handed over.
func TestWriteErrorBeforeControl(t *testing.T) {
	m := &store{b: make([]byte, 4*MiB), fail: func(int64) error { return unix.EIO }}
	near, far := pipe(t)
	r := NewReceiver(far, nil, ReceiveOptions{})
	r.Add(1, m, nil)
	ended := make(chan error, 1)
	go func() { ended <- r.Run(t.Context(), noControl, noChunk) }()
	near.Write(&wire.Frame{Type: wire.Data, Stream: 1, Payload: []byte("x")}) //nolint:errcheck
	near.Write(&end)                                                          //nolint:errcheck // it may have ended by now
	if err := <-ended; err != unix.EIO {
		t.Errorf("%v: the control frame was handed over although a write before it had failed", err)
	}
}

func TestReceiverRefuses(t *testing.T) {
	for _, c := range []struct {
		frame wire.Frame
		text  string
	}{
		{wire.Frame{Type: wire.Data, Stream: 2, Payload: []byte("x")}, "a data frame for volume 2, which was never announced"},
		{wire.Frame{Type: wire.Data, Stream: 1, Pos: MiB, Payload: []byte("x")}, "a data frame at 1048576, length 1, is outside store, which has 1048576 bytes"},
		{wire.Frame{Type: wire.Zero, Stream: 1, Pos: 1, Length: MiB}, "a zero frame at 1, length 1048576, is outside store"},
		{wire.Frame{Type: wire.Packed, Stream: 1, Length: MiB + 1, Payload: []byte("x")}, "a packed frame at 0, length 1048577, is outside store"},
		{wire.Frame{Type: wire.Packed, Stream: 1, Pos: 4096, Flags: 1, Length: 100, Payload: []byte("x")}, "store at offset 4096: codec: a payload of 1 bytes, packed by lz4, "},
		{wire.Frame{Type: wire.Packed, Stream: 1, Flags: 99, Length: 100, Payload: []byte("x")}, "in a way that this side does not know (99)"},
		{wire.Frame{Type: wire.Discard, Stream: 1, Pos: 1 << 61, Length: 1 << 62}, "is outside store"},
	} {
		m := &store{b: make([]byte, MiB)}
		near, far := pipe(t)
		ended := receive(t, far, ReceiveOptions{}, map[uint32]Target{1: m})
		if err := near.Write(&c.frame); err != nil {
			t.Fatal(err)
		}
		if err := near.Flush(); err != nil {
			t.Fatal(err)
		}
		says(t, <-ended, c.text)
		if m.calls != 0 {
			t.Errorf("%q: something was written", c.text)
		}
	}
}

func TestHowARunEnds(t *testing.T) {
	start := func(ctx context.Context) (near *wire.Conn, m *store, ended chan error) {
		near, far := pipe(t)
		m = &store{b: make([]byte, MiB), slow: true}
		r := NewReceiver(far, nil, ReceiveOptions{})
		r.Add(1, m, nil)
		ended = make(chan error, 1)
		go func() { ended <- r.Run(ctx, noControl, noChunk) }()
		if err := near.Write(&wire.Frame{Type: wire.Data, Stream: 1, Payload: []byte("hello")}); err != nil {
			t.Fatal(err)
		}
		if err := near.Flush(); err != nil {
			t.Fatal(err)
		}
		return near, m, ended
	}
	near, m, ended := start(t.Context())
	near.Close()
	if err := <-ended; err != io.EOF {
		t.Error(err)
	}
	if string(m.b[:5]) != "hello" {
		t.Error("what came before the end was not written")
	}

	ctx, cancel := context.WithCancelCause(t.Context())
	_, _, ended = start(ctx)
	cancel(errors.New("the operator said stop"))
	says(t, <-ended, "the operator said stop")

	near, _, ended = start(t.Context())
	if err := near.Write(&end); err != nil {
		t.Fatal(err)
	}
	says(t, <-ended, "there is a control frame")

	near, _, ended = start(t.Context())
	if err := near.Write(&wire.Frame{Type: wire.Chunk}); err != nil {
		t.Fatal(err)
	}
	if err := near.Flush(); err != nil {
		t.Fatal(err)
	}
	says(t, <-ended, "there is a chunk")
}

// Volumes may be announced by a control frame.
func TestVolumesAddedOnTheWay(t *testing.T) {
	near, far := pipe(t)
	tg := target(t, MiB)
	r := NewReceiver(far, map[uint32]*image.Target{}, ReceiveOptions{})
	n := 0
	ended := make(chan error, 1)
	go func() {
		ended <- r.Run(t.Context(), func(context.Context, *wire.Frame) error {
			if n++; n == 2 {
				return ErrStop
			}
			r.Add(5, tg, nil)
			return nil
		}, noChunk)
	}()
	for _, f := range []wire.Frame{end, {Type: wire.Data, Stream: 5, Pos: 3, Payload: []byte("late")}, end} {
		if err := near.Write(&f); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if got := bytesOf(t, tg)[3:7]; string(got) != "late" {
		t.Errorf("%q", got)
	}
}

// Memory is bounded: with all writers stuck the receiver stops reading.
func TestMemoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const budget = 3 * MiB
		block := make(chan struct{})
		m := &store{b: make([]byte, 100*MiB), fail: func(int64) error { <-block; return nil }}
		from := &counted{arrivals: arrivals{left: 100}}
		r := NewReceiver(from, nil, ReceiveOptions{Writers: 2, Memory: budget})
		r.Add(1, m, nil)
		ended := make(chan error, 1)
		go func() { ended <- r.Run(t.Context(), stopAtControl, noChunk) }()
		time.Sleep(time.Hour) // of the test's own clock: it has come to rest
		if n := from.taken.Load(); n != budget/MiB {
			t.Errorf("%d frames of a MiB are in memory, with a budget of %d bytes", n, budget)
		}
		close(block)
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	})
}

// counted counts the payloads that it got memory for.
type counted struct {
	arrivals
	taken atomic.Int64
}

func (c *counted) TakeMemory(take func(int) ([]byte, error)) {
	c.arrivals.TakeMemory(func(n int) ([]byte, error) {
		b, err := take(n)
		c.taken.Add(1)
		return b, err
	})
}

// Frames that take no memory are bounded as well.
func TestTasksAreBounded(t *testing.T) {
	block := make(chan struct{})
	m := &store{b: make([]byte, MiB), fail: func(int64) error { <-block; return nil }}
	near, far := pipe(t)
	ended := receive(t, far, ReceiveOptions{}, map[uint32]Target{1: m})
	var wrote atomic.Int64
	wrote.Store(-1)
	go func() {
		for range 10 * tasksAtOnce {
			f := wire.Frame{Type: wire.Zero, Stream: 1, Length: 1}
			if near.Write(&f) != nil || near.Flush() != nil {
				return
			}
			wrote.Add(1)
		}
		near.Write(&end) //nolint:errcheck
	}()
	for before := int64(-2); before != wrote.Load(); time.Sleep(50 * time.Millisecond) {
		before = wrote.Load() // it comes to rest
	}
	const buffered = 64 << 10 / 48 // that the connection itself holds
	if n := wrote.Load(); n > tasksAtOnce+buffered {
		t.Errorf("%d frames were taken, at most %d are to be under way", n, tasksAtOnce)
	}
	close(block)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

// A budget is never overdrawn, what was given back is used again, and a request
// that is larger than all of it gets through alone.
func TestMemory(t *testing.T) {
	const budget = 10 * image.Align
	m := newMemory(budget)
	if b, err := m.take(t.Context(), 100*image.Align); err != nil || len(b) != 100*image.Align {
		t.Fatal(err)
	} else {
		m.give(b)
	}
	var wg sync.WaitGroup
	var taken atomic.Int64
	for seed := range uint64(8) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			r := rand.New(rand.NewPCG(seed, 5))
			for range 500 {
				n := 1 + r.IntN(4*image.Align)
				b, err := m.take(t.Context(), n)
				if err != nil || len(b) != n {
					t.Error(len(b), err)
					return
				}
				if now := taken.Add(int64(cap(b))); now > budget {
					t.Errorf("%d bytes are taken, and the budget is %d", now, budget)
				}
				taken.Add(-int64(cap(b)))
				m.give(b)
			}
		}()
	}
	wg.Wait()
	ctx, cancel := context.WithCancelCause(t.Context())
	if _, err := m.take(ctx, budget/2); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(time.Millisecond, func() { cancel(errors.New("enough")) })
	_, err := m.take(ctx, budget)
	says(t, err, "enough")
}
