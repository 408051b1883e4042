package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/livefleet/handover/helper/internal/image"
	"github.com/livefleet/handover/helper/internal/wire"
)

// ErrStop is what control or chunk return to end Run without an error.
var ErrStop = errors.New("pipeline: end of the stream")

// stretch is the part of a volume that belongs to one worker.
const stretch = 1 << 20

// alone is the length from which a Zero or Discard frame is done by itself, with
// no other write under way: cut into stretches it would be a thousand calls
// where one does.
const alone = 8 * stretch

// ReceiveOptions are how a Receiver works; the zero value is good.
type ReceiveOptions struct {
	Writers int // writes under way at a time
	Buffers int // frames in memory at a time
}

// FrameReader is where a Receiver gets frames from.
type FrameReader interface {
	// Read waits for the next frame, as wire.Conn does.
	Read(f *wire.Frame) error
	// Interrupt ends a call that waits for the other side, and why.
	Interrupt(why error)
}

// Target is where a Receiver writes; an *image.Target is one.
type Target interface {
	Path() string
	Size() int64
	WriteAt(p []byte, off int64) (int, error)
	Zero(off, n int64) error
	Discard(off, n int64) error
}

var _ Target = (*image.Target)(nil)

// Received is what a Receiver did so far.
type Received struct {
	Frames  int64 // frames about volumes
	Written int64 // bytes written as data
	Zeroed  int64 // bytes made zero
}

// Receiver writes what comes from one connection.
type Receiver struct {
	conn    FrameReader
	targets map[uint32]Target
	opt     ReceiveOptions

	frames, written, zeroed atomic.Int64

	workers []chan task
	free    chan []byte
	pending sync.WaitGroup // tasks that are queued or under way
	failed  chan struct{}  // closed at the first error of a worker
	first   error          // that error; valid after failed is closed
	once    sync.Once
}

// task is a piece of a frame, within one stretch.
type task struct {
	target  Target
	typ     wire.Type
	off, n  int64
	payload []byte
	buf     *shared // nil where there is no payload
}

// shared is a payload whose pieces may be at several workers.
type shared struct {
	b    []byte
	refs atomic.Int32
}

// NewReceiver makes a Receiver for the volumes in targets, by stream.
func NewReceiver(conn FrameReader, targets map[uint32]*image.Target, opt ReceiveOptions) *Receiver {
	r := &Receiver{conn: conn, targets: make(map[uint32]Target, len(targets)), opt: opt}
	for stream, t := range targets {
		r.targets[stream] = t
	}
	if r.opt.Writers <= 0 {
		r.opt.Writers = DefaultWriters
	}
	if r.opt.Buffers <= 0 {
		r.opt.Buffers = DefaultBuffers
	}
	return r
}

// Add makes one more volume known. It may be called before Run, and from control
// and chunk while Run runs.
func (r *Receiver) Add(stream uint32, t Target) { r.targets[stream] = t }

// Received returns what was done so far. It may be called at any time.
func (r *Receiver) Received() Received {
	return Received{Frames: r.frames.Load(), Written: r.written.Load(), Zeroed: r.zeroed.Load()}
}

