// Package pipeline moves clusters: read ∥ encode ∥ send on one side, and
// receive ∥ decode ∥ write on the other. The slowest stage sets the time, not
// the sum of all.
//
// # Sending
//
// Send walks one map once, in ascending order. Several reads are under way at a
// time; what they bring is sent in the order of the walk. Memory is bounded: a
// run is read only when one of a fixed number of buffers is free. Every cluster
// of the map is sent, as data or as zeroes; only with SkipZero, which is right
// for the first pass onto an empty destination and for nothing else, are zero
// clusters left out.
//
// # Receiving
//
// A Receiver takes frames in the order in which they come and has several of
// them written at a time, but never two of the same place: each stretch of 1 MiB
// of a volume belongs to one worker, which works in order, and a frame that
// touches two stretches is cut. So of two frames for the same byte the one that
// came last is what stays. Before a Control frame is handed over, every frame
// that came before it has been written: given to the kernel, not yet synced.
package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/livefleet/handover/helper/internal/blockmap"
	"github.com/livefleet/handover/helper/internal/codec"
	"github.com/livefleet/handover/helper/internal/image"
	"github.com/livefleet/handover/helper/internal/wire"
)

// What Send and a Receiver use where the options say nothing.
const (
	DefaultReaders  = 4
	DefaultBuffers  = 16
	DefaultRunBytes = 1 << 20
	DefaultWriters  = 4
)

// interruptGrace is how long a frame that is being written when the context
// ends has to get through, so that the connection stays good for a last word.
const interruptGrace = 500 * time.Millisecond

// FrameWriter is where Send puts frames. A *wire.Conn is one; so is a connection
// to an old peer, which says the same in another dialect.
type FrameWriter interface {
	// Write puts one frame on its way, Flush sends what is still waiting.
	Write(f *wire.Frame) error
	Flush() error
	// Interrupt ends a call that waits for the other side, and why.
	Interrupt(why error)
}

// Volume is what Send reads.
type Volume struct {
	Stream uint32 // the volume's number on the wire
	Source *image.Source
}

// SendOptions are how Send works; the zero value is good.
type SendOptions struct {
	SkipZero bool  // leave zero clusters out: first pass onto an empty destination only
	Readers  int   // reads under way at a time
	Buffers  int   // runs in memory at a time
	RunBytes int64 // the longest run, at most wire.MaxPayload
	Limit    int64 // bytes a second, 0 for no limit
}

func (o *SendOptions) fill(cluster int) error {
	if o.Readers == 0 {
		o.Readers = DefaultReaders
	}
	if o.Buffers == 0 {
		o.Buffers = DefaultBuffers
	}
	if o.RunBytes == 0 {
		o.RunBytes = max(DefaultRunBytes, int64(cluster))
	}
	switch {
	case o.Readers < 0 || o.Buffers < 0 || o.Limit < 0:
		return fmt.Errorf("pipeline: readers %d, buffers %d, limit %d: none of them can be negative", o.Readers, o.Buffers, o.Limit)
	case o.RunBytes < int64(cluster) || o.RunBytes > wire.MaxPayload:
		return fmt.Errorf("pipeline: runs of %d bytes: they have at least one cluster (%d) and at most %d bytes", o.RunBytes, cluster, wire.MaxPayload)
	}
	return nil
}

// Stats is what one Send did.
type Stats struct {
	Bytes    int64         // of the volume, that the map named
	Sent     int64         // of them, sent as data
	Zero     int64         // of them, sent as zeroes
	Skipped  int64         // of them, zeroes that were left out
	Clusters int64         // how many clusters that was
	Elapsed  time.Duration // from the first read to the last flush
}

// job is one run on its way from the walk to the connection.
type job struct {
	off  int64
	buf  []byte
	read chan error // the read's end, once
}

// Send reads every cluster that m marks and writes it to conn. It returns when
// everything was handed to the connection below conn, or with the first error;
// then the connection may be broken. count, if it is not nil, is called from one
// goroutine with the bytes of the volume that each step has dealt with.
func Send(ctx context.Context, conn FrameWriter, vol Volume, m *blockmap.Map, opt SendOptions, count func(n int64)) (Stats, error) {
	if err := opt.fill(m.Cluster()); err != nil {
		return Stats{}, err
	}
	if m.Size() != vol.Source.Size() {
		return Stats{}, fmt.Errorf("pipeline: %s has %d bytes and its map %d", vol.Source.Path(), vol.Source.Size(), m.Size())
	}
	s := sender{conn: conn, vol: vol, m: m, opt: opt, count: count}
	return s.run(ctx, vol.Source.Path(), vol.Source.ReadAt)
}

type sender struct {
	conn  FrameWriter
	vol   Volume
	m     *blockmap.Map
	opt   SendOptions
	count func(n int64)

	stats    Stats
	zeroOff  int64 // zeroes that were found and not sent yet
	zeroLen  int64
	limitEnd time.Time // when the bytes sent so far are paid for
}

