package image

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// fsIocGetFSMap is FS_IOC_GETFSMAP, from linux/fsmap.h.
const fsIocGetFSMap = 0xC0C0583B

const (
	fsmapDevT    = 0x1  // devices are told as dev_t
	fsmapSpecial = 0x10 // the owner is one of the kernel's own words
	fsmapLast    = 0x20
	fsmapFree    = 1 // that word for free space
	fsmapRecords = 1024
)

// fsmapRecord is struct fsmap.
type fsmapRecord struct {
	device, flags                   uint32
	physical, owner, offset, length uint64
	_                               [3]uint64
}

// fsmapQuery is struct fsmap_head with room for records.
type fsmapQuery struct {
	iflags, oflags, count, entries uint32
	_                              [6]uint64
	low, high                      fsmapRecord
	records                        [fsmapRecords]fsmapRecord
}

// ErrNoFreeMap is the error for a file system that does not report its free blocks.
var ErrNoFreeMap = errors.New("the file system does not tell which of its blocks are free")

// FreeSpace asks the file system mounted at mountpoint for the unused parts of
// device, and calls free for each, in ascending order. It works on mounted ext4 and
// xfs, frozen ones among them. The device must be the one that the file system is on.
//
// The file system keeps working while it is asked, so the answer is about the past.
// It is of use only to a caller that knows every write since before the question: a
// free block is written before anything but zeroes or rubbish can be read from it.
func FreeSpace(mountpoint, device string, free func(off, n int64)) error {
	f, err := openMount(mountpoint)
	if err != nil {
		return err
	}
	defer f.Close()
	var here, dev unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &here); err != nil {
		return fmt.Errorf("image: %s: %w", mountpoint, err)
	}
	if err := unix.Stat(device, &dev); err != nil {
		return fmt.Errorf("image: %s: %w", device, err)
	}
	if dev.Mode&unix.S_IFMT != unix.S_IFBLK || here.Dev != dev.Rdev {
		return fmt.Errorf("image: %s: the file system there is not on %s", mountpoint, device)
	}
	major, minor := unix.Major(dev.Rdev), unix.Minor(dev.Rdev)
	number := minor&0xff | major<<8 | (minor&^0xff)<<12

	q := &fsmapQuery{count: fsmapRecords}
	all := ^uint64(0)
	q.high = fsmapRecord{device: ^uint32(0), flags: ^uint32(0), physical: all, owner: all, offset: all}
	for {
		err := ioctl(f, fsIocGetFSMap, unsafe.Pointer(q))
		if errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.EOPNOTSUPP) {
			return fmt.Errorf("image: %s: %w", mountpoint, ErrNoFreeMap)
		}
		if err != nil {
			return fmt.Errorf("image: %s: asking the file system for its free blocks: %w", mountpoint, err)
		}
		if q.oflags&fsmapDevT == 0 || q.entries > fsmapRecords {
			return fmt.Errorf("image: %s: %w", mountpoint, ErrNoFreeMap)
		}
		for _, r := range q.records[:q.entries] {
			// A file system may have a log or more data on other devices.
			if r.device == number && r.flags&fsmapSpecial != 0 && r.owner == fsmapFree {
				free(int64(r.physical), int64(r.length))
			}
		}
		if q.entries < fsmapRecords || q.records[q.entries-1].flags&fsmapLast != 0 {
			return nil
		}
		q.low = q.records[q.entries-1] // from where this answer ended
	}
}
