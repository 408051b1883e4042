package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/livefleet/handover/helper/internal/blockmap"
	"github.com/livefleet/handover/helper/internal/codec"
	"github.com/livefleet/handover/helper/internal/image"
	"github.com/livefleet/handover/helper/internal/ledger"
	"github.com/livefleet/handover/helper/internal/wire"
)

// Source is the input of a Sender; an *image.Source is one.
type Source interface {
	Path() string
	Size() int64
	ReadAt(p []byte, off int64) (int, error)
}

var _ Source = (*image.Source)(nil)

// Volume is a source, and its number on the wire.
type Volume struct {
	Stream  uint32
	Source  Source
	Ledger  *ledger.Ledger // nil: no comparison in the end
	History *codec.History // nil: clusters that were sent before go whole
}

// SendOptions are how a Sender works; the zero value is good.
type SendOptions struct {
	Encoder  *codec.Encoder // nil: everything goes as it is
	Readers  int            // runs that are read, or encoded, at a time
	Slots    int            // runs in memory at a time
	RunBytes int64          // the longest run, at most wire.MaxPayload; a cluster may be longer
}

func (o *SendOptions) fill() error {
	if o.Encoder == nil {
		o.Encoder = &codec.Encoder{}
	}
	for _, d := range []struct {
		n         *int
		otherwise int
	}{{&o.Readers, DefaultReaders + runtime.GOMAXPROCS(0)}, {&o.Slots, DefaultSlots}} {
		if *d.n == 0 {
			*d.n = d.otherwise
		}
	}
	if o.RunBytes == 0 {
		o.RunBytes = DefaultRunBytes
	}
	switch {
	case o.Readers < 0 || o.Slots < 0:
		return fmt.Errorf("pipeline: readers %d, slots %d: none of them can be negative", o.Readers, o.Slots)
	case o.RunBytes < 0 || o.RunBytes > wire.MaxPayload:
		return fmt.Errorf("pipeline: runs of %d bytes: they have at most %d", o.RunBytes, wire.MaxPayload)
	}
	return nil
}

// Pass holds the options of one walk.
type Pass struct {
	SkipZero bool          // leave zero clusters out: first pass onto an empty destination only
	Pace     *Pace         // how fast, on the wire; nil: as fast as it goes
	Count    func(n int64) // if it is set, called with the bytes of the volume that each step has dealt with; never twice at a time
}

// Stats counts the work of one Send.
type Stats struct {
	Bytes    int64         // of the volume, that the map named
	Sent     int64         // of them, sent as data
	Zero     int64         // of them, sent as zeroes
	Skipped  int64         // of them, zeroes that were left out
	Clusters int64         // how many clusters that was
	Payload  int64         // bytes of the data as they were sent
	Elapsed  time.Duration // from the first read to the last flush
}

// Sender sends volumes over one connection, or over several side by side.
type Sender struct {
	conns []FrameWriter
	opt   SendOptions
	idle  chan *slot
	runs  [][]byte // memory for runs that no slot has taken
	fence int64    // how many fences were sent
}

// fresh replaces all slots. Their memory is made when it is first used: a small pass
// needs little.
func (s *Sender) fresh() {
	s.runs = nil
	s.idle = make(chan *slot, s.opt.Slots)
	for range s.opt.Slots {
		s.idle <- &slot{}
	}
}

// slot is the memory of one run on its way: as it was read, and as it was packed.
type slot struct{ run, room []byte }

// NewSender makes a Sender. The connections stay the caller's. With more than one
// the other side has to know of all of them before anything is sent.
func NewSender(conns []FrameWriter, opt SendOptions) (*Sender, error) {
	if len(conns) == 0 {
		return nil, errors.New("pipeline: there is no connection to send over")
	}
	if err := opt.fill(); err != nil {
		return nil, err
	}
	s := &Sender{conns: conns, opt: opt}
	s.fresh()
	return s, nil
}

// memory makes a slot's memory enough for n bytes.
func (s *Sender) memory(sl *slot, n, most int64) {
	if int64(len(sl.run)) >= n {
		return
	}
	if len(s.runs) == 0 || int64(len(s.runs[0])) < n {
		s.runs = image.Wide(s.opt.Slots, int(most))
	}
	sl.run, s.runs = s.runs[0], s.runs[1:]
}

// job is one run on its way from the walk to the connection.
type job struct {
	off    int64
	run    []byte
	slot   *slot
	pieces []codec.Piece
	ready  chan error   // how reading and encoding ended, once
	parts  atomic.Int32 // frames that are not written yet, and one for the walk in order
}

// parcel is one frame on its way to a connection.
type parcel struct {
	frame  wire.Frame
	before int  // how long the payload was before it was packed
	job    *job // whose memory the payload is; nil for zeroes
}

