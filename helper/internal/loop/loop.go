// Package loop makes a raw image file a mounted file system and back: a loop
// device with direct I/O, so that its pages are cached once, and a mount.
package loop

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/fsid"
)

// Attach gives the image a loop device of its own and returns its path.
func Attach(image string) (string, error) {
	return attachAndLetGo(image, os.O_RDWR, unix.LO_FLAGS_DIRECT_IO)
}

// AttachReadOnly gives an image, or a block device that others have for
// themselves, a loop device to be read, through the page cache.
func AttachReadOnly(image string) (string, error) {
	return attachAndLetGo(image, os.O_RDONLY, unix.LO_FLAGS_READ_ONLY)
}

func attachAndLetGo(image string, mode int, flags uint32) (string, error) {
	d, err := attach(image, mode, flags)
	if err != nil {
		return "", err
	}
	return d.Name(), d.Close()
}

// Image is an image file that is to be mounted.
type Image struct {
	Path       string
	Mountpoint string
	Fstype     string
	Options    string
	// Cached is without direct I/O: cached blocks of the image are not read from the
	// disk. All else is cached twice, until TurnDirect.
	Cached bool
	// Device is the path of the device that it gets, such as /dev/loop7, if that is
	// free. A file system on a device of the same number is the same to programs.
	Device string
	Same   bool // it gets no other device
}

// Mount gives the image a loop device and mounts that, as the function Mount does. The
// kernel gives the device back when it is unmounted, or when this fails, however
// that is. That is said as the device is made: said later, it holds up everything
// on the device for some 15 ms (measured on Linux 6.18).
func (i Image) Mount() error {
	flags := uint32(unix.LO_FLAGS_DIRECT_IO)
	if i.Cached {
		flags = 0
	}
	d, err := attachAs(i.Path, os.O_RDWR, flags|unix.LO_FLAGS_AUTOCLEAR, i.Device, i.Same)
	if err != nil {
		return err
	}
	defer d.Close() // its user until the mount is
	return Mount(d.Name(), i.Mountpoint, i.Fstype, i.Options)
}

// MountImage mounts the image on any device.
func MountImage(image, mountpoint, fstype, options string) error {
	return Image{Path: image, Mountpoint: mountpoint, Fstype: fstype, Options: options}.Mount()
}

// attach returns the device open for reading: a kernel may refuse to mount a device
// that is open for writing.
func attach(image string, mode int, flags uint32) (*os.File, error) {
	return attachAs(image, mode, flags, "", false)
}

// attachAs gives it the device named like, if that is free; with same no other.
func attachAs(image string, mode int, flags uint32, like string, same bool) (*os.File, error) {
	f, err := os.OpenFile(image, mode|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("loop: %w", err)
	}
	defer f.Close()
	ctl, err := os.OpenFile("/dev/loop-control", os.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("loop: %w: is the module loop loaded?", err)
	}
	defer ctl.Close()

	if like != "" {
		d, err := attachTo(ctl, like, f, image, flags)
		if err == nil || same {
			return d, err
		}
	}
	// Another process may take the free device between the two calls.
	for range 64 {
		n, err := unix.IoctlRetInt(int(ctl.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("loop: no free loop device: %w", err)
		}
		dev := fmt.Sprintf("/dev/loop%d", n)
		d, err := configureAsItCan(dev, f, image, flags)
		if errors.Is(err, unix.EBUSY) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("loop: %s for %s: %w", dev, image, err)
		}
		return d, nil
	}
	return nil, fmt.Errorf("loop: every free loop device was taken by another process")
}

// attachTo makes the device if there is none of that name.
func attachTo(ctl *os.File, dev string, f *os.File, image string, flags uint32) (*os.File, error) {
	n, err := strconv.Atoi(strings.TrimPrefix(dev, "/dev/loop"))
	if err != nil {
		return nil, fmt.Errorf("loop: %s is no loop device", dev)
	}
	if err := unix.IoctlSetInt(int(ctl.Fd()), unix.LOOP_CTL_ADD, n); err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("loop: %s: %w", dev, err)
	}
	d, err := configureAsItCan(dev, f, image, flags)
	if errors.Is(err, unix.EBUSY) {
		return nil, fmt.Errorf("loop: %s is taken, and %s has to have it: %w", dev, image, err)
	}
	if err != nil {
		return nil, fmt.Errorf("loop: %s for %s: %w", dev, image, err)
	}
	return d, nil
}

// configureAsItCan does without direct I/O where the file system below cannot do it.
func configureAsItCan(dev string, f *os.File, image string, flags uint32) (*os.File, error) {
	d, err := configure(dev, f, image, flags)
	if errors.Is(err, unix.EINVAL) {
		d, err = configure(dev, f, image, flags&^unix.LO_FLAGS_DIRECT_IO)
	}
	return d, err
}

