// Package diskfull says that a file system is full, in the sentence that an operator
// needs: the place, its free space and the way out come before the kernel's words.
package diskfull

import (
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Is reports whether an error is that there is no room.
func Is(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// Explain puts that sentence before an error that is about a file at path; every other
// error stays as it is.
func Explain(path string, err error) error {
	if !Is(err) {
		return err
	}
	return fmt.Errorf("%s: free space there: %w", Place(path, err), err)
}

// Place says where there is no room, and how much is free.
func Place(path string, err error) string {
	if errors.Is(err, unix.EDQUOT) {
		return "the quota of the file system that holds " + path + " is used up"
	}
	free := ""
	var st unix.Statfs_t
	for above := path; ; above = filepath.Dir(above) {
		if unix.Statfs(above, &st) == nil {
			free = fmt.Sprintf(" (%d MiB are free there)", int64(st.Bavail)*st.Frsize>>20)
			break
		}
		if above == filepath.Dir(above) {
			break
		}
	}
	return "the file system that holds " + path + " is full" + free
}
