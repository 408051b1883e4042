package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/livefleet/handover/helper/internal/fsid"
	"github.com/livefleet/handover/helper/internal/loop"
)

// Nothing starts a workload unless each of its volumes is the file system that the
// session knows, mounted where it belongs. A workload that starts on the empty folder
// under a mount point has lost everything that it had acknowledged.
//
// The OCI hook, the thaw and resume commands, and the recovery all ask inPlace. A
// destination knows its volumes by their images. A source notes the mounted file
// systems when its session begins, on the disk: after a restart of the host its loop
// devices have other numbers.

// volumesFile is a source's note: the identities of its volumes, by mount point.
const volumesFile = "volumes.json"

// NoteVolumes writes the note. One that is there is a process's before this one: the
// volumes are compared with it.
func NoteVolumes(dir string, spec *Spec) error {
	path := filepath.Join(dir, volumesFile)
	if _, err := os.Lstat(path); err == nil {
		return InPlace(dir, spec)
	}
	known := map[string]fsid.Identity{}
	for _, v := range spec.Volumes {
		if v.Mountpoint == "" {
			continue
		}
		id, err := fsid.Of(v.Device)
		if err != nil {
			return fmt.Errorf("session: volume %s: %w", v.Name, err)
		}
		known[v.Mountpoint] = id
	}
	if len(known) == 0 {
		return nil
	}
	b, err := json.Marshal(known)
	if err != nil {
		return err
	}
	if err := writeWhole(path, b); err != nil {
		return fmt.Errorf("session: noting its volumes: %w", err)
	}
	return InPlace(dir, spec)
}

// writeWhole writes a file whole or not at all, and on the disk.
func writeWhole(path string, b []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".unfinished-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // once it is renamed, there is nothing of that name
	_, err = f.Write(b)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// notInPlace is the error for a volume that is not in its place.
type notInPlace struct {
	spec      *Spec
	volume    *Vol
	is        string // the file system there instead
	recovered bool   // the recovery of the session mounts it
}

func (n *notInPlace) Error() string {
	way := fmt.Sprintf("mount it (`systemctl start %s`), and then run `pcopy session recover --all`", loop.MountUnit(n.volume.Mountpoint))
	if n.recovered {
		way = "`pcopy session recover --all` mounts it"
	}
	return fmt.Sprintf("session: %s does not start: its volume %s %s on %s: %s", n.spec.Workload, n.volume.Name, n.is, n.volume.Mountpoint, way)
}

// InPlace is an error for the first volume that is not the file system that the
// session knows, mounted on its mount point.
func InPlace(dir string, spec *Spec) error {
	known, err := knownVolumes(dir, spec)
	if err != nil {
		return err
	}
	for i := range spec.Volumes {
		v := &spec.Volumes[i]
		if v.Mountpoint == "" {
			continue
		}
		is, err := fsid.Mounted(v.Mountpoint)
		switch want, noted := known[v.Mountpoint]; {
		case errors.Is(err, fsid.ErrNotMounted):
			return &notInPlace{spec, v, "is not mounted", spec.Role == Destination}
		case err != nil:
			return fmt.Errorf("session: volume %s: %w", v.Name, err)
		case noted && !want.Same(is):
			return &notInPlace{spec, v, fmt.Sprintf("is %s, and %s is mounted", want, is), false}
		}
	}
	return nil
}

// knownVolumes are the identities of the volumes by mount point. A session that was
// begun by an older pcopy has no note: then it counts that something is mounted.
func knownVolumes(dir string, spec *Spec) (map[string]fsid.Identity, error) {
	known := map[string]fsid.Identity{}
	if spec.Role == Destination {
		for _, v := range spec.Volumes {
			if v.Mountpoint == "" {
				continue
			}
			image, err := filepath.EvalSymlinks(v.Image) // as the kernel names it
			if err != nil {
				return nil, fmt.Errorf("session: volume %s: %w", v.Name, err)
			}
			known[v.Mountpoint] = fsid.Identity{Image: image}
		}
		return known, nil
	}
	b, err := os.ReadFile(filepath.Join(dir, volumesFile))
	if errors.Is(err, os.ErrNotExist) {
		return known, nil
	} else if err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	if err := json.Unmarshal(b, &known); err != nil {
		return nil, fmt.Errorf("session: %s is damaged: %w", filepath.Join(dir, volumesFile), err)
	}
	return known, nil
}
