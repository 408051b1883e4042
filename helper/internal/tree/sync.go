package tree

import (
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Sync puts entries on the disk, as Unpack named them, with the folders that hold
// them; and nothing else that others have written to the same file system, which
// may be a lot.
func Sync(root string, names []string) error {
	dir, err := openRoot(root)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	synced := map[string]bool{}
	for _, name := range names {
		name = filepath.Clean(name)
		for _, each := range []string{name, filepath.Dir(name)} {
			if synced[each] {
				continue
			}
			synced[each] = true
			if err := at(dir, each, syncAt); err != nil && !absent(err) {
				return fmt.Errorf("tree: syncing %s in %s: %w", each, root, err)
			}
		}
	}
	return nil
}

// syncAt leaves out entries without data of their own: their names are their
// folder's.
func syncAt(parent int, base string) error {
	var st unix.Stat_t
	if err := unix.Fstatat(parent, base, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if kind := st.Mode & unix.S_IFMT; kind != unix.S_IFREG && kind != unix.S_IFDIR {
		return nil
	}
	fd, err := unix.Openat(parent, base, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Fsync(fd)
}
