package loop

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Bind is a place where another piece of the tree of files is shown.
type Bind struct {
	Path  string  // where
	Root  string  // the bound path, in the file system that it belongs to
	Flags uintptr // read-only and the like: the mount's own flags
}

// mountinfoFlags are the options of a mount itself, as the kernel prints them.
var mountinfoFlags = map[string]uintptr{
	"ro": unix.MS_RDONLY, "nosuid": unix.MS_NOSUID, "nodev": unix.MS_NODEV, "noexec": unix.MS_NOEXEC,
	"noatime": unix.MS_NOATIME, "nodiratime": unix.MS_NODIRATIME, "relatime": unix.MS_RELATIME, "nosymfollow": unix.MS_NOSYMFOLLOW,
}

// Binds finds where else the file system is shown that is mounted on dir, in the
// order in which that was done.
func Binds(dir string) ([]Bind, error) {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return nil, fmt.Errorf("loop: %s: %w", dir, err)
	}
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("loop: %w", err)
	}
	return bindsOf(string(table), fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev)), filepath.Clean(dir)), nil
}

func bindsOf(table, device, dir string) (found []Bind) {
	for line := range strings.Lines(table) {
		// ID, parent, device, root, mount point, options of the mount, …
		f := strings.Fields(line)
		if len(f) < 6 || f[2] != device {
			continue
		}
		b := Bind{Path: unescape(f[4]), Root: unescape(f[3])}
		if b.Path == dir {
			continue
		}
		for o := range strings.SplitSeq(f[5], ",") {
			b.Flags |= mountinfoFlags[o]
		}
		found = append(found, b)
	}
	return found
}

// Cover mounts an empty tmpfs where later a file system is to be mounted with these
// options. Binds of it then have the flags that they would have had.
func Cover(mountpoint, options string) error {
	if err := guard(mountpoint); err != nil {
		return err
	}
	flags, _ := parseOptions(options)
	if err := unix.Mount("handover", mountpoint, "tmpfs", flags&^unix.MS_RDONLY, "mode=0700"); err != nil {
		return fmt.Errorf("loop: covering %s: %w", mountpoint, err)
	}
	return nil
}

// BindTo shows the piece b of the file system mounted on dir where b says.
func BindTo(dir string, b Bind) error {
	from := filepath.Join(dir, b.Root)
	if err := unix.Mount(from, b.Path, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("loop: showing %s on %s: %w", from, b.Path, err)
	}
	// A bind takes over the flags of its source; its own need a second call.
	if err := unix.Mount("", b.Path, "", unix.MS_BIND|unix.MS_REMOUNT|b.Flags, ""); err != nil {
		return errors.Join(fmt.Errorf("loop: showing %s on %s: %w", from, b.Path, err), Unmount(b.Path))
	}
	return nil
}
