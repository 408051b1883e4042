package watch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Use is one file of the folder that a process can write to without an event.
type Use struct {
	Inode  uint64
	Path   string // below the folder; empty if it has no name there that can be found
	Mapped bool   // it is mapped: pages that were dirty are written without a change time
	Async  bool   // by a process that has asynchronous I/O set up: a write may be under way
}

// InUse lists the files that some process of this machine has open for writing,
// or mapped shared, and that known says yes to, or that are found below the folder.
func (w *Watch) InUse(known func(inode uint64) bool) ([]Use, error) {
	pids, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, fmt.Errorf("watch: %w", err)
	}
	type answer struct {
		uses []Use
		err  error
	}
	at, done := make(chan string, len(pids)), make(chan answer, 1)
	go func() {
		uses, err := w.inUse(pids, at, known)
		done <- answer{uses, err}
	}()
	// A process that is stuck in a page fault can hold up the reader of its mappings,
	// and this may be read while a workload is frozen.
	t := time.NewTimer(stuck)
	defer t.Stop()
	select {
	case a := <-done:
		return a.uses, a.err
	case <-t.C:
	}
	pid := ""
	for len(at) > 0 {
		pid = filepath.Base(<-at)
	}
	return nil, fmt.Errorf("watch: the kernel does not tell within %s what process %s has mapped: is it stuck?", stuck, pid)
}

// stuck is how long it may take to look at all processes.
const stuck = 10 * time.Second

func (w *Watch) inUse(pids []string, at chan<- string, known func(uint64) bool) ([]Use, error) {
	found := map[uint64]*Use{}
	note := func(st *unix.Stat_t, path string) *Use {
		if path == "" && !known(st.Ino) {
			return nil
		}
		u := found[st.Ino]
		if u == nil {
			u = &Use{Inode: st.Ino}
			found[st.Ino] = u
		}
		if u.Path == "" {
			u.Path = path
		}
		return u
	}
	for _, pid := range pids {
		at <- pid // has room
		if err := w.usedBy(pid, note); err != nil && !vanished(err) {
			return nil, fmt.Errorf("watch: what process %s has open: %w", filepath.Base(pid), err)
		}
	}
	var uses []Use
	for _, u := range found {
		uses = append(uses, *u)
	}
	slices.SortFunc(uses, func(a, b Use) int { return strings.Compare(a.Path, b.Path) })
	return uses, nil
}

// vanished reports whether an error means that a process, or something of it, has
// gone while it was looked at. Its files are closed.
func vanished(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EACCES)
}

// usedBy looks at one process: its mappings first, since they tell whether it
// does asynchronous I/O.
func (w *Watch) usedBy(proc string, note func(*unix.Stat_t, string) *Use) error {
	mapped, async, err := mappings(proc)
	if err != nil {
		return err
	}
	for _, m := range mapped {
		fd, err := unix.Open(filepath.Join(proc, "map_files", m), unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			continue // unmapped since
		}
		if u, err := w.use(fd, note); err != nil {
			return err
		} else if u != nil {
			u.Mapped = true
			u.Async = u.Async || async
		}
	}
	dir, err := os.Open(filepath.Join(proc, "fd"))
	if err != nil {
		return err
	}
	defer dir.Close()
	fds, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, n := range fds {
		// The mode of the link is that of the descriptor.
		var link, st unix.Stat_t
		if err := unix.Fstatat(int(dir.Fd()), n, &link, unix.AT_SYMLINK_NOFOLLOW); err != nil || link.Mode&unix.S_IWUSR == 0 {
			continue
		}
		if err := unix.Fstatat(int(dir.Fd()), n, &st, 0); err != nil || st.Dev != w.dev || st.Mode&unix.S_IFMT != unix.S_IFREG {
			continue
		}
		fd, err := unix.Openat(int(dir.Fd()), n, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		if u, err := w.use(fd, note); err != nil {
			return err
		} else if u != nil {
			u.Async = u.Async || async
		}
	}
	return nil
}

// use notes a file that is open, if it is one of the folder's, and closes fd.
func (w *Watch) use(fd int, note func(*unix.Stat_t, string) *Use) (*Use, error) {
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Dev != w.dev || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink == 0 {
		return nil, nil
	}
	// The process may see it under another path: by its handle it is found under ours.
	h, err := handleOf(fd)
	if err != nil {
		return nil, err
	}
	path, err := w.resolve(h)
	if err != nil && !gone(err) {
		return nil, err
	}
	return note(&st, path), nil
}

// mappings are the shared mappings of files, each file once, by their names in
// map_files. Whether one lies on our file system is seen later: the devices in
// maps are not those of stat on every file system.
func mappings(proc string) (shared []string, async bool, err error) {
	data, err := os.ReadFile(filepath.Join(proc, "maps"))
	if err != nil {
		return nil, false, err
	}
	seen := map[string]bool{}
	for line := range strings.Lines(string(data)) {
		if strings.Contains(line, "/[aio]") {
			async = true
			continue
		}
		f := strings.Fields(line)
		if len(f) < 5 || len(f[1]) != 4 || f[1][3] != 's' || f[4] == "0" || seen[f[3]+" "+f[4]] {
			continue
		}
		seen[f[3]+" "+f[4]] = true
		start, end, _ := strings.Cut(f[0], "-")
		shared = append(shared, strings.TrimLeft(start, "0")+"-"+strings.TrimLeft(end, "0"))
	}
	return shared, async, nil
}
