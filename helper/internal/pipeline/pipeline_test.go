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
	"time"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/blockmap"
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

// content makes an image: noise, with zeroes here and there.
func content(r *rand.Rand, size int64) []byte {
	b := make([]byte, size)
	var seed [32]byte
	seed[0] = byte(r.Uint32())
	rand.NewChaCha8(seed).Read(b)
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
		opt := SendOptions{SkipZero: r.IntN(2) == 0, Readers: r.IntN(5), Buffers: r.IntN(5), RunBytes: []int64{0, cluster, 3 * cluster, 4 * MiB}[r.IntN(4)]}
		s, tg := source(t, src), target(t, size)
		near, far := pipe(t)
		received := make(chan error, 1)
		rec := NewReceiver(far, map[uint32]*image.Target{7: tg}, ReceiveOptions{Writers: r.IntN(5), Buffers: r.IntN(5)})
		go func() { received <- rec.Run(t.Context(), stopAtControl, noChunk) }()

		var counted int64
		stats, err := Send(t.Context(), near, Volume{7, s}, m, opt, func(n int64) { counted += n })
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
			t.Fatalf("seed %d, %+v: the target is not the marked part of the source", seed, opt)
		}
		got := rec.Received()
		if stats.Bytes != m.Bytes() || counted != stats.Bytes || stats.Clusters != m.Count() || stats.Sent+stats.Zero+stats.Skipped != stats.Bytes ||
			opt.SkipZero && stats.Zero != 0 || !opt.SkipZero && stats.Skipped != 0 || got.Written != stats.Sent || got.Zeroed != stats.Zero {
			t.Errorf("seed %d, %+v: sent %+v, counted %d, received %+v of %d bytes", seed, opt, stats, counted, got, m.Bytes())
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
		if _, err := Send(t.Context(), near, Volume{1, source(t, src)}, m, SendOptions{SkipZero: skip}, nil); err != nil {
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
	if _, err := Send(t.Context(), near, Volume{3, source(t, src)}, m, SendOptions{}, nil); err != nil {
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

// recorder is the source and the connection at once: it knows what is under way
// on both sides. Each side takes its time.
type recorder struct {
	mu       sync.Mutex
	reading  int // reads under way
	readers  int // the most there were
	done     int // reads done
	sent     int // runs written to the connection
	ahead    int // the most reads done or under way that were not sent yet
	together int // how often a read and a write were under way at the same time
	writing  bool
}

func (r *recorder) readAt(p []byte, off int64) (int, error) {
	r.mu.Lock()
	r.reading++
	r.readers = max(r.readers, r.reading)
	r.ahead = max(r.ahead, r.reading+r.done-r.sent)
	if r.writing {
		r.together++
	}
	r.mu.Unlock()
	time.Sleep(10 * time.Millisecond) // a disk of 100 MiB/s and four reads at a time
	for i := range p {
		p[i] = 1
	}
	r.mu.Lock()
	r.reading--
	r.done++
	r.mu.Unlock()
	return len(p), nil
}

// Write is the connection's: a network of 66 MiB/s.
func (r *recorder) Write(p []byte) (int, error) {
	if len(p) < MiB/2 { // a header
		return len(p), nil
	}
	r.mu.Lock()
	r.writing = true
	if r.reading > 0 {
		r.together++
	}
	r.mu.Unlock()
	time.Sleep(15 * time.Millisecond)
	r.mu.Lock()
	r.writing = false
	r.sent++
	r.mu.Unlock()
	return len(p), nil
}

func (r *recorder) Read([]byte) (int, error) { return 0, io.EOF }
func (r *recorder) Close() error             { return nil }

// Reading and sending go on side by side, several reads at a time, and no more
// memory is taken than was allowed.
func TestReadingAndSendingOverlap(t *testing.T) {
	const runs = 24
	m := blockmap.New(runs*MiB, cluster)
	m.MarkAll()
	r := &recorder{}
	opt := SendOptions{Readers: 3, Buffers: 5}
	if err := opt.fill(cluster); err != nil {
		t.Fatal(err)
	}
	s := sender{conn: wire.NewConn(r), vol: Volume{Stream: 1}, m: m, opt: opt}
	stats, err := s.run(t.Context(), "source", r.readAt)
	if err != nil {
		t.Fatal(err)
	}
	if stats.Sent != runs*MiB || r.done != runs {
		t.Errorf("%+v, %d reads", stats, r.done)
	}
	if r.readers != opt.Readers {
		t.Errorf("%d reads were under way at a time, should be %d", r.readers, opt.Readers)
	}
	if r.together < runs/2 {
		t.Errorf("a read and a write were under way at the same time only %d times in %d runs", r.together, runs)
	}
	// Sending is the slower side, so reading gets as far ahead as it may: one
	// buffer is at the connection, the others are full or being filled.
	if r.ahead > opt.Buffers || r.ahead < 3 {
		t.Errorf("reading was %d runs ahead of sending, with %d buffers", r.ahead, opt.Buffers)
	}
}

func TestSendRefuses(t *testing.T) {
	s := source(t, make([]byte, MiB))
	near, _ := pipe(t)
	m := blockmap.New(MiB, cluster)
	for _, c := range []struct {
		m    *blockmap.Map
		opt  SendOptions
		text string
	}{
		{blockmap.New(MiB+1, cluster), SendOptions{}, s.Path() + " has 1048576 bytes and its map 1048577"},
		{m, SendOptions{RunBytes: cluster - 1}, "runs of 65535 bytes: they have at least one cluster (65536) and at most 4194304 bytes"},
		{m, SendOptions{RunBytes: 5 * MiB}, "runs of 5242880 bytes"},
		{m, SendOptions{Readers: -1}, "none of them can be negative"},
	} {
		_, err := Send(t.Context(), near, Volume{1, s}, c.m, c.opt, nil)
		says(t, err, c.text)
	}
}

func TestReadErrorStopsTheSend(t *testing.T) {
	m := blockmap.New(64*MiB, cluster)
	m.MarkAll()
	near, far := pipe(t)
	go io.Copy(io.Discard, readAll{far}) //nolint:errcheck
	var reads atomic.Int64
	s := sender{conn: near, vol: Volume{Stream: 1}, m: m}
	if err := s.opt.fill(cluster); err != nil {
		t.Fatal(err)
	}
	_, err := s.run(t.Context(), "source", func(p []byte, off int64) (int, error) {
		reads.Add(1)
		if off >= 5*MiB {
			return 0, fmt.Errorf("reading at offset %d: %w", off, unix.EIO)
		}
		return len(p), nil
	})
	if !errors.Is(err, unix.EIO) {
		t.Error(err)
	}
	if n := reads.Load(); n > 5+int64(s.opt.Buffers) {
		t.Errorf("%d runs were read, the sixth of them in vain", n)
	}
}

// readAll turns a wire.Conn into a reader that only counts frames.
type readAll struct{ c *wire.Conn }

func (r readAll) Read(p []byte) (int, error) {
	var f wire.Frame
	return 1, r.c.Read(&f)
}

// A shrunken source is not sent as if it were whole.
func TestShortRead(t *testing.T) {
	m := blockmap.New(MiB, cluster)
	m.MarkAll()
	near, _ := pipe(t)
	s := sender{conn: near, vol: Volume{Stream: 1}, m: m}
	if err := s.opt.fill(cluster); err != nil {
		t.Fatal(err)
	}
	for _, end := range []error{nil, io.EOF} {
		_, err := s.run(t.Context(), "source", func(p []byte, off int64) (int, error) { return len(p) - 1, end })
		says(t, err, "source: 1048575 of 1048576 bytes at offset 0")
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
			_, err := Send(ctx, near, Volume{1, source(t, b)}, m, SendOptions{}, func(int64) { once.Do(func() { close(started) }) })
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
	s := sender{conn: near, vol: Volume{Stream: 1}, m: m}
	if err := s.opt.fill(cluster); err != nil {
		t.Fatal(err)
	}
	_, err := s.run(ctx, "source", func(p []byte, off int64) (int, error) {
		if off >= 3*MiB {
			cancel(errors.New("enough"))
		}
		p[0] = 1
		return len(p), nil
	})
	says(t, err, "pipeline: sending source: enough")
	if err := near.Write(&end); err != nil {
		t.Fatal(err)
	}
	all := <-got
	if len(all) == 0 || all[len(all)-1].Type != wire.Control {
		t.Errorf("%d frames, and the last word is not among them", len(all))
	}
}

// The limit is kept: asserted on the time that the sender means to take, and not
// on a clock.
func TestLimit(t *testing.T) {
	s := sender{conn: wire.NewConn(&recorder{}), opt: SendOptions{Limit: 100 * MiB}}
	began := time.Now()
	for range 10 {
		if err := s.pay(t.Context(), MiB); err != nil {
			t.Fatal(err)
		}
	}
	if paid := s.limitEnd.Sub(began); paid < 100*time.Millisecond {
		t.Errorf("10 MiB at 100 MiB/s are paid for after %v", paid)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.limitEnd = time.Now().Add(time.Hour)
	if err := s.pay(ctx, 1); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
