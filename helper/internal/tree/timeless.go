package tree

import (
	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/watch"
)

// On a tmpfs a page that was read through a mapping is writable from then on, and a write to
// it sets no change time. There is no disk that the page could be written back to for the
// next write to set one. So there
//
//   - a file that is mapped shared counts as written to in each pass;
//   - so does one whose last writer has closed it: until then it may have been mapped.
//     The kernel tells of that end only when the mapping is gone, too;
//   - where events were lost, each file does.

// isTmpfs asks it of an open folder.
func isTmpfs(fd int) (bool, error) {
	var st unix.Statfs_t
	err := unix.Fstatfs(fd, &st)
	return err == nil && int64(st.Type) == unix.TMPFS_MAGIC, err
}

// tellsNothing reports whether no stat of this file says that its content is as it was.
func (m *Mirror) tellsNothing(st *unix.Stat_t) bool {
	return m.timeless && st.Mode&unix.S_IFMT == unix.S_IFREG
}

// distrustMapped adds the files of a tmpfs that may have been written to through a mapping.
func (f *Follower) distrustMapped(c *Changes) {
	if !f.timeless {
		return
	}
	for i := range c.Touched {
		if c.Touched[i].How == watch.Closed {
			c.Touched[i].How = watch.Written
		}
	}
	for _, u := range c.InUse {
		switch {
		case !u.Mapped:
		case u.Path != "":
			c.Touched = append(c.Touched, watch.Touch{Path: u.Path, How: watch.Written})
		default:
			c.Inodes = append(c.Inodes, u.Inode)
		}
	}
}
