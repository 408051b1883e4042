package hooks

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/criuimage"
	"github.com/livefleet/handover/helper/internal/tasks"
)

// An inotify or fanotify descriptor names the files that it watches by handles. Those of the
// engine's own layer CRIU cannot open: it looks for them by their inode, through whole trees,
// with everything standing still. So the way to each is found while the workload runs, and
// given to CRIU.

// FindWatched looks for the ways to the files of the layer that the tasks watch. One that has
// lost its name is an error: CRIU would refuse it, with everything standing still.
func (c Cgroup) FindWatched() ([]criuimage.Watched, error) {
	wanted, root := map[inode]bool{}, ""
	err := c.EachTask(func(proc string) error {
		if root == "" {
			root = filepath.Join(proc, "root")
		}
		return watchedBy(proc, wanted)
	})
	if err != nil || len(wanted) == 0 {
		return nil, watchedError(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(root, &st); err != nil {
		return nil, watchedError(err)
	}
	for w := range wanted {
		if w.device != st.Dev {
			delete(wanted, w)
		}
	}
	found, err := waysTo(root, st.Dev, wanted)
	for w := range wanted {
		err = errors.Join(err, fmt.Errorf("a file of its own layer that has lost its name (inode %d): CRIU cannot find it, so end the process that watches it", w.number))
	}
	return found, watchedError(err)
}

func watchedError(err error) error {
	if err != nil {
		return fmt.Errorf("hooks: what the workload watches: %w", err)
	}
	return nil
}

type inode struct{ device, number uint64 }

// watchedBy adds the files that one process watches.
func watchedBy(proc string, wanted map[inode]bool) error {
	folder := filepath.Join(proc, "fdinfo")
	files, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join(folder, f.Name()))
		if tasks.Gone(err) {
			continue
		} else if err != nil {
			return err
		}
		for line := range bytes.Lines(text) {
			if w, ok := parseWatch(string(line)); ok {
				wanted[w] = true
			}
		}
	}
	return nil
}

// parseWatch reads a line of fdinfo: inotify wd:1 ino:5 sdev:ef …, fanotify ino:5 sdev:ef ….
func parseWatch(line string) (w inode, ok bool) {
	fields := strings.Fields(line)
	if len(fields) == 0 || fields[0] != "inotify" && fields[0] != "fanotify" {
		return w, false
	}
	have := 0
	for _, f := range fields[1:] {
		key, value, _ := strings.Cut(f, ":")
		n, err := strconv.ParseUint(value, 16, 64)
		switch {
		case err != nil:
		case key == "ino":
			w.number, have = n, have|1
		case key == "sdev": // as the kernel numbers it
			w.device, have = unix.Mkdev(uint32(n>>20), uint32(n&(1<<20-1))), have|2
		}
	}
	return w, have == 3
}

// waysTo looks for inodes of one file system, those near its root first: most are folders of
// configuration.
func waysTo(root string, device uint64, wanted map[inode]bool) (found []criuimage.Watched, err error) {
	match := func(path string, st *unix.Stat_t) {
		w := inode{device, st.Ino}
		if wanted[w] {
			delete(wanted, w)
			kernel := uint64(unix.Major(device))<<20 | uint64(unix.Minor(device))
			found = append(found, criuimage.Watched{Device: kernel, Inode: st.Ino, Path: path})
		}
	}
	var st unix.Stat_t
	if err := unix.Stat(root, &st); err != nil {
		return nil, err
	}
	match("/.", &st) // CRIU takes the first letter off
	for level := []string{""}; len(level) > 0 && len(wanted) > 0; {
		var next []string
		for _, folder := range level {
			below, err := lookInto(root, folder, device, match)
			if err != nil {
				return nil, err
			}
			next = append(next, below...)
		}
		level = next
	}
	return found, nil
}

// lookInto tells match of all in a folder, and returns the folders in it.
func lookInto(root, folder string, device uint64, match func(string, *unix.Stat_t)) (below []string, err error) {
	// Not through a link: it would lead into the host's own files.
	fd, err := unix.Openat2(unix.AT_FDCWD, root+"/.", &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC})
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: root, Err: err}
	}
	at := fd
	if folder != "" {
		at, err = unix.Openat2(fd, strings.TrimPrefix(folder, "/"), &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_BENEATH})
		unix.Close(fd)
		if err != nil {
			return nil, nil // it was removed since, or is another file system's
		}
	}
	d := os.NewFile(uintptr(at), folder)
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, name := range names {
		var st unix.Stat_t
		if unix.Fstatat(at, name, &st, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT) != nil || st.Dev != device {
			continue
		}
		path := folder + "/" + name
		match(path, &st)
		if st.Mode&unix.S_IFMT == unix.S_IFDIR {
			below = append(below, path)
		}
	}
	return below, nil
}
