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
	recent bool  // holes are right for recent writes, too
}

// recent are the file systems, by the magic numbers of statfs(2), whose holes can be
// trusted a moment after a write: ext4 and XFS have made an extent a written one before
// they say that the write has ended, also past the page cache. btrfs does that later, in
// its own time, and OpenZFS until 2.2.2 sometimes forgot dirty data (its issue 15526).
var recent = map[int64]bool{
	unix.EXT4_SUPER_MAGIC: true, // ext2 and ext3 have the same
	unix.XFS_SUPER_MAGIC:  true,
	unix.TMPFS_MAGIC:      true,
}

// openBacking finds the file below a loop device. Where there is none, or it is not
// surely that one, the holes are unknown, which is no error: the device is read.
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
	if writeBack(dev, 0, 0) != nil {
		f.Close()
		return nil
	}
	var fs unix.Statfs_t
	known := unix.Fstatfs(int(f.Fd()), &fs) == nil && recent[int64(fs.Type)]
	return &backing{f: f, offset: int64(info.Offset), recent: known}
}

// writeBack has the n bytes at off, or all from there on if n is 0, written from the
// device's own cache to the layer below, as a read with O_DIRECT does first. Until
// then they may be in a hole.
func writeBack(dev *os.File, off, n int64) error {
	return unix.SyncFileRange(int(dev.Fd()), off, n, unix.SYNC_FILE_RANGE_WAIT_BEFORE|unix.SYNC_FILE_RANGE_WRITE|unix.SYNC_FILE_RANGE_WAIT_AFTER)
}
