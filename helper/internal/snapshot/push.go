package snapshot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/livefleet/handover/helper/internal/image/qcow2"
	"github.com/livefleet/handover/helper/internal/store"
	"github.com/livefleet/handover/helper/internal/store/elsewhere"
)

// Push is a point of disks that QEMU itself has written as they were at one moment, into
// images in the store's folder (PushTargets). Each becomes a layer as it is: its data are
// read once, for their digests. Only where the difference to the parent is not known are
// they compared and written again.
type Push struct {
	Store       string    `json:"store"`
	Name        string    `json:"name"`
	Description string    `json:"description"`
	Taken       time.Time `json:"taken"`
	FrozenMS    float64   `json:"frozen_ms"` // how long the guest's file systems stood still
	Disks       []Pushed  `json:"disks"`
	Files       []Place   `json:"files"` // taken along
}

// Pushed is one disk.
type Pushed struct {
	Name string `json:"name"`
	Size int64  `json:"size"`
	// The image has all that was written since the checkpoint Since. Without one it has
	// everything, and Why has the reason.
	Since string `json:"since"`
	Why   string `json:"why"`
	// Checkpoint was made at the moment of this point; empty: there is none.
	Checkpoint string `json:"checkpoint"`
}

// Target is the image that QEMU is to write a disk into. It has to write everything where
// Why is there: the store has no use for the writes since the checkpoint.
type Target struct {
	Name string `json:"name"`
	Path string `json:"path"`
	Why  string `json:"why,omitempty"`
}

// PushTargets makes an empty image for each disk, and the store if there is none. Those of
// a push that came to nothing are gone.
func PushTargets(r Push) (targets []Target, err error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	s, err := store.Open(r.Store, true)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	dir := filepath.Join(s.Dir(), store.PushFolder)
	if err := os.RemoveAll(dir); err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	if err := os.Mkdir(dir, 0o711); err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	// QEMU, which is another user, finds its own images there, and lists none.
	if err := os.Chmod(dir, 0o711); err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	for _, d := range r.Disks {
		var base *store.Volume
		if now := s.Index().Now(); now != nil {
			base, _ = now.Volume(d.Name)
		}
		t := Target{Name: d.Name, Path: filepath.Join(dir, d.Name+".qcow2"), Why: d.unfit(base)}
		if err := emptyImage(t.Path, d.Size); err != nil {
			return nil, fmt.Errorf("snapshot: the disk %s: %w", d.Name, err)
		}
		targets = append(targets, t)
	}
	return targets, nil
}

func (r *Push) check() error {
	if _, there := elsewhere.Parse(r.Store); there {
		return fmt.Errorf("snapshot: %s is on another host, and QEMU writes to files of this one: have the disks pulled, or mount that folder here", r.Store)
	}
	if len(r.Disks) == 0 {
		return errors.New("snapshot: there is no disk to push: name each")
	}
	named := map[string]bool{}
	for _, d := range r.Disks {
		if d.Name != filepath.Base(d.Name) || named[d.Name] {
			return fmt.Errorf("snapshot: %q is no name of a disk, or of two", d.Name)
		}
		named[d.Name] = true
	}
	return nil
}

func emptyImage(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	w, err := qcow2.NewWriter(f, size)
	if err == nil {
		err = w.Close()
	}
	return errors.Join(err, f.Close())
}

// unfit says why all that was written since the checkpoint is not all that differs from
// the parent; empty if it is.
func (d *Pushed) unfit(base *store.Volume) string {
	switch {
	case d.Since == "":
		return ""
	case base == nil:
		return "the store has no snapshot of the disk before"
	case base.Size != d.Size:
		return fmt.Sprintf("the disk has %d bytes, and had %d", d.Size, base.Size)
	case base.Mark == nil || base.Mark.Tracker != d.Since:
		return fmt.Sprintf("the checkpoint %s is not that of the backup before", d.Since)
	}
	return ""
}

// PushInto makes a point of the images. QEMU has ended its work on them.
func PushInto(ctx context.Context, r Push) (_ *Taken, err error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	if r.Taken.IsZero() {
		return nil, errors.New("snapshot: the moment is missing that the disks are of")
	}
	dir, err := filepath.Abs(r.Store)
	if err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	dir = filepath.Join(dir, store.PushFolder)
	p := &part{Part: Part{Store: r.Store, Name: r.Name, Description: r.Description, Files: r.Files}}
	for _, d := range r.Disks {
		p.Volumes = append(p.Volumes, Place{Name: d.Name})
		// Before the store is opened, which takes disks without a gate for whole ones.
		if err := d.whole(dir); err != nil {
			return nil, fmt.Errorf("snapshot: the disk %s: %w", d.Name, err)
		}
	}
	defer func() { err = errors.Join(err, p.close()) }()
	if err := p.open(); err != nil {
		return nil, err
	}
	for _, d := range r.Disks {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		if err := d.give(p.take, dir); err != nil {
			return nil, fmt.Errorf("snapshot: the disk %s: %w", d.Name, err)
		}
	}
	for _, f := range p.Files {
		if err := p.along(f); err != nil {
			return nil, err
		}
	}
	point, err := p.take.Finish(r.Taken, r.FrozenMS)
	if err != nil {
		return nil, err
	}
	_ = os.RemoveAll(dir) // else the next one removes it
	return &Taken{Point: point, Store: p.store.Dir()}, nil
}

func (d *Pushed) path(dir string) string { return filepath.Join(dir, d.Name+".qcow2") }

// whole sees that no rollback has left the disk half written.
func (d *Pushed) whole(dir string) error {
	i, err := store.OpenGiven(d.path(dir), d.Size)
	if err != nil {
		return err
	}
	point, shut, err := i.Shut()
	if err == nil && shut {
		err = fmt.Errorf("a rollback of it to the snapshot %s was begun, and has not ended: run it again", point)
	}
	return errors.Join(err, i.Close())
}

// given is a point that takes images as they are.
type given interface {
	Given(name, path string, size int64, full bool) (*store.Writing, error)
}

// give brings one disk into the store.
func (d *Pushed) give(take store.Taking, dir string) error {
	base := take.Base(d.Name)
	if why := d.unfit(base); why != "" {
		// It was looked at before QEMU began: another snapshot was taken meanwhile.
		return fmt.Errorf("what was written is not enough by now, as %s: take it again", why)
	}
	var mark *store.Mark
	if d.Checkpoint != "" {
		mark = &store.Mark{Tracker: d.Checkpoint}
	}
	full := base == nil || base.Size != d.Size
	if d.Since == "" && !full {
		return d.compare(take, dir, mark)
	}
	w, err := take.(given).Given(d.Name, d.path(dir), d.Size, full)
	if err != nil {
		return err
	}
	how := store.Marks
	if full {
		how = store.Full
	}
	w.Found(how, "", mark)
	return nil
}

// compare has only those clusters stored that differ from the parent.
func (d *Pushed) compare(take store.Taking, dir string, mark *store.Mark) error {
	w, err := take.Volume(d.Name, d.Size, false)
	if err != nil {
		return err
	}
	w.Found(store.Digests, d.Why, mark)
	i, err := store.OpenGiven(d.path(dir), d.Size)
	if err != nil {
		return err
	}
	return errors.Join(i.Into(w), i.Close())
}
