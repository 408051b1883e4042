package hooks

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// KillLeft ends the tasks that a killed CRIU has left of a container that it
// restored: they wait for it forever, and keep their mounts. The runtime names a
// container's cgroup by its ID.
func KillLeft(ctx context.Context, container string) error {
	if container == "" {
		return nil
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return fmt.Errorf("hooks: %w", err)
	}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 2 && f[2] == "cgroup2" {
			err = errors.Join(err, killBelow(ctx, f[1], container))
		}
	}
	return err
}

func killBelow(ctx context.Context, root, container string) error {
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
		if err := Cgroup(path).Kill(ctx); err != nil {
			return err
		}
		return fs.SkipDir
	})
}
