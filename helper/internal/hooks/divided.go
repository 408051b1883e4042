package hooks

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/criuimage"
)

// CRIU restores a cgroup namespace only with the cgroups of its tasks, and those at the path
// that they had on the source. A workload may divide its cgroup, too, as an init does that is a
// system's: a cgroup for each of its services, some of them without a process. CRIU restores
// those that have processes, without their limits, and hands no controller down to them. So the
// source writes into the dump all that there is, and the destination makes it before CRIU
// restores, below the cgroup that the runtime has made for this container.

// Divided says whether the workload has made cgroups below its own.
func (c Cgroup) Divided() bool {
	if c == "" {
		return false
	}
	entries, err := os.ReadDir(string(c))
	return err == nil && slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.IsDir() })
}

// subtree hands controllers down to those below.
const subtree = "cgroup.subtree_control"

// leftAlone are files that are no setting, and settings of the freeze, the kernel's and this host's.
func leftAlone(name string) bool {
	return slices.Contains([]string{"cgroup.procs", "cgroup.threads", freezeFile, killFile, "cgroup.type", "memory.reclaim", "memory.peak", "memory.swap.peak"}, name) ||
		strings.HasSuffix(name, ".pressure")
}

// ReadCgroups reads the workload's cgroup and all below it, those above first.
func (c Cgroup) ReadCgroups() (all []criuimage.Cgroup, err error) {
	err = filepath.WalkDir(string(c), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		one, err := readCgroup(string(c), path)
		all = append(all, one)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("hooks: the workload's cgroups: %w", err)
	}
	return all, nil
}

func readCgroup(root, path string) (c criuimage.Cgroup, err error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return c, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	c.Mode, c.User, c.Group = st.Mode, st.Uid, st.Gid
	if c.Path, err = filepath.Rel(root, path); err != nil {
		return c, err
	}
	files, err := os.ReadDir(path)
	if err != nil {
		return c, err
	}
	for _, f := range files {
		info, err := f.Info()
		if err != nil {
			return c, err
		}
		if !info.Mode().IsRegular() || info.Mode()&0o600 != 0o600 || leftAlone(f.Name()) || c.Path == "." && f.Name() != subtree {
			continue // the engine gives the workload's own cgroup its limits
		}
		text, err := os.ReadFile(filepath.Join(path, f.Name()))
		if errors.Is(err, unix.EOPNOTSUPP) {
			continue
		} else if err != nil {
			return c, err
		}
		c.Values = append(c.Values, criuimage.Value{Name: f.Name(), Text: strings.TrimSpace(string(text))})
	}
	return c, nil
}

// MakeCgroups makes those of a dump below this one, and gives them their values. A value that
// this host does not take is an error: the workload would run without it.
func (c Cgroup) MakeCgroups(all []criuimage.Cgroup) error {
	for _, one := range all {
		if err := c.make(one); err != nil {
			return fmt.Errorf("hooks: the workload's cgroup %s: %w", filepath.Join(string(c), one.Path), err)
		}
	}
	return nil
}

func (c Cgroup) make(one criuimage.Cgroup) error {
	path := filepath.Join(string(c), one.Path)
	if one.Path != "." {
		if err := os.MkdirAll(path, 0o755); err != nil {
			return err
		}
		if err := errors.Join(os.Chown(path, int(one.User), int(one.Group)), unix.Chmod(path, one.Mode&0o7777)); err != nil {
			return err
		}
	}
	for _, v := range one.Values {
		if leftAlone(v.Name) || one.Path == "." && v.Name != subtree {
			continue
		}
		if err := setValue(filepath.Join(path, v.Name), v); err != nil {
			return err
		}
	}
	return nil
}

// setValue writes a value that is another.
func setValue(path string, v criuimage.Value) error {
	has, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return err
	}
	if strings.TrimSpace(string(has)) == v.Text {
		return nil
	}
	lines := strings.Split(v.Text, "\n")
	if v.Name == subtree {
		lines = []string{}
		for _, name := range strings.Fields(v.Text) {
			lines = append(lines, "+"+name)
		}
	}
	for _, line := range lines { // the kernel takes one at a time
		f, err := os.OpenFile(path, os.O_WRONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			_, err = f.WriteString(line)
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			return fmt.Errorf("%q: %w", line, err)
		}
	}
	return nil
}

// asideCgroup is where CRIU is while it restores: a cgroup that hands controllers down has no
// processes of its own.
const asideCgroup = "handover-restore"

// TakeCgroups makes the cgroups of the dump in dir below the one that the runtime has put this
// process into, which becomes CRIU, and has CRIU restore the tasks there. It says whether the
// dump has cgroups.
func TakeCgroups(dir string) (bool, error) {
	all, err := criuimage.ReadCgroups(dir)
	if err != nil || len(all) == 0 {
		return false, err
	}
	root, path, err := ownCgroup()
	if err != nil {
		return false, err
	}
	own := Cgroup(filepath.Join(root, path))
	if len(all) > 1 {
		if err := own.standAside(); err != nil {
			return false, err
		}
	}
	if err := own.MakeCgroups(all); err != nil {
		return false, err
	}
	return true, criuimage.MoveCgroups(dir, path)
}

// standAside moves this process into a cgroup of its own below the workload's.
func (c Cgroup) standAside() error {
	aside := filepath.Join(string(c), asideCgroup)
	if err := os.Mkdir(aside, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("hooks: %w", err)
	}
	return enter(aside)
}

// ownCgroup is where the hierarchy of the second version is mounted, and this process in it.
func ownCgroup() (root, path string, err error) {
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", "", fmt.Errorf("hooks: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		if p, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			path = p
		}
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return "", "", fmt.Errorf("hooks: %w", err)
	}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 2 && f[2] == "cgroup2" {
			root = f[1]
			break
		}
	}
	if path == "" || path == "/" || root == "" {
		return "", "", fmt.Errorf("hooks: CRIU is in no cgroup of a container of its own (%q): the container here was not made as the source's was", path)
	}
	return root, path, nil
}

// RemoveAside removes the cgroup in which CRIU was, when it has ended. The workload runs by
// then, and an empty cgroup harms it as little as it helps: so a failure is none.
func RemoveAside(container string) {
	_ = eachOf(container, func(c Cgroup) error {
		_ = unix.Rmdir(filepath.Join(string(c), asideCgroup))
		return nil
	})
}

// removeBelow removes the cgroups that were made for a restore that came to nothing; the
// runtime removes its own only if it has none below.
func (c Cgroup) removeBelow() error {
	var all []string
	err := filepath.WalkDir(string(c), func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && path != string(c) {
			all = append(all, path)
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		err = nil
	}
	for _, path := range slices.Backward(all) {
		if e := unix.Rmdir(path); e != nil && !errors.Is(e, fs.ErrNotExist) && !errors.Is(e, unix.EBUSY) {
			err = errors.Join(err, fmt.Errorf("hooks: %s: %w", path, e))
		}
	}
	return err
}
