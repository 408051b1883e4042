package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/blockmap"
	"github.com/livefleet/handover/helper/internal/changes"
	"github.com/livefleet/handover/helper/internal/loop"
	"github.com/livefleet/handover/helper/internal/nbd"
	"github.com/livefleet/handover/helper/internal/store"
	"github.com/livefleet/handover/helper/internal/treedisk"
)

// Return is a request to write volumes of a snapshot to files, devices, or disks that QEMU
// serves (nbd+unix:///EXPORT?socket=PATH).
type Return struct {
	Store   string
	Point   string
	Volumes []Place
	Folders []Place // volumes that are plain folders
	// FolderRoot has the disks of folders, and TrackRoot the trackers' records.
	FolderRoot string
	TrackRoot  string
	// Current: the paths are the workload's own disks and folders, which go on from this
	// point. Until all of them are written, nothing can mount the disks, the folders have
	// another name, and no snapshot is taken.
	Current bool
}

// Done is the work of a restore.
type Done struct {
	Volumes []*store.Restored    `json:"volumes"`
	Folders []*treedisk.Restored `json:"folders"`
}

// Restore writes volumes of a point, and only the clusters and files that differ.
func Restore(ctx context.Context, r Return) (_ *Done, err error) {
	if len(r.Volumes)+len(r.Folders) == 0 {
		return nil, errors.New("snapshot: there is no volume to write: name each with --volume NAME=PATH, or --folder NAME=PATH")
	}
	if r.FolderRoot == "" {
		r.FolderRoot = treedisk.Root
	}
	if r.TrackRoot == "" {
		r.TrackRoot = changes.Root
	}
	for i, p := range r.Folders {
		if r.Folders[i].Path, err = filepath.Abs(p.Path); err != nil {
			return nil, fmt.Errorf("snapshot: %w", err)
		}
	}
	for i, p := range r.Volumes {
		if nbd.Is(p.Path) {
			continue // QEMU has it open, and lets nothing else write it
		}
		if r.Volumes[i].Path, err = filepath.Abs(p.Path); err != nil {
			return nil, fmt.Errorf("snapshot: %w", err)
		}
		if err := atRest(r.Volumes[i].Path); err != nil {
			return nil, err
		}
	}
	// Everything is looked at before anything is written.
	var views []*store.View
	defer func() {
		for _, v := range views {
			err = errors.Join(err, v.Close())
		}
	}()
	var point *store.Point
	for i, p := range slices.Concat(r.Volumes, r.Folders) {
		v, found, err := store.OpenVolume(r.Store, r.Point, p.Name)
		if err != nil {
			return nil, err
		}
		views, point = append(views, v), found
		isFolder, err := treedisk.IsOne(v)
		switch {
		case err != nil:
			return nil, err
		case !isFolder && i >= len(r.Volumes):
			return nil, fmt.Errorf("snapshot: the volume %s is a disk, and no folder: name it with --volume", p.Name)
		case isFolder && i < len(r.Volumes) && r.Current:
			return nil, fmt.Errorf("snapshot: the volume %s is a folder, and no disk: name it with --folder", p.Name)
		}
	}
	disks, trees := views[:len(r.Volumes)], views[len(r.Volumes):]
	if r.Current {
		return rollback(ctx, r, point, disks, trees)
	}
	done := &Done{}
	if done.Volumes, err = write(ctx, r.Volumes, disks); err != nil {
		return nil, err
	}
	for i, p := range r.Folders {
		if err := os.Mkdir(p.Path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("snapshot: %w", err)
		}
		f, err := r.fill(ctx, p, trees[i])
		if err != nil {
			return nil, err
		}
		done.Folders = append(done.Folders, f)
	}
	return done, nil
}

// fill writes a folder. Its disk is needed for that alone.
func (r Return) fill(ctx context.Context, place Place, v *store.View) (_ *treedisk.Restored, err error) {
	d, err := treedisk.Hold(r.FolderRoot, place.Path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.Remove()) }()
	f := &treedisk.Restored{Volume: place.Name, Path: place.Path}
	if err = d.Become(ctx, v); err == nil {
		f.Read, err = d.WriteTo(ctx, place.Path)
	}
	return f, err
}

