package pipeline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/blockmap"
	"github.com/livefleet/handover/helper/internal/codec"
	"github.com/livefleet/handover/helper/internal/image"
	"github.com/livefleet/handover/helper/internal/wire"
)

const (
	KiB     = 1 << 10
	MiB     = 1 << 20
	cluster = 64 * KiB
)

func says(t *testing.T, err error, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("%v; should say %q", err, text)
	}
}

// content makes an image: noise, with text and zeroes here and there.
func content(r *rand.Rand, size int64) []byte {
	b := make([]byte, size)
	var seed [32]byte
	seed[0] = byte(r.Uint32())
	rand.NewChaCha8(seed).Read(b)
	for range 6 {
		n := r.Int64N(size / 4)
		off := r.Int64N(size - n)
		for i := int64(0); i < n; i++ {
			b[off+i] = "many words, all of them alike; "[i%31]
		}
	}
	for range 6 {
		n := r.Int64N(size / 4)
		off := r.Int64N(size - n)
		clear(b[off : off+n])
	}
	return b
}

func source(t *testing.T, b []byte) *image.Source {
	t.Helper()
	path := filepath.Join(t.TempDir(), "source")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := image.OpenSource(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func target(t *testing.T, size int64) *image.Target {
	t.Helper()
	tg, err := image.CreateTarget(filepath.Join(t.TempDir(), "target"), size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tg.Close() })
	return tg
}

func bytesOf(t *testing.T, tg *image.Target) []byte {
	t.Helper()
	b, err := os.ReadFile(tg.Path())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// pipe is a connection both of whose ends are in this process.
func pipe(t *testing.T) (near, far *wire.Conn) {
	t.Helper()
	a, b := net.Pipe()
	near, far = wire.NewConn(a), wire.NewConn(b)
	t.Cleanup(func() { near.Close(); far.Close() })
	return near, far
}

// made is a volume that is made up as it is read.
type made struct {
	size   int64
	readAt func(p []byte, off int64) (int, error)
}

func (m made) Path() string                            { return "made" }
func (m made) Size() int64                             { return m.size }
func (m made) ReadAt(p []byte, off int64) (int, error) { return m.readAt(p, off) }

// send sends what m marks with a Sender of its own.
func send(ctx context.Context, t *testing.T, conn FrameWriter, vol Volume, m *blockmap.Map, opt SendOptions, pass Pass) (Stats, error) {
	t.Helper()
	s, err := NewSender([]FrameWriter{conn}, opt)
	if err != nil {
		t.Fatal(err)
	}
	return s.Send(ctx, vol, m, pass)
}

var compressions = []string{"none", "lz4", "zstd", "auto"}

// encoder makes an encoder by the name of its compression.
func encoder(t *testing.T, compression string) *codec.Encoder {
	t.Helper()
	e, err := codec.NewEncoder(compression)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// frames reads everything that comes, up to and with the first Control frame.
func frames(conn *wire.Conn) <-chan []wire.Frame {
	c := make(chan []wire.Frame, 1)
	go func() {
		var all []wire.Frame
		for {
			var f wire.Frame
			if conn.Read(&f) != nil {
				break
			}
			all = append(all, f)
			if f.Type == wire.Control {
				break
			}
		}
		c <- all
	}()
	return c
}

var end = wire.Frame{Type: wire.Control, Payload: []byte("{}")}

func noControl(context.Context, *wire.Frame) error { return errors.New("there is a control frame") }
func noChunk(*wire.Frame) error                    { return errors.New("there is a chunk") }
func stopAtControl(context.Context, *wire.Frame) error {
	return ErrStop
}

// The way of an image through both halves, for many images, maps and options.
func TestSendToReceiver(t *testing.T) {
	for seed := range uint64(12) {
		r := rand.New(rand.NewPCG(seed, 3))
		size := MiB + r.Int64N(6*MiB)
		src := content(r, size)
		m := blockmap.New(size, cluster)
		want := make([]byte, size) // what an empty target becomes
		for range 1 + r.IntN(10) {
			m.MarkRange(r.Int64N(size), r.Int64N(size))
		}
		for off, n := range m.Runs(0) {
			copy(want[off:off+n], src[off:off+n])
		}
		compression := compressions[r.IntN(len(compressions))]
		opt := SendOptions{Encoder: encoder(t, compression), Readers: r.IntN(5), Slots: r.IntN(5), RunBytes: []int64{0, cluster, 3 * cluster, 4 * MiB}[r.IntN(4)]}
		s, tg := source(t, src), target(t, size)
		near, far := pipe(t)
		received := make(chan error, 1)
		rec := NewReceiver(far, map[uint32]*image.Target{7: tg}, ReceiveOptions{Writers: r.IntN(5), Memory: r.Int64N(5 * MiB)})
		go func() { received <- rec.Run(t.Context(), stopAtControl, noChunk) }()

		var counted int64
		pass := Pass{SkipZero: r.IntN(2) == 0, Count: func(n int64) { counted += n }}
		stats, err := send(t.Context(), t, near, Volume{Stream: 7, Source: s}, m, opt, pass)
		if err != nil {
			t.Fatal(err)
		}
		if err := near.Write(&end); err != nil {
			t.Fatal(err)
		}
		if err := <-received; err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(bytesOf(t, tg), want) {
			t.Fatalf("seed %d, %s, %+v: the target is not the marked part of the source", seed, compression, opt)
		}
		got := rec.Received()
		if stats.Bytes != m.Bytes() || counted != stats.Bytes || stats.Clusters != m.Count() || stats.Sent+stats.Zero+stats.Skipped != stats.Bytes ||
			pass.SkipZero && stats.Zero != 0 || !pass.SkipZero && stats.Skipped != 0 || got.Written != stats.Sent || got.Zeroed != stats.Zero ||
			compression != codec.Auto && (compression == "none") != (stats.Payload == stats.Sent) {
			t.Errorf("seed %d, %s, %+v: sent %+v, counted %d, received %+v of %d bytes", seed, compression, opt, stats, counted, got, m.Bytes())
		}
	}
}

// Zeroes must be sent where they may lie over something else: leaving them out
// is what once corrupted images.
func TestZeroesOverData(t *testing.T) {
	const size = 4 * MiB
	src := make([]byte, size)
	for _, skip := range []bool{false, true} {
		tg := target(t, size)
		if _, err := tg.WriteAt(bytes.Repeat([]byte{1}, size), 0); err != nil {
			t.Fatal(err)
		}
		m := blockmap.New(size, cluster)
		m.MarkAll()
		near, far := pipe(t)
		received := make(chan error, 1)
		go func() {
			received <- NewReceiver(far, map[uint32]*image.Target{1: tg}, ReceiveOptions{}).Run(t.Context(), stopAtControl, noChunk)
		}()
		if _, err := send(t.Context(), t, near, Volume{Stream: 1, Source: source(t, src)}, m, SendOptions{}, Pass{SkipZero: skip}); err != nil {
			t.Fatal(err)
		}
		if err := near.Write(&end); err != nil {
			t.Fatal(err)
		}
		if err := <-received; err != nil {
			t.Fatal(err)
		}
		if equal := bytes.Equal(bytesOf(t, tg), src); equal == skip {
			t.Errorf("SkipZero %v: the target equals the source: %v", skip, equal)
		}
	}
}

func TestFramesOfAPass(t *testing.T) {
	const size = 8*MiB + 100
	src := make([]byte, size)
	for _, off := range []int64{0, 1*MiB - cluster, 5 * MiB, size - 1} {
		src[off] = 1
	}
	m := blockmap.New(size, cluster)
	m.MarkAll()
	near, far := pipe(t)
	got := frames(far)
	if _, err := send(t.Context(), t, near, Volume{Stream: 3, Source: source(t, src)}, m, SendOptions{}, Pass{}); err != nil {
		t.Fatal(err)
	}
	if err := near.Write(&end); err != nil {
		t.Fatal(err)
	}
	var text []string
	for _, f := range <-got {
		if f.Type != wire.Control && f.Stream != 3 {
			t.Errorf("stream %d", f.Stream)
		}
		text = append(text, fmt.Sprintf("%s %d+%d", f.Type, f.Pos/cluster, (f.Length+cluster-1)/cluster))
	}
	// Zeroes are one frame also where they go on from run to run.
	const want = "data 0+1, zero 1+14, data 15+1, zero 16+64, data 80+1, zero 81+47, data 128+1, control 0+1"
	if got := strings.Join(text, ", "); got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}

// slowDisk has one head: it reads a MiB in 10 ms, and nothing meanwhile.
type slowDisk struct {
	head    chan struct{} // not a mutex: the test's clock goes on only while all wait for channels or time
	waiting atomic.Int64  // reads that were asked for and are not done
	most    atomic.Int64
}

func (d *slowDisk) ReadAt(p []byte, off int64) (int, error) {
	n := d.waiting.Add(1)
	defer d.waiting.Add(-1)
	for most := d.most.Load(); n > most && !d.most.CompareAndSwap(most, n); most = d.most.Load() {
	}
	d.head <- struct{}{}
	defer func() { <-d.head }()
	time.Sleep(time.Duration(len(p)) * 10 * time.Millisecond / MiB)
	for i := range p {
		p[i] = 1
	}
	return len(p), nil
}

func (d *slowDisk) Path() string { return "slow disk" }
func (d *slowDisk) Size() int64  { return slowSize }

const slowSize = 100 * MiB

// slowLink sends a MiB in 15 ms.
type slowLink struct{}

func (slowLink) Write(f *wire.Frame) error {
	time.Sleep(time.Duration(len(f.Payload)) * 15 * time.Millisecond / MiB)
	return nil
}

func (slowLink) Flush() error    { return nil }
func (slowLink) Interrupt(error) {}

// The old measure: with reads of 10 ms a MiB and sends of 15 ms, a MiB costs 15
// and not 25. The clock is the test's own and stands still while anyone works,
// so the time is the same on any machine.
func TestTheSlowestStageSetsTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &slowDisk{head: make(chan struct{}, 1)}
		m := blockmap.New(slowSize, cluster)
		m.MarkAll()
		opt := SendOptions{Readers: 3}
		stats, err := send(t.Context(), t, slowLink{}, Volume{Stream: 1, Source: d}, m, opt, Pass{})
		if err != nil {
			t.Fatal(err)
		}
		// The first run is read before anything can be sent; the disk may take
		// those that were asked for at the same time before it.
		sends, read := slowSize/MiB*15*time.Millisecond, 10*time.Millisecond*DefaultRunBytes/MiB
		if stats.Elapsed < sends+read || stats.Elapsed > sends+3*read {
			t.Errorf("%d MiB took %v, should be %v and the time of the first read", slowSize/MiB, stats.Elapsed, sends)
		}
		if n := d.most.Load(); n != int64(opt.Readers) {
			t.Errorf("%d reads were asked for at a time, should be %d", n, opt.Readers)
		}
	})
}

