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
	"github.com/livefleet/handover/helper/internal/ledger"
	"github.com/livefleet/handover/helper/internal/wire"
)

// ErrStop is returned by control or chunk to end Run without an error.
var ErrStop = errors.New("pipeline: end of the stream")

// tasksAtOnce bounds how many frames wait or are under way, also those that take
// no memory.
const tasksAtOnce = 64

// ReceiveOptions are how a Receiver works; the zero value is good.
type ReceiveOptions struct {
	Writers int   // frames that are unpacked and written at a time
	Memory  int64 // bytes of all payloads in memory
	// Arrived, if it is there, hears of each range when all of it was written, from
	// any number of goroutines.
	Arrived func(stream uint32, off, n int64)
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

// Received counts a Receiver's work so far.
type Received struct {
	Frames  int64 // frames about volumes
	Written int64 // bytes written as data
	Zeroed  int64 // bytes made zero
}

// Receiver writes the frames of one connection, or of several side by side.
type Receiver struct {
	opt ReceiveOptions

	frames, written, zeroed atomic.Int64

	memory *memory
	places chan struct{} // one for each task that there may be
	ready  chan *task    // tasks that wait for no other

	mu      sync.Mutex
	conns   []FrameReader // the first is the one for control and chunks
	volumes map[uint32]volume
	tasks   []*task       // not done yet, in the order in which they came
	idle    chan struct{} // closed when there are none
	err     error         // the first error of a worker or of a further connection
	fence   fence
	gone    chan struct{} // closed when a further connection has ended
	goes    sync.Once     // closes it

	started bool
	ended   bool
	ctx     context.Context // of Run; valid once it has started
	cancel  context.CancelCauseFunc
	reading sync.WaitGroup // further connections that are being read
}

// volume is the record of a stream.
type volume struct {
	Target
	ledger *ledger.Ledger
}

// fence is where the connections meet: frames behind it on any connection wait for
// the frames before it on all.
type fence struct {
	number  int64 // of the last one that was passed
	arrived int
	open    chan struct{} // closed when all have arrived and all is written
}

// task is a frame about a volume.
type task struct {
	wire.Frame
	volume
	waits int     // how many earlier tasks it waits for
	next  []*task // tasks that wait for this one
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
		opt:     opt,
		conns:   []FrameReader{conn},
		memory:  newMemory(opt.Memory),
		places:  make(chan struct{}, tasksAtOnce),
		ready:   make(chan *task, tasksAtOnce),
		volumes: make(map[uint32]volume, len(targets)),
		idle:    make(chan struct{}),
		fence:   fence{open: make(chan struct{})},
		gone:    make(chan struct{}),
	}
	close(r.idle)
	for stream, t := range targets {
		r.Add(stream, t, nil)
	}
	return r
}

// Add makes one more volume known, at any time. Written data are noted in l, if that
// is not nil.
func (r *Receiver) Add(stream uint32, t Target, l *ledger.Ledger) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.volumes[stream] = volume{t, l}
}

// Join takes a further connection of the same session, on which frames about
// volumes come. The other side must not send a fence before all have joined.
func (r *Receiver) Join(conn FrameReader) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		conn.Interrupt(errEnded)
		return
	}
	r.conns = append(r.conns, conn)
	if r.started {
		r.readFurther(conn)
	}
}

// readFurther reads a further connection until it ends; the caller holds mu.
func (r *Receiver) readFurther(conn FrameReader) {
	r.reading.Add(1)
	go func() {
		defer r.reading.Done()
		stop := context.AfterFunc(r.ctx, func() { conn.Interrupt(context.Cause(r.ctx)) })
		defer stop()
		no := func(f *wire.Frame) error {
			return fmt.Errorf("pipeline: a %s frame on a connection that is only for volumes", f.Type)
		}
		err := r.loop(r.ctx, conn, func(_ context.Context, f *wire.Frame) error { return no(f) }, no)
		if err == io.EOF {
			// The first connection says whether it was time, unless it waits for this one.
			r.goes.Do(func() { close(r.gone) })
			return
		}
		r.mu.Lock()
		if r.err == nil {
			r.err = err
		}
		r.mu.Unlock()
		r.cancel(err)
	}()
}

// Received returns the counts so far. It may be called at any time.
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
	r.mu.Lock()
	r.started, r.ctx, r.cancel = true, ctx, cancel
	first := r.conns[0]
	for _, conn := range r.conns[1:] {
		r.readFurther(conn)
	}
	r.mu.Unlock()
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
	stop := context.AfterFunc(ctx, func() { first.Interrupt(context.Cause(ctx)) })

	err := r.loop(ctx, first, control, chunk)
	stop()
	cancel(errors.Join(err, errEnded)) // for the goroutines that still read
	r.mu.Lock()
	r.ended = true
	r.mu.Unlock()
	r.reading.Wait()
	// An error of a worker is the cause, and the loop's own error its consequence.
	if werr := r.settle(); werr != nil && !errors.Is(werr, errEnded) {
		err = werr
	}
	close(r.ready)
	workers.Wait()
	if errors.Is(err, ErrStop) {
		return nil
	}
	return err
}

// errEnded is why a further connection is not read any more when Run ends.
var errEnded = errors.New("pipeline: the first connection has ended")

