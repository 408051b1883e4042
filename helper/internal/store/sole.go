package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/tasks"
)

// QEMU closes an image a moment after libvirt says that its job has completed, and some write
// its tables only then.
var (
	closedWithin = time.Minute
	closedEvery  = 100 * time.Millisecond
)

var (
	// leaseless are the errors of file systems that have no leases.
	leaseless = []error{unix.EINVAL, unix.ENOLCK, unix.EOPNOTSUPP}
	// remote are file systems that refuse a lease, as if the file was open, if the server gives
	// them none.
	remote = []uint32{unix.NFS_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC}
)

// leaseOf asks the kernel for a lease of a file, or gives it back.
var leaseOf = func(f *os.File, kind int) error {
	_, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, kind)
	return err
}

// waitClosed returns when f is the only one that has its file open.
func waitClosed(f *os.File) error {
	for until := time.Now().Add(closedWithin); ; time.Sleep(closedEvery) {
		open, err := openElsewhere(f)
		if err != nil {
			return err
		}
		if !open {
			return nil
		}
		if time.Now().After(until) {
			return fmt.Errorf("another process still has it open after %s, and may be writing it", closedWithin)
		}
	}
}

// openElsewhere reports whether the file is open beside f. A lease for writing tells of all
// processes, with their mappings. It is given back at once: it was the question alone, and the
// one that wrote the file does not open it again.
func openElsewhere(f *os.File) (bool, error) {
	err := leaseOf(f, unix.F_WRLCK)
	is := func(e error) bool { return errors.Is(err, e) }
	switch {
	case err == nil:
		return false, leaseOf(f, unix.F_UNLCK)
	case slices.ContainsFunc(leaseless, is):
		return inProc(f)
	case !is(unix.EAGAIN):
		return false, fmt.Errorf("whether it is open elsewhere: %w", err)
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &fs); err != nil {
		return false, err
	}
	if slices.Contains(remote, uint32(fs.Type)) {
		return inProc(f)
	}
	return true, nil
}

// inProc looks for the file among those that the processes of this machine have open.
func inProc(f *os.File) (bool, error) {
	var own, st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &own); err != nil {
		return false, err
	}
	procs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return false, err
	}
	self := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd())
	for _, proc := range procs {
		fds, err := os.ReadDir(filepath.Join(proc, "fd"))
		if tasks.Gone(err) {
			continue
		}
		if err != nil {
			return false, err
		}
		for _, fd := range fds {
			path := filepath.Join(proc, "fd", fd.Name())
			if path == self || unix.Stat(path, &st) != nil {
				continue // a file that is gone or does not answer is not this one
			}
			if st.Dev == own.Dev && st.Ino == own.Ino {
				return true, nil
			}
		}
	}
	return false, nil
}
