package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/livefleet/handover/helper/internal/codec"
	"github.com/livefleet/handover/helper/internal/image"
	"github.com/livefleet/handover/helper/internal/wire"
)

// ErrStop is what control or chunk return to end Run without an error.
var ErrStop = errors.New("pipeline: end of the stream")

// tasksAtOnce bounds how many frames wait or are under way, also those that take
// no memory.
const tasksAtOnce = 64

// ReceiveOptions are how a Receiver works; the zero value is good.
type ReceiveOptions struct {
	Writers int   // frames that are unpacked and written at a time
	Memory  int64 // bytes of all payloads in memory
}

// FrameReader is where a Receiver gets frames from.
type FrameReader interface {
	// Read waits for the next frame, as wire.Conn does.
	Read(f *wire.Frame) error
	// TakeMemory has Read ask for the memory of each payload, as wire.Conn does.
	TakeMemory(take func(size int) ([]byte, error))
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
	conn FrameReader
	opt  ReceiveOptions

	frames, written, zeroed atomic.Int64

	memory *memory
	places chan struct{} // one for each task that there may be
	ready  chan *task    // tasks that wait for no other

	mu      sync.Mutex
	targets map[uint32]Target
	tasks   []*task       // not done yet, in the order in which they came
	idle    chan struct{} // closed when there are none
	err     error         // the first error of a worker
}

// task is a frame about a volume.
type task struct {
	wire.Frame
	target Target
	waits  int     // how many earlier tasks it waits for
	next   []*task // tasks that wait for this one
}

// NewReceiver makes a Receiver for the volumes in targets, by stream.
func NewReceiver(conn FrameReader, targets map[uint32]*image.Target, opt ReceiveOptions) *Receiver {
	if opt.Writers <= 0 {
		opt.Writers = DefaultWriters
	}
	if opt.Memory <= 0 {
		opt.Memory = DefaultMemory
	}
	r := &Receiver{
		conn:    conn,
		opt:     opt,
		memory:  newMemory(opt.Memory),
		places:  make(chan struct{}, tasksAtOnce),
		ready:   make(chan *task, tasksAtOnce),
		targets: make(map[uint32]Target, len(targets)),
		idle:    make(chan struct{}),
	}
	close(r.idle)
	for stream, t := range targets {
		r.targets[stream] = t
	}
	return r
}

// Add makes one more volume known, at any time.
func (r *Receiver) Add(stream uint32, t Target) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.targets[stream] = t
}

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
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var workers sync.WaitGroup
	for range r.opt.Writers {
		workers.Add(1)
		go func() {
			defer workers.Done()
			r.work(cancel)
		}()
	}
	// A Read that waits for the other side must not outlive the context, nor a
	// write that failed.
	stop := context.AfterFunc(ctx, func() { r.conn.Interrupt(context.Cause(ctx)) })

	err := r.loop(ctx, control, chunk)
	stop()
	// An error of a worker is the cause, and what the loop saw its consequence.
	if werr := r.fence(); werr != nil {
		err = werr
	}
	close(r.ready)
	workers.Wait()
	if errors.Is(err, ErrStop) {
		return nil
	}
	return err
}

func (r *Receiver) loop(ctx context.Context, control func(context.Context, *wire.Frame) error, chunk func(*wire.Frame) error) error {
	r.conn.TakeMemory(func(n int) ([]byte, error) { return r.memory.take(ctx, n) })
	for {
		var f wire.Frame
		if err := r.conn.Read(&f); err != nil {
			return err
		}
		var err error
		switch f.Type {
		case wire.Control:
			if err = r.fence(); err == nil {
				err = control(ctx, &f)
			}
		case wire.Chunk:
			err = chunk(&f)
		default:
			if err := r.dispatch(ctx, &f); err != nil {
				return err
			}
			continue
		}
		r.release(&f)
		if err != nil {
			return err
		}
	}
}

