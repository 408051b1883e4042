package lazy

import (
	"encoding/binary"
	"errors"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Of linux/userfaultfd.h.
const (
	uffdioCopy     = 0xc028aa03
	uffdioZeropage = 0xc020aa04
	uffdioWake     = 0x8010aa02

	eventPagefault = 0x12
	eventFork      = 0x13
	eventRemap     = 0x14
	eventRemove    = 0x15
	eventUnmap     = 0x16

	messageSize = 32
)

// event is a message of a userfaultfd. The meaning of the words depends on the kind:
// pagefault: flags, address; fork: descriptor; remap: from, to, length; remove and
// unmap: start, end.
type event struct {
	kind  byte
	words [3]uint64
}

// readEvent takes one message; none says that there is none.
func readEvent(fd int) (e event, none bool, err error) {
	b := make([]byte, messageSize)
	for {
		n, err := unix.Read(fd, b)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN), err == nil && n == 0:
			return e, true, nil
		case err != nil:
			return e, false, err
		case n != messageSize:
			return e, false, errors.New("the kernel gave a message of another size")
		}
		break
	}
	e.kind = b[0]
	for i := range e.words {
		e.words[i] = binary.NativeEndian.Uint64(b[8+8*i:])
	}
	return e, false, nil
}

// copyIn puts pages where there are none, and says how many bytes came to lie there.
func copyIn(fd int, at uint64, data []byte) (int, error) {
	arg := struct {
		dst, src, size, mode uint64
		copied               int64
	}{dst: at, src: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(data)))), size: uint64(len(data))}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uffdioCopy, uintptr(unsafe.Pointer(&arg)))
	return outcome(arg.copied, errno)
}

// anywhere is above the lowest address that a process can have mapped (vm.mmap_min_addr),
// or the kernel would not look further.
const anywhere = 1 << 16

// unreadable is a page that cannot be read.
var unreadable = sync.OnceValue(func() []byte {
	page, _ := unix.Mmap(-1, 0, PageSize, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	return page
})

// alive says whether a task still has this memory. The kernel checks that first, and then
// copies nothing, since its source cannot be read.
func alive(fd int) bool {
	_, err := copyIn(fd, anywhere, unreadable())
	return !errors.Is(err, unix.ESRCH)
}

// zero puts an empty page where there is none.
func zero(fd int, at uint64) error {
	_, err := zeroes(fd, at, PageSize)
	return err
}

// zeroes puts empty pages where there are none, and says how many bytes came to lie there.
func zeroes(fd int, at, size uint64) (int, error) {
	arg := struct {
		start, size, mode uint64
		zeroed            int64
	}{start: at, size: size}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uffdioZeropage, uintptr(unsafe.Pointer(&arg)))
	return outcome(arg.zeroed, errno)
}

// outcome is that of an ioctl which tells in its argument how far it came.
func outcome(done int64, errno unix.Errno) (int, error) {
	switch {
	case done > 0:
		return int(done), nil
	case errno == 0:
		return 0, nil
	case done < 0 && errno == unix.EAGAIN:
		return 0, unix.Errno(-done)
	}
	return 0, errno
}

// wake makes the waiters of a page look again.
func wake(fd int, at uint64) error {
	arg := struct{ start, size uint64 }{at, PageSize}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uffdioWake, uintptr(unsafe.Pointer(&arg))); errno != 0 {
		return errno
	}
	return nil
}
