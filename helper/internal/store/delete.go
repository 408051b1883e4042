package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/image"
	"github.com/livefleet/handover/helper/internal/image/qcow2"
)

// A merge writes the layer that stays as a whole. So a large layer that no point is of
// any more stays below a small one, until the small ones have overwritten a quarter of
// it, or have together become a quarter as large: each cluster is then copied a few
// times in all, and not with each increment.
const patience = 4

// Delete removes points. The clusters that others still need stay: in the layer where
// they are, or merged into the one above it.
func (s *Store) Delete(ctx context.Context, points ...string) error {
	next := s.index.clone()
	for _, word := range points {
		p, err := next.Find(word)
		if err != nil {
			return err
		}
		if p.ID == next.Restoring {
			return fmt.Errorf("store: a rollback to %s was begun, and is not known to have ended: run it again, or take a snapshot, before this one is deleted", p.ID)
		}
		next.remove(p)
	}
	next.drop()
	err := s.merge(ctx, next)
	if err == nil {
		before := s.index
		s.index = next
		if err = s.commit(); err != nil {
			s.index = before
		}
	}
	return errors.Join(err, s.sweep())
}

// remove takes a point out of the tree. Its children become its parent's.
func (x *Index) remove(p *Point) {
	x.Points = slices.DeleteFunc(x.Points, func(q *Point) bool { return q == p })
	for _, q := range x.Points {
		if q.Parent == p.ID {
			q.Parent = p.Parent
		}
	}
	if x.Current == p.ID {
		x.Current = p.Parent
	}
}

// users are, by layer, the number of layers that lie on it, and whether a point is of it.
func (x *Index) users() (above map[string]int, points map[string]bool) {
	above, points = map[string]int{}, map[string]bool{}
	for _, l := range x.Layers {
		above[l.Below]++
	}
	for _, p := range x.Points {
		for _, v := range p.Volumes {
			points[v.Layer] = true
		}
	}
	return above, points
}

// drop takes out the layers that nothing needs.
func (x *Index) drop() {
	for {
		above, points := x.users()
		n := len(x.Layers)
		x.Layers = slices.DeleteFunc(x.Layers, func(l *Layer) bool { return above[l.ID] == 0 && !points[l.ID] })
		if len(x.Layers) == n {
			return
		}
	}
}

// runs are the layers to be merged, each run with the one that stays first. The others
// of a run are only needed by the one above them.
func (x *Index) runs() (runs [][]*Layer) {
	above, points := x.users()
	idle := func(l *Layer) bool { return l != nil && above[l.ID] == 1 && !points[l.ID] }
	for _, top := range x.Layers {
		if idle(top) {
			continue // part of the run of one above
		}
		run, size := []*Layer{top}, top.Clusters
		for l := x.layer(top.Below); idle(l); l = x.layer(l.Below) {
			if l.Clusters > patience*size {
				runs = append(runs, run)
				run, size = nil, 0
			}
			run, size = append(run, l), size+l.Clusters
		}
		runs = append(runs, run)
	}
	return slices.DeleteFunc(runs, func(run []*Layer) bool { return len(run) < 2 })
}

// merge writes what the runs of an index become, and changes the index accordingly.
func (s *Store) merge(ctx context.Context, x *Index) error {
	runs := x.runs()
	if len(runs) == 0 {
		return nil
	}
	var need int64
	for _, run := range runs {
		for _, l := range run {
			need += l.Clusters * cluster
		}
	}
	if err := s.room(need, "merging"); err != nil {
		return err
	}
	for _, run := range runs {
		if err := s.mergeRun(ctx, x, run); err != nil {
			return err
		}
	}
	return s.disk.syncDir(s.path(layersDir))
}

// room demands that so many bytes are free.
func (s *Store) room(need int64, doing string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(s.dir, &st); err != nil {
		return fmt.Errorf("store: %s: %w", s.dir, err)
	}
	if free := int64(st.Bavail) * st.Frsize; free < need {
		return fmt.Errorf("store: %s: %s takes up to %d MiB, and %d MiB are free: free %d MiB", s.dir, doing, need>>20, free>>20, (need-free)>>20+1)
	}
	return nil
}

func (s *Store) mergeRun(ctx context.Context, x *Index, run []*Layer) (err error) {
	v, err := openView(s.dir, run)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	top, below := run[0], run[len(run)-1].Below
	f, err := s.disk.create(s.path(layersDir, top.File()+newSuffix))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	name := ""
	if below != "" {
		name = (&Layer{ID: below}).File()
	}
	q, err := qcow2.NewLayer(f, top.Size, name)
	if err != nil {
		return err
	}
	entries, err := v.copyTo(ctx, q, below == "")
	if err != nil {
		return err
	}
	if err := q.Close(); err != nil {
		return err
	}
	if err := f.sync(); err != nil {
		return err
	}
	top.Below, top.Clusters = below, 0
	for _, e := range entries {
		if !e.zero {
			top.Clusters++
		}
	}
	if err := s.describe(top, entries, f.Path(), s.index.Generation+1); err != nil {
		return err
	}
	x.Pending = append(x.Pending, top.File())
	x.Layers = slices.DeleteFunc(x.Layers, func(l *Layer) bool { return slices.Contains(run[1:], l) })
	return nil
}

// copyTo writes what the layers have of their own. At the bottom zeroes need no entry.
func (v *View) copyTo(ctx context.Context, q *qcow2.Writer, bottom bool) (entries []entry, err error) {
	buf := image.Buffer(cluster)
	for c, p := range v.places {
		off := int64(c) * cluster
		n := min(cluster, v.size-off)
		switch {
		case p == nothing || bottom && !p.isData():
			continue
		case !p.isData():
			entries = append(entries, entry{cluster: int64(c), zero: true})
			err = q.Zero(off, n)
		default:
			if err = v.cluster(int64(c), buf); err == nil {
				entries = append(entries, entry{cluster: int64(c), sum: v.sums[c]})
				_, err = q.WriteAt(buf[:n], off)
			}
		}
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return nil, err
		}
	}
	return entries, nil
}
