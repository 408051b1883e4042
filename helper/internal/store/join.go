package store

import (
	"errors"
	"fmt"
	"io"
	"slices"
)

// A layer is the same disk in every store that has its ID: a merge changes its file
// and the layers below it, and not the content that is read through it. So a store that
// has the layer needs nothing below it from another one.

// Joining is a wish to bring points of another store into this one.
type Joining struct {
	Points  []string // those that are wanted; all if none is named
	Current bool     // the workload's disks come along, and descend from the other store's current point
	DryRun  bool     // nothing is written
}

// Joined are the points that came, or would come.
type Joined struct {
	Points []*Point `json:"points"`
	Bytes  int64    `json:"bytes"`
}

// Source has all that a store lacks of another one: an index of that, and the files, in
// the order of the index.
type Source interface {
	Rest(known, points []string) (*Index, error)
	Next(f File) (io.Reader, error)
}

// OpenRest opens all that a store lacks which knows some points and layers. Nothing waits
// for it.
func OpenRest(dir string, known, points []string) (*Bundle, error) {
	return openBundle(dir, func(x *Index) (*Index, []File, error) {
		y, err := x.Rest(known, points)
		if err != nil {
			return nil, nil, err
		}
		return y, y.inTurn(), nil
	})
}

// Rest is an index of the points that a store lacks, and of the layers that they need
// above those that it knows. It goes on without this store's trackers.
func (x *Index) Rest(known, points []string) (*Index, error) {
	if x.Restoring != "" {
		return nil, fmt.Errorf("store: a rollback to %s was begun, and is not known to have ended: run it again, or take a snapshot, before the snapshots are brought to another store", x.Restoring)
	}
	there, wanted := map[string]bool{}, map[string]bool{}
	for _, id := range known {
		there[id] = true
	}
	for _, word := range points {
		p, err := x.Find(word)
		if err != nil {
			return nil, err
		}
		wanted[p.ID] = true
	}
	y := &Index{ID: x.ID}
	for _, p := range x.clone().Points {
		if there[p.ID] || len(points) > 0 && !wanted[p.ID] {
			continue
		}
		p.Parent = x.nearest(p.Parent, there)
		for i := range p.Volumes {
			p.Volumes[i].Mark = nil
			y.Layers = append(y.Layers, x.above(p.Volumes[i].Layer, there)...)
		}
		y.Points, there[p.ID] = append(y.Points, p), true
	}
	y.Current = x.nearest(x.Current, there)
	return y, nil
}

// nearest is a point, or the first of those that it descends from that is there.
func (x *Index) nearest(id string, there map[string]bool) string {
	for id != "" && !there[id] {
		p := x.point(id)
		if p == nil {
			return ""
		}
		id = p.Parent
	}
	return id
}

// above are a layer and those below it down to the first that is there, the lowest
// first. They are there from now on.
func (x *Index) above(id string, there map[string]bool) (lacking []*Layer) {
	for _, l := range x.chain(id) {
		if there[l.ID] {
			break
		}
		m := *l
		lacking, there[l.ID] = append(lacking, &m), true
	}
	slices.Reverse(lacking)
	return lacking
}

// knows are the IDs of all points and layers.
func (x *Index) knows() (ids []string) {
	for _, p := range x.Points {
		ids = append(ids, p.ID)
	}
	for _, l := range x.Layers {
		ids = append(ids, l.ID)
	}
	return ids
}

// step is a point with the layers that come for it.
type step struct {
	point  *Point
	layers []*Layer
}

// steps are the points of a rest, each with the layers that the ones before it have not
// brought.
func (x *Index) steps() (all []step) {
	came := map[string]bool{}
	for _, p := range x.Points {
		s := step{point: p}
		for _, v := range p.Volumes {
			s.layers = append(s.layers, x.above(v.Layer, came)...)
		}
		all = append(all, s)
	}
	return all
}

func (s step) files() (all []File) {
	for _, l := range s.layers {
		all = append(all, l.files()...)
	}
	return append(all, s.point.files()...)
}

// inTurn are the files of a rest, in the order in which Join takes them.
func (x *Index) inTurn() (all []File) {
	for _, s := range x.steps() {
		all = append(all, s.files()...)
	}
	return all
}

// Join brings the points of another store that this one lacks. Each is part of the store
// when all of it is on the disk: after a kill those that came stay, and the rest comes
// with the next call. A folder that is missing or empty becomes a store.
func Join(dir string, how Joining, from Source) (_ *Joined, err error) {
	s := &Store{index: &Index{}}
	if is, ierr := Is(dir); ierr != nil {
		return nil, ierr
	} else if how.DryRun && is {
		s.index, err = Peek(dir)
	} else if !how.DryRun {
		s, err = Open(dir, true)
	}
	if err != nil {
		return nil, err
	}
	if s.lock != nil {
		defer func() { err = errors.Join(err, s.Close()) }()
	}
	x, err := from.Rest(s.index.knows(), how.Points)
	if err != nil {
		return nil, err
	}
	if err := s.index.takes(x, how.Current); err != nil {
		return nil, fmt.Errorf("store: %s: %w", dir, err)
	}
	came := &Joined{Points: append([]*Point{}, x.Points...)} // none is a list, too
	for _, f := range x.inTurn() {
		came.Bytes += f.Bytes
	}
	if how.DryRun {
		return came, nil
	}
	return came, s.join(x, how.Current, came.Bytes, from)
}

// takes demands that the points of a rest can be part of an index.
func (x *Index) takes(rest *Index, current bool) error {
	if x.Restoring != "" && (len(rest.Points) > 0 || current && rest.Current != x.Current) {
		return fmt.Errorf("a rollback to %s was begun, and is not known to have ended: run it again, or take a snapshot, before other snapshots come", x.Restoring)
	}
	for _, p := range rest.Points {
		if i := slices.IndexFunc(x.Points, func(q *Point) bool { return p.Name != "" && q.Name == p.Name }); i >= 0 {
			return fmt.Errorf("there is another snapshot %s, of %s, and the one that would come is of %s: delete one of the two",
				p.Name, x.Points[i].Taken.UTC().Format("2006-01-02 15:04:05"), p.Taken.UTC().Format("2006-01-02 15:04:05"))
		}
	}
	next := x.clone()
	next.Points, next.Layers = append(next.Points, rest.Points...), append(next.Layers, rest.Layers...)
	if next.ID == "" {
		next.ID = newID()
	}
	if err := next.check(); err != nil {
		return fmt.Errorf("the snapshots that would come do not fit to those that are there: %w", err)
	}
	return nil
}

func (s *Store) join(x *Index, current bool, need int64, from Source) error {
	if err := s.room(need, "what comes"); err != nil {
		return err
	}
	for _, step := range x.steps() {
		for _, f := range step.files() {
			if err := s.importFile(f, from.Next); err != nil {
				return err
			}
		}
		if err := s.disk.syncDir(s.path(layersDir)); err != nil {
			return err
		}
		if err := s.become(func(next *Index) {
			next.Points, next.Layers = append(next.Points, step.point), append(next.Layers, step.layers...)
		}); err != nil {
			return err
		}
	}
	if !current || s.index.Current == x.Current {
		return nil
	}
	return s.become(func(next *Index) { next.Current = x.Current })
}

// become makes a changed index the store's.
func (s *Store) become(change func(next *Index)) error {
	before, next := s.index, s.index.clone()
	change(next)
	s.index = next
	if err := s.commit(); err != nil {
		s.index = before
		return err
	}
	return nil
}
