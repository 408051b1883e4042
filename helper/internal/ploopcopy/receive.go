package ploopcopy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/livefleet/handover/helper/internal/codec"
	"github.com/livefleet/handover/helper/internal/image"
	"github.com/livefleet/handover/helper/internal/pipeline"
	"github.com/livefleet/handover/helper/internal/report"
	"github.com/livefleet/handover/helper/internal/wire"
	"github.com/livefleet/handover/helper/internal/wire/dialect"
)

// DefaultLimit is the longest image that is accepted by default: the longest file
// that ext4 holds.
const DefaultLimit = 16 << 40

// Received counts the work of a Receive.
type Received struct {
	Path    string `json:"path"`
	Size    int64  `json:"size"`
	Written int64  `json:"written"`
}

// disk is where an old sender's image goes: only there, and never behind its end.
type disk interface {
	pipeline.Target
	Datasync() error
	Close() error
}

// receiving is one Receive under way.
type receiving struct {
	conn dialect.Receiver
	disk *bounded
	log  *report.Log
	made bool // a disk of a known size was asked for
	some bool // anything was written
}

// Receive writes an old sender's data to a new file at path, which may have limit
// bytes at most. If anything fails the file is removed: without the end of the
// transfer its content is unknown. /dev/null takes everything; a sender names it to
// learn only the features of this side.
func Receive(ctx context.Context, conn dialect.Receiver, path string, limit int64, log *report.Log) (_ Received, err error) {
	d, err := open(path, limit)
	if err != nil {
		return Received{}, dialect.Fail(dialect.Create, err)
	}
	r := &receiving{conn: conn, disk: d, log: log}
	p := pipeline.NewReceiver(within{conn, d}, nil, pipeline.ReceiveOptions{})
	p.Add(0, d, nil)
	err = p.Run(ctx, r.control, func(*wire.Frame) error { return nil })
	if err != nil {
		// A sender that waits for an answer hears that it is not a good one.
		_ = conn.Answer(false)
		err = dialect.Fail(dialect.Write, err)
	}
	length := d.length()
	err = errors.Join(err, dialect.Fail(dialect.Write, d.Close()))
	if err != nil {
		if path != os.DevNull {
			if rerr := os.Remove(path); rerr != nil {
				err = errors.Join(err, fmt.Errorf("ploopcopy: what was received so far could not be removed: %w", rerr))
			}
		}
		return Received{}, err
	}
	return Received{Path: path, Size: length, Written: p.Received().Written}, nil
}

func open(path string, limit int64) (*bounded, error) {
	if path == os.DevNull {
		return newBounded(null{limit}, limit), nil
	}
	t, err := image.CreateGrowing(path, limit)
	if err != nil {
		return nil, err
	}
	return newBounded(t, limit), nil
}

// control carries out the sender's request. Everything before it has been written.
func (r *receiving) control(_ context.Context, f *wire.Frame) error {
	switch dialect.Request(f.Flags) {
	case dialect.Barrier:
		r.log.Emit("barrier", nil)
		return r.sync()
	case dialect.Done:
		r.some = true
		return r.conn.Answer(true)
	case dialect.Mount:
		// The answer itself says no; the sender may go on.
		return r.conn.Answer(true)
	case dialect.Make:
		if err := r.size(f.Pos); err != nil {
			return dialect.Fail(dialect.Protocol, err)
		}
		return r.conn.Answer(true)
	case dialect.End:
		if err := r.sync(); err != nil {
			return err
		}
		return pipeline.ErrStop
	}
	return dialect.Fail(dialect.Protocol, fmt.Errorf("ploopcopy: the unknown request %d", f.Flags))
}

func (r *receiving) sync() error {
	err := r.disk.Datasync()
	if err != nil {
		return errors.Join(dialect.Fail(dialect.Fsync, err), r.conn.Answer(false))
	}
	return r.conn.Answer(true)
}

// size takes the size that the disk will have: nothing is written behind it.
func (r *receiving) size(n int64) error {
	switch {
	case r.made || r.some:
		return fmt.Errorf("ploopcopy: the sender asks for a disk of %d bytes when one is being written already", n)
	case n > r.disk.Size():
		return fmt.Errorf("ploopcopy: the sender asks for a disk of %d bytes, and %d are allowed here: pass a larger --max-size if that is right", n, r.disk.Size())
	}
	r.made = true
	r.disk.bound.Store(n)
	return r.disk.Zero(0, n)
}

// within refuses data that no disk of the allowed size has.
type within struct {
	dialect.Receiver
	disk *bounded
}

func (w within) Read(f *wire.Frame) error {
	if err := w.Receiver.Read(f); err != nil {
		return err
	}
	if size := w.disk.Size(); f.Type == wire.Data && (f.Pos > size || f.Length > size-f.Pos) {
		return dialect.Fail(dialect.Protocol, fmt.Errorf("ploopcopy: the sender names %d bytes at %d, and the image has %d at most: pass a larger --max-size if that is right", f.Length, f.Pos, size))
	}
	return nil
}

// bounded is a disk that ends where it was said to.
type bounded struct {
	disk
	bound atomic.Int64
}

func newBounded(d disk, limit int64) *bounded {
	b := &bounded{disk: d}
	b.bound.Store(limit)
	return b
}

// Size is the pipeline's limit for every frame.
func (b *bounded) Size() int64 { return b.bound.Load() }

// WriteAt makes a hole of zeroes: old senders send all of them, and a sparse image
// stays sparse.
func (b *bounded) WriteAt(p []byte, off int64) (int, error) {
	if codec.IsZero(p) {
		return len(p), b.Zero(off, int64(len(p)))
	}
	return b.disk.WriteAt(p, off)
}

// length is how long the file has become.
func (b *bounded) length() int64 {
	info, err := os.Stat(b.Path())
	if err != nil {
		return 0
	}
	return info.Size()
}

// null is /dev/null.
type null struct{ limit int64 }

func (null) Path() string                           { return os.DevNull }
func (n null) Size() int64                          { return n.limit }
func (null) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }
func (null) Zero(int64, int64) error                { return nil }
func (null) Discard(int64, int64) error             { return nil }
func (null) Datasync() error                        { return nil }
func (null) Close() error                           { return nil }