// slowTarget is a destination whose writes take a while, several at a time.
type slowTarget struct{ store }

func (*slowTarget) WriteAt(p []byte, _ int64) (int, error) {
	time.Sleep(time.Duration(len(p)) * 40 * time.Millisecond / MiB)
	return len(p), nil
}

// The same on the other side: receiving and writing go on side by side.
func TestReceivingAndWritingOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		frames := int64(100)
		arriving := &arrivals{left: frames}
		r := NewReceiver(arriving, nil, ReceiveOptions{Writers: 4})
		r.Add(1, &slowTarget{store{b: make([]byte, 100*MiB)}}, nil)
		began := time.Now()
		if err := r.Run(t.Context(), stopAtControl, noChunk); err != nil {
			t.Fatal(err)
		}
		// Each MiB takes 15 ms to come and 40 ms to be written, by one of four.
		if took, want := time.Since(began), time.Duration(frames)*15*time.Millisecond+40*time.Millisecond; took != want {
			t.Errorf("%d MiB took %v, should be %v", frames, took, want)
		}
	})
}

// arrivals is a connection from which a MiB comes every 15 ms.
type arrivals struct {
	left int64
	take func(int) ([]byte, error)
}

func (a *arrivals) Read(f *wire.Frame) (err error) {
	if a.left == 0 {
		*f = wire.Frame{Type: wire.Control}
		return nil
	}
	time.Sleep(15 * time.Millisecond)
	a.left--
	*f = wire.Frame{Type: wire.Data, Stream: 1, Pos: a.left * MiB, Length: MiB}
	f.Payload, err = a.take(MiB)
	return err
}

