package hooks

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/tasks"
)

// NeedsNames looks for files of the cgroup's tasks that CRIU would give a name while
// it dumps: those that are open or mapped, that have lost the name they were opened
// by, and that another name keeps from being gone. That is the one thing for which a
// dump writes to the workload's file systems. It returns the first such file on one
// of the devices, or nothing. The tasks have to be frozen: their open files change
// otherwise.
func (c Cgroup) NeedsNames(devices map[uint64]bool) (string, error) {
	found := ""
	err := c.EachTask(func(proc string) (err error) {
		for _, kind := range []string{"fd", "map_files"} {
			if found, err = needsName(filepath.Join(proc, kind), devices); err != nil {
				return err
			} else if found != "" {
				return fs.SkipAll
			}
		}
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("hooks: what the workload has open: %w", err)
	}
	return found, nil
}

// EachTask calls do with the folder in /proc of each task in the cgroup and in
// those below it; those that end meanwhile are left out.
func (c Cgroup) EachTask(do func(proc string) error) error {
	return tasks.InCgroup(string(c), do)
}

// eachStatus calls do with the kernel's status of each of them.
func (c Cgroup) eachStatus(do func(proc, status string) error) error {
	return c.EachTask(func(proc string) error {
		status, err := os.ReadFile(filepath.Join(proc, "status"))
		if err != nil {
			return err
		}
		return do(proc, string(status))
	})
}

// needsName looks through one folder of links to a process's open files.
func needsName(folder string, devices map[uint64]bool) (string, error) {
	links, err := os.ReadDir(folder)
	if err != nil {
		return "", err
	}
	root := filepath.Join(filepath.Dir(folder), "root")
	for _, l := range links {
		link := filepath.Join(folder, l.Name())
		open, err := stat(link, 0)
		if tasks.Gone(err) {
			continue // CRIU's own, in a task that it holds: the mappings of its parasite come and go
		} else if err != nil {
			return "", err
		}
		if !devices[open.device] || open.links == 0 { // a deleted file travels in the dump
			continue
		}
		name, err := os.Readlink(link)
		if tasks.Gone(err) {
			continue
		} else if err != nil {
			return "", err
		}
		named, err := stat(filepath.Join(root, name), unix.AT_SYMLINK_NOFOLLOW)
		if err != nil || named.device != open.device || named.inode != open.inode {
			return name, nil
		}
	}
	return "", nil
}

// file identifies a file, to compare two names.
type file struct {
	device, inode uint64
	links         uint32
}

// stat asks no process: a file system in user space may be one of the tasks.
func stat(path string, flags int) (file, error) {
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, flags|unix.AT_STATX_DONT_SYNC, unix.STATX_INO|unix.STATX_NLINK, &st); err != nil {
		return file{}, fmt.Errorf("%s: %w", path, err)
	}
	return file{unix.Mkdev(st.Dev_major, st.Dev_minor), st.Ino, st.Nlink}, nil
}

// BringUp has the engine's own layer hold, from now on, the folders in which CRIU
// makes a temporary one while it dumps: an overlay copies a folder up when it is
// first written to, and this is one change less while everything stands still.
// Nothing of the workload's changes, and where it cannot be done nothing is lost.
func (c Cgroup) BringUp() {
	list, err := os.ReadFile(filepath.Join(string(c), "cgroup.procs"))
	pids := strings.Fields(string(list))
	if err != nil || len(pids) == 0 {
		return
	}
	// Not through a symbolic link: it would lead into the host's own files.
	fd, err := unix.Open(filepath.Join("/proc", pids[0], "root", "tmp"), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) == nil {
		_ = unix.Fchmod(fd, st.Mode&^unix.S_IFMT)
	}
}
