package hooks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Forget removes the gate that a session left whose process died, once CRIU is
// done. Not earlier: a script that finds no gate takes the run for somebody
// else's and lets CRIU go on, and the session has just decided that it must not.
func Forget(ctx context.Context, runDir, imageDir, session string) error {
	dir, err := filepath.EvalSymlinks(imageDir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("hooks: %w", err)
	}
	reg, err := Lookup(runDir, dir)
	if err != nil || reg == nil || reg.Session != session {
		return err
	}
	for {
		pid, err := user(dir)
		if err != nil {
			return err
		}
		if pid == "" {
			break
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("hooks: process %s still works in %s: %w", pid, dir, context.Cause(ctx))
		case <-time.After(50 * time.Millisecond):
		}
	}
	base := filepath.Join(Gates(runDir), key(dir))
	_ = os.Remove(base + ".sock")
	if err := os.Remove(base + ".json"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("hooks: %w", err)
	}
	return nil
}

// user is a process that has the directory open, as CRIU has its images from the
// beginning to the end.
func user(dir string) (pid string, err error) {
	fds, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return "", fmt.Errorf("hooks: %w", err)
	}
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil && to == dir {
			return filepath.Base(filepath.Dir(filepath.Dir(fd))), nil
		}
	}
	return "", nil
}
