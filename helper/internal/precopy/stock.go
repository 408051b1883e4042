package precopy

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Stock holds the pages that have come ahead, in memory that is no file and goes with
// the process.
type Stock struct {
	file *os.File
	size int64
	view []byte // mapped: of all of it, and of the pages that may come still
}

// NewStock makes an empty one.
func NewStock() (*Stock, error) {
	fd, err := unix.MemfdCreate("handover-precopy", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("precopy: memory for what comes ahead: %w", err)
	}
	return &Stock{file: os.NewFile(uintptr(fd), "handover-precopy")}, nil
}

// Put stores pages at a place: behind the present ones, or over them, from a source
// that has begun again. The limit is the size that was promised.
func (s *Stock) Put(data []byte, at, limit int64) error {
	if at < 0 || at > s.size || at+int64(len(data)) > limit {
		return fmt.Errorf("precopy: %d bytes of memory came for place %d: there are %d, and %d were promised", len(data), at, s.size, limit)
	}
	if _, err := s.file.WriteAt(data, at); err != nil {
		return fmt.Errorf("precopy: keeping what comes ahead: %w", err)
	}
	s.size = max(s.size, at+int64(len(data)))
	return s.show(at, int64(len(data)), limit)
}

// show maps pages that have come. They are looked at in a pause, and the kernel is not to
// begin with its tables of a GiB then.
func (s *Stock) show(at, length, limit int64) error {
	if int64(len(s.view)) < limit {
		if err := s.unmap(); err != nil {
			return err
		}
		view, err := unix.Mmap(int(s.file.Fd()), 0, int(limit), unix.PROT_READ, unix.MAP_SHARED)
		if err != nil {
			return fmt.Errorf("precopy: what came ahead: %w", err)
		}
		s.view = view
	}
	first := at &^ pageMask
	_ = unix.Madvise(s.view[first:at+length], unix.MADV_POPULATE_READ) // before Linux 5.14 it is mapped when it is looked at
	return nil
}

// Size is how much there is.
func (s *Stock) Size() int64 { return s.size }

// slice is a part of it. It is valid until the next call of Put.
func (s *Stock) slice(at, length int64) ([]byte, error) {
	if at < 0 || length < 0 || at > s.size-length {
		return nil, fmt.Errorf("precopy: a piece is about %d bytes at place %d of memory that came ahead, and there are %d", length, at, s.size)
	}
	return s.view[at : at+length], nil
}

func (s *Stock) unmap() error {
	if s.view == nil {
		return nil
	}
	view := s.view
	s.view = nil
	return unix.Munmap(view)
}

// Close gives the memory back.
func (s *Stock) Close() error { return errors.Join(s.unmap(), s.file.Close()) }
