package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/livefleet/handover/helper/internal/codec"
	"github.com/livefleet/handover/helper/internal/image"
	"github.com/livefleet/handover/helper/internal/nbd"
)

// Restored counts the work of a restore.
type Restored struct {
	Volume  string `json:"volume"`
	Path    string `json:"path"`
	Size    int64  `json:"size"`
	How     string `json:"how"`           // how the clusters that differ were found: Full, Marks or Digests
	Why     string `json:"why,omitempty"` // they were not found by marks
	Read    int64  `json:"read"`          // bytes of the target
	Written int64  `json:"written"`       // bytes of data
	Zeroed  int64  `json:"zeroed"`
}

// restoredTo has counted nothing yet.
func restoredTo(v *View, path string) *Restored {
	return &Restored{Volume: v.layers[0].Volume, Path: path, Size: v.size, How: Digests}
}

// WriteTo makes a target the disk at this point. One that does not exist is made, and is
// there as a whole or not at all. Of one that exists, a file or a device with exactly
// the disk's size, only those clusters are written that differ. If
// it fails or is killed, a target that was there has clusters of both, and doing it once
// more ends that.
func (v *View) WriteTo(ctx context.Context, path string) (*Restored, error) {
	r := restoredTo(v, path)
	t, err := openDisk(path, v.size)
	if err != nil {
		return nil, err
	}
	if t == nil {
		r.How = Full
		return r, v.writeNew(ctx, path, r)
	}
	err = v.write(ctx, t, r, 0, nil)
	if err == nil {
		err = t.Datasync()
	}
	return r, errors.Join(err, t.Close())
}

// target is a disk that is written in place: a file or a device, or one that QEMU serves.
type target interface {
	io.ReaderAt
	io.WriterAt
	Zero(off, n int64) error
	Empty() bool
	Datasync() error
	Close() error
}

// openDisk opens what has a path, or the address of an export; nil: there is nothing yet.
func openDisk(path string, size int64) (target, error) {
	if nbd.Is(path) {
		d, err := nbd.OpenDisk(path, size)
		if err != nil {
			return nil, err
		}
		return d, nil
	}
	if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	t, err := image.OpenTarget(path, size)
	if err != nil {
		return nil, err
	}
	return t, nil
}

func (v *View) writeNew(ctx context.Context, path string, r *Restored) error {
	part := path + newSuffix
	if err := os.Remove(part); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("store: %w", err)
	}
	t, err := image.CreateTarget(part, v.size)
	if err != nil {
		return err
	}
	err = v.write(ctx, t, r, 0, nil)
	if err == nil {
		err = t.Datasync()
	}
	err = errors.Join(err, t.Close())
	if err == nil {
		err = os.Rename(part, path)
	}
	if err == nil {
		return disk{}.syncDir(filepath.Dir(path))
	}
	return errors.Join(err, os.Remove(part))
}

// write compares and writes from a cluster on, some at a time; with only, those clusters.
func (v *View) write(ctx context.Context, t target, r *Restored, from int64, only *narrowed) error {
	var next, read, written, zeroed atomic.Int64
	next.Store(from)
	g, ctx := errgroup.WithContext(ctx)
	for range max(atOnce, runtime.GOMAXPROCS(0)) {
		g.Go(func() error {
			want, have := image.Buffer(stretch), image.Buffer(stretch)
			for {
				off := next.Add(stretch) - stretch
				if off >= v.size {
					return nil
				}
				if err := context.Cause(ctx); err != nil {
					return err
				}
				w := work{view: v, target: t, only: only, want: want, have: have}
				if err := w.stretch(off, min(stretch, v.size-off)); err != nil {
					return err
				}
				read.Add(w.read)
				written.Add(w.written)
				zeroed.Add(w.zeroed)
			}
		})
	}
	err := g.Wait()
	r.Read, r.Written, r.Zeroed = r.Read+read.Load(), r.Written+written.Load(), r.Zeroed+zeroed.Load()
	return err
}

// stretch is how much of a disk is written in one go, and atOnce how many of them are at
// least: a disk answers several reads in the time of one.
//
// A run that is shorter than longRun goes through the page cache, in single clusters: to
// write it past the cache takes a queue of the kernel's, whose end takes 30 ms.
const (
	stretch = 16 * cluster
	atOnce  = 8
	longRun = 4 * cluster
)

// work is a stretch of a restore.
type work struct {
	view                  *View
	target                target
	only                  *narrowed // nil: all can differ
	want, have            []byte
	read, written, zeroed int64
}

// stretch writes the clusters that differ, those side by side in one go.
func (w *work) stretch(off, n int64) error {
	from := int64(-1) // the data to be written begin here
	put := func(to int64) error {
		if from < 0 {
			return nil
		}
		at := from
		from = -1
		w.written += to - at
		step := to - at
		if step < longRun {
			step = cluster
		}
		for ; at < to; at += step {
			if _, err := w.target.WriteAt(w.want[at-off:min(at+step, to)-off], at); err != nil {
				return err
			}
		}
		return nil
	}
	for at := off; at < off+n; at += cluster {
		c := at / cluster
		end := min(at+cluster, off+n)
		differs, err := w.differs(c, at, end-at)
		if err != nil {
			return err
		}
		data := w.view.places[c].isData()
		if !differs || !data {
			if err := put(at); err != nil {
				return err
			}
		}
		switch {
		case !differs:
		case !data:
			w.zeroed += end - at
			if err := w.target.Zero(at, end-at); err != nil {
				return err
			}
		default:
			whole := w.want[at-off : at-off+cluster]
			if err := w.view.cluster(c, whole); err != nil {
				return err
			}
			if from < 0 {
				from = at
			}
		}
	}
	return put(off + n)
}

// differs reports whether the target has something else at a cluster.
func (w *work) differs(c, at, n int64) (bool, error) {
	if differs, known := w.only.known(at); known {
		return differs, nil
	}
	if w.target.Empty() {
		return w.view.places[c].isData(), nil
	}
	b := w.have[:cluster]
	clear(b[n:])
	if k, err := w.target.ReadAt(b[:n], at); int64(k) < n {
		if err == nil {
			err = io.ErrUnexpectedEOF
		}
		return false, err
	}
	w.read += n
	var has sum // zeroes have the sum of nothing
	if !codec.IsZero(b) {
		has = sumOf(b)
	}
	if w.only.isStrange(at, has) {
		return false, notAsCurrent{at}
	}
	return has != w.view.sums[c], nil
}

func (s *Store) change(how func(x *Index)) error {
	before := s.index
	s.index = before.clone()
	how(s.index)
	if err := s.commit(); err != nil {
		s.index = before
		return err
	}
	return nil
}
