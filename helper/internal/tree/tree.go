// Package tree carries a folder of files to another host, and then its changes: a
// directory volume, a container's own layer, the files of a state dump.
//
// A Mirror is the sending side. For each sent file it remembers its name and a digest
// of its stat, and so knows the other side's content. Everything looks at every
// entry; Some looks only at those that package watch saw touched. Both write a pass
// as a tar stream (PAX: extended attributes and so access lists, numeric owners,
// times to the nanosecond, device nodes, hard links; files with holes in pieces), and
// Unpack lays such a stream down elsewhere. Four records are not tar's:
//
//	G  its data are names, separated by NUL: remove them from the folder
//	O  the same: remove all other names from the folder
//	U  a socket's file
//	P  pieces of a file that came before: its other content stays
//
// The kernel sets the change time (ctime) itself and no program can set it back, so a
// file with the same inode, size and change time as before is unchanged. There are
// exceptions, and a possible one counts as changed:
//
//   - Clocks of file systems tick coarsely: a file that changed less than Settle
//     before it was looked at may change once more within the same tick.
//   - A page that a program has mapped, and that is dirty already, is written without
//     a change time, until it has been written back. So before a pass the caller has
//     written back the mapped pages (Changes.Since is when it began), and changes
//     since then are distrusted.
//   - A tmpfs has no disk, and so no such writing back. There a mapped file is sent in each
//     pass (timeless.go).
//   - A write sets the change time before it writes. An event comes after it, and
//     then the file is sent in any case. Asynchronous I/O has no event: a file in
//     use that way is distrusted.
//
// A file's birth time is left out, and so are the number of its project and the flag that
// hands this number on: they belong to limits of the host. A flag (chattr) that changes
// after the first pass is carried if something else of the file changes, too: the kernel
// sends no event for it. Nothing is read or written outside of the folder, for any name
// in the stream, for any link in the folder, and even if another program adds links under
// way.
package tree

import (
	"errors"
	"fmt"
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

// The records that are not tar's.
const (
	typeGone   = 'G'
	typeOnly   = 'O'
	typeSocket = 'U'
	typePatch  = 'P'
)

// WriteBack has the file system of a folder write everything back, and returns
// from when on changes may be such that no change time tells.
func WriteBack(root string) (since time.Time, err error) {
	since = time.Now()
	fd, err := unix.Open(root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return since, fmt.Errorf("tree: %s: %w", root, err)
	}
	defer unix.Close(fd)
	if err := unix.Syncfs(fd); err != nil {
		return since, fmt.Errorf("tree: %s: writing its file system back: %w", root, err)
	}
	return since, nil
}

func xattrs(path string) (map[string]string, error) {
	n, err := unix.Llistxattr(path, nil)
	if errors.Is(err, unix.ENOTSUP) || n == 0 && err == nil {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("its extended attributes: %w", err)
	}
	names := make([]byte, 64<<10) // XATTR_LIST_MAX: there may be more by now
	if n, err = unix.Llistxattr(path, names); err != nil {
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