func (r *Receiver) release(f *wire.Frame) {
	if cap(f.Payload) > 0 {
		r.memory.give(f.Payload)
		f.Payload = nil
	}
}

// dispatch makes a task of a frame about a volume.
func (r *Receiver) dispatch(ctx context.Context, f *wire.Frame) error {
	r.mu.Lock()
	t, ok := r.targets[f.Stream]
	r.mu.Unlock()
	if !ok {
		return fmt.Errorf("pipeline: a %s frame for volume %d, which was never announced", f.Type, f.Stream)
	}
	if f.Pos > t.Size() || f.Length > t.Size()-f.Pos {
		return fmt.Errorf("pipeline: a %s frame at %d, length %d, is outside %s, which has %d bytes", f.Type, f.Pos, f.Length, t.Path(), t.Size())
	}
	r.frames.Add(1)
	if f.Length == 0 {
		return nil
	}
	select {
	case r.places <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	n := &task{Frame: *f, target: t}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.tasks) == 0 {
		r.idle = make(chan struct{})
	}
	for _, o := range r.tasks {
		if o.Stream == n.Stream && o.Pos < n.Pos+n.Length && n.Pos < o.Pos+o.Length {
			o.next = append(o.next, n)
			n.waits++
		}
	}
	r.tasks = append(r.tasks, n)
	if n.waits == 0 {
		r.ready <- n // has room: there are no more tasks than places
	}
	return nil
}

// work does tasks until there will be none. After an error, its own or
// another's, it only takes them away, so that nobody waits for it.
func (r *Receiver) work(cancel context.CancelCauseFunc) {
	w := worker{Receiver: r}
	for t := range r.ready {
		r.mu.Lock()
		failed := r.err != nil
		r.mu.Unlock()
		var err error
		if !failed {
			err = w.do(t)
		}
		r.release(&t.Frame)
		r.finish(t, err)
		if err != nil {
			cancel(err)
		}
	}
}

// finish takes a task out and lets those go on that waited for it.
func (r *Receiver) finish(t *task, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = err
	}
	i := slices.Index(r.tasks, t)
	r.tasks = slices.Delete(r.tasks, i, i+1)
	for _, n := range t.next {
		if n.waits--; n.waits == 0 {
			r.ready <- n
		}
	}
	if len(r.tasks) == 0 {
		close(r.idle)
	}
	<-r.places
}

// fence waits until everything that was dispatched is written.
func (r *Receiver) fence() error {
	r.mu.Lock()
	idle := r.idle
	r.mu.Unlock()
	<-idle // workers never stop taking tasks, so this ends
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// worker is one of those who write, and the memory that it unpacks into.
type worker struct {
	*Receiver
	room []byte
}

func (w *worker) do(t *task) error {
	switch t.Type {
	case wire.Data:
		return w.write(t, t.Payload)
	case wire.Packed:
		if int64(len(w.room)) < t.Length {
			w.room = image.Buffer(int(t.Length))
		}
		data := w.room[:t.Length]
		if err := codec.Unpack(data, t.Payload, codec.Packing(t.Flags)); err != nil {
			return fmt.Errorf("pipeline: %s at offset %d: %w", t.target.Path(), t.Pos, err)
		}
		return w.write(t, data)
	case wire.Zero:
		if err := t.target.Zero(t.Pos, t.Length); err != nil {
			return err
		}
		w.zeroed.Add(t.Length)
		return nil
	case wire.Discard:
		return t.target.Discard(t.Pos, t.Length)
	}
	return fmt.Errorf("pipeline: a %s frame is about no volume", t.Type)
}

func (w *worker) write(t *task, data []byte) error {
	n, err := t.target.WriteAt(data, t.Pos)
	if err == nil && n < len(data) {
		err = fmt.Errorf("pipeline: %s: %d of %d bytes written at offset %d: %w", t.target.Path(), n, len(data), t.Pos, io.ErrShortWrite)
	}
	if err != nil {
		return err
	}
	w.written.Add(t.Length)
	return nil
}
