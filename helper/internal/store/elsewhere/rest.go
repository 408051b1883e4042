package elsewhere

import (
	"errors"
	"fmt"
	"io"

	"github.com/livefleet/handover/helper/internal/store"
)

// there is a store on another host that another one joins.
type there struct {
	link *Link
	dry  bool
}

// Rest is asked for with the files behind it, unless none of them is wanted.
func (t there) Rest(known, points []string) (*store.Index, error) {
	if t.dry {
		if err := t.link.load(order{Do: "peek", Dir: t.link.place.Dir}); err != nil {
			return nil, err
		}
		x, err := t.link.index.Rest(known, points)
		return x, t.named(err)
	}
	err := t.link.load(order{Do: "rest", Dir: t.link.place.Dir, Known: known, Points: points})
	return t.link.index, err
}

// named is an error with the host that it is of.
func (t there) named(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", t.link.place.Host, err)
}

func (t there) Next(f store.File) (io.Reader, error) {
	return &stream{conn: t.link.conn, left: f.Bytes}, nil
}

// Join brings the points of a store on another host that one on this host lacks.
func Join(p Place, dir string, how store.Joining) (_ *store.Joined, err error) {
	l, err := dial(p)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.drop()) }()
	return store.Join(dir, how, there{l, how.DryRun})
}

// here is a store on this host that another one joins.
type here struct {
	dir     string
	bundle  *store.Bundle
	readers map[string]io.Reader
}

func (h *here) Rest(known, points []string) (_ *store.Index, err error) {
	if h.bundle, err = store.OpenRest(h.dir, known, points); err != nil {
		return nil, err
	}
	h.readers = map[string]io.Reader{}
	return h.bundle.Index, h.bundle.Each(func(f store.File, r io.Reader) error { h.readers[f.Name] = r; return nil })
}

func (h *here) Next(f store.File) (io.Reader, error) { return h.readers[f.Name], nil }

// JoinHere brings the points of a store that another one on this host lacks.
func JoinHere(from, dir string, how store.Joining) (*store.Joined, error) {
	h := &here{dir: from}
	joined, err := store.Join(dir, how, h)
	if h.bundle != nil {
		h.bundle.Close()
	}
	return joined, err
}
