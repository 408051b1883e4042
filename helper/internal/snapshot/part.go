package snapshot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/livefleet/handover/helper/internal/store"
	"github.com/livefleet/handover/helper/internal/store/elsewhere"
)

// Part is the snapshot of one workload: what goes into one store.
type Part struct {
	Store       string  `json:"store"` // the folder; HOST:/FOLDER on another host
	Name        string  `json:"name"`
	Description string  `json:"description"`
	Volumes     []Place `json:"volumes"`
	Folders     []Place `json:"folders"` // plain folders
	Files       []Place `json:"files"`   // taken along
	// Cgroup is that of the workload, which stands still for the last pass over its folders.
	// Empty: nothing runs that writes to them.
	Cgroup string `json:"cgroup"`
}

// Place is a name, and the path of what has it.
type Place struct {
	Name string `json:"name"`
	Path string `json:"path"`
}

// part is one that is being taken.
type part struct {
	Part
	volumes []*volume
	store   store.Keeper // held until close
	take    store.Taking
}

// find looks at the volumes of a part.
func (j *job) find(ctx context.Context, asked Part) error {
	if len(asked.Volumes)+len(asked.Folders) == 0 {
		return errors.New("snapshot: there is no volume to take: name each with --volume NAME=PATH, or --folder NAME=PATH")
	}
	if slices.ContainsFunc(j.parts, func(other *part) bool { return other.Store == asked.Store }) {
		return fmt.Errorf("snapshot: two workloads have the store %s: give each its own", asked.Store)
	}
	named := map[string]bool{}
	for _, place := range slices.Concat(asked.Volumes, asked.Folders) {
		if named[place.Name] {
			return fmt.Errorf("snapshot: two volumes have the name %s", place.Name)
		}
		named[place.Name] = true
	}
	if err := unfrozen(asked.Cgroup); err != nil {
		return err
	}
	p := &part{Part: asked}
	j.parts = append(j.parts, p)
	for _, place := range asked.Volumes {
		v, err := find(place)
		if err != nil {
			return err
		}
		v.part = p
		p.volumes, j.volumes = append(p.volumes, v), append(j.volumes, v)
		for _, w := range j.volumes[:len(j.volumes)-1] {
			if w.same(v) {
				return fmt.Errorf("snapshot: %s and %s are one disk, and a disk goes into one snapshot: name it once", w.Path, v.Path)
			}
		}
	}
	for _, place := range asked.Folders {
		if slices.ContainsFunc(j.folders, func(f *folder) bool { return filepath.Clean(place.Path) == f.Path }) {
			return fmt.Errorf("snapshot: the folder %s goes into one snapshot: name it once", place.Path)
		}
		f, err := j.findFolder(ctx, place)
		if err != nil {
			return err
		}
		f.part = p
	}
	return nil
}

// unfrozen demands that a workload runs: one that others have frozen is not ours to thaw.
func unfrozen(cgroup string) error {
	if cgroup == "" {
		return nil
	}
	b, err := os.ReadFile(filepath.Join(cgroup, "cgroup.freeze"))
	if err != nil {
		return fmt.Errorf("snapshot: the workload's cgroup: %w", err)
	}
	if strings.HasPrefix(string(b), "1") {
		return fmt.Errorf("snapshot: the cgroup %s is frozen already: let the workload run, or stop it", cgroup)
	}
	return nil
}

// apart refuses a store on one of the volumes: it could not be written during the freeze.
// Nor could the disks of folders. In a folder it would have a copy of itself.
func (j *job) apart() error {
	for _, f := range j.folders {
		for _, v := range j.volumes {
			if within, err := v.carries(j.FolderRoot); err != nil {
				return err
			} else if within {
				return fmt.Errorf("snapshot: %s, which has the copies of folders, lies on the volume %s, which stands still while it is taken", j.FolderRoot, v.Name)
			}
		}
		for _, p := range j.parts {
			if _, ok := elsewhere.Parse(p.Store); ok {
				continue
			}
			if within, err := f.holds(p.Store); err != nil {
				return err
			} else if within {
				return fmt.Errorf("snapshot: the store %s lies in the volume %s: choose a folder elsewhere", p.Store, f.Name)
			}
		}
	}
	for _, p := range j.parts {
		if _, ok := elsewhere.Parse(p.Store); ok {
			continue
		}
		for _, v := range j.volumes {
			within, err := v.carries(p.Store)
			if err != nil {
				return err
			}
			if within {
				return fmt.Errorf("snapshot: the store %s lies on the volume %s, which stands still while it is taken: choose a folder elsewhere", p.Store, v.Name)
			}
		}
	}
	return nil
}

// open takes hold of the store, on this host or another one, and begins a snapshot in it.
func (p *part) open() error {
	if at, ok := elsewhere.Parse(p.Store); ok {
		l, err := elsewhere.Open(at, true)
		if err != nil {
			return err
		}
		p.store = l
	} else {
		s, err := store.Open(p.Store, true)
		if err != nil {
			return err
		}
		p.store = s.Keeper()
	}
	if err := p.settle(); err != nil {
		return err
	}
	take, err := p.store.Begin(p.Name, p.Description)
	if err == nil {
		p.take = take
	}
	return err
}

// settle ends what the store has noted of a rollback, if none of its disks has a gate: of
// these volumes that was seen.
func (p *part) settle() error {
	x := p.store.Index()
	if x.Restoring == "" {
		return nil
	}
	to, err := x.Find(x.Restoring)
	if err != nil {
		return err
	}
	for _, v := range to.Volumes {
		if !p.names(v.Name) {
			return nil // the store refuses the snapshot
		}
	}
	return p.store.Settle()
}

// names reports whether a volume of this name is taken.
func (p *part) names(volume string) bool {
	return slices.ContainsFunc(slices.Concat(p.Volumes, p.Folders), func(q Place) bool { return q.Name == volume })
}

// complete looks at the disks at rest once more, and takes the files along.
func (p *part) complete() error {
	for _, v := range p.volumes {
		if err := v.untouched(); err != nil {
			return err
		}
	}
	for _, f := range p.Files {
		if err := p.along(f); err != nil {
			return err
		}
	}
	return nil
}

// along takes a file along.
func (p *part) along(place Place) error {
	f, err := os.Open(place.Path)
	if err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("snapshot: %s is no file", place.Path)
	}
	if err == nil {
		err = p.take.File(place.Name, f)
	}
	return errors.Join(err, f.Close())
}

// close abandons what was not finished, and lets go of the store.
func (p *part) close() (err error) {
	if p.take != nil {
		err = p.take.Abandon()
	}
	if p.store != nil {
		err = errors.Join(err, p.store.Close())
	}
	return err
}
