package image

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// queue is one of the kernel's AIO, for one request at a time, and the eventfd that
// says when that is done.
//
// Waiting for a request is like waiting for a connection: the goroutine waits, and no
// thread does. Go's runtime looks every 20 µs for threads that wait in read or write,
// to give their work to another thread. With several such requests always under way,
// that took more of the processor than anything else in a copy.
type queue struct {
	context uintptr
	fd      int      // of done: Fd would have it wait by a thread
	done    *os.File // the eventfd
	count   [8]byte  // the bytes read from it
}

// keptQueues is the number of idle queues that are kept.
const keptQueues = 16

// queues are the idle ones. The zero value is good.
type queues struct {
	mu   sync.Mutex
	idle []*queue
}

// iocb and ioEvent are the kernel's input and output.
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
	resfd     uint32
}

type ioEvent struct {
	data, obj uint64
	res, res2 int64
}

const (
	iocbPread  = 0
	iocbPwrite = 1
	flagResfd  = 1 // resfd is an eventfd, which signals the end
)

func newQueue() (*queue, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	q := &queue{fd: fd, done: os.NewFile(uintptr(fd), "eventfd")}
	if _, _, errno := unix.Syscall(unix.SYS_IO_SETUP, 1, uintptr(unsafe.Pointer(&q.context)), 0); errno != 0 {
		q.done.Close()
		return nil, errno
	}
	return q, nil
}

// openQueues is nil where the kernel has no AIO.
func openQueues() *queues {
	s := &queues{}
	q, err := s.take()
	if err != nil {
		return nil
	}
	s.give(q)
	return s
}

// destroy waits for the request under way.
func (q *queue) destroy() {
	_, _, _ = unix.Syscall(unix.SYS_IO_DESTROY, q.context, 0, 0)
	q.done.Close()
}

func (s *queues) take() (*queue, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.idle); n > 0 {
		q := s.idle[n-1]
		s.idle = s.idle[:n-1]
		return q, nil
	}
	return newQueue()
}

func (s *queues) give(q *queue) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.idle) < keptQueues {
		s.idle = append(s.idle, q)
		return
	}
	q.destroy()
}

// close closes the idle queues; the others may not be used any more.
func (s *queues) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.idle {
		q.destroy()
	}
	s.idle = nil
}

// do has the kernel read into p or write it, once: it may be less than all of it,
// and at the end of a file nothing.
func (s *queues) do(operation uint16, fd uintptr, p []byte, off int64) (int, error) {
	q, err := s.take()
	if err != nil {
		return 0, err
	}
	// The kernel has the address when this function's own calls have returned.
	var pin runtime.Pinner
	pin.Pin(&p[0])
	defer pin.Unpin()
	cb := &iocb{
		operation: operation, fd: uint32(fd), buf: uint64(uintptr(unsafe.Pointer(&p[0]))), length: uint64(len(p)), offset: off,
		flags: flagResfd, resfd: uint32(q.fd),
	}
	list := [1]*iocb{cb}
	for {
		_, _, errno := unix.Syscall(unix.SYS_IO_SUBMIT, q.context, 1, uintptr(unsafe.Pointer(&list)))
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 {
			s.give(q)
			return 0, errno
		}
		break
	}
	_, err = io.ReadFull(q.done, q.count[:])
	if err == nil && binary.LittleEndian.Uint64(q.count[:]) != 1 {
		err = fmt.Errorf("%d ends of one request", binary.LittleEndian.Uint64(q.count[:]))
	}
	var event ioEvent
	for err == nil {
		n, _, errno := unix.Syscall6(unix.SYS_IO_GETEVENTS, q.context, 1, 1, uintptr(unsafe.Pointer(&event)), 0, 0)
		if errno == 0 && n == 1 {
			break
		}
		if errno != unix.EINTR {
			err = errno
		}
	}
	if err != nil {
		// The request may be under way still, with our memory. Destroying the queue
		// waits for it.
		q.destroy()
		return 0, fmt.Errorf("the kernel does not tell how a request ended: %w", err)
	}
	s.give(q)
	if event.res < 0 {
		return 0, unix.Errno(-event.res)
	}
	return int(event.res), nil
}
