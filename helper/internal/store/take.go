package store

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/livefleet/handover/helper/internal/codec"
	"github.com/livefleet/handover/helper/internal/image/qcow2"
)

// Take is a point that is being written. It is part of the store once Finish has
// returned, and nothing of it is before.
type Take struct {
	s       *Store
	point   *Point
	writing []*Writing
	ended   bool
}

// Begin begins a point, whose parent is the current one.
func (s *Store) Begin(name, description string) (*Take, error) {
	if name != "" {
		if !namePattern.MatchString(name) {
			return nil, fmt.Errorf("store: %q cannot be a name: letters, digits, dots, dashes and underscores, at most 128", name)
		}
		for _, p := range s.index.Points {
			if p.Name == name {
				return nil, fmt.Errorf("store: the name %s is taken, by the snapshot of %s: choose another, or delete that one", name, p.Taken.Format(time.RFC3339))
			}
		}
	}
	if s.index.Restoring != "" {
		return nil, fmt.Errorf("store: a rollback to %s was begun, and is not known to have ended: run it again, or name all of its volumes", s.index.Restoring)
	}
	return &Take{s: s, point: &Point{ID: newID(), Name: name, Description: description, Parent: s.index.Current, Volumes: []Volume{}}}, nil
}

// Writing is a volume of a point that is being written, in any order. A cluster that
// is written twice is as it was written last.
type Writing struct {
	take    *Take
	volume  Volume
	layer   *Layer
	base    *View // of the parent; nil: there is none
	file    *file
	q       *qcow2.Writer
	changed map[int64]sum // the clusters of data that differ from the parent
	pad     []byte
	given   *given // its file was written by others; file and q are not there
	err     error
}

// Base is the parent's volume of this name, or nil where there is none.
func (t *Take) Base(name string) *Volume {
	now := t.s.index.Now()
	if now == nil {
		return nil
	}
	v, err := now.Volume(name)
	if err != nil {
		return nil
	}
	return v
}

// Volume begins a volume of size bytes. With full, nothing of the parent's is used.
func (t *Take) Volume(name string, size int64, full bool) (_ *Writing, err error) {
	w, err := t.begin(name, size, full)
	if err != nil {
		return nil, err
	}
	below := ""
	if w.layer.Below != "" {
		below = (&Layer{ID: w.layer.Below}).File()
	}
	t.writing = append(t.writing, w)
	if w.file, err = t.s.disk.create(w.path()); err != nil {
		return nil, err
	}
	w.q, err = qcow2.NewLayer(w.file, size, below)
	return w, err
}

// begin looks for the layer below a volume.
func (t *Take) begin(name string, size int64, full bool) (_ *Writing, err error) {
	if !namePattern.MatchString(name) {
		return nil, fmt.Errorf("store: %q cannot be the name of a volume: letters, digits, dots, dashes and underscores, at most 128", name)
	}
	if slices.ContainsFunc(t.writing, func(w *Writing) bool { return w.volume.Name == name }) {
		return nil, fmt.Errorf("store: two volumes have the name %s", name)
	}
	w := &Writing{take: t, volume: Volume{Name: name, Size: size, How: Full}, changed: map[int64]sum{}, pad: make([]byte, cluster)}
	w.layer = &Layer{ID: newID(), Volume: name, Size: size}
	v := t.Base(name)
	if v != nil && v.Size != size {
		w.volume.Why = fmt.Sprintf("the disk has %d bytes, and had %d", size, v.Size)
		v = nil
	}
	if v != nil && !full {
		if w.base, err = openView(t.s.dir, t.s.index.chain(v.Layer)); err != nil {
			return nil, err
		}
		w.layer.Below = v.Layer
		w.volume.How = Digests
	}
	return w, nil
}

// Full reports whether nothing of the parent's is used.
func (w *Writing) Full() bool { return w.base == nil }

// Found says how the difference to the parent was found; why, if not by marks. mark is
// where the tracker stands, for the next point.
func (w *Writing) Found(how, why string, mark *Mark) {
	w.volume.How, w.volume.Why, w.volume.Mark = how, why, mark
}

// Write takes the content of whole clusters. The last of the disk may be short.
func (w *Writing) Write(p []byte, off int64) error {
	for len(p) > 0 {
		n := min(cluster, len(p))
		if err := w.one(p[:n], off); err != nil {
			return w.fail(err)
		}
		p, off = p[n:], off+int64(n)
	}
	return nil
}

func (w *Writing) one(p []byte, off int64) error {
	w.volume.Read += int64(len(p))
	if codec.IsZero(p) {
		return w.zero(off, int64(len(p)))
	}
	whole := p
	if len(p) < cluster {
		clear(w.pad)
		copy(w.pad, p)
		whole = w.pad
	}
	c, s := off/cluster, sumOf(whole)
	if w.base != nil && w.base.holds(c, s) {
		delete(w.changed, c)
		return w.q.Forget(off, int64(len(p)))
	}
	if was, ok := w.changed[c]; ok && was == s {
		return nil
	}
	if _, err := w.q.WriteAt(p, off); err != nil {
		return err
	}
	w.changed[c] = s
	return nil
}

