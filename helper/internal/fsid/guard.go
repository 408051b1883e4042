package fsid

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// mark is the extended attribute of a folder on which a volume belongs. It is hidden
// while the volume is mounted there. The OCI hook that finds it below a container's
// mount refuses to start the container: it would run on an empty folder.
const mark = "trusted.handover.mountpoint"

// Guard marks the folder under a mount point, whether or not something is mounted
// there now, and reports whether it was not marked before. A file system that
// cannot keep the mark is an error of kind ErrNoMarks.
func Guard(mountpoint string) (changed bool, err error) {
	under, err := beneath(mountpoint)
	if err != nil {
		return false, err
	}
	defer unix.Close(under)
	if marked, err := hasMark(fmt.Sprintf("/proc/self/fd/%d", under)); marked || err != nil {
		return false, err
	}
	if err := unix.Fsetxattr(under, mark, []byte("1"), 0); errors.Is(err, unix.ENOTSUP) {
		return false, fmt.Errorf("fsid: %s: %w", mountpoint, ErrNoMarks)
	} else if err != nil {
		return false, fmt.Errorf("fsid: marking %s: %w", mountpoint, err)
	}
	return true, nil
}

// ErrNoMarks says that a file system has no extended attributes of the kind trusted.
var ErrNoMarks = errors.New("its file system keeps no extended attributes for root (trusted.*)")

// Unguard takes the mark off again, where no volume is mounted any more. A folder
// that is gone, or has no mark, is no error.
func Unguard(dir string) error {
	err := unix.Removexattr(dir, mark)
	for _, none := range []error{unix.ENOENT, unix.ENODATA, unix.ENOTSUP} {
		if errors.Is(err, none) {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("fsid: taking the mark off %s: %w", dir, err)
	}
	return nil
}

// Tidy takes away what an engine makes in a folder that it is told to take for a container's
// root, before its runtime is refused: empty folders and files, and the link etc/mtab. A
// folder without a mark stays as it is, and so does all that holds something. A volume that
// is mounted meanwhile is not seen from here.
func Tidy(dir string) error {
	under, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("fsid: %w", err)
	}
	defer under.Close()
	folder, err := under.Open(".")
	if err != nil {
		return fmt.Errorf("fsid: %w", err)
	}
	defer folder.Close()
	if marked, err := hasMark(fmt.Sprintf("/proc/self/fd/%d", folder.Fd())); err != nil || !marked {
		return err
	}
	var all []string
	err = fs.WalkDir(under.FS(), ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == "." {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		if e.IsDir() || e.Type().IsRegular() && info.Size() == 0 || e.Type() == fs.ModeSymlink && path == "etc/mtab" {
			all = append(all, path)
		}
		return nil
	})
	for _, path := range slices.Backward(all) {
		if e := under.Remove(path); e != nil && !errors.Is(e, unix.ENOTEMPTY) && !errors.Is(e, unix.EEXIST) {
			err = errors.Join(err, e)
		}
	}
	if err != nil {
		return fmt.Errorf("fsid: emptying %s: %w", dir, err)
	}
	return nil
}

// beneath opens the folder under a mount point. A copy of the mount above it has no
// mounts in it, and the copy is not visible.
func beneath(mountpoint string) (int, error) {
	mountpoint = filepath.Clean(mountpoint)
	above, err := unix.OpenTree(unix.AT_FDCWD, filepath.Dir(mountpoint), unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("fsid: %s: %w", filepath.Dir(mountpoint), err)
	}
	defer unix.Close(above)
	under, err := unix.Openat(above, filepath.Base(mountpoint), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("fsid: under %s: %w", mountpoint, err)
	}
	return under, nil
}

// Unmounted reports whether a folder is one on which a volume belongs, seen without it.
func Unmounted(dir string) (bool, error) {
	found, err := hasMark(dir)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return found, err
}

func hasMark(path string) (bool, error) {
	_, err := unix.Getxattr(path, mark, nil)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, unix.ENODATA), errors.Is(err, unix.ENOTSUP):
		return false, nil
	}
	return false, fmt.Errorf("fsid: %s: %w", path, err)
}