func (s *sender) run(ctx context.Context, path string, readAt func([]byte, int64) (int, error)) (Stats, error) {
	began := time.Now()
	g, gctx := errgroup.WithContext(ctx)

	// A buffer is taken by the walk and given back by the sending side.
	free := make(chan []byte, s.opt.Buffers)
	for range s.opt.Buffers {
		free <- nil // made when it is first used: a small pass needs few
	}
	todo := make(chan *job)                 // to the readers
	order := make(chan *job, s.opt.Buffers) // to the sending side, in the walk's order

	g.Go(func() error {
		defer close(todo)
		defer close(order)
		for off, n := range s.m.Runs(s.opt.RunBytes) {
			var buf []byte
			select {
			case buf = <-free:
			case <-gctx.Done():
				return context.Cause(gctx)
			}
			if buf == nil {
				buf = image.Buffer(int(s.opt.RunBytes))
			}
			j := &job{off: off, buf: buf[:n], read: make(chan error, 1)}
			order <- j // has room: there are no more jobs than buffers
			select {
			case todo <- j:
			case <-gctx.Done():
				return context.Cause(gctx)
			}
		}
		return nil
	})
	for range s.opt.Readers {
		g.Go(func() error {
			for j := range todo {
				n, err := readAt(j.buf, j.off)
				if n == len(j.buf) {
					err = nil // io.EOF with the last byte is no error
				} else if err == nil || err == io.EOF {
					err = fmt.Errorf("pipeline: %s: %d of %d bytes at offset %d", path, n, len(j.buf), j.off)
				}
				j.read <- err
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	g.Go(func() error {
		stop := interruptOn(gctx, s.conn)
		defer stop()
		for j := range order {
			select {
			case err := <-j.read:
				if err != nil {
					return err
				}
			case <-gctx.Done():
				return context.Cause(gctx)
			}
			if err := s.send(gctx, j); err != nil {
				return err
			}
			free <- j.buf[:cap(j.buf)]
		}
		if err := context.Cause(gctx); err != nil {
			return err
		}
		if err := s.flushZero(); err != nil {
			return err
		}
		return s.conn.Flush()
	})
	err := g.Wait()
	if err != nil && ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
		err = fmt.Errorf("pipeline: sending %s: %w", path, context.Cause(ctx))
	}
	s.stats.Elapsed = time.Since(began)
	return s.stats, err
}

// interruptOn ends a write that is stuck when the context ends. The grace lets
// one that is merely under way finish.
func interruptOn(ctx context.Context, conn FrameWriter) (stop func()) {
	finished := make(chan struct{})
	var once sync.Once
	context.AfterFunc(ctx, func() {
		t := time.NewTimer(interruptGrace)
		defer t.Stop()
		select {
		case <-t.C:
			conn.Interrupt(context.Cause(ctx))
		case <-finished:
		}
	})
	return func() { once.Do(func() { close(finished) }) }
}

// send encodes one run and writes its frames.
func (s *sender) send(ctx context.Context, j *job) error {
	cluster := s.m.Cluster()
	for p := range codec.Encode(j.buf, cluster) {
		off, n := j.off+int64(p.Off), int64(p.Len)
		s.stats.Bytes += n
		s.stats.Clusters += (n + int64(cluster) - 1) / int64(cluster)
		switch {
		case p.Kind == codec.Zero && s.opt.SkipZero:
			s.stats.Skipped += n
		case p.Kind == codec.Zero:
			// Zeroes that go on in the next run become one frame, and one hole.
			if s.zeroLen > 0 && s.zeroOff+s.zeroLen != off {
				if err := s.flushZero(); err != nil {
					return err
				}
			}
			if s.zeroLen == 0 {
				s.zeroOff = off
			}
			s.zeroLen += n
			s.stats.Zero += n
		default:
			if err := s.flushZero(); err != nil {
				return err
			}
			if err := s.pay(ctx, n); err != nil {
				return err
			}
			f := wire.Frame{Type: wire.Data, Stream: s.vol.Stream, Pos: off, Payload: j.buf[p.Off : p.Off+p.Len]}
			if err := s.conn.Write(&f); err != nil {
				return err
			}
			s.stats.Sent += n
		}
		if s.count != nil {
			s.count(n)
		}
	}
	return nil
}

func (s *sender) flushZero() error {
	if s.zeroLen == 0 {
		return nil
	}
	f := wire.Frame{Type: wire.Zero, Stream: s.vol.Stream, Pos: s.zeroOff, Length: s.zeroLen}
	s.zeroLen = 0
	return s.conn.Write(&f)
}

// pay waits until n more bytes are within the limit. Time that was not used is
// not saved up for a burst.
func (s *sender) pay(ctx context.Context, n int64) error {
	if s.opt.Limit == 0 {
		return nil
	}
	now := time.Now()
	if s.limitEnd.Before(now) {
		s.limitEnd = now
	}
	wait := s.limitEnd.Sub(now)
	s.limitEnd = s.limitEnd.Add(time.Duration(float64(n) / float64(s.opt.Limit) * float64(time.Second)))
	if wait <= 0 {
		return nil
	}
	// What is waiting in the connection's buffer must not wait for us.
	if err := s.conn.Flush(); err != nil {
		return err
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
