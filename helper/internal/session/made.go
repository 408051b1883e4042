package session

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// A destination that gives up removes what it made, and nothing that was there
// before. Which is which has to be known to those who clean up behind it, too: so
// each path is noted, on the disk, before it is made, and only if it is not there.

// willMake notes a path that is about to be made.
func willMake(dir, path string) error {
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

// readMade is what was made, or was about to be. A torn last line is nothing yet.
func readMade(dir string) (map[string]bool, error) {
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
