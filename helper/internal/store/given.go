package store

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/codec"
	"github.com/livefleet/handover/helper/internal/image/qcow2"
)

// PushFolder is the folder of a store in which others write images, to give them to it.
// Nothing in it is part of the store.
const PushFolder = "push"

// given is an image that another program has written: all clusters of a disk, or those that
// it has written since the parent. It lies on the store's file system, so it takes its place
// by a new name, and its data are read once and written never.
type given struct {
	f       *os.File
	path    string
	length  int64
	image   *qcow2.Reader
	entries []entry
}

// Given takes an image as a volume, which becomes its layer. It has everything, or where the
// parent is used all that was written since; it is the caller's to know that it is whole. Found
// has still to be called.
func (t *Take) Given(name, path string, size int64, full bool) (_ *Writing, err error) {
	w, err := t.begin(name, size, full)
	if err != nil {
		return nil, err
	}
	t.writing = append(t.writing, w)
	w.given, err = openGiven(path, size)
	if err != nil {
		return nil, err
	}
	if err := w.given.read(size); err != nil {
		return nil, err
	}
	for _, e := range w.given.entries {
		if !e.zero {
			w.volume.Read += min(cluster, size-e.cluster*cluster)
		}
	}
	return w, nil
}

// OpenGiven opens such an image only to read it: its clusters are compared and written one by one.
func OpenGiven(path string, size int64) (*Image, error) {
	g, err := openGiven(path, size)
	if err != nil {
		return nil, err
	}
	return &Image{g}, nil
}

// Image is the content of an image that was given.
type Image struct{ g *given }

// Close closes it.
func (i *Image) Close() error { return i.g.f.Close() }

// Into writes all of the disk to a volume.
func (i *Image) Into(w VolumeWriter) error {
	size, next := i.g.image.Size(), int64(0)
	zeroes := func(to int64) error {
		if to <= next {
			return nil
		}
		return w.Zero(next, to-next)
	}
	err := i.g.image.Each(func(c, place int64) error {
		if place == 0 {
			return nil
		}
		b := make([]byte, cluster)
		if err := zeroes(c * cluster); err != nil {
			return err
		}
		if err := i.g.cluster(place, b); err != nil {
			return err
		}
		next = min((c+1)*cluster, size)
		return w.Write(b[:next-c*cluster], c*cluster)
	})
	if err != nil {
		return err
	}
	return zeroes(size)
}

// Shut reports whether a rollback has left its gate on the disk that the image is of, as far as
// the image has the disk's beginning.
func (i *Image) Shut() (point string, shut bool, err error) {
	first := int64(0)
	err = i.g.image.Each(func(c, place int64) error {
		if c == 0 {
			first = place
		}
		return io.EOF
	})
	if err != nil && err != io.EOF || first == 0 {
		if err == io.EOF {
			err = nil
		}
		return "", false, err
	}
	return Shut(io.NewSectionReader(i.g.f, first, cluster))
}

// openGiven opens an image that may be written, once its writer has closed it.
func openGiven(path string, size int64) (_ *given, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	g := &given{f: f, path: path}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("store: %s: %w", path, err), f.Close())
		}
	}()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, errors.New("it is no file")
	}
	if err := waitClosed(f); err != nil {
		return nil, err
	}
	if st, err = f.Stat(); err != nil { // it may have grown
		return nil, err
	}
	// QEMU ends the file behind the last byte, and a layer has whole clusters.
	if g.length = (st.Size() + cluster - 1) / cluster * cluster; g.length != st.Size() {
		if err := f.Truncate(g.length); err != nil {
			return nil, err
		}
	}
	if g.image, err = qcow2.NewReader(f, g.length); err != nil {
		return nil, err
	}
	if g.image.Size() != size || g.image.Below() != "" {
		return nil, fmt.Errorf("it is of a disk of %d bytes on %q, and one of %d bytes on nothing was asked for", g.image.Size(), g.image.Below(), size)
	}
	return g, nil
}

func (g *given) cluster(place int64, b []byte) error {
	if n, err := g.f.ReadAt(b, place); n < len(b) {
		return fmt.Errorf("store: %s: reading at %d: %w", g.path, place, err)
	}
	return nil
}

// read makes the sum of each cluster.
func (g *given) read(size int64) error {
	b := make([]byte, cluster)
	return g.image.Each(func(c, place int64) error {
		if place == 0 {
			g.entries = append(g.entries, entry{cluster: c, zero: true})
			return nil
		}
		if err := g.cluster(place, b); err != nil {
			return err
		}
		// A last cluster that is short counts as filled up with zeroes.
		if short := size - c*cluster; short < cluster && !codec.IsZero(b[short:]) {
			clear(b[short:])
			if _, err := g.f.WriteAt(b[short:], place+short); err != nil {
				return fmt.Errorf("store: %s: %w", g.path, err)
			}
		}
		g.entries = append(g.entries, entry{cluster: c, sum: sumOf(b)})
		return nil
	})
}

// settle gives the image the name of the layer, as one that root alone reads.
func (w *Writing) settle(d disk) error {
	g, below := w.given, ""
	if w.layer.Below != "" {
		below = (&Layer{ID: w.layer.Below}).File()
	} else {
		kept := g.entries[:0]
		for _, e := range g.entries {
			if !e.zero {
				kept = append(kept, e)
			}
		}
		g.entries = kept
	}
	act := []struct {
		step, path string
		do         func() error
	}{
		{"write", g.path, func() error { return qcow2.Lay(g.f, g.length, below) }},
		{"owner", g.path, func() error { return errors.Join(g.f.Chown(os.Geteuid(), os.Getegid()), g.f.Chmod(0o600)) }},
		{"fsync", g.path, g.f.Sync},
		{"rename", w.path(), func() error { return os.Rename(g.path, w.path()) }},
	}
	for _, a := range act {
		if err := d.do(a.step, a.path, a.do); err != nil {
			return err
		}
	}
	return nil
}

// path is the place of the layer's file.
func (w *Writing) path() string { return w.take.s.path(layersDir, w.layer.File()) }