func configure(dev string, f *os.File, image string, flags uint32) (*os.File, error) {
	w, err := os.OpenFile(dev, os.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	// A file system made for sectors of 512 bytes does not mount on larger ones;
	// the other way round it does. Left to itself the kernel may choose larger.
	cfg := unix.LoopConfig{Fd: uint32(f.Fd()), Size: 512}
	cfg.Info.Flags = flags
	copy(cfg.Info.File_name[:len(cfg.Info.File_name)-1], image)
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, w.Fd(), unix.LOOP_CONFIGURE, uintptr(unsafe.Pointer(&cfg))); e != 0 {
		return nil, e
	}
	d, err := os.OpenFile(dev, os.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		_ = unix.IoctlSetInt(int(w.Fd()), unix.LOOP_CLR_FD, 0) // ours, as no other process has learnt of it
		return nil, err
	}
	return d, nil
}

// TurnDirect has the loop devices of an image do direct I/O from now on, and returns
// when their dirty pages are on the disk. A file system that cannot do direct I/O is
// no error, nor is an image that has no device.
func TurnDirect(image string) error {
	devices, err := DevicesOf(image)
	if err != nil || len(devices) == 0 {
		return err
	}
	// Before the kernel syncs the file, and forgets the result: an error from here on
	// is still reported to every process with the file open.
	f, err := os.OpenFile(image, os.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("loop: %w", err)
	}
	defer f.Close()
	for _, dev := range devices {
		if err := turnDirect(dev); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENXIO) {
			return fmt.Errorf("loop: direct I/O for %s: %w", dev, err)
		}
	}
	if err := unix.Fdatasync(int(f.Fd())); err != nil {
		return fmt.Errorf("loop: %s: fdatasync: %w", image, err)
	}
	return nil
}

func turnDirect(dev string) error {
	d, err := os.OpenFile(dev, os.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer d.Close()
	return unix.IoctlSetInt(int(d.Fd()), unix.LOOP_SET_DIRECT_IO, 1)
}

// Detach gives a loop device back. A device that has none is no error.
func Detach(dev string) error {
	d, err := os.OpenFile(dev, os.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("loop: %w", err)
	}
	defer d.Close()
	if err := unix.IoctlSetInt(int(d.Fd()), unix.LOOP_CLR_FD, 0); err != nil && !errors.Is(err, unix.ENXIO) {
		return fmt.Errorf("loop: detaching %s: %w", dev, err)
	}
	return nil
}

// mountFlags are the options that mount(2) takes as bits; all others go to the
// file system as text.
var mountFlags = map[string]uintptr{
	"rw": 0, "defaults": 0, "relatime": unix.MS_RELATIME, "noatime": unix.MS_NOATIME, "nodiratime": unix.MS_NODIRATIME,
	"strictatime": unix.MS_STRICTATIME, "nosuid": unix.MS_NOSUID, "nodev": unix.MS_NODEV, "noexec": unix.MS_NOEXEC,
	"sync": unix.MS_SYNCHRONOUS, "dirsync": unix.MS_DIRSYNC, "lazytime": unix.MS_LAZYTIME, "ro": unix.MS_RDONLY,
}

// Mount mounts dev, creating the mount point if need be. Options are those of
// mount(8), separated by commas.
func Mount(dev, mountpoint, fstype, options string) error {
	if err := os.MkdirAll(mountpoint, 0o711); err != nil {
		return fmt.Errorf("loop: the mount point: %w", err)
	}
	if err := guard(mountpoint); err != nil {
		return err
	}
	flags, data := parseOptions(options)
	if err := unix.Mount(dev, mountpoint, fstype, flags, strings.Join(data, ",")); err != nil {
		return fmt.Errorf("loop: mounting %s (%s) on %s with options %q: %w", dev, fstype, mountpoint, options, err)
	}
	return nil
}

// guard marks the folder for a volume, so that no container starts on it without the
// volume. A file system that keeps no such marks has none.
func guard(mountpoint string) error {
	if _, err := fsid.Guard(mountpoint); err != nil && !errors.Is(err, fsid.ErrNoMarks) {
		return err
	}
	return nil
}

// parseOptions splits options into those that are bits and the rest.
func parseOptions(options string) (flags uintptr, data []string) {
	for o := range strings.SplitSeq(options, ",") {
		if bit, ok := mountFlags[o]; ok {
			flags |= bit
		} else if o != "" {
			data = append(data, o)
		}
	}
	return flags, data
}

// MountTmpfs puts an empty tmpfs over dir, readable by root only.
func MountTmpfs(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("loop: %w", err)
	}
	if err := unix.Mount("handover", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0700"); err != nil {
		return fmt.Errorf("loop: mounting a tmpfs on %s: %w", dir, err)
	}
	return nil
}

