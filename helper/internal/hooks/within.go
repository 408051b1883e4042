package hooks

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// runtimeCgroup is where podman puts itself and conmon below the cgroup of a unit that it divides (--cgroups=split).
const runtimeCgroup = "runtime"

// Within becomes the command argv in the cgroup of a unit: systemd then takes that, and all that it starts, for the unit's.
// It returns only if it cannot.
func Within(cgroup string, argv []string) error {
	if err := join(cgroup); err != nil {
		return err
	}
	if err := unix.Exec(argv[0], argv, os.Environ()); err != nil {
		return fmt.Errorf("hooks: %s: %w", argv[0], err)
	}
	return nil
}

// join moves this process. A cgroup that gives controllers to those below has no processes of its own.
func join(cgroup string) error {
	err := enter(cgroup)
	if !errors.Is(err, unix.EBUSY) {
		return err
	}
	below := filepath.Join(cgroup, runtimeCgroup)
	if err := os.Mkdir(below, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("hooks: %w", err)
	}
	return enter(below)
}

func enter(cgroup string) error {
	f, err := os.OpenFile(filepath.Join(cgroup, "cgroup.procs"), os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString("0")
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return fmt.Errorf("hooks: the unit's cgroup: %w", err)
	}
	return nil
}
