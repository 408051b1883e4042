// Package watch tells which entries of a folder were touched, without looking at the
// others: the cost of the second pass over a folder is then that of the changes, not
// of the whole folder.
//
// The kernel's fanotify marks the file system that holds the folder, as a whole:
// no mark for each directory, and so no moment at which a directory is new and
// not marked yet, and no way past it through another mount. An event names the
// directory by its file handle and the entry by its name. Events from outside of
// the folder are dropped when they are read.
//
// Swap hands over the entries touched since the last Swap and starts over. The kernel
// queues an event before the call that caused it returns, so every change before the
// call of Swap is in its result. The result names places to look at, not events: an
// entry may have come, gone or changed, several times.
//
// Changes that fanotify does not report, and how they are found:
//
//   - Writes through a shared mapping, and those of the old asynchronous I/O
//     (io_submit), cause no event. A process that writes so has the file open for
//     writing, or mapped; when the last user of it closes it there is an event. InUse
//     lists the files that are in use in one of these ways now.
//   - A directory that is moved brings entries along about which there is no
//     event: below a directory that is Named, everything may have changed.
//   - A file may be written through a name that it has outside of the folder, or
//     one that it had when it was opened. It comes by its inode number, in
//     Set.Inodes.
//   - If the queue overflows, events are lost: Set.Everything says so, and only a
//     look at every entry finds the changes.
package watch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// How is the way in which an entry was touched. An entry may have several.
type How uint8

// The ways.
const (
	Named   How = 1 << iota // it came or went, or another one took its name
	Written                 // its content or its attributes were changed
	Closed                  // a process that had it open for writing closed it
)

// Touch is one entry that was touched.
type Touch struct {
	Path string // below the folder; "." is the folder itself
	How  How
}

// Set holds the entries touched between two Swaps.
type Set struct {
	Everything string // if not empty: why every entry has to be looked at
	Touched    []Touch
	Inodes     []uint64 // files that were written through a name that the folder has not now
}

// Watch is one folder that is watched.
type Watch struct {
	root int    // the folder, open
	text string // as the caller named it
	dev  uint64
	fan  *os.File
	fd   int // fan's: asking fan for it would make it block

	mu         sync.Mutex
	dirs       map[handle]map[string]*touched
	loose      map[handle]bool // objects that were written through a name outside, or none
	inside     map[handle]bool // directory → whether it lies in the folder, as far as asked
	everything string
	buf        []byte
}

type touched struct {
	how     How
	objects []handle // whose content was changed; more than one if the name changed hands
}

// maxInside bounds the memory of directories outside of the folder.
const maxInside = 1 << 18

const (
	content = unix.FAN_MODIFY | unix.FAN_ATTRIB | unix.FAN_CLOSE_WRITE
	moved   = unix.FAN_MOVED_FROM | unix.FAN_MOVED_TO
	names   = unix.FAN_CREATE | unix.FAN_DELETE | moved
)

// Start begins to watch the folder root. The kernel keeps as many events for it as there are.
func Start(root string) (*Watch, error) { return start(root, unix.FAN_UNLIMITED_QUEUE) }

