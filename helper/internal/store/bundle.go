package store

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// Bundle is some points with the files that they need, and an index that speaks of
// nothing else. The files are open: one that is merged or deleted meanwhile can be read
// nevertheless.
type Bundle struct {
	Index *Index
	names []File
	files []*os.File
}

// OpenBundle opens a point's. It holds up nobody.
func OpenBundle(dir, word string) (*Bundle, error) {
	return openBundle(dir, func(x *Index) (*Index, []File, error) {
		y, err := x.only(word)
		if err != nil {
			return nil, nil, err
		}
		return y, y.files(), nil
	})
}

// openBundle opens the files that a choice of the index names, in its order.
func openBundle(dir string, choose func(x *Index) (*Index, []File, error)) (b *Bundle, err error) {
	err = consistently(dir, func(x *Index) (err error) {
		if b != nil {
			b.Close()
		}
		b = &Bundle{}
		if b.Index, b.names, err = choose(x); err != nil {
			return err
		}
		for _, f := range b.names {
			file, err := os.Open(filepath.Join(dir, f.Name))
			if err != nil {
				return fmt.Errorf("store: %w", err)
			}
			b.files = append(b.files, file)
		}
		return nil
	})
	if err != nil && b != nil {
		b.Close()
		b = nil
	}
	return b, err
}

// Each gives visit each file, in the order in which Import or Join wants them.
func (b *Bundle) Each(visit func(f File, r io.Reader) error) error {
	for i, f := range b.names {
		if err := visit(f, b.files[i]); err != nil {
			return err
		}
	}
	return nil
}

// Close closes the files.
func (b *Bundle) Close() {
	for _, f := range b.files {
		f.Close()
	}
}

// only is an index of one point. It is another store's: it goes on without this one's
// trackers.
func (x *Index) only(word string) (*Index, error) {
	p, err := x.Find(word)
	if err != nil {
		return nil, err
	}
	needed := map[*Layer]bool{}
	for _, v := range p.Volumes {
		for _, l := range x.chain(v.Layer) {
			needed[l] = true
		}
	}
	y := (&Index{ID: newID(), Points: []*Point{p}, Layers: slices.DeleteFunc(slices.Clone(x.Layers), func(l *Layer) bool { return !needed[l] })}).clone()
	y.Current, y.Points[0].Parent = p.ID, ""
	for i := range y.Points[0].Volumes {
		y.Points[0].Volumes[i].Mark = nil
	}
	return y, nil
}

// files are all files that an index speaks of, each with its path in the store.
func (x *Index) files() (all []File) {
	for _, l := range x.Layers {
		all = append(all, l.files()...)
	}
	for _, p := range x.Points {
		all = append(all, p.files()...)
	}
	return all
}

func (l *Layer) files() []File {
	return []File{{filepath.Join(layersDir, l.File()), l.Bytes, l.SHA256}, {filepath.Join(layersDir, l.Sums.Name), l.Sums.Bytes, l.Sums.SHA256}}
}

func (p *Point) files() (all []File) {
	for _, f := range p.Files {
		all = append(all, File{filepath.Join(filesDir, p.ID, f.Name), f.Bytes, f.SHA256})
	}
	return all
}

// Import makes a new store of an index and the files that it speaks of. next gives the
// content of each, in turn; it is held against its digest. Until all are there, the
// store has no point.
func Import(dir string, x *Index, next func(f File) (io.Reader, error)) (err error) {
	if err := x.check(); err != nil {
		return fmt.Errorf("store: the index that came is wrong: %w", err)
	}
	s, err := Open(dir, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if len(s.index.Points) > 0 {
		return fmt.Errorf("store: %s: there is a store with snapshots: name a new folder", s.dir)
	}
	var need int64
	for _, f := range x.files() {
		need += f.Bytes
	}
	if err := s.room(need, "the copy"); err != nil {
		return err
	}
	for _, f := range x.files() {
		if err := s.importFile(f, next); err != nil {
			return err
		}
	}
	if err := s.disk.syncDir(s.path(layersDir)); err != nil {
		return err
	}
	s.index = x
	return s.commit()
}

func (s *Store) importFile(f File, next func(f File) (io.Reader, error)) error {
	r, err := next(f)
	if err != nil {
		return err
	}
	path := s.path(f.Name)
	if err := s.disk.mkdir(filepath.Dir(path)); err != nil {
		return err
	}
	if err := s.disk.copyIn(path, r); err != nil {
		return err
	}
	got, err := digest(path)
	if err != nil {
		return err
	}
	if got.Bytes != f.Bytes || got.SHA256 != f.SHA256 {
		return fmt.Errorf("store: %s has come damaged, or is damaged where it is from: verify that store", f.Name)
	}
	if filepath.Dir(f.Name) == layersDir {
		return nil
	}
	return s.disk.syncDir(filepath.Dir(path))
}
