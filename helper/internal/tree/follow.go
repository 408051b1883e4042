package tree

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/watch"
)

// Follower is a folder that is in use, and its mirror: each pass sends the entries
// touched since the one before. The first sends everything.
type Follower struct {
	*Mirror
	// Unseen, if it is set, names the files that are written to unseen now.
	Unseen  func() ([]Unseen, error)
	watch   *watch.Watch
	pending watch.Set
	first   bool
	async   bool
}

// Follow begins to watch a folder.
func Follow(path string) (*Follower, error) {
	m, err := Open(path)
	if err != nil {
		return nil, err
	}
	w, err := watch.Start(path)
	if err != nil {
		m.Close()
		return nil, err
	}
	return &Follower{Mirror: m, watch: w, first: true}, nil
}

// First reports whether nothing was sent yet.
func (f *Follower) First() bool { return f.first }

// Async reports whether asynchronous I/O may have been under way at the last pass. Its
// end is no event, but the next pass finds the file changed.
func (f *Follower) Async() bool { return f.async }

// Close ends the watch.
func (f *Follower) Close() error {
	if f.only != "" {
		return f.Mirror.Close()
	}
	return errors.Join(f.watch.Close(), f.Mirror.Close())
}

// Lose notes that the other side may not have the content that it was assumed to
// have.
func (f *Follower) Lose(why string) { f.pending.Everything = why }

// Collect adds the entries touched since the last time to those that the next pass
// will look at. It returns their number, and about how many bytes they have.
func (f *Follower) Collect() (entries int, bytes int64, err error) {
	if f.only != "" {
		bytes, err = f.weighFile()
		return 1, bytes, err
	}
	s, err := f.watch.Swap(f.Knows)
	if err != nil {
		return 0, 0, err
	}
	if f.pending.Everything == "" {
		f.pending.Everything = s.Everything
	}
	f.pending.Touched = watch.Merge(append(f.pending.Touched, s.Touched...))
	for _, ino := range s.Inodes {
		// The number may be another file's by now. A file that is in the folder under
		// a name that is not known yet is touched, too.
		if slices.ContainsFunc(f.names(ino), func(name string) bool {
			st, err := f.stat(name)
			return err == nil && st.Ino == ino
		}) {
			f.pending.Inodes = append(f.pending.Inodes, ino)
		}
	}
	slices.Sort(f.pending.Inodes)
	f.pending.Inodes = slices.Compact(f.pending.Inodes)
	return len(f.pending.Touched) + len(f.pending.Inodes), f.Weigh(f.pending.Touched), nil
}

// Note assumes that the other side will have the folder's present content: another
// program is about to copy it.
func (f *Follower) Note() error {
	c, err := f.changes(false)
	if err != nil {
		return err
	}
	f.first = false
	return f.Mirror.Note(c)
}

// List names the entries that another program has to copy, or to remove, for the
// other side to hold the folder's present content. The text says why it cannot:
// everything has to be copied then, and later changes are in the next list.
func (f *Follower) List() (names []string, why string, err error) {
	c, err := f.changes(false)
	if err != nil {
		return nil, "", err
	}
	if c.Set.Everything != "" {
		return nil, c.Set.Everything, f.Mirror.Note(c)
	}
	names, err = f.Mirror.List(c)
	return names, "", err
}

// Pass writes one pass to w. With last, nothing uses the folder any more. The
// text says why every entry was looked at, if they were for another reason than
// that the pass is the first.
func (f *Follower) Pass(w io.Writer, last bool) (Stats, string, error) {
	if f.only != "" {
		f.first = false
		s, err := f.Everything(w, Changes{Since: never})
		return s, "", err
	}
	c, err := f.changes(last)
	if err == nil && last { // nothing writes any more: this look is the last
		_, err = f.Look()
	} else if err == nil {
		err = f.find()
	}
	if err != nil {
		return Stats{}, "", err
	}
	if f.first {
		f.first = false
		s, err := f.Everything(w, c)
		return s, "", err
	}
	for _, name := range f.unseenDue() {
		c.Touched = append(c.Touched, watch.Touch{Path: name, How: watch.Written})
	}
	if c.Set.Everything != "" {
		s, err := f.Everything(w, c)
		return s, c.Set.Everything, err
	}
	s, err := f.Some(w, c)
	return s, "", err
}

// changes takes the input of a pass.
func (f *Follower) changes(last bool) (Changes, error) {
	if _, _, err := f.Collect(); err != nil {
		return Changes{}, err
	}
	c := Changes{Set: f.pending, Since: time.Now()}
	f.pending = watch.Set{}
	var err error
	if c.InUse, err = f.watch.InUse(f.Knows); err != nil {
		return c, err
	}
	f.async = slices.ContainsFunc(c.InUse, func(u watch.Use) bool { return u.Async })
	f.distrustMapped(&c)
	if !last {
		err = f.writeBack(c.InUse)
	}
	return c, err
}

// writeBack has the pages of mapped files written to the disk, so that the next
// write to one of them sets the file's change time.
func (f *Follower) writeBack(used []watch.Use) error {
	for _, u := range used {
		if !u.Mapped {
			continue
		}
		names := f.names(u.Inode)
		if u.Path != "" {
			names = []string{u.Path}
		}
		for _, name := range names {
			err := at(f.root, name, func(parent int, base string) error {
				fd, err := unix.Openat(parent, base, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NOATIME|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
				if err != nil {
					return err
				}
				defer unix.Close(fd)
				return unix.Fdatasync(fd)
			})
			if err != nil && !absent(err) {
				return fmt.Errorf("tree: %s in %s: writing it back: %w", name, f.path, err)
			}
		}
	}
	return nil
}

// Quiet returns an error that names the entries touched since the last pass, or nil
// if there are none.
func (f *Follower) Quiet() error {
	if f.only != "" {
		return f.undisturbed()
	}
	n, _, err := f.Collect()
	if err != nil {
		return err
	}
	if f.pending.Everything != "" {
		return fmt.Errorf("tree: %s: %s", f.path, f.pending.Everything)
	}
	if n == 0 {
		return nil
	}
	var names []string
	for _, t := range f.pending.Touched {
		names = append(names, t.Path)
	}
	const some = 3
	if len(names) > some {
		names = append(names[:some], fmt.Sprintf("and %d more", len(names)-some))
	}
	return fmt.Errorf("tree: %s: something outside of the workload writes to it: %s", f.path, strings.Join(names, ", "))
}