func start(root string, queue uint) (_ *Watch, err error) {
	fd, err := unix.Open(root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("watch: %s: %w", root, err)
	}
	w := &Watch{root: fd, text: root, dirs: map[handle]map[string]*touched{}, loose: map[handle]bool{}, inside: map[handle]bool{}, buf: make([]byte, 256<<10)}
	defer func() {
		if err != nil {
			unix.Close(fd)
		}
	}()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("watch: %s: %w", root, err)
	}
	w.dev = st.Dev
	if below, err := w.mountBelow(); err != nil {
		return nil, err
	} else if below != "" {
		return nil, fmt.Errorf("watch: %s: another file system is mounted below it, on %s, where nothing would be seen: unmount it, or watch it by itself", root, below)
	}
	fan, err := unix.FanotifyInit(unix.FAN_CLASS_NOTIF|unix.FAN_CLOEXEC|unix.FAN_NONBLOCK|unix.FAN_REPORT_DFID_NAME|unix.FAN_REPORT_FID|queue, unix.O_RDONLY|unix.O_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("watch: the kernel refused fanotify with file handles (%w): it takes Linux 5.9 or later, and root outside of a user namespace", err)
	}
	// By the descriptor, so that the opened folder is the marked one.
	err = unix.FanotifyMark(fan, unix.FAN_MARK_ADD|unix.FAN_MARK_FILESYSTEM, content|names|unix.FAN_ONDIR, unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		unix.Close(fan)
		return nil, fmt.Errorf("watch: %s: %s", root, unmarkable(err))
	}
	w.fan, w.fd = os.NewFile(uintptr(fan), "fanotify"), fan
	// Handles have to lead back to directories.
	h, err := handleOf(fd)
	if err == nil {
		_, err = w.resolve(h)
	}
	if err != nil {
		w.fan.Close()
		return nil, fmt.Errorf("watch: %s: its file system gives file handles and does not take them back (%w): it cannot be watched", root, err)
	}
	conn, err := w.fan.SyscallConn()
	if err != nil {
		w.fan.Close()
		return nil, fmt.Errorf("watch: %w", err)
	}
	go func() {
		// Keeps the queue short. Ends when the descriptor is closed.
		_ = conn.Read(func(uintptr) bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.drain()
			return false
		})
	}()
	return w, nil
}

func unmarkable(err error) string {
	switch {
	case errors.Is(err, unix.EXDEV):
		return "it lies in a subvolume, which fanotify cannot watch: put it on ext4 or xfs"
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENODEV):
		return fmt.Sprintf("its file system has no file handles (%v), so it cannot be watched: put it on ext4 or xfs", err)
	}
	return fmt.Sprintf("fanotify cannot watch it: %v", err)
}

// mountBelow is the mount point of another file system in the folder.
func (w *Watch) mountBelow() (string, error) {
	root, err := os.Readlink(self(w.root))
	if err != nil {
		return "", fmt.Errorf("watch: %s: %w", w.text, err)
	}
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", fmt.Errorf("watch: %w", err)
	}
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) > 4 {
			if at := unescape.Replace(f[4]); strings.HasPrefix(at, strings.TrimSuffix(root, "/")+"/") {
				return at, nil
			}
		}
	}
	return "", nil
}

// unescape undoes the kernel's escapes of a mount point in mountinfo.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// Close ends the watch.
func (w *Watch) Close() error {
	return errors.Join(w.fan.Close(), unix.Close(w.root))
}

// drain reads the kernel's queue; the caller holds mu.
func (w *Watch) drain() {
	for {
		n, err := unix.Read(w.fd, w.buf)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			return
		case err != nil:
			w.lost(fmt.Sprintf("fanotify cannot be read: %v", err))
			return
		}
		if err := parse(w.buf[:n], w.note); err != nil {
			w.lost(err.Error())
		}
	}
}

// lost notes that something was missed.
func (w *Watch) lost(why string) {
	if w.everything == "" {
		w.everything = why
	}
}

// note takes one event.
func (w *Watch) note(e event) {
	if e.mask&unix.FAN_Q_OVERFLOW != 0 {
		w.lost("the kernel's queue of events overflowed")
		return
	}
	if e.mask&moved != 0 && e.mask&unix.FAN_ONDIR != 0 {
		// A directory may have come in or gone out, with all below it.
		clear(w.inside)
	}
	if e.dir == "" {
		if e.object != "" && e.mask&content != 0 {
			w.loose[e.object] = true
		}
		return
	}
	in, err := w.contains(e.dir)
	if err != nil {
		w.lost(err.Error())
		return
	}
	if !in {
		// Its file may have a name in the folder, too.
		if e.object != "" && e.object != e.dir && e.mask&content != 0 && e.mask&unix.FAN_ONDIR == 0 {
			w.loose[e.object] = true
		}
		return
	}
	entries := w.dirs[e.dir]
	if entries == nil {
		entries = map[string]*touched{}
		w.dirs[e.dir] = entries
	}
	t := entries[e.name]
	if t == nil {
		t = &touched{}
		entries[e.name] = t
	}
	if e.mask&names != 0 {
		t.how |= Named
	}
	if e.mask&(unix.FAN_MODIFY|unix.FAN_ATTRIB) != 0 {
		t.how |= Written
	}
	if e.mask&unix.FAN_CLOSE_WRITE != 0 {
		t.how |= Closed
	}
	if e.mask&content != 0 && e.mask&unix.FAN_ONDIR == 0 && e.object != "" && !slices.Contains(t.objects, e.object) {
		t.objects = append(t.objects, e.object)
	}
}