// sending is one Send.
type sending struct {
	*Sender
	vol   Volume
	m     *blockmap.Map
	pass  Pass
	stats Stats
	zero  wire.Frame // zeroes that were found and not sent yet
	out   chan parcel
	count sync.Mutex
}

// Send reads every cluster that m marks and sends it. It returns when everything was
// handed to the layer below the connections, or with the first error; then they may
// be broken. One Send runs at a time.
//
// In one Send no cluster is sent twice, so any free connection may take a frame.
// Between two Sends a fence on all of them keeps the order.
func (s *Sender) Send(ctx context.Context, vol Volume, m *blockmap.Map, pass Pass) (Stats, error) {
	if m.Size() != vol.Source.Size() {
		return Stats{}, fmt.Errorf("pipeline: %s has %d bytes and its map %d", vol.Source.Path(), vol.Source.Size(), m.Size())
	}
	return (&sending{Sender: s, vol: vol, m: m, pass: pass, out: make(chan parcel)}).run(ctx)
}

// Zeroes says of every cluster that m marks that it is zeroes, unread.
func (s *Sender) Zeroes(ctx context.Context, vol Volume, m *blockmap.Map) error {
	first := s.conns[0]
	stop := interruptOn(ctx, first)
	defer stop()
	for off, n := range m.Runs(0) {
		if vol.Ledger != nil {
			if err := vol.Ledger.NoteZero(off, n); err != nil {
				return err
			}
		}
		if err := first.Write(&wire.Frame{Type: wire.Zero, Stream: vol.Stream, Pos: off, Length: n}); err != nil {
			return err
		}
	}
	if err := first.Flush(); err != nil {
		return err
	}
	return s.Fence(ctx)
}

