package loop

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// OpenImage mounts an image where no path leads: the files are below the open folder that
// it returns, such as /proc/self/fd/3, for this process alone. It is unmounted, and the
// device given back, when that is closed, and so also when the process dies.
//
// Flags and values are those of the file system.
func OpenImage(image, fstype string, readOnly bool, options map[string]string) (_ *os.File, err error) {
	mode, flags := os.O_RDWR, uint32(unix.LO_FLAGS_AUTOCLEAR)
	if readOnly {
		mode, flags = os.O_RDONLY, flags|unix.LO_FLAGS_READ_ONLY
	}
	d, err := attach(image, mode, flags)
	if err != nil {
		return nil, err
	}
	defer d.Close() // from then on the mount has it
	explain := func(err error) error {
		return fmt.Errorf("loop: mounting %s (%s) for this process: %w", image, fstype, err)
	}
	fs, err := unix.Fsopen(fstype, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, explain(err)
	}
	defer unix.Close(fs)
	err = unix.FsconfigSetString(fs, "source", d.Name())
	if readOnly {
		err = errors.Join(err, unix.FsconfigSetFlag(fs, "ro"))
	}
	for key, value := range options {
		if value == "" {
			err = errors.Join(err, unix.FsconfigSetFlag(fs, key))
		} else {
			err = errors.Join(err, unix.FsconfigSetString(fs, key, value))
		}
	}
	if err == nil {
		err = unix.FsconfigCreate(fs)
	}
	if err != nil {
		return nil, explain(err)
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOATIME|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return nil, explain(err)
	}
	defer unix.Close(fd)
	// Open for reading, so that an error of writing back until it is synced comes to light.
	root, err := unix.Openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, explain(err)
	}
	return os.NewFile(uintptr(root), image), nil
}
