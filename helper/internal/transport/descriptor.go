package transport

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// own makes a descriptor of our own, and not blocking if it is a pipe or a socket:
// only then does a deadline end a call that waits. restore undoes the change for the
// processes that share the stream.
func own(fd int, name string) (f *os.File, restore func(), err error) {
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, nil, err
	}
	flags, err := unix.FcntlInt(uintptr(dup), unix.F_GETFL, 0)
	if err != nil {
		unix.Close(dup)
		return nil, nil, err
	}
	restore = func() {}
	if flags&unix.O_NONBLOCK == 0 && unix.SetNonblock(dup, true) == nil {
		restore = func() { _ = unix.SetNonblock(fd, false) }
	}
	return os.NewFile(uintptr(dup), name), restore, nil
}

// descriptor is one that our parent left open for us.
type descriptor struct {
	*os.File
	restore func()
	once    sync.Once
}

// Descriptor gives a file descriptor that this process was started with as a
// connection. Commands that are run from here do not inherit it.
func Descriptor(fd int) (io.ReadWriteCloser, error) {
	name := fmt.Sprintf("descriptor %d", fd)
	f, restore, err := own(fd, name)
	if errors.Is(err, unix.EBADF) {
		return nil, fmt.Errorf("transport: there is no open file descriptor %d", fd)
	}
	if err != nil {
		return nil, fmt.Errorf("transport: %s: %w", name, err)
	}
	if fd > 2 {
		unix.CloseOnExec(fd)
	}
	return &descriptor{File: f, restore: restore}, nil
}

func (d *descriptor) Close() error {
	var err error
	d.once.Do(func() {
		err = d.File.Close()
		d.restore()
	})
	return err
}