func (s *sending) run(ctx context.Context) (Stats, error) {
	began := time.Now()
	g, gctx := errgroup.WithContext(ctx)
	toRead := make(chan *job)
	order := make(chan *job, s.opt.Slots) // has room: there are no more jobs than slots

	g.Go(func() error {
		defer close(toRead)
		defer close(order)
		return s.walk(gctx, toRead, order)
	})
	for range s.opt.Readers {
		g.Go(func() error {
			for j := range toRead {
				err := s.read(j)
				if err == nil {
					err = s.encode(j)
				}
				j.ready <- err
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	g.Go(func() error {
		defer close(s.out)
		return s.inOrder(gctx, order)
	})
	for _, conn := range s.conns {
		g.Go(func() error {
			stop := interruptOn(gctx, conn)
			defer stop()
			return s.writeAll(gctx, conn)
		})
	}
	err := g.Wait()
	if err == nil {
		err = s.Fence(ctx)
	}
	if err != nil {
		s.fresh() // some are lost with their jobs
	}
	if err != nil && ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
		err = fmt.Errorf("pipeline: sending %s: %w", s.vol.Source.Path(), context.Cause(ctx))
	}
	s.stats.Elapsed = time.Since(began)
	return s.stats, err
}

// walk makes a job of each run, as slots come free.
func (s *sending) walk(ctx context.Context, toRead, order chan<- *job) error {
	longest := max(s.opt.RunBytes, int64(s.m.Cluster()))
	for off, n := range s.m.Runs(longest) {
		var sl *slot
		select {
		case sl = <-s.idle:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		s.memory(sl, n, longest)
		j := &job{off: off, run: sl.run[:n], slot: sl, ready: make(chan error, 1)}
		j.parts.Store(1)
		order <- j
		select {
		case toRead <- j:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func (s *sending) read(j *job) error {
	n, err := s.vol.Source.ReadAt(j.run, j.off)
	if n == len(j.run) {
		return nil // io.EOF with the last byte is no error
	}
	if err == nil || err == io.EOF {
		err = fmt.Errorf("pipeline: %s: %d of %d bytes at offset %d", s.vol.Source.Path(), n, len(j.run), j.off)
	}
	return err
}

// encode makes pieces of a run, and notes their content.
func (s *sending) encode(j *job) error {
	if (s.opt.Encoder.Packs() || s.vol.History != nil) && len(j.slot.room) < codec.Room(len(j.run)) {
		j.slot.room = make([]byte, codec.Room(len(j.slot.run)))
	}
	j.pieces = s.opt.Encoder.Encode(j.run, j.off, s.m.Cluster(), j.slot.room, s.vol.History)
	if s.vol.Ledger == nil {
		return nil
	}
	for _, p := range j.pieces {
		var err error
		if off := j.off + int64(p.Off); p.Zero {
			err = s.vol.Ledger.NoteZero(off, int64(p.Len))
		} else {
			err = s.vol.Ledger.Note(off, j.run[p.Off:p.Off+p.Len])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// inOrder hands the pieces on in the order of the walk.
func (s *sending) inOrder(ctx context.Context, order <-chan *job) error {
	for j := range order {
		select {
		case err := <-j.ready:
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		for i := range j.pieces {
			if err := s.piece(ctx, j, &j.pieces[i]); err != nil {
				return err
			}
		}
		s.release(j)
	}
	return s.flushZero(ctx)
}

func (s *sending) release(j *job) {
	if j.parts.Add(-1) == 0 {
		s.idle <- j.slot // has room: it came from there
	}
}

func (s *sending) piece(ctx context.Context, j *job, p *codec.Piece) error {
	off, n := j.off+int64(p.Off), int64(p.Len)
	switch {
	case p.Zero && s.pass.SkipZero:
		s.done(func(st *Stats) { st.Skipped += n }, n)
		return nil
	case p.Zero:
		// Zeroes that go on in the next run become one frame, and one hole.
		if s.zero.Length > 0 && s.zero.Pos+s.zero.Length == off {
			s.zero.Length += n
			return nil
		}
		if err := s.flushZero(ctx); err != nil {
			return err
		}
		s.zero = wire.Frame{Type: wire.Zero, Stream: s.vol.Stream, Pos: off, Length: n}
		return nil
	}
	if err := s.flushZero(ctx); err != nil {
		return err
	}
	f := wire.Frame{Type: wire.Data, Stream: s.vol.Stream, Pos: off, Length: n, Payload: p.Payload}
	if p.Packing != codec.Plain {
		f.Type, f.Flags = wire.Packed, uint16(p.Packing)
	}
	j.parts.Add(1)
	return s.hand(ctx, parcel{f, p.Before, j})
}

func (s *sending) flushZero(ctx context.Context) error {
	if s.zero.Length == 0 {
		return nil
	}
	f := s.zero
	s.zero.Length = 0
	return s.hand(ctx, parcel{f, 0, nil})
}

func (s *sending) hand(ctx context.Context, p parcel) error {
	select {
	case s.out <- p:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// writeAll serves one connection: it takes parcels as long as there are some.
func (s *sending) writeAll(ctx context.Context, conn FrameWriter) error {
	before := heldUp(conn)
	for began := time.Now(); ; {
		p, ok := <-s.out
		if !ok {
			break
		}
		sent := codec.Sent{Before: p.before, After: len(p.frame.Payload), Lines: len(s.conns)}
		if p.job != nil && s.opt.Encoder.Chooses() {
			sent.Behind = behind(conn)
		}
		came := time.Now()
		paced, err := s.write(ctx, conn, p)
		if err != nil {
			return err
		}
		if p.job != nil {
			gone, held := time.Now(), before
			if s.opt.Encoder.Chooses() {
				held = heldUp(conn)
			}
			sent.Took, sent.Held, sent.Waited, sent.Behind = gone.Sub(came), held-before, came.Sub(began), sent.Behind || paced
			s.opt.Encoder.Wrote(sent)
			began, before = gone, held
		}
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return conn.Flush()
}

// write puts one frame on its way, and says whether it had to wait for its turn.
func (s *sending) write(ctx context.Context, conn FrameWriter, p parcel) (paced bool, err error) {
	n := int64(len(p.frame.Payload))
	wait := s.pass.Pace.pay(time.Now(), n)
	if wait > 0 {
		// Frames in the connection's buffer must not wait for us.
		if err := conn.Flush(); err != nil {
			return false, err
		}
		if err := sleep(ctx, wait); err != nil {
			return false, err
		}
	}
	if err := conn.Write(&p.frame); err != nil {
		return false, err
	}
	length := p.frame.Length
	if p.job == nil {
		s.done(func(st *Stats) { st.Zero += length }, length)
		return wait > 0, nil
	}
	s.release(p.job)
	s.done(func(st *Stats) { st.Sent += length; st.Payload += n }, length)
	return wait > 0, nil
}

// Fence says on all connections that later frames come after the sent ones. One
// connection keeps its own order.
func (s *Sender) Fence(ctx context.Context) error {
	if len(s.conns) == 1 {
		return nil
	}
	s.fence++
	for _, conn := range s.conns {
		stop := interruptOn(ctx, conn)
		defer stop()
		if err := conn.Write(&wire.Frame{Type: wire.Fence, Pos: s.fence}); err != nil {
			return err
		}
		if err := conn.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// done counts finished work.
func (s *sending) done(how func(*Stats), n int64) {
	s.count.Lock()
	defer s.count.Unlock()
	cluster := int64(s.m.Cluster())
	how(&s.stats)
	s.stats.Bytes += n
	s.stats.Clusters += (n + cluster - 1) / cluster
	if s.pass.Count != nil {
		s.pass.Count(n)
	}
}