func (a *arrivals) TakeMemory(take func(int) ([]byte, error)) { a.take = take }
func (a *arrivals) Interrupt(error)                           {}

// However slow the link is, no more is read than there are slots for.
func TestReadingAheadIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slots = 5
		var reads atomic.Int64
		ctx, cancel := context.WithCancel(t.Context())
		m := blockmap.New(slowSize, cluster)
		m.MarkAll()
		vol := Volume{Stream: 1, Source: made{slowSize, func(p []byte, _ int64) (int, error) {
			reads.Add(1)
			p[0] = 1
			return len(p), nil
		}}}
		ended := make(chan error, 1)
		go func() {
			_, err := send(ctx, t, &stuckLink{ctx: ctx}, vol, m, SendOptions{Slots: slots}, Pass{})
			ended <- err
		}()
		synctest.Wait() // nothing moves any more
		if n := reads.Load(); n != slots {
			t.Errorf("%d runs were read, with %d slots", n, slots)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// stuckLink takes nothing until it is interrupted.
type stuckLink struct {
	slowLink
	ctx context.Context
}

func (s *stuckLink) Write(*wire.Frame) error {
	<-s.ctx.Done()
	return s.ctx.Err()
}

func TestSendRefuses(t *testing.T) {
	for _, c := range []struct {
		opt  SendOptions
		text string
	}{
		{SendOptions{RunBytes: 5 * MiB}, "runs of 5242880 bytes: they have at most 4194304"},
		{SendOptions{RunBytes: -1}, "runs of -1 bytes"},
		{SendOptions{Readers: -1}, "none of them can be negative"},
		{SendOptions{Slots: -1}, "none of them can be negative"},
	} {
		_, err := NewSender([]FrameWriter{slowLink{}}, c.opt)
		says(t, err, c.text)
	}
	s := source(t, make([]byte, MiB))
	_, err := send(t.Context(), t, slowLink{}, Volume{Stream: 1, Source: s}, blockmap.New(MiB+1, cluster), SendOptions{}, Pass{})
	says(t, err, s.Path()+" has 1048576 bytes and its map 1048577")
}

// A failed read ends the send, and the Sender can send again.
func TestReadErrorStopsTheSend(t *testing.T) {
	const size = 64 * MiB
	m := blockmap.New(size, cluster)
	m.MarkAll()
	var reads atomic.Int64
	s, err := NewSender([]FrameWriter{slowLink{}}, SendOptions{})
	if err != nil {
		t.Fatal(err)
	}
	bad := int64(5 * MiB)
	vol := Volume{Stream: 1, Source: made{size, func(p []byte, off int64) (int, error) {
		reads.Add(1)
		if off >= bad {
			return 0, fmt.Errorf("reading at offset %d: %w", off, unix.EIO)
		}
		return len(p), nil
	}}}
	_, err = s.Send(t.Context(), vol, m, Pass{SkipZero: true})
	if !errors.Is(err, unix.EIO) {
		t.Error(err)
	}
	if n := reads.Load(); n > bad/DefaultRunBytes+DefaultSlots {
		t.Errorf("%d runs were read, the eleventh of them in vain", n)
	}
	bad = size
	if stats, err := s.Send(t.Context(), vol, m, Pass{SkipZero: true}); err != nil || stats.Skipped != size {
		t.Errorf("again: %+v, %v", stats, err)
	}
}

// A shrunken source is not sent as if it were whole.
func TestShortRead(t *testing.T) {
	m := blockmap.New(MiB, cluster)
	m.MarkAll()
	for _, end := range []error{nil, io.EOF} {
		vol := Volume{Stream: 1, Source: made{MiB, func(p []byte, off int64) (int, error) { return len(p) - 1, end }}}
		_, err := send(t.Context(), t, slowLink{}, vol, m, SendOptions{Readers: 1}, Pass{})
		says(t, err, "made: 1048575 of 1048576 bytes at offset 0")
	}
}

// What ends a send that is stuck because nobody takes what it writes.
func TestSendEnds(t *testing.T) {
	const size = 32 * MiB
	b := bytes.Repeat([]byte{1}, size)
	m := blockmap.New(size, cluster)
	m.MarkAll()
	for name, stop := range map[string]func(cancel context.CancelCauseFunc, far *wire.Conn){
		"context":   func(cancel context.CancelCauseFunc, _ *wire.Conn) { cancel(errors.New("the operator said stop")) },
		"peer gone": func(_ context.CancelCauseFunc, far *wire.Conn) { far.Close() },
	} {
		near, far := pipe(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := make(chan error, 1)
		started := make(chan struct{})
		var once sync.Once
		go func() {
			_, err := send(ctx, t, near, Volume{Stream: 1, Source: source(t, b)}, m, SendOptions{}, Pass{Count: func(int64) { once.Do(func() { close(started) }) }})
			ended <- err
		}()
		var f wire.Frame
		if err := far.Read(&f); err != nil { // then no more
			t.Fatal(err)
		}
		<-started
		stop(cancel, far)
		err := <-ended
		cancel(nil)
		if name == "context" {
			says(t, err, "the operator said stop")
		} else {
			says(t, err, "wire: sending: io: read/write on closed pipe")
		}
	}
}

// A send that is cancelled while its connection flows leaves it good for a last
// word.
func TestCancelledSendLeavesTheConnection(t *testing.T) {
	const size = 64 * MiB
	m := blockmap.New(size, cluster)
	m.MarkAll()
	near, far := pipe(t)
	got := frames(far)
	ctx, cancel := context.WithCancelCause(t.Context())
	vol := Volume{Stream: 1, Source: made{size, func(p []byte, off int64) (int, error) {
		if off >= 3*MiB {
			cancel(errors.New("enough"))
		}
		p[0] = 1
		return len(p), nil
	}}}
	_, err := send(ctx, t, near, vol, m, SendOptions{}, Pass{})
	says(t, err, "pipeline: sending made: enough")
	if err := near.Write(&end); err != nil {
		t.Fatal(err)
	}
	all := <-got
	if len(all) == 0 || all[len(all)-1].Type != wire.Control {
		t.Errorf("%d frames, and the last word is not among them", len(all))
	}
}

func fixed(limit int64) *Pace { return NewPace(func() int64 { return limit }) }

// A limit holds from the moment at which it is another one.
func TestLimitChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := int64(10)
		p := NewPace(func() int64 { return limit })
		began := time.Now()
		for _, c := range []struct{ limit, bytes int64 }{{10, 10}, {100, 100}, {0, 1 << 40}, {10, 1}} {
			limit = c.limit
			if err := p.Wait(t.Context(), c.bytes); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("10 bytes at 10 a second and 100 at 100 took %v, should be 2 s", took)
		}
	})
}

// The limit is kept, by the test's own clock.
func TestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 10 * MiB
		m := blockmap.New(size, cluster)
		m.MarkAll()
		vol := Volume{Stream: 1, Source: made{size, func(p []byte, _ int64) (int, error) {
			for i := 0; i < len(p); i += cluster {
				p[i] = 1
			}
			return len(p), nil
		}}}
		stats, err := send(t.Context(), t, noLink{}, vol, m, SendOptions{RunBytes: MiB}, Pass{Pace: fixed(100 * MiB)})
		if err != nil {
			t.Fatal(err)
		}
		// The last MiB is sent when the nine before it are paid for.
		if want := 90 * time.Millisecond; stats.Elapsed != want {
			t.Errorf("10 MiB at 100 MiB/s took %v, should be %v", stats.Elapsed, want)
		}

		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if _, err := send(ctx, t, noLink{}, vol, m, SendOptions{}, Pass{Pace: fixed(1)}); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// noLink takes everything at once.
type noLink struct{ slowLink }

func (noLink) Write(*wire.Frame) error { return nil }
