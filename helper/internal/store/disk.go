package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"github.com/livefleet/handover/helper/internal/image"
)

// disk makes all changes to the files of a store, one step at a time.
type disk struct {
	// before is called before each step, with its name and the path that it is about;
	// a test lets the work end there. nil in the program itself.
	before func(step, path string) error
}

func (d disk) step(step, path string) error {
	if d.before == nil {
		return nil
	}
	return d.before(step, path)
}

// do is one step.
func (d disk) do(step, path string, act func() error) error {
	if err := d.step(step, path); err != nil {
		return err
	}
	if err := act(); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return nil
}

func (d disk) mkdir(path string) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	// Those above it, too, have to be there after a loss of power.
	if err := d.mkdir(filepath.Dir(path)); err != nil {
		return err
	}
	if err := d.do("mkdir", path, func() error { return os.MkdirAll(path, 0o700) }); err != nil {
		return err
	}
	return d.syncDir(filepath.Dir(path))
}

func (d disk) rename(from, to string) error {
	return d.do("rename", to, func() error { return os.Rename(from, to) })
}

func (d disk) removeAll(path string) error {
	return d.do("remove", path, func() error { return os.RemoveAll(path) })
}

func (d disk) syncDir(path string) error {
	return d.do("syncdir", path, func() error {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		return errors.Join(f.Sync(), f.Close())
	})
}

// put writes a file as a whole and to the disk. One that is there is replaced; nothing
// speaks of it yet.
func (d disk) put(path string, b []byte) error {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		if err := d.removeAll(path); err != nil {
			return err
		}
	}
	f, err := d.create(path)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(b, 0)
	if err == nil {
		err = f.sync()
	}
	return errors.Join(err, f.Close())
}

// file is a new file of a store.
type file struct {
	*image.Target
	disk disk
}

func (d disk) create(path string) (*file, error) {
	if err := d.step("create", path); err != nil {
		return nil, err
	}
	t, err := image.CreateGrowing(path, math.MaxInt64)
	if err != nil {
		return nil, err
	}
	return &file{t, d}, nil
}

func (f *file) WriteAt(p []byte, off int64) (int, error) {
	if err := f.disk.step("write", f.Path()); err != nil {
		return 0, err
	}
	return f.Target.WriteAt(p, off)
}

func (f *file) sync() error {
	if err := f.disk.step("fsync", f.Path()); err != nil {
		return err
	}
	return f.Datasync()
}

// copyIn writes what r has into a new file.
func (d disk) copyIn(path string, r io.Reader) (err error) {
	f, err := d.create(path)
	if err != nil {
		return err
	}
	if _, err = io.Copy(io.NewOffsetWriter(f, 0), r); err == nil {
		err = f.sync()
	}
	return errors.Join(err, f.Close())
}