// Run receives until the connection ends, an error comes up, or a callback
// returns ErrStop. Frames about volumes are written; Control frames go to
// control, Chunk frames to chunk, one at a time and in order. The frame that a
// callback gets, its payload included, is its own until it returns. Before
// control is called, every earlier frame about a volume has been written.
//
// Run returns nil for ErrStop, io.EOF if the other side closed the connection
// between two frames, and otherwise the first error. Whichever it is, when Run
// returns no write is under way any more. It is called once.
func (r *Receiver) Run(ctx context.Context, control func(context.Context, *wire.Frame) error, chunk func(*wire.Frame) error) error {
	r.failed = make(chan struct{})
	r.free = make(chan []byte, r.opt.Buffers)
	for range r.opt.Buffers {
		r.free <- nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var workers sync.WaitGroup
	r.workers = make([]chan task, r.opt.Writers)
	for i := range r.workers {
		r.workers[i] = make(chan task, r.opt.Buffers)
		workers.Add(1)
		go func() {
			defer workers.Done()
			r.work(r.workers[i], cancel)
		}()
	}
	// A Read that waits for the other side must not outlive the context, nor a
	// write that failed.
	stop := context.AfterFunc(ctx, func() { r.conn.Interrupt(context.Cause(ctx)) })

	err := r.loop(ctx, control, chunk)
	stop()
	for _, w := range r.workers {
		close(w)
	}
	workers.Wait()
	// An error of a worker is the cause, and what the loop saw its consequence.
	select {
	case <-r.failed:
		return r.first
	default:
	}
	if errors.Is(err, ErrStop) {
		return nil
	}
	return err
}

func (r *Receiver) loop(ctx context.Context, control func(context.Context, *wire.Frame) error, chunk func(*wire.Frame) error) error {
	var f wire.Frame
	have := false // f.Payload is one of the buffers, and not at a worker
	for {
		if !have {
			select {
			case f.Payload = <-r.free:
				have = true
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		if err := r.conn.Read(&f); err != nil {
			if ferr := r.fence(); ferr != nil {
				return ferr
			}
			return err
		}
		switch f.Type {
		case wire.Control:
			if err := r.fence(); err != nil {
				return err
			}
			if err := control(ctx, &f); err != nil {
				return err
			}
		case wire.Chunk:
			if err := chunk(&f); err != nil {
				return err
			}
		default:
			kept, err := r.dispatch(ctx, &f)
			if err != nil {
				return err
			}
			have = !kept
		}
	}
}

// dispatch gives a frame about a volume to the workers. kept says that they have
// the payload now.
func (r *Receiver) dispatch(ctx context.Context, f *wire.Frame) (kept bool, err error) {
	t, ok := r.targets[f.Stream]
	if !ok {
		return false, fmt.Errorf("pipeline: a %s frame for volume %d, which was never announced", f.Type, f.Stream)
	}
	if f.Pos > t.Size() || f.Length > t.Size()-f.Pos {
		return false, fmt.Errorf("pipeline: a %s frame at %d, length %d, is outside %s, which has %d bytes", f.Type, f.Pos, f.Length, t.Path(), t.Size())
	}
	r.frames.Add(1)
	if f.Length == 0 {
		return false, nil
	}
	if f.Type != wire.Data && f.Length >= alone {
		if err := r.fence(); err != nil {
			return false, err
		}
		return false, r.do(task{target: t, typ: f.Type, off: f.Pos, n: f.Length})
	}

	var buf *shared
	if f.Type == wire.Data {
		buf = &shared{b: f.Payload}
		buf.refs.Store(1) // ours, until all pieces are queued
	}
	for off, end := f.Pos, f.Pos+f.Length; off < end; {
		next := min(off/stretch*stretch+stretch, end)
		p := task{target: t, typ: f.Type, off: off, n: next - off, buf: buf}
		if buf != nil {
			p.payload = f.Payload[off-f.Pos : next-f.Pos]
			buf.refs.Add(1)
		}
		r.pending.Add(1)
		select {
		case r.workers[r.worker(f.Stream, off)] <- p:
		case <-ctx.Done():
			r.pending.Done()
			return true, context.Cause(ctx)
		}
		off = next
	}
	if buf != nil {
		r.release(buf)
	}
	return buf != nil, nil
}

// worker says whose stretch this is. Neighbouring stretches have different
// owners, so that a long run keeps all of them busy.
func (r *Receiver) worker(stream uint32, off int64) int {
	return int((uint64(off/stretch) + uint64(stream)) % uint64(len(r.workers)))
}

func (r *Receiver) release(s *shared) {
	if s.refs.Add(-1) == 0 {
		r.free <- s.b[:0] // has room: it came from there
	}
}

// work does the tasks of one worker. After an error, its own or another's, it
// only empties its queue, so that nobody waits for it.
func (r *Receiver) work(tasks <-chan task, cancel context.CancelCauseFunc) {
	for t := range tasks {
		select {
		case <-r.failed:
		default:
			if err := r.do(t); err != nil {
				r.once.Do(func() {
					r.first = err
					close(r.failed)
					cancel(err)
				})
			}
		}
		if t.buf != nil {
			r.release(t.buf)
		}
		r.pending.Done()
	}
}

func (r *Receiver) do(t task) error {
	switch t.typ {
	case wire.Data:
		n, err := t.target.WriteAt(t.payload, t.off)
		if err == nil && n < len(t.payload) {
			err = fmt.Errorf("pipeline: %s: %d of %d bytes written at offset %d: %w", t.target.Path(), n, len(t.payload), t.off, io.ErrShortWrite)
		}
		if err != nil {
			return err
		}
		r.written.Add(t.n)
	case wire.Zero:
		if err := t.target.Zero(t.off, t.n); err != nil {
			return err
		}
		r.zeroed.Add(t.n)
	case wire.Discard:
		return t.target.Discard(t.off, t.n)
	}
	return nil
}

// fence waits until everything that was dispatched is written.
func (r *Receiver) fence() error {
	r.pending.Wait() // workers never stop taking tasks, so this ends
	select {
	case <-r.failed:
		return r.first
	default:
		return nil
	}
}
