package image

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Many reads under way at once each bring what is at their place; those that the
// kernel refuses say why, and spoil none of the others.
func TestReadsThatNoThreadWaitsFor(t *testing.T) {
	const size, piece = 4*MiB + 1000, 64 << 10
	_, mnt := mounted(t, 32*MiB)
	path := filepath.Join(mnt, "volume.img")
	want := noise(size)
	if err := os.WriteFile(path, want, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := OpenSource(path)
	if err != nil {
		t.Fatal(err)
	}
	if s.async == nil {
		t.Fatal("this kernel has AIO, and it is not used")
	}
	var all sync.WaitGroup
	for off := 0; off < size; off += piece {
		all.Add(1)
		go func() {
			defer all.Done()
			p := Buffer(min(piece, size-off))
			if n, err := s.ReadAt(p, int64(off)); n != len(p) || err != nil || !bytes.Equal(p, want[off:off+len(p)]) {
				t.Errorf("at %d: %d bytes, %v", off, n, err)
			}
			if _, err := s.async.do(iocbPread, s.f.Fd(), p[:1], 0); !errors.Is(err, unix.EINVAL) {
				t.Errorf("a read of one byte past the cache: %v", err)
			}
			if _, err := s.async.do(iocbPread, ^uintptr(0), p, 0); !errors.Is(err, unix.EBADF) {
				t.Errorf("a read of no file: %v", err)
			}
		}()
	}
	all.Wait()
	if n := len(s.async.idle); n == 0 || n > keptQueues {
		t.Errorf("%d queues are kept", n)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
