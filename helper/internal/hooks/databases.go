package hooks

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/tasks"
)

// SQLite knows a file by its device and its inode, as they were when it was opened
// (unixInodeInfo in its os_unix.c). Where either is another after a restore, a process shares
// no locks with what it opens then. The checks look for such files while the workload runs,
// and it may open one afterwards: so those who freeze it look, too.

// Database is a file of SQLite's that a task has open.
type Database struct {
	Path   string // as the task names it
	Task   string // its number
	Device uint64
}

func (d *Database) String() string {
	return fmt.Sprintf("the SQLite database %s (pid %s), which it knows by device and inode", d.Path, d.Task)
}

var (
	sqliteBegins = []byte("SQLite format 3\x00")
	sqliteBeside = []string{"-shm", "-wal", "-journal"}
)

// sqliteLeast is its smallest page, in bytes.
const sqliteLeast = 512

// FindDatabase returns the first database that matters and that a task of the cgroup has open;
// nil: there is none. The tasks have to be frozen. What is mapped is open as well: SQLite
// keeps the descriptors of a file as long as it uses it.
func (c Cgroup) FindDatabase(matters func(*Database) bool) (found *Database, err error) {
	err = c.EachTask(func(proc string) (err error) {
		if found, err = databaseOf(proc, matters); err == nil && found != nil {
			return fs.SkipAll
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("hooks: the databases that the workload has open: %w", err)
	}
	return found, nil
}

// databaseOf looks through the open files of one process.
func databaseOf(proc string, matters func(*Database) bool) (*Database, error) {
	folder := filepath.Join(proc, "fd")
	links, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	for _, l := range links {
		link := filepath.Join(folder, l.Name())
		path, err := os.Readlink(link)
		if tasks.Gone(err) {
			continue
		} else if err != nil {
			return nil, err
		}
		if !strings.HasPrefix(path, "/") { // a pipe, a socket
			continue
		}
		found := &Database{Path: strings.TrimSuffix(path, " (deleted)"), Task: filepath.Base(proc)}
		if is, err := found.is(link); err != nil {
			return nil, err
		} else if is && matters(found) {
			return found, nil
		}
	}
	return nil, nil
}

// is tells whether it is one, or lies beside one; link leads to it, though it may have no name
// any more.
func (d *Database) is(link string) (bool, error) {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, link, unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE|unix.STATX_SIZE, &st)
	if tasks.Gone(err) || err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("%s: %w", link, err)
	}
	d.Device = unix.Mkdev(st.Dev_major, st.Dev_minor)
	for _, end := range sqliteBeside {
		if strings.HasSuffix(d.Path, end) {
			d.Path = strings.TrimSuffix(d.Path, end)
			return true, nil
		}
	}
	// A file of the kernel's has no size, and a read may take from it.
	if st.Size < sqliteLeast || strings.HasPrefix(d.Path, "/sys/") {
		return false, nil
	}
	return beginsAsDatabase(link), nil
}

// beginsAsDatabase opens the file without a wait: a task may have a lease on it, which it is
// asked to give up. As for the check, a file that cannot be read is none.
func beginsAsDatabase(link string) bool {
	file, err := os.OpenFile(link, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer file.Close()
	head := make([]byte, len(sqliteBegins))
	_, err = file.ReadAt(head, 0)
	return err == nil && bytes.Equal(head, sqliteBegins)
}
