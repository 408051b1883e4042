package hooks

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/loop"
)

// KillLeft ends the tasks that a killed CRIU has left of a container that it
// restored: they wait for it forever, and keep their mounts. The runtime names a
// container's cgroup by its ID.
func KillLeft(ctx context.Context, container string) error {
	return killLeft(ctx, container, map[string]string{"/run/runc": "runc", "/run/crun": "crun", "/run/docker/runtime-runc/moby": "runc"})
}

// killLeft knows the programs that run containers, by the folder of their entries.
func killLeft(ctx context.Context, container string, runtimes map[string]string) error {
	if container == "" {
		return nil
	}
	if err := eachOf(container, func(c Cgroup) error { return errors.Join(c.Kill(ctx), c.removeBelow()) }); err != nil {
		return err
	}
	return forgetEntry(ctx, container, runtimes)
}

// eachOf calls do with the cgroup of a container in each hierarchy.
func eachOf(container string, do func(Cgroup) error) error {
	if container == "" {
		return nil
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return fmt.Errorf("hooks: %w", err)
	}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 2 && f[2] == "cgroup2" {
			err = errors.Join(err, eachBelow(f[1], container, do))
		}
	}
	return err
}

// restoredRoot is runc's name for the root that CRIU restores.
const restoredRoot = "criu-root"

// entryLimit is how long a runtime may take to remove an entry.
const entryLimit = 30 * time.Second

// forgetEntry removes the entry that a runtime has left which was killed while it
// restored: the engine does not know of it, and has removed the container without.
func forgetEntry(ctx context.Context, container string, runtimes map[string]string) (err error) {
	for root, program := range runtimes {
		entry := filepath.Join(root, container)
		if _, e := os.Stat(entry); errors.Is(e, fs.ErrNotExist) {
			continue
		}
		// It has the root mounted there while it restores, and does not remove it with that.
		if e := loop.Unmount(filepath.Join(entry, restoredRoot)); e != nil {
			err = errors.Join(err, e)
			continue
		}
		c := Command{Argv: []string{program, "--root", root, "delete", "--force", container}, Timeout: int(entryLimit.Seconds())}
		e := c.Run(ctx)
		if _, left := os.Stat(entry); errors.Is(left, fs.ErrNotExist) {
			continue // whoever removed it
		}
		if e == nil {
			e = fmt.Errorf("hooks: %s is there still after `%s delete`: remove it", entry, program)
		}
		err = errors.Join(err, e)
	}
	return err
}

func eachBelow(root, container string, do func(Cgroup) error) error {
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENODEV): // they come and go
			return nil
		case err != nil:
			return fmt.Errorf("hooks: %w", err)
		case !entry.IsDir() || !strings.Contains(entry.Name(), container):
			return nil
		case strings.Contains(entry.Name(), "conmon"): // the engine's own, which cleans up after the container
			return fs.SkipDir
		}
		if err := do(Cgroup(path)); err != nil {
			return err
		}
		return fs.SkipDir
	})
}
