package transport

import (
	"fmt"
	"io"
	"net"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// short is a socket whose calls into the kernel are not announced to Go's runtime. They
// never wait, but they copy some 100 KiB, and the runtime takes one that lasts for 20 us
// for one that may wait for ever: it has another thread go on in its place, and looks
// for more of the kind every 20 us from then on. That took more than the copying.
type short struct {
	net.Conn
	raw syscall.RawConn
}

// brief makes a connection short, if there is a socket below it.
func brief(c net.Conn) net.Conn {
	s, ok := c.(*net.TCPConn)
	if !ok {
		return c
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return c
	}
	return &short{Conn: c, raw: raw}
}

func (s *short) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	n, err := s.call(s.raw.Read, unix.SYS_READ, p)
	if err == nil && n == 0 {
		err = io.EOF
	}
	return n, err
}

func (s *short) Write(p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		var m int
		m, err = s.call(s.raw.Write, unix.SYS_WRITE, p[n:])
		n += m
	}
	return n, err
}

// call makes one call when there is something to be done, and waits for that as the
// net package does, to the deadline.
func (s *short) call(when func(func(uintptr) bool) error, trap uintptr, p []byte) (n int, err error) {
	werr := when(func(fd uintptr) bool {
		errno := unix.EINTR
		var r uintptr
		for errno == unix.EINTR {
			r, _, errno = unix.RawSyscall(trap, fd, uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)))
		}
		switch errno {
		case 0:
			n = int(r)
		case unix.EAGAIN:
			return false
		default:
			err = errno
		}
		return true
	})
	if werr != nil {
		return 0, werr
	}
	if err != nil {
		return 0, fmt.Errorf("%s: %w", s.RemoteAddr(), err)
	}
	return n, nil
}

// Backlog is how many bytes the kernel has been given to send and has not sent yet: the
// link is slower than the sender, or the other side is.
func (s *short) Backlog() (bytes int, known bool) {
	err := s.raw.Control(func(fd uintptr) {
		n, err := unix.IoctlGetInt(int(fd), unix.SIOCOUTQNSD)
		bytes, known = n, err == nil
	})
	return bytes, known && err == nil
}

// HungUp says whether the other side has closed the connection.
func (s *short) HungUp() bool { return hungUp(s.raw) }

// hungUp says whether the other end of a socket is closed, also where data before that
// were not read.
func hungUp(raw syscall.RawConn) (ended bool) {
	_ = raw.Control(func(fd uintptr) {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}, 0)
		ended = err == nil && n > 0
	})
	return ended
}

// HeldUp is the total time in which the other side's window was closed while there was
// data to send: its program reads more slowly than the link delivers.
func (s *short) HeldUp() (held time.Duration) {
	_ = s.raw.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			held = time.Duration(info.Rwnd_limited) * time.Microsecond
		}
	})
	return held
}
