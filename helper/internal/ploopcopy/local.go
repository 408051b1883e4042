package ploopcopy

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/codec"
	"github.com/livefleet/handover/helper/internal/image"
	"github.com/livefleet/handover/helper/internal/wire"
	"github.com/livefleet/handover/helper/internal/wire/dialect"
)

// Local is the receiving side of a copy that stays on its host: a new file, which holds
// nothing yet. It is used as the peer of a Send, and closed afterwards.
type Local struct {
	t      *image.Target
	made   bool // by us: it goes if the copy fails
	whole  bool // the copy came to its end
	broken atomic.Pointer[error]
}

// NewLocal makes the file.
func NewLocal(path string) (*Local, error) {
	t, err := image.CreateGrowing(path, DefaultLimit)
	if err != nil {
		return nil, dialect.Fail(dialect.Create, err)
	}
	return &Local{t: t, made: true}, nil
}

// LocalFile takes an open and empty file, which stays even if the copy fails. The file
// is the Local's from then on.
func LocalFile(f *os.File) (*Local, error) {
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	if err != nil {
		return nil, fmt.Errorf("ploopcopy: %s: %w", f.Name(), err)
	}
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case flags&unix.O_APPEND != 0:
		return nil, fmt.Errorf("ploopcopy: %s: the file is open for appending, and an image is written in places: open it with > and not with >>", f.Name())
	case info.Size() != 0:
		return nil, fmt.Errorf("ploopcopy: %s: the file has %d bytes already, and a copy never replaces data: name an empty one", f.Name(), info.Size())
	}
	return &Local{t: image.GrowingTarget(f, DefaultLimit)}, nil
}

// Write writes a frame about the image.
func (l *Local) Write(f *wire.Frame) error {
	if why := l.broken.Load(); why != nil {
		return *why
	}
	var err error
	switch f.Type {
	case wire.Data:
		err = l.sparse(f.Payload, f.Pos)
	case wire.Zero, wire.Discard:
		err = l.t.Zero(f.Pos, f.Length)
	default:
		err = fmt.Errorf("ploopcopy: %s: a file takes no %s frame", l.t.Path(), f.Type)
	}
	return dialect.Fail(dialect.Write, err)
}

// hole is the least that is worth being one.
const hole = 64 << 10

// sparse writes the data, and makes holes of zeroes.
func (l *Local) sparse(p []byte, off int64) error {
	for len(p) > 0 {
		zero := codec.IsZero(p[:min(hole, len(p))])
		n := 0
		for n < len(p) && codec.IsZero(p[n:min(n+hole, len(p))]) == zero {
			n = min(n+hole, len(p))
		}
		var err error
		if zero {
			err = l.t.Zero(off, int64(n))
		} else {
			_, err = l.t.WriteAt(p[:n], off)
		}
		if err != nil {
			return err
		}
		p, off = p[n:], off+int64(n)
	}
	return nil
}

// Flush has nothing to do: nothing waits here.
func (l *Local) Flush() error { return nil }

// Interrupt has the next Write fail.
func (l *Local) Interrupt(why error) { l.broken.CompareAndSwap(nil, &why) }

// Barrier puts the file on the disk.
func (l *Local) Barrier([4]byte) error { return dialect.Fail(dialect.Fsync, l.t.Datasync()) }

// End puts the whole file on the disk.
func (l *Local) End() error {
	err := l.Barrier([4]byte{})
	l.whole = err == nil
	return err
}

// Close closes the file, and removes one of our own that is not whole.
func (l *Local) Close() error {
	err := dialect.Fail(dialect.Write, l.t.Close())
	if l.made && (err != nil || !l.whole) {
		if rerr := os.Remove(l.t.Path()); rerr != nil {
			err = errors.Join(err, fmt.Errorf("ploopcopy: the unfinished copy could not be removed: %w", rerr))
		}
	}
	return err
}
