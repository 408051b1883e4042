package store

import (
	"io"
	"time"
)

// Keeper is where points are taken: a store on this host, or one on another (package
// store/elsewhere). Its parts are described at Store, Take and Writing.
type Keeper interface {
	Dir() string
	Index() *Index
	Settle() error
	Begin(name, description string) (Taking, error)
	Close() error
}

// Taking is a point that is being written.
type Taking interface {
	Base(volume string) *Volume
	Volume(name string, size int64, full bool) (VolumeWriter, error)
	File(name string, r io.Reader) error
	Finish(taken time.Time, frozenMS float64) (*Point, error)
	Abandon() error
}

// VolumeWriter is a volume of it.
type VolumeWriter interface {
	Full() bool
	Found(how, why string, mark *Mark)
	Write(p []byte, off int64) error
	Zero(off, n int64) error
}

// Keeper is the store as one.
func (s *Store) Keeper() Keeper { return keeper{s} }

type keeper struct{ *Store }

func (k keeper) Begin(name, description string) (Taking, error) {
	t, err := k.Store.Begin(name, description)
	if err != nil {
		return nil, err
	}
	return taking{t}, nil
}

type taking struct{ *Take }

func (t taking) Volume(name string, size int64, full bool) (VolumeWriter, error) {
	w, err := t.Take.Volume(name, size, full)
	if err != nil {
		return nil, err
	}
	return w, nil
}