// A process that is just being started has copies of this one's descriptors until its
// program begins, and an agent that asks for free space holds a mount for as long: both
// let go of it by themselves.
const (
	letGo      = time.Second
	letGoEvery = 5 * time.Millisecond
)

// Unmount unmounts the file system on dir; nothing mounted there is no error. One that
// somebody uses is an error after a second.
func Unmount(dir string) error {
	for end := time.Now().Add(letGo); ; time.Sleep(letGoEvery) {
		err := unix.Unmount(dir, unix.UMOUNT_NOFOLLOW)
		switch {
		case err == nil, errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT):
			return nil
		case errors.Is(err, unix.EBUSY) && time.Now().Before(end):
		default:
			return fmt.Errorf("loop: unmounting %s: %w", dir, err)
		}
	}
}

// RemoveTmpfs takes away what MountTmpfs has made: the file system, and the folder if
// that is empty, as those in /run are. Neither being there is no error.
func RemoveTmpfs(dir string) error {
	if err := Unmount(dir); err != nil {
		return err
	}
	err := os.Remove(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ENOTEMPTY) {
		return fmt.Errorf("loop: %w", err)
	}
	return nil
}

// Mounted reports whether something is mounted exactly on dir.
func Mounted(dir string) (bool, error) {
	var here, above unix.Stat_t
	if err := unix.Lstat(dir, &here); errors.Is(err, unix.ENOENT) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("loop: %s: %w", dir, err)
	}
	if err := unix.Lstat(filepath.Dir(filepath.Clean(dir)), &above); err != nil {
		return false, fmt.Errorf("loop: %s: %w", dir, err)
	}
	return here.Dev != above.Dev, nil
}

// MountpointOf returns where the file system on a block device is mounted, or
// nothing if it is not. Of several places it is the first: a freeze is one of the
// file system, not of a place.
func MountpointOf(dev string) (string, error) {
	var st unix.Stat_t
	if err := unix.Stat(dev, &st); err != nil {
		return "", fmt.Errorf("loop: %s: %w", dev, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return "", nil
	}
	number := fmt.Sprintf("%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev))
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", fmt.Errorf("loop: %w", err)
	}
	for line := range strings.Lines(string(table)) {
		// number, parent, major:minor, root, mount point, …; a blank in a name is
		// \040, and the like
		f := strings.Fields(line)
		if len(f) < 5 || f[2] != number {
			continue
		}
		// Something else may be mounted over it: then this is not the way to it.
		var at unix.Stat_t
		if dir := unescape(f[4]); unix.Stat(dir, &at) == nil && at.Dev == st.Rdev {
			return dir, nil
		}
	}
	return "", nil
}

// unescape puts in the characters that the kernel writes as octal numbers.
func unescape(s string) string {
	for _, c := range [...]string{" ", "\t", "\n"} {
		s = strings.ReplaceAll(s, fmt.Sprintf("\\%03o", c[0]), c)
	}
	return strings.ReplaceAll(s, `\134`, `\`)
}

// DetachImage gives back every loop device that has this image.
func DetachImage(image string) error {
	devices, err := DevicesOf(image)
	if err != nil {
		return err
	}
	for _, dev := range devices {
		if err := Detach(dev); err != nil {
			return err
		}
	}
	return nil
}

// DeviceOf is a loop device that has this image; empty if none has.
func DeviceOf(image string) (string, error) {
	devices, err := DevicesOf(image)
	return append(devices, "")[0], err
}

// DevicesOf are the loop devices that have this image.
func DevicesOf(image string) (found []string, err error) {
	want, err := filepath.EvalSymlinks(image)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("loop: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Stat(want, &st); err != nil {
		return nil, fmt.Errorf("loop: %s: %w", want, err)
	}
	devices, err := filepath.Glob("/dev/loop[0-9]*")
	if err != nil {
		return nil, fmt.Errorf("loop: %w", err)
	}
	for _, dev := range devices {
		if strings.Contains(strings.TrimPrefix(filepath.Base(dev), "loop"), "p") {
			continue // a partition
		}
		info, err := status(dev)
		if err != nil {
			continue // has no image, or is not ours to look at
		}
		if info.Inode == st.Ino && info.Device == st.Dev {
			found = append(found, dev)
		}
	}
	return found, nil
}

func status(dev string) (*unix.LoopInfo64, error) {
	d, err := os.OpenFile(dev, os.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return unix.IoctlLoopGetStatus64(int(d.Fd()))
}
