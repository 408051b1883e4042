// Package tree carries a folder of files: a container's own layer, the files of
// a state dump.
//
// It is for folders with few files. Scan remembers every entry with its inode
// and change time; Changed compares two scans; Pack writes the entries that are
// asked for as a tar stream (PAX, with extended attributes, owners, times and
// device nodes), and Unpack lays such a stream down elsewhere.
//
// The kernel sets the change time (ctime) itself and no program can set it back,
// so an entry with the same inode, size and change time as before holds what it
// held. There are two exceptions, and entries of a First scan that may be one
// count as changed:
//
//   - Clocks of file systems tick coarsely: an entry that changed less than
//     Settle ago may change once more within the same tick.
//   - A page that a program has mapped, and that is dirty already, is written
//     without a change time, until it has been written back. So First has the
//     file system write everything back, and distrusts what changed since then.
//
// Sockets are left out: a restored process makes its own. Unpack never leaves
// the folder it was given, whatever the stream names and whatever links lie in
// the folder.
package tree

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Settle is how old a change must be for its time to be trusted; the coarsest
// tick of a Linux kernel is 10 ms.
const Settle = 50 * time.Millisecond

// xattrPrefix is how PAX records name extended attributes, as GNU tar, bsdtar
// and containers/storage write them.
const xattrPrefix = "SCHILY.xattr."

// Scan is what a folder held at one time: path below the folder → entry.
type Scan struct {
	root    string
	entries map[string]entry
}

type entry struct {
	ino, dev uint64
	mode     uint32
	size     int64
	ctime    unix.Timespec
	fresh    bool // changed so late before the scan that it may change again unseen
}

// First scans a folder that is in use, for a later scan to be compared with.
func First(root string) (*Scan, error) {
	since := time.Now().Add(-Settle)
	if err := syncfs(root); err != nil {
		return nil, fmt.Errorf("tree: %s: writing its file system back: %w", root, err)
	}
	return scan(root, since)
}

// Take scans a folder in which nothing changes any more, or that nothing is
// compared with.
func Take(root string) (*Scan, error) { return scan(root, time.Now()) }

func syncfs(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Syncfs(fd)
}

// scan walks the folder; what changed since the given time is fresh. A file that
// vanishes meanwhile is simply not there.
func scan(root string, since time.Time) (*Scan, error) {
	s := &Scan{root: root, entries: map[string]entry{}}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && path != root {
			return nil
		}
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); errors.Is(err, unix.ENOENT) {
			return nil
		} else if err != nil {
			return &fs.PathError{Op: "lstat", Path: path, Err: err}
		}
		if st.Mode&unix.S_IFMT == unix.S_IFSOCK {
			return nil
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		s.entries[rel] = entry{
			ino: st.Ino, dev: st.Dev, mode: st.Mode, size: st.Size, ctime: st.Ctim,
			fresh: time.Unix(st.Ctim.Unix()).After(since),
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("tree: %w", err)
	}
	return s, nil
}

// Paths are all entries, parents before what lies in them.
func (s *Scan) Paths() []string {
	paths := make([]string, 0, len(s.entries))
	for p := range s.entries {
		paths = append(paths, p)
	}
	slices.Sort(paths)
	return paths
}

// Changed compares with an earlier scan of the same folder: what has to travel
// again, and what has to go, both sorted; what has to go is named deepest first.
func (s *Scan) Changed(before *Scan) (changed, gone []string) {
	for _, p := range s.Paths() {
		old, ok := before.entries[p]
		if now := s.entries[p]; !ok || old.fresh || old != now {
			changed = append(changed, p)
		}
	}
	for _, p := range before.Paths() {
		if _, ok := s.entries[p]; !ok {
			gone = append(gone, p)
		}
	}
	slices.Reverse(gone)
	return changed, gone
}

// Pack writes the given entries of the scanned folder to w. A file that changed
// or vanished since the scan is written as it is now, or left out: in presync
// the next scan finds it, and in the freeze nothing changes any more.
func (s *Scan) Pack(w io.Writer, paths []string) error {
	t := tar.NewWriter(w)
	chosen := map[string]bool{}
	for _, p := range paths {
		chosen[p] = true
	}
	// One name of a hard-linked file carries its content. A name that did not
	// change, and so is already there, is as good as one sent before.
	first := map[[2]uint64]string{}
	for _, p := range s.Paths() {
		e := s.entries[p]
		id := [2]uint64{e.dev, e.ino}
		if _, ok := first[id]; !ok && !chosen[p] && e.mode&unix.S_IFMT == unix.S_IFREG {
			first[id] = p
		}
	}
	for _, p := range paths {
		e := s.entries[p]
		link := ""
		if e.mode&unix.S_IFMT == unix.S_IFREG {
			id := [2]uint64{e.dev, e.ino}
			if f, ok := first[id]; ok {
				link = f
			} else {
				first[id] = p
			}
		}
		if err := pack(t, s.root, p, link); err != nil {
			return fmt.Errorf("tree: %s: %w", filepath.Join(s.root, p), err)
		}
	}
	return t.Close()
}

func pack(t *tar.Writer, root, rel, link string) error {
	path := filepath.Join(root, rel)
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode()&fs.ModeSocket != 0 {
		return nil
	}
	target := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		if target, err = os.Readlink(path); err != nil {
			return err
		}
	}
	h, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return err
	}
	h.Name, h.Format, h.Uname, h.Gname = rel, tar.FormatPAX, "", ""
	if h.PAXRecords, err = xattrs(path); err != nil {
		return err
	}
	if link != "" {
		h.Typeflag, h.Linkname, h.Size, h.PAXRecords = tar.TypeLink, link, 0, nil
		return t.WriteHeader(h)
	}
	if !info.Mode().IsRegular() {
		return t.WriteHeader(h)
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NOATIME, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := t.WriteHeader(h); err != nil {
		return err
	}
	// The header has promised a size: a file that grew is cut there, one that
	// shrank is filled with zeroes. Both have a new change time by now.
	n, err := io.Copy(t, io.LimitReader(f, h.Size))
	if err == nil && n < h.Size {
		_, err = io.CopyN(t, zeroes{}, h.Size-n)
	}
	return err
}

type zeroes struct{}

func (zeroes) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func xattrs(path string) (map[string]string, error) {
	names := make([]byte, 64<<10) // XATTR_LIST_MAX
	n, err := unix.Llistxattr(path, names)
	if errors.Is(err, unix.ENOTSUP) || n == 0 && err == nil {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("its extended attributes: %w", err)
	}
	records := map[string]string{}
	value := make([]byte, 64<<10) // XATTR_SIZE_MAX
	for name := range strings.SplitSeq(strings.TrimRight(string(names[:n]), "\x00"), "\x00") {
		v, err := unix.Lgetxattr(path, name, value)
		if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.ENOTSUP) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("its extended attribute %s: %w", name, err)
		}
		records[xattrPrefix+name] = string(value[:v])
	}
	return records, nil
}
