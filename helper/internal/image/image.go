// Package image is the object of a copy: a raw file or a block device, byte for byte.
//
// A Source is read past the page cache while its users go on writing. A Target
// is written past the page cache where a write is long, and through it where it is
// short, with write-out started early: so the barrier at the end waits for little.
// It stays as sparse as the source is. Both have a size that is fixed when they are
// opened: an image that grows or shrinks under a copy is an error.
//
// The package also holds the operations on a file system around a copy: freeze, thaw,
// sync, and the digests by which two images are compared.
//
// Errors name the path and, where there is one, the offset.
package image

import (
	"fmt"
	"math"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// openKind opens a path if it is a block device or a regular file. Others are
// told apart before the open, which would wait on a FIFO.
func openKind(path string, flags int) (*os.File, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return nil, fmt.Errorf("image: %s: %w", path, err)
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG, unix.S_IFBLK:
	default:
		return nil, fmt.Errorf("image: %s: this is %s, and an image is a regular file or a block device", path, kindOf(st.Mode))
	}
	f, err := os.OpenFile(path, flags|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("image: %s: %w", path, cause(err))
	}
	return f, nil
}

func kindOf(mode uint32) string {
	switch mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return "a directory"
	case unix.S_IFCHR:
		return "a character device"
	case unix.S_IFIFO:
		return "a FIFO"
	case unix.S_IFSOCK:
		return "a socket"
	}
	return "no file that can hold one"
}

// sizeOf measures an open file or block device.
func sizeOf(f *os.File, path string) (size int64, block bool, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0, false, fmt.Errorf("image: %s: %w", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return st.Size, false, nil
	}
	var n uint64
	if err := ioctl(f, unix.BLKGETSIZE64, unsafe.Pointer(&n)); err != nil {
		return 0, true, fmt.Errorf("image: %s: asking the device for its size: %w", path, err)
	}
	if n > math.MaxInt64 {
		return 0, true, fmt.Errorf("image: %s: the device says that it has %d bytes, which cannot be", path, n)
	}
	return int64(n), true, nil
}

func ioctl(f *os.File, request uint, arg unsafe.Pointer) error {
	for {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), uintptr(request), uintptr(arg))
		switch errno {
		case 0:
			return nil
		case unix.EINTR:
		default:
			return errno
		}
	}
}
