package hooks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Forget removes the gate that a session left whose process died, once CRIU is done.
// Not earlier: a script that finds no gate takes the run for another program's and
// lets CRIU continue, and the session has just decided that it must not.
//
// An engine that removes a container may remove the folder of the images with it: the gate
// is known by its session then.
func Forget(ctx context.Context, runDir, imageDir, session string) error {
	dir, err := filepath.EvalSymlinks(imageDir)
	if errors.Is(err, os.ErrNotExist) {
		return forgetGone(runDir, session)
	} else if err != nil {
		return fmt.Errorf("hooks: %w", err)
	}
	reg, err := Lookup(runDir, dir)
	if err != nil || reg == nil || reg.Session != session {
		return err
	}
	if err := done(ctx, dir); err != nil {
		return err
	}
	return forget(runDir, dir)
}

// forgetGone removes the gates of a session before folders that are not there any more.
func forgetGone(runDir, session string) error {
	all, err := filepath.Glob(filepath.Join(Gates(runDir), "*.json"))
	if err != nil {
		return fmt.Errorf("hooks: %w", err)
	}
	for _, path := range all {
		var reg Registration
		b, e := os.ReadFile(path)
		if e != nil || json.Unmarshal(b, &reg) != nil || reg.Session != session {
			continue // another's, and none of our business
		}
		if _, e := os.Lstat(reg.ImageDir); errors.Is(e, os.ErrNotExist) {
			err = errors.Join(err, forget(runDir, reg.ImageDir))
		}
	}
	return err
}

func forget(runDir, dir string) error {
	base := filepath.Join(Gates(runDir), key(dir))
	_ = os.Remove(base + ".sock")
	if err := os.Remove(base + ".json"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("hooks: %w", err)
	}
	return nil
}

// done waits until no CRIU works in dir any more.
func done(ctx context.Context, dir string) error {
	for {
		pid, err := user(dir)
		if err != nil || pid == "" {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("hooks: process %s still works in %s: %w", pid, dir, context.Cause(ctx))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// RanMark is an empty file in the directory of the images. CRIU's action script
// writes to it at pre-resume, the last point before the restored tasks run. It
// does that itself, without pcopy, which would take longer: it is in the pause.
const RanMark = "handover-ran"

// WatchRun puts the empty mark into imageDir.
func WatchRun(imageDir string) error { return mark(imageDir, RanMark) }

// FrozenMark is an empty file in the directory of the images that says that CRIU did
// not freeze the tasks: no process waits at network-lock for that, and CRIU's action
// script starts no pcopy there.
const FrozenMark = "handover-frozen"

// NoteFrozen puts that mark into imageDir.
func NoteFrozen(imageDir string) error { return mark(imageDir, FrozenMark) }

func mark(imageDir, name string) error {
	if err := os.WriteFile(filepath.Join(imageDir, name), nil, 0o600); err != nil {
		return fmt.Errorf("hooks: %w", err)
	}
	return nil
}

// Ran waits until CRIU is done with imageDir, and reports whether the tasks restored
// from there have run.
func Ran(ctx context.Context, imageDir string) (bool, error) {
	dir, err := filepath.EvalSymlinks(imageDir)
	switch {
	case errors.Is(err, os.ErrNotExist): // its session has taken it away, and with it the mark
		return true, nil
	case err == nil:
		err = done(ctx, dir)
	}
	if err != nil {
		return true, fmt.Errorf("hooks: %w", err)
	}
	return MayHaveRun(dir), nil
}

// MayHaveRun reports whether the tasks that CRIU restores from imageDir have run, or
// still may. They never did if the mark is empty and CRIU is gone.
func MayHaveRun(imageDir string) bool {
	dir, err := filepath.EvalSymlinks(imageDir)
	if err != nil {
		return true
	}
	if pid, err := user(dir); err != nil || pid != "" {
		return true
	}
	mark, err := os.Lstat(filepath.Join(dir, RanMark))
	return err != nil || mark.Size() > 0
}

// RanSince is when CRIU's script came to the point after which the tasks run.
func RanSince(imageDir string) (time.Time, bool) {
	mark, err := os.Stat(filepath.Join(imageDir, RanMark))
	if err != nil || mark.Size() == 0 {
		return time.Time{}, false
	}
	return mark.ModTime(), true
}

// InUse says whether a process has the directory of images open, or may have.
func InUse(imageDir string) bool {
	dir, err := filepath.EvalSymlinks(imageDir)
	if err != nil {
		return false
	}
	pid, err := user(dir)
	return err != nil || pid != ""
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
