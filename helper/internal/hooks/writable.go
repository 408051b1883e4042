package hooks

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// MustStayWritable says why the file systems that are mounted at some places cannot be
// frozen before a dump of the tasks in some cgroups is complete; empty if they can. The
// harm would be a CRIU that writes to one of them: to give a name to a file that has
// lost its own (NeedsNames), or to make a folder for the time of the dump
// (makesFolders). The tasks have to be frozen. A move and a snapshot ask it
// alike. A workload without a file system there has nothing to freeze, and no reason.
func MustStayWritable(mountpoints []string, cgroups ...Cgroup) string {
	devices := map[uint64]bool{}
	for _, m := range mountpoints {
		var st unix.Stat_t
		if err := unix.Stat(m, &st); err != nil {
			return fmt.Sprintf("%s: %v", m, err)
		}
		devices[st.Dev] = true
	}
	for _, c := range cgroups {
		if c == "" {
			return "the tasks are not in a cgroup that is known"
		}
		file, err := c.NeedsNames(devices)
		switch {
		case err != nil:
			return err.Error()
		case file != "":
			return fmt.Sprintf("CRIU gives a name to %s", file)
		}
		switch folder, err := c.makesFolders(devices); {
		case err != nil:
			return err.Error()
		case folder != "":
			return fmt.Sprintf("CRIU makes a folder in %s", folder)
		}
	}
	return ""
}

// makesFolders is the folder on one of the devices in which CRIU makes another one, empty
// if it is on none: to read a tmpfs below other mounts, it shows it in /tmp of the tasks,
// or in their root where there is no /tmp.
func (c Cgroup) makesFolders(devices map[uint64]bool) (found string, err error) {
	err = c.EachTask(func(proc string) error {
		root, err := unix.Open(filepath.Join(proc, "root"), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil { // of one that has ended another task has the same
			return err
		}
		defer unix.Close(root)
		folder := "/tmp"
		device, err := deviceIn(root, folder)
		if errors.Is(err, unix.ENOENT) {
			folder = "/"
			device, err = deviceIn(root, folder)
		}
		if err != nil {
			return err
		}
		if devices[device] {
			found = folder
		}
		return fs.SkipAll
	})
	if err != nil {
		return "", fmt.Errorf("hooks: the workload's /tmp: %w", err)
	}
	return found, nil
}

// deviceIn is the file system of a path below a root, out of which no link leads.
func deviceIn(root int, path string) (uint64, error) {
	fd, err := unix.Openat2(root, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT})
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, err
	}
	return st.Dev, nil
}
