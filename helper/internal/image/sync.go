package image

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// FIFREEZE and FITHAW, from linux/fs.h; they have the same numbers on all
// architectures that use the generic ioctl encoding, amd64 and arm64 among them.
const (
	fiFreeze = 0xC0045877
	fiThaw   = 0xC0045878
)

// Datasync puts the data of path on stable storage: a regular file or a block device
// with fdatasync, a directory with fsync. With dontneed its pages are dropped from
// the cache afterwards; that is a hint and cannot fail.
func Datasync(path string, dontneed bool) error {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("image: %s: %w", path, cause(err))
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("image: %s: %w", path, cause(err))
	}
	if info.IsDir() {
		err = unix.Fsync(int(f.Fd()))
	} else {
		err = unix.Fdatasync(int(f.Fd()))
	}
	if err != nil {
		if errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("image: %s: this is %s, which has nothing that could be synced", path, kindOf(uint32(statMode(f))))
		}
		return fmt.Errorf("image: %s: fdatasync: %w", path, err)
	}
	if dontneed && !info.IsDir() {
		_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
	}
	return nil
}

func statMode(f *os.File) uint32 {
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil {
		return 0
	}
	return st.Mode
}

// Freeze stops all writing to the file system that is mounted at mountpoint and
// writes its memory to the device: when it returns the device holds everything, and
// does not change until Thaw. A file system that is frozen already is an error: the
// process that froze it may thaw it under us.
func Freeze(mountpoint string) error {
	f, err := openMount(mountpoint)
	if err != nil {
		return err
	}
	defer f.Close()
	err = ioctlInt(f, fiFreeze)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("image: %s: the file system is frozen already, by someone else: thaw it first (fsfreeze -u %s)", mountpoint, mountpoint)
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOTTY):
		return fmt.Errorf("image: %s: this file system cannot be frozen: use ext4 or xfs", mountpoint)
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("image: %s: the kernel refused to freeze the file system (EPERM): run as root", mountpoint)
	}
	return fmt.Errorf("image: %s: freezing the file system: %w", mountpoint, err)
}

// Thaw lets the file system at mountpoint go on. One that is not frozen is left
// as it is, so that every way out may call it.
func Thaw(mountpoint string) error {
	f, err := openMount(mountpoint)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := ioctlInt(f, fiThaw); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("image: %s: thawing the file system: %w", mountpoint, err)
	}
	return nil
}

// Syncfs writes out everything that the file system at mountpoint holds in memory.
func Syncfs(mountpoint string) error {
	f, err := openMount(mountpoint)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return fmt.Errorf("image: %s: syncfs: %w", mountpoint, err)
	}
	return nil
}

// openMount opens the root of a mounted file system. A plain directory is
// refused: freezing it would freeze the file system around it, which may be the
// one this program runs from. So is that of the host itself.
func openMount(path string) (*os.File, error) {
	// Opening and looking do not write, so they work on a frozen file system.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOATIME, 0)
	if errors.Is(err, unix.EPERM) { // O_NOATIME is the owner's and root's alone
		f, err = os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return nil, fmt.Errorf("image: %s: %w", path, cause(err))
	}
	var here, root unix.Statx_t
	if err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS, &here); err != nil {
		f.Close()
		return nil, fmt.Errorf("image: %s: %w", path, err)
	}
	if here.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT == 0 || here.Attributes&unix.STATX_ATTR_MOUNT_ROOT == 0 {
		f.Close()
		return nil, fmt.Errorf("image: %s: no file system is mounted here: name its mount point", path)
	}
	if err := unix.Statx(unix.AT_FDCWD, "/", 0, unix.STATX_BASIC_STATS, &root); err == nil &&
		root.Dev_major == here.Dev_major && root.Dev_minor == here.Dev_minor {
		f.Close()
		return nil, fmt.Errorf("image: %s: this is the host's own root file system, which is never frozen", path)
	}
	return f, nil
}

func ioctlInt(f *os.File, request uint) error {
	for {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), uintptr(request), 0)
		switch errno {
		case 0:
			return nil
		case unix.EINTR:
		default:
			return errno
		}
	}
}
