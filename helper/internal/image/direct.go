package image

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// directLeast is from which length on a write goes past the page cache. The cache
// costs a copy of everything, by the processor, and its pages have still to be
// written out; but it gathers small writes, and answers at once: the pause has few
// others.
const directLeast = 128 << 10

// direct writes to a file or a device past the page cache.
//
// A file system lets one write at a time fill holes of a file, and an ordinary
// write holds that place until the disk has answered. One that is submitted to
// the kernel's AIO holds it only until the blocks are allocated. So a write is
// submitted and then waited for, and several are under way on one sparse file.
type direct struct {
	f *os.File
	*queues
}

// openDirectWriter opens the file of f once more. It is nil where the file system has
// no O_DIRECT or the kernel no AIO, which is no error.
func openDirectWriter(f *os.File) *direct {
	// Not by its name: that may be another file's by now.
	w, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), unix.O_WRONLY|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	q := openQueues()
	if q == nil {
		w.Close()
		return nil
	}
	return &direct{f: w, queues: q}
}

// suits is how much of a write, from its beginning, can go past the cache.
func (d *direct) suits(p []byte, off int64) int {
	if d == nil || len(p) < directLeast || off%Align != 0 || !aligned(p) {
		return 0
	}
	return len(p) / Align * Align
}

// writeAt writes the suitable part, once: it may write less.
func (d *direct) writeAt(p []byte, off int64) (int, error) {
	n, err := d.do(iocbPwrite, d.f.Fd(), p, off)
	if err == nil && n == 0 {
		err = io.ErrShortWrite
	}
	return n, err
}

func (d *direct) close() error {
	if d == nil {
		return nil
	}
	d.queues.close()
	return d.f.Close()
}