// Zero takes zeroes for whole clusters.
func (w *Writing) Zero(off, n int64) error {
	for n > 0 {
		part := min(cluster, n)
		if err := w.zero(off, part); err != nil {
			return w.fail(err)
		}
		off, n = off+part, n-part
	}
	return nil
}

func (w *Writing) zero(off, n int64) error {
	c := off / cluster
	delete(w.changed, c)
	if w.base == nil || w.base.holds(c, sum{}) {
		return w.q.Forget(off, n)
	}
	return w.q.Zero(off, n)
}

// fail keeps the first error: a volume that missed a write is not finished.
func (w *Writing) fail(err error) error {
	if w.err == nil {
		w.err = err
	}
	return err
}

// File takes a file along.
func (t *Take) File(name string, r io.Reader) error {
	if !namePattern.MatchString(name) {
		return fmt.Errorf("store: %q cannot be the name of a file in a snapshot: letters, digits, dots, dashes and underscores, at most 128", name)
	}
	dir := t.s.path(filesDir, t.point.ID)
	if err := t.s.disk.mkdir(dir); err != nil {
		return err
	}
	path := t.s.path(filesDir, t.point.ID, name)
	if err := t.s.disk.copyIn(path, r); err != nil {
		return err
	}
	f, err := digest(path)
	if err != nil {
		return err
	}
	f.Name = name
	t.point.Files = append(t.point.Files, f)
	return nil
}

// Finish makes the point part of the store, as its current one. taken is the moment
// that it is of, and frozenMS how long the file systems stood still for it.
func (t *Take) Finish(taken time.Time, frozenMS float64) (*Point, error) {
	if t.ended {
		return nil, errors.New("store: the snapshot has ended")
	}
	next := t.s.index.clone()
	for _, w := range t.writing {
		if err := w.finish(); err != nil {
			return nil, fmt.Errorf("store: the volume %s: %w", w.volume.Name, err)
		}
		next.Layers = append(next.Layers, w.layer)
		t.point.Volumes = append(t.point.Volumes, w.volume)
	}
	for _, dir := range []string{t.s.path(layersDir), t.s.path(filesDir, t.point.ID)} {
		if dir != t.s.path(layersDir) && len(t.point.Files) == 0 {
			continue
		}
		if err := t.s.disk.syncDir(dir); err != nil {
			return nil, err
		}
	}
	t.point.Taken, t.point.FrozenMS = taken.UTC(), frozenMS
	next.Points = append(next.Points, t.point)
	next.Current = t.point.ID
	before := t.s.index
	t.s.index = next
	if err := t.s.commit(); err != nil {
		t.s.index = before
		return nil, err
	}
	t.ended = true
	return t.point, t.close()
}

func (w *Writing) finish() error {
	if w.err != nil {
		return w.err
	}
	w.volume.Layer = w.layer.ID
	entries, err := w.complete()
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.zero {
			w.layer.Clusters++
		}
	}
	w.volume.Stored = w.layer.Clusters * cluster
	return w.take.s.describe(w.layer, entries, w.path(), 1)
}

// complete has the layer's file on the disk, and returns its entries.
func (w *Writing) complete() ([]entry, error) {
	if w.given != nil {
		err := w.settle(w.take.s.disk)
		return w.given.entries, err
	}
	if err := w.q.Close(); err != nil {
		return nil, err
	}
	if err := w.file.sync(); err != nil {
		return nil, err
	}
	var entries []entry
	for c, zero := range w.q.Entries {
		e := entry{cluster: c, zero: zero}
		if !zero {
			e.sum = w.changed[c]
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// describe writes the sums of a layer whose file is at path, and notes the digests of
// both. number tells the layer's files of sums apart.
func (s *Store) describe(l *Layer, entries []entry, path string, number uint64) error {
	b := encodeSums(entries)
	l.Sums = fileOf(fmt.Sprintf("%s-%d.sums", l.ID, number), b)
	if err := s.disk.put(s.path(layersDir, l.Sums.Name), b); err != nil {
		return err
	}
	whole, err := digest(path)
	l.Bytes, l.SHA256 = whole.Bytes, whole.SHA256
	return err
}

// close closes the files.
func (t *Take) close() (err error) {
	for _, w := range t.writing {
		if w.base != nil {
			err = errors.Join(err, w.base.Close())
		}
		if w.file != nil {
			err = errors.Join(err, w.file.Close())
		}
		if w.given != nil {
			err = errors.Join(err, w.given.f.Close())
		}
	}
	t.writing = nil
	return err
}

// Abandon gives up a point that is not finished. Of one that is, it does nothing.
func (t *Take) Abandon() error {
	if t.ended {
		return nil
	}
	t.ended = true
	return errors.Join(t.close(), t.s.sweep())
}

// BaseSums are the sums of all clusters of the parent's volume, one after the other;
// nothing where nothing of it is used.
func (w *Writing) BaseSums() []byte {
	if w.base == nil {
		return nil
	}
	all := make([]byte, 0, len(w.base.sums)*SumSize)
	for i := range w.base.sums {
		all = append(all, w.base.sums[i][:]...)
	}
	return all
}

// ReadElsewhere says how many bytes of the disk were read for this point.
func (w *Writing) ReadElsewhere(n int64) { w.volume.Read = n }