// contains tells whether a directory lies in the folder, or is it. One that is
// gone is not in it: that it went was an event of the directory above it.
func (w *Watch) contains(dir handle) (bool, error) {
	if in, ok := w.inside[dir]; ok {
		return in, nil
	}
	_, err := w.resolve(dir)
	in := err == nil
	if err != nil && !gone(err) {
		return false, fmt.Errorf("a directory cannot be found by its handle: %w", err)
	}
	if len(w.inside) >= maxInside {
		clear(w.inside)
	}
	w.inside[dir] = in
	return in, nil
}

// gone reports whether an error means that something is not there, or not in the
// folder.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESTALE) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EXDEV)
}

// Swap returns the entries touched before the call, and starts over. Of files that
// were written through other names, those for which known says no are left out.
func (w *Watch) Swap(known func(inode uint64) bool) (*Set, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drain()
	dirs, loose, s := w.dirs, w.loose, &Set{Everything: w.everything}
	w.dirs, w.loose, w.everything = map[handle]map[string]*touched{}, map[handle]bool{}, ""
	for dir, entries := range dirs {
		path, err := w.resolve(dir)
		if gone(err) {
			continue // or moved since, which is an event that is still to come
		}
		if err != nil {
			return nil, fmt.Errorf("watch: %s: %w", w.text, err)
		}
		for name, t := range entries {
			p := join(path, name)
			s.Touched = append(s.Touched, Touch{Path: p, How: t.how})
			if len(t.objects) == 0 {
				continue
			}
			// An object that has not this name any more may have another one.
			now, _ := w.handleAt(p)
			for _, o := range t.objects {
				if o != now {
					loose[o] = true
				}
			}
		}
	}
	for o := range loose {
		if err := w.settle(s, o, known); err != nil {
			return nil, fmt.Errorf("watch: %s: %w", w.text, err)
		}
	}
	s.Touched = Merge(s.Touched)
	slices.Sort(s.Inodes)
	return s, nil
}

// settle looks for the names in the folder of an object that was written through
// another one.
func (w *Watch) settle(s *Set, o handle, known func(uint64) bool) error {
	fd, err := w.open(o)
	if gone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Nlink == 0 {
		return nil // deleted; if it gets a name again, that is an event
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		if known(st.Ino) {
			s.Inodes = append(s.Inodes, st.Ino)
		}
		return nil
	}
	path, err := w.locate(fd, &st)
	if err == nil {
		s.Touched = append(s.Touched, Touch{Path: path, How: Written})
	} else if !gone(err) {
		return err
	}
	return nil
}

// Merge sorts by path and makes one of those with the same.
func Merge(ts []Touch) []Touch {
	slices.SortFunc(ts, func(a, b Touch) int { return strings.Compare(a.Path, b.Path) })
	out := ts[:0]
	for _, t := range ts {
		if n := len(out); n > 0 && out[n-1].Path == t.Path {
			out[n-1].How |= t.How
			continue
		}
		out = append(out, t)
	}
	return out
}

func join(dir, name string) string {
	switch {
	case name == "." || name == "":
		return dir
	case dir == ".":
		return name
	}
	return dir + "/" + name
}
