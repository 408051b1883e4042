package watch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/tasks"
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
	s := search{known: known, found: map[uint64]*Use{}, busy: map[string]bool{}}
	done := make(chan error, 1)
	go func() { done <- s.all(w, pids) }()
	// A process that is stuck in a page fault can hold up the reader of its mappings,
	// and this may be read while a workload is frozen.
	t := time.NewTimer(stuck)
	defer t.Stop()
	select {
	case err := <-done:
		return s.uses(), err
	case <-t.C:
		return nil, fmt.Errorf("watch: the kernel does not tell within %s what process %s has mapped: is it stuck?", stuck, strings.Join(s.under(), ", "))
	}
}

// stuck is how long it may take to look at all processes.
const stuck = 10 * time.Second

// search is one look at all processes. A large host has thousands, with hundreds of
// mappings each, and a workload that stands still waits for it: every processor helps.
type search struct {
	known func(inode uint64) bool

	mu    sync.Mutex
	found map[uint64]*Use
	busy  map[string]bool // the processes that are looked at now
}

func (s *search) all(w *Watch, procs []string) error {
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	for _, proc := range procs {
		g.Go(func() error {
			s.mark(proc, true)
			defer s.mark(proc, false)
			if err := w.usedBy(proc, s); err != nil && !vanished(err) {
				return fmt.Errorf("watch: what process %s has open: %w", filepath.Base(proc), err)
			}
			return nil
		})
	}
	return g.Wait()
}

func (s *search) mark(proc string, busy bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if busy {
		s.busy[proc] = true
	} else {
		delete(s.busy, proc)
	}
}

// under are the numbers of the processes that are looked at now.
func (s *search) under() (pids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for proc := range s.busy {
		pids = append(pids, filepath.Base(proc))
	}
	return pids
}

// note adds a use of a file, if it is one of the folder's: its path there, if it was found,
// and whether the process has it mapped, and asynchronous I/O set up.
func (s *search) note(st *unix.Stat_t, path string, mapped, async bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if path == "" && !s.known(st.Ino) {
		return
	}
	u := s.found[st.Ino]
	if u == nil {
		u = &Use{Inode: st.Ino}
		s.found[st.Ino] = u
	}
	if u.Path == "" {
		u.Path = path
	}
	u.Mapped, u.Async = u.Mapped || mapped, u.Async || async
}

func (s *search) uses() (uses []Use) {
	for _, u := range s.found {
		uses = append(uses, *u)
	}
	slices.SortFunc(uses, func(a, b Use) int { return strings.Compare(a.Path, b.Path) })
	return uses
}

// vanished reports whether an error means that a process, or something of it, has
// gone while it was looked at. Its files are closed.
func vanished(err error) bool {
	return tasks.Gone(err) || errors.Is(err, unix.EACCES)
}

// usedBy looks at one process: its mappings first, since they tell whether it
// does asynchronous I/O.
func (w *Watch) usedBy(proc string, s *search) error {
	mapped, async, err := mappings(proc)
	if err != nil {
		return err
	}
	for _, m := range mapped {
		fd, err := unix.Open(filepath.Join(proc, "map_files", m), unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			continue // unmapped since
		}
		if err := w.use(fd, s, true, async); err != nil {
			return err
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
		if err := w.use(fd, s, false, async); err != nil {
			return err
		}
	}
	return nil
}

// use notes a file that is open, if it may be one of the folder's, and closes fd.
func (w *Watch) use(fd int, s *search, mapped, async bool) error {
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Dev != w.dev || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink == 0 {
		return nil
	}
	// The process may see it under another path: by its handle it is found under ours.
	h, err := handleOf(fd)
	if err != nil {
		return err
	}
	path, err := w.resolve(h)
	if err != nil && !gone(err) {
		return err
	}
	s.note(&st, path, mapped, async)
	return nil
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
		if rights := strings.IndexByte(line, ' ') + 1; len(line) < rights+4 || line[rights+3] != 's' {
			continue // nearly all are private, and there are hundreds of thousands on a large host
		}
		f := strings.Fields(line)
		if len(f) < 5 || f[4] == "0" || seen[f[3]+" "+f[4]] {
			continue
		}
		seen[f[3]+" "+f[4]] = true
		start, end, _ := strings.Cut(f[0], "-")
		shared = append(shared, strings.TrimLeft(start, "0")+"-"+strings.TrimLeft(end, "0"))
	}
	return shared, async, nil
}
