package bluefs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/livefleet/handover/helper/internal/loop"
)

// disks are the names of an OSD's devices in its folder.
var disks = []string{"block", "block.db", "block.wal"}

// devices are the OSD's devices by their names in its folder, links followed.
func devices(home string) (map[string]string, error) {
	found := map[string]string{}
	for _, name := range disks {
		device, err := filepath.EvalSymlinks(filepath.Join(home, name))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("bluefs: %w", err)
		}
		found[name] = device
	}
	if found["block"] == "" {
		return nil, fmt.Errorf("bluefs: %s is not the folder of an OSD with BlueStore, or its devices are not there", home)
	}
	return found, nil
}

// noRoom is about the folder that the tool is shown.
func noRoom(err error) error {
	return fmt.Errorf("bluefs: %w; make room there, for where the database lies cannot be found out without it", err)
}

// Read finds out where the OSD whose folder is home keeps its database, whether it
// runs or not. tool runs ceph-bluestore-tool, without words the host's own; a tool in
// a container sees the folder work as inside.
func Read(ctx context.Context, home, work, inside string, tool []string) (_ *Layout, err error) {
	found, err := devices(home)
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp(work, "bluefs-")
	if err != nil {
		return nil, noRoom(err)
	}
	defer os.RemoveAll(folder)
	if err := os.Chmod(folder, 0o755); err != nil {
		return nil, fmt.Errorf("bluefs: %w", err)
	}
	kind, err := os.ReadFile(filepath.Join(home, "type"))
	if err != nil {
		return nil, fmt.Errorf("bluefs: %w", err)
	}
	if err := os.WriteFile(filepath.Join(folder, "type"), kind, 0o644); err != nil {
		return nil, noRoom(err)
	}

	behind := map[string]string{}
	for name, device := range found {
		view, err := loop.AttachReadOnly(device)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, loop.Detach(view)) }()
		behind[view] = device
		if err := os.Symlink(view, filepath.Join(folder, name)); err != nil {
			return nil, fmt.Errorf("bluefs: %w", err)
		}
	}

	if len(tool) == 0 {
		tool = []string{"ceph-bluestore-tool"}
	}
	argv := slices.Concat(tool, []string{"bluefs-log-dump", "--path", filepath.Join(inside, filepath.Base(folder))})
	var out bytes.Buffer
	c := exec.CommandContext(ctx, argv[0], argv[1:]...)
	c.Stdout, c.Stderr = &out, &out
	if err := c.Run(); err != nil {
		return nil, fmt.Errorf("bluefs: %s: %w: %s", argv[0], err, last(out.String()))
	}
	d, err := parse(out.String())
	if err != nil {
		return nil, err
	}
	return d.layout(behind)
}
