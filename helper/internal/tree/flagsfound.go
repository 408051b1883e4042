package tree

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// FoundFlag is a flag that something in a tree has, and the first path that has it.
type FoundFlag struct {
	Name    string `json:"name"`
	Path    string `json:"path"`
	Carried bool   `json:"carried"` // if the other file system can have it
}

// FlagsIn are the flags in a folder, or of a single file, without which a copy fails:
// those that have to travel, and those that cannot.
func FlagsIn(root string) ([]FoundFlag, error) {
	first := map[uint32]string{}
	var st unix.Stat_t
	if err := unix.Lstat(root, &st); err != nil {
		return nil, fmt.Errorf("tree: %s: %w", root, err)
	}
	if err := findFlags(unix.AT_FDCWD, root, root, st.Dev, first); err != nil {
		return nil, fmt.Errorf("tree: the flags of %s (lsattr): %w", root, err)
	}
	found := []FoundFlag{}
	for _, f := range inodeFlags {
		if path, ok := first[f.bit]; ok {
			found = append(found, FoundFlag{Name: f.name, Path: path, Carried: f.fate == exact})
		}
	}
	return found, nil
}

// findFlags looks at an entry and at everything below it on its file system. What goes
// meanwhile is not there.
func findFlags(parent int, base, path string, dev uint64, first map[uint32]string) error {
	fd, err := openForFlags(parent, base)
	if without(err) || absent(err) {
		return nil
	} else if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Dev != dev {
		return err
	}
	flags, err := getFlags(fd)
	if err != nil {
		return err
	}
	for _, f := range inodeFlags {
		if _, known := first[f.bit]; f.fate != hint && flags&f.bit != 0 && !known {
			first[f.bit] = path
		}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return nil
	}
	names, err := entries(fd)
	for _, name := range names {
		err = errors.Join(err, findFlags(fd, name, path+"/"+name, dev, first))
	}
	return err
}

// FlagsMissing are those of the flags that have to travel which the file system of a
// folder cannot have. They are tried on a file without a name, which leaves nothing; the
// one that only folders have, on a folder that goes at once.
func FlagsMissing(folder string) (missing []string, err error) {
	fd, err := unix.Open(folder, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if errors.Is(err, unix.EOPNOTSUPP) {
		fd, err = unnamed(folder)
	}
	if err != nil {
		return nil, fmt.Errorf("tree: a place to try flags with in %s: %w", folder, err)
	}
	defer unix.Close(fd)
	missing = []string{}
	for _, f := range inodeFlags {
		if f.fate != exact {
			continue
		}
		has := false
		if f.bit == folderSync {
			has, err = folderCan(folder, f.bit)
		} else if has = setFlagsOf(fd, f.bit) == nil; has {
			err = setFlagsOf(fd, 0)
		}
		if err != nil {
			return nil, fmt.Errorf("tree: a place to try flags with in %s: %w", folder, err)
		}
		if !has {
			missing = append(missing, f.name)
		}
	}
	return missing, nil
}

func folderCan(parent string, flag uint32) (bool, error) {
	folder, err := os.MkdirTemp(parent, ".handover-flags-")
	if err != nil {
		return false, err
	}
	return setFlags(unix.AT_FDCWD, folder, flag) == nil, os.Remove(folder)
}

// unnamed is a file whose name is gone, on a file system that makes none without one.
func unnamed(folder string) (int, error) {
	f, err := os.CreateTemp(folder, ".handover-flags-")
	if err != nil {
		return -1, err
	}
	defer f.Close()
	if err := os.Remove(f.Name()); err != nil {
		return -1, err
	}
	return unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
}