// rollback takes the workload's own disks and folders back, all of them.
//
// The folders go away first and come back last: whenever it is cut off, one of them is
// away, or all disks and folders are as before, or as at the point.
func rollback(ctx context.Context, r Return, point *store.Point, disks, trees []*store.View) (_ *Done, err error) {
	if n := len(r.Volumes) + len(r.Folders); n != len(point.Volumes) {
		return nil, fmt.Errorf("snapshot: the snapshot %s has %d volumes, and %d are named: the workload's disks are those of one moment, all of them", point.ID, len(point.Volumes), n)
	}
	s, err := store.Open(r.Store, false)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	// It may have been deleted before the store was held.
	if point, err = s.Index().Find(point.ID); err != nil {
		return nil, err
	}
	disksOf, err := r.hold(ctx, trees)
	defer func() { err = errors.Join(err, closeAll(disksOf)) }()
	if err != nil {
		return nil, err
	}
	x := s.Index() // as it is before anything is written
	var goes []store.Disk
	for i, p := range r.Volumes {
		goes = append(goes, store.Disk{View: disks[i], Path: p.Path, Since: func(d *nbd.Disk) (*blockmap.Map, string) {
			if d != nil {
				return marked(x, p, d)
			}
			return r.written(x, p)
		}})
	}
	done := &Done{}
	done.Volumes, err = s.Rollback(ctx, point, goes, func(write func() error) (err error) {
		done.Folders, err = r.folders(ctx, disksOf, write)
		return err
	})
	return done, err
}

// hold makes the disks of the folders those of the point, and sees whether the folders
// have room for it.
func (r Return) hold(ctx context.Context, views []*store.View) (disks []*treedisk.Disk, err error) {
	for i, p := range r.Folders {
		d, err := treedisk.Hold(r.FolderRoot, p.Path)
		if err != nil {
			return disks, err
		}
		disks = append(disks, d)
		if err := errors.Join(treedisk.Look(p.Path, views[i]), d.Become(ctx, views[i])); err != nil {
			return disks, err
		}
	}
	return disks, nil
}

func closeAll(disks []*treedisk.Disk) (err error) {
	for _, d := range disks {
		err = errors.Join(err, d.Close())
	}
	return err
}

// marked are the clusters of a disk that QEMU serves which may not be as in the current
// snapshot: those of a bitmap in its image. It is QEMU that vouches for the bitmap, as it
// gives no bitmap out that an image has missed writes of.
func marked(x *store.Index, p Place, d *nbd.Disk) (_ *blockmap.Map, why string) {
	if d.Bitmap() == "" {
		return nil, ""
	}
	base, why := baseOf(x, p.Name)
	if why != "" {
		return nil, why
	}
	if base.Mark.Tracker != d.Bitmap() {
		return nil, fmt.Sprintf("the bitmap %s is not that of the current snapshot", d.Bitmap())
	}
	m := blockmap.New(base.Size, cluster)
	if err := d.Written(m.MarkRange); err != nil {
		return nil, err.Error()
	}
	return m, ""
}

// folders writes the folders, and has the disks written beside them.
func (r Return) folders(ctx context.Context, disks []*treedisk.Disk, write func() error) (done []*treedisk.Restored, err error) {
	for _, p := range r.Folders {
		if err := treedisk.TakeAway(p.Path); err != nil {
			return nil, err
		}
	}
	for i, p := range r.Folders {
		f := &treedisk.Restored{Volume: p.Name, Path: p.Path}
		if f.Read, err = disks[i].WriteTo(ctx, p.Path+treedisk.Away); err != nil {
			return nil, err
		}
		done = append(done, f)
	}
	if err := write(); err != nil {
		return nil, err
	}
	for _, p := range r.Folders {
		if err := treedisk.BringBack(p.Path); err != nil {
			return nil, err
		}
	}
	return done, nil
}

func write(ctx context.Context, places []Place, views []*store.View) ([]*store.Restored, error) {
	done := []*store.Restored{}
	for i, v := range views {
		d, err := v.WriteTo(ctx, places[i].Path)
		if err != nil {
			return nil, err
		}
		done = append(done, d)
	}
	return done, nil
}

// atRest demands that nothing uses a target.
func atRest(path string) error {
	var st unix.Stat_t
	err := unix.Stat(path, &st)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("snapshot: %s: %w", path, err)
	}
	if st.Mode&unix.S_IFMT == unix.S_IFBLK {
		where, err := loop.MountpointOf(path)
		if err == nil && where != "" {
			err = fmt.Errorf("snapshot: %s is mounted on %s: stop the workload and unmount it first", path, where)
		}
		return err
	}
	dev, err := loop.DeviceOf(path)
	if err != nil {
		return err
	}
	if dev != "" {
		return fmt.Errorf("snapshot: %s is attached to %s: stop the workload, unmount it and detach the device first", path, dev)
	}
	return unused(path)
}
