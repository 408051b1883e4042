package record

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// A destination that gives up removes the paths that it made, and no others. The
// recovery behind it has to know them, too: so each path is noted, on the disk,
// before it is made, and only if it is not there.

// NoteMade notes a path that is about to be made.
func NoteMade(dir, path string) error {
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("session: %s: exists already, and nothing that is received replaces it: remove it or choose another name", path)
	} else if !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("session: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, madeFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("session: %w", err)
	}
	_, err = fmt.Fprintln(f, path)
	if err = errors.Join(err, f.Sync(), f.Close(), syncDir(dir)); err != nil {
		return fmt.Errorf("session: noting what is made: %w", err)
	}
	return nil
}

// ReadMade returns the paths that were made, or were about to be. A torn last line is
// nothing yet.
func ReadMade(dir string) (map[string]bool, error) {
	made := map[string]bool{}
	f, err := os.Open(filepath.Join(dir, madeFile))
	if errors.Is(err, os.ErrNotExist) {
		return made, nil
	} else if err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	defer f.Close()
	for r := bufio.NewReader(f); ; {
		line, err := r.ReadString('\n')
		if err != nil {
			return made, nil
		}
		made[line[:len(line)-1]] = true
	}
}

// DiscardImage removes the received image, or puts it aside if it is to stay.
func DiscardImage(v Vol) error {
	if v.Kept == "" {
		if err := os.Remove(v.Image); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("session: %w", err)
		}
		return nil
	}
	if err := Rename(v.Image, v.Kept); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// Rename never replaces a file, and is on the disk when it returns.
func Rename(from, to string) error {
	if err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE); err != nil {
		return fmt.Errorf("session: renaming %s to %s: %w", from, to, err)
	}
	return syncDir(filepath.Dir(to))
}
