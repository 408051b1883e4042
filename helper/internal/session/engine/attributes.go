package engine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/tasks"
)

// CRIU carries a tmpfs by tar and without the extended attributes of its files: lists of who
// may read a journal, for one. So the source lays them down beside the dump, and the
// destination gives them back before the first instruction of the workload.

// attributesFile is their name in the folder of the dump.
const attributesFile = "handover-attributes.json"

// attribute is one of a file on a tmpfs.
type attribute struct {
	Path  string `json:"path"` // from the workload's root, and without a link in it
	Name  string `json:"name"`
	Value []byte `json:"value"`
}

// WriteAttributes lays them down in the folder of the dump. The tasks stand still.
func WriteAttributes(f *hooks.Command, dir string) error {
	if !f.Given() {
		return nil
	}
	pid, err := firstProcess(f.Cgroup)
	if err != nil || pid == "" {
		return err
	}
	proc := filepath.Join("/proc", pid)
	mounts, err := os.ReadFile(filepath.Join(proc, "mountinfo"))
	if err != nil {
		return fmt.Errorf("session: %w", err)
	}
	var all []attribute
	for _, place := range ownTmpfs(mounts) {
		found, err := attributesBelow(filepath.Join(proc, "root"), place)
		if err != nil {
			return fmt.Errorf("session: the attributes of files on the tmpfs %s: %w", place, err)
		}
		all = append(all, found...)
	}
	if len(all) == 0 {
		return nil
	}
	b, err := json.Marshal(all)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, attributesFile), b, 0o600)
	}
	if err != nil {
		return fmt.Errorf("session: %w", err)
	}
	return nil
}

// firstProcess is the workload's first process, whose mounts are the workload's own: others may
// have some for themselves. Empty: it has none.
func firstProcess(cgroup hooks.Cgroup) (pid string, err error) {
	if cgroup == "" {
		return "", nil
	}
	return pid, cgroup.EachTask(func(proc string) error {
		inside, err := tasks.Inside(proc)
		if err == nil && inside == 1 && filepath.Base(proc) != "1" {
			pid = filepath.Base(proc)
			return fs.SkipAll
		}
		return err
	})
}

// ownTmpfs are the places of the tmpfs that CRIU carries whole, out of a mountinfo.
func ownTmpfs(mounts []byte) (places []string) {
	for line := range bytes.Lines(mounts) {
		left, right, _ := strings.Cut(string(line), " - ")
		f, kind := strings.Fields(left), strings.Fields(right)
		if len(f) < 5 || len(kind) == 0 || kind[0] != "tmpfs" || f[3] != "/" {
			continue
		}
		place := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(f[4])
		if place != "/dev/shm" && !strings.HasPrefix(place, "/proc/") && !strings.HasPrefix(place, "/sys/") {
			places = append(places, place)
		}
	}
	return places
}

// attributesBelow are those of the files on one tmpfs.
func attributesBelow(root, place string) (all []attribute, err error) {
	var top unix.Stat_t
	if err := unix.Lstat(root+place, &top); err != nil {
		return nil, err
	}
	err = filepath.WalkDir(root+place, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		if st.Dev != top.Dev { // mounted over it
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		found, err := attributesOf(path)
		for _, a := range found {
			a.Path = strings.TrimPrefix(path, root)
			all = append(all, a)
		}
		return err
	})
	return all, err
}

// attributesOf are those of one file, but for the label that the host gives.
func attributesOf(path string) (all []attribute, err error) {
	n, err := unix.Llistxattr(path, nil)
	if n <= 0 || err != nil {
		if errors.Is(err, unix.EOPNOTSUPP) {
			err = nil
		}
		return nil, err
	}
	list := make([]byte, n)
	if n, err = unix.Llistxattr(path, list); err != nil {
		return nil, err
	}
	names := strings.Split(strings.TrimRight(string(list[:n]), "\x00"), "\x00")
	for _, name := range slices.DeleteFunc(names, func(name string) bool { return name == "" || strings.HasPrefix(name, "security.selinux") }) {
		size, err := unix.Lgetxattr(path, name, nil)
		if err != nil {
			return nil, err
		}
		value := make([]byte, size)
		if size > 0 {
			if size, err = unix.Lgetxattr(path, name, value); err != nil {
				return nil, err
			}
		}
		all = append(all, attribute{Name: name, Value: value[:size]})
	}
	return all, nil
}

// giveAttributes gives them to the restored files. Nothing has run yet.
func (r *criuRestore) giveAttributes() error {
	b, err := os.ReadFile(filepath.Join(r.h.Restore.Gate, attributesFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var all []attribute
	if err == nil {
		err = json.Unmarshal(b, &all)
	}
	root := filepath.Join("/proc", r.gate.Root(), "root")
	for _, a := range all {
		if err == nil {
			if err = unix.Lsetxattr(root+a.Path, a.Name, a.Value, 0); err != nil {
				err = fmt.Errorf("%s of %s: %w", a.Name, a.Path, err)
			}
		}
	}
	if err != nil {
		return fmt.Errorf("session: the attributes of files on a tmpfs: %w", err)
	}
	r.Log.Emit("attributes", map[string]any{"attributes": len(all)})
	return nil
}
