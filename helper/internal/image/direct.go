package image

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// directLeast is from which length on a write goes past the page cache. The
// cache costs a copy of everything, by the processor, and what is in it has still
// to be written out; but it gathers small writes, and answers at once: the pause
// has few others.
const directLeast = 128 << 10

// direct writes to a file or a device past the page cache.
//
// A file system lets one write at a time fill holes of a file, and an ordinary
// write holds that place until the disk has answered. One that is submitted to
// the kernel's AIO holds it only until the blocks are allocated. So a write is
// submitted and then waited for, and several are under way on one sparse file.
type direct struct {
	f      *os.File
	queues chan uintptr // those that nobody uses now; empty and not full: more may be made
}

// directQueues is how many queues are kept.
const directQueues = 16

// openDirectWriter opens what f has open once more. It is nil where the file
// system has no O_DIRECT or the kernel no AIO, which is no error.
func openDirectWriter(f *os.File) *direct {
	// Not by its name: that may be another file's by now.
	w, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), unix.O_WRONLY|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	d := &direct{f: w, queues: make(chan uintptr, directQueues)}
	q, err := d.queue()
	if err != nil {
		w.Close()
		return nil
	}
	d.put(q)
	return d
}

// suits is how much of a write, from its beginning, can go past the cache.
func (d *direct) suits(p []byte, off int64) int {
	if d == nil || len(p) < directLeast || off%Align != 0 || !aligned(p) {
		return 0
	}
	return len(p) / Align * Align
}

func (d *direct) queue() (uintptr, error) {
	select {
	case q := <-d.queues:
		return q, nil
	default:
	}
	var q uintptr
	if _, _, errno := unix.Syscall(unix.SYS_IO_SETUP, 1, uintptr(unsafe.Pointer(&q)), 0); errno != 0 {
		return 0, errno
	}
	return q, nil
}

func (d *direct) put(q uintptr) {
	select {
	case d.queues <- q:
	default:
		destroy(q)
	}
}

func destroy(q uintptr) { _, _, _ = unix.Syscall(unix.SYS_IO_DESTROY, q, 0, 0) }

// iocb and ioEvent are what the kernel takes and gives.
type iocb struct {
	data      uint64
	key, how  uint32 // in this order on little-endian machines
	operation uint16
	priority  int16
	fd        uint32
	buf       uint64
	length    uint64
	offset    int64
	_         uint64
	flags     uint32
	_         uint32
}

type ioEvent struct {
	data, obj uint64
	res, res2 int64
}

const iocbPwrite = 1

// writeAt writes what suits says, once: it may be less.
func (d *direct) writeAt(p []byte, off int64) (int, error) {
	q, err := d.queue()
	if err != nil {
		return 0, err
	}
	cb := &iocb{operation: iocbPwrite, fd: uint32(d.f.Fd()), buf: uint64(uintptr(unsafe.Pointer(&p[0]))), length: uint64(len(p)), offset: off}
	list := [1]*iocb{cb}
	for {
		_, _, errno := unix.Syscall(unix.SYS_IO_SUBMIT, q, 1, uintptr(unsafe.Pointer(&list)))
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 {
			d.put(q)
			return 0, errno
		}
		break
	}
	var event ioEvent
	for {
		n, _, errno := unix.Syscall6(unix.SYS_IO_GETEVENTS, q, 1, 1, uintptr(unsafe.Pointer(&event)), 0, 0)
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 || n != 1 {
			// The write is still under way, and reads our memory. Destroying the
			// queue waits for it.
			destroy(q)
			return 0, fmt.Errorf("the kernel does not tell how a write ended: %w", errno)
		}
		break
	}
	runtime.KeepAlive(p)
	d.put(q)
	if event.res < 0 {
		return 0, unix.Errno(-event.res)
	}
	if event.res == 0 {
		return 0, io.ErrShortWrite
	}
	return int(event.res), nil
}

func (d *direct) close() error {
	if d == nil {
		return nil
	}
	for len(d.queues) > 0 {
		destroy(<-d.queues)
	}
	return d.f.Close()
}