func (r *Receiver) loop(ctx context.Context, conn FrameReader, control func(context.Context, *wire.Frame) error, chunk func(*wire.Frame) error) error {
	conn.TakeMemory(func(n int) ([]byte, error) { return r.memory.take(ctx, n) })
	for {
		var f wire.Frame
		if err := conn.Read(&f); err != nil {
			return err
		}
		var err error
		switch f.Type {
		case wire.Control:
			if err = r.settle(); err == nil {
				err = control(ctx, &f)
			}
		case wire.Chunk:
			err = chunk(&f)
		case wire.Fence:
			err = r.meet(ctx, conn, f.Pos)
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
	t, ok := r.volumes[f.Stream]
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
	n := &task{Frame: *f, volume: t}
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

// work does tasks until there will be none. After an error, its own or another's, it
// only removes them, so that no goroutine waits for it.
func (r *Receiver) work(cancel context.CancelCauseFunc) {
	w := worker{Receiver: r}
	for t := range r.ready {
		r.mu.Lock()
		failed := r.err != nil
		r.mu.Unlock()
		var err error
		if !failed {
			err = w.do(t)
			if err == nil && r.opt.Arrived != nil {
				r.opt.Arrived(t.Stream, t.Pos, t.Length)
			}
		}
		r.release(&t.Frame)
		r.finish(t, err)
		if err != nil {
			cancel(err)
		}
	}
}

// finish takes a task out and releases the tasks that waited for it.
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

// meet waits at a fence until all connections have come to it and everything before
// it is written. A connection that has ended comes to none: the bytes that the other
// side had written when it died may hold a fence on some connections and not on all.
// The first connection does not wait for that, since no goroutine would then read its
// own end. If it is not here, it may still bring the other side's last words, which
// count more.
func (r *Receiver) meet(ctx context.Context, conn FrameReader, number int64) error {
	r.mu.Lock()
	var gone chan struct{}
	if conn == r.conns[0] {
		gone = r.gone
	}
	f := &r.fence
	if number != f.number+1 {
		defer r.mu.Unlock()
		return fmt.Errorf("pipeline: fence %d came, and %d was due", number, f.number+1)
	}
	f.arrived++
	open, last := f.open, f.arrived == len(r.conns)
	r.mu.Unlock()
	if !last {
		select {
		case <-open:
			return nil
		case <-gone:
			select {
			case <-open: // it has passed, and ended then
				return nil
			default:
				return fmt.Errorf("pipeline: a connection has ended before fence %d: %w", number, io.EOF)
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if err := r.settle(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fence = fence{number: number, open: make(chan struct{})}
	close(open)
	return nil
}

// settle waits until everything that was dispatched is written.
func (r *Receiver) settle() error {
	r.mu.Lock()
	idle := r.idle
	r.mu.Unlock()
	<-idle // workers never stop taking tasks, so this ends
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// worker is one of the writing goroutines, and the memory that it unpacks into.
type worker struct {
	*Receiver
	room, body []byte
}

func (w *worker) do(t *task) error {
	switch t.Type {
	case wire.Data:
		return w.write(t, t.Payload, whole(t.Payload))
	case wire.Packed:
		data, changed, err := w.unpack(t)
		if err != nil {
			return fmt.Errorf("pipeline: %s at offset %d: %w", t.Path(), t.Pos, err)
		}
		return w.write(t, data, changed)
	case wire.Zero:
		if err := t.Zero(t.Pos, t.Length); err != nil {
			return err
		}
		w.zeroed.Add(t.Length)
		return t.noteZero()
	case wire.Discard:
		if err := t.Discard(t.Pos, t.Length); err != nil {
			return err
		}
		return t.noteZero()
	}
	return fmt.Errorf("pipeline: a %s frame is about no volume", t.Type)
}

func whole(data []byte) []codec.Range { return []codec.Range{{Off: 0, Len: len(data)}} }

// unpack returns the new content of the range, and its changed parts.
func (w *worker) unpack(t *task) (data []byte, changed []codec.Range, err error) {
	if int64(len(w.room)) < t.Length {
		w.room = image.Buffer(int(t.Length))
	}
	data = w.room[:t.Length]
	how := codec.Packing(t.Flags)
	if how&codec.Delta == 0 {
		return data, whole(data), codec.Unpack(data, t.Payload, how)
	}
	before, ok := t.Target.(io.ReaderAt)
	if !ok {
		return nil, nil, errors.New("a delta came, and what it is about cannot be read")
	}
	if n, err := before.ReadAt(data, t.Pos); n < len(data) {
		return nil, nil, fmt.Errorf("reading what was there before: %w", err)
	}
	changed, w.body, err = codec.Patch(data, t.Payload, how, w.body)
	return data, changed, err
}

// write writes the parts of data that have changed, and notes all of it.
func (w *worker) write(t *task, data []byte, changed []codec.Range) error {
	for _, c := range changed {
		part, off := data[c.Off:c.Off+c.Len], t.Pos+int64(c.Off)
		n, err := t.WriteAt(part, off)
		if err == nil && n < len(part) {
			err = fmt.Errorf("pipeline: %s: %d of %d bytes written at offset %d: %w", t.Path(), n, len(part), off, io.ErrShortWrite)
		}
		if err != nil {
			return err
		}
		w.written.Add(int64(n))
	}
	if t.ledger == nil {
		return nil
	}
	return t.ledger.Note(t.Pos, data)
}

func (t *task) noteZero() error {
	if t.ledger == nil {
		return nil
	}
	return t.ledger.NoteZero(t.Pos, t.Length)
}
