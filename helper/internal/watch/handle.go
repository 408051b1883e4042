package watch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func self(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

// beneath are the rules by which a path in the folder is followed.
const beneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV

// open opens an object of the folder's file system by its handle, without
// touching it.
func (w *Watch) open(h handle) (int, error) {
	for again := 0; ; again++ {
		fd, err := unix.OpenByHandleAt(w.root, h.file(), unix.O_PATH|unix.O_CLOEXEC)
		if errors.Is(err, unix.ENOMEM) && again < memoryRetries {
			time.Sleep(memoryPause)
			continue
		}
		if err != nil {
			return -1, fmt.Errorf("open_by_handle_at: %w", err)
		}
		return fd, nil
	}
}

// The kernel was seen to have no memory for a handle at one moment, with plenty of
// it free, and to have some at the next.
const (
	memoryRetries = 10
	memoryPause   = 10 * time.Millisecond
)

// resolve finds where in the folder a directory is.
func (w *Watch) resolve(h handle) (string, error) {
	fd, err := w.open(h)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", err
	}
	return w.locate(fd, &st)
}

// locate finds the path below the folder of an object that is open. The kernel's text
// for it is only a hint: it may be one that a mount hides, or one of before a move.
// The path counts only if it leads there when followed from the folder.
func (w *Watch) locate(fd int, st *unix.Stat_t) (string, error) {
	path, err := os.Readlink(self(fd))
	if err != nil {
		return "", err
	}
	root, err := os.Readlink(self(w.root))
	if err != nil {
		return "", err
	}
	rel := "."
	if path != root {
		var below bool
		if rel, below = strings.CutPrefix(path, strings.TrimSuffix(root, "/")+"/"); !below {
			return "", fs.ErrNotExist
		}
	}
	is, err := w.statAt(rel)
	if err != nil {
		return "", err
	}
	if is.Ino != st.Ino || is.Dev != st.Dev {
		return "", fs.ErrNotExist
	}
	return rel, nil
}

// statAt looks at an entry of the folder, and never out of it.
func (w *Watch) statAt(rel string) (*unix.Stat_t, error) {
	fd, err := w.openAt(rel, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	return &st, unix.Fstat(fd, &st)
}

func (w *Watch) openAt(rel string, flags uint64) (int, error) {
	for {
		fd, err := unix.Openat2(w.root, rel, &unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: beneath})
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			continue // something was moved while the kernel followed the path
		}
		return fd, err
	}
}

// handleAt is the handle of the entry that has this name now; empty if there is
// none.
func (w *Watch) handleAt(rel string) (handle, error) {
	fd, err := w.openAt(rel, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	return handleOf(fd)
}

func handleOf(fd int) (handle, error) {
	h, _, err := unix.NameToHandleAt(fd, "", unix.AT_EMPTY_PATH)
	if err != nil {
		return "", err
	}
	return newHandle(h.Type(), h.Bytes()), nil
}
