package image

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// backing is the file below a loop device: it knows the device's holes.
type backing struct {
	f      *os.File
	offset int64 // where the device begins in it
}

// openBacking finds the file below a loop device. Where there is none, or it is not
// surely that one, nobody knows the holes, which is no error: the device is read.
func openBacking(dev *os.File, size int64) *backing {
	var st unix.Stat_t
	if unix.Fstat(int(dev.Fd()), &st) != nil {
		return nil
	}
	// A partition of a loop device has no such folder, and begins elsewhere.
	sys := fmt.Sprintf("/sys/dev/block/%d:%d/loop", unix.Major(st.Rdev), unix.Minor(st.Rdev))
	name, err := os.ReadFile(filepath.Join(sys, "backing_file"))
	if err != nil {
		return nil
	}
	info, err := unix.IoctlLoopGetStatus64(int(dev.Fd()))
	if err != nil || info.Encrypt_type != 0 {
		return nil
	}
	f, err := openKind(strings.TrimSuffix(string(name), "\n"), unix.O_RDONLY)
	if err != nil {
		return nil
	}
	// Another file may be there by now, or the name may be one of another mount
	// namespace.
	var is unix.Stat_t
	if unix.Fstat(int(f.Fd()), &is) != nil || is.Mode&unix.S_IFMT != unix.S_IFREG ||
		is.Ino != info.Inode || is.Dev != info.Device || is.Size-int64(info.Offset) < size {
		f.Close()
		return nil
	}
	return &backing{f: f, offset: int64(info.Offset)}
}
