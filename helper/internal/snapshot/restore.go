package snapshot

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/loop"
	"github.com/livefleet/handover/helper/internal/store"
)

// Return is a request to write volumes of a snapshot to files or devices.
type Return struct {
	Store   string
	Point   string
	Volumes []Place
	// Current: the paths are the workload's own disks, which go on from this point. Until
	// all of them are written, nothing can mount them, and no snapshot of them is taken.
	Current bool
}

// Restore writes volumes of a point, and only the clusters that differ.
func Restore(ctx context.Context, r Return) (_ []*store.Restored, err error) {
	if len(r.Volumes) == 0 {
		return nil, errors.New("snapshot: there is no volume to write: name each with --volume NAME=PATH")
	}
	for i, p := range r.Volumes {
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
	for _, p := range r.Volumes {
		v, found, err := store.OpenVolume(r.Store, r.Point, p.Name)
		if err != nil {
			return nil, err
		}
		views, point = append(views, v), found
	}
	if r.Current {
		return rollback(ctx, r, point, views)
	}
	return write(ctx, r.Volumes, views)
}

// rollback takes the workload's own disks back, all of them.
func rollback(ctx context.Context, r Return, point *store.Point, views []*store.View) (_ []*store.Restored, err error) {
	if len(r.Volumes) != len(point.Volumes) {
		return nil, fmt.Errorf("snapshot: the snapshot %s has %d volumes, and %d are named: the workload's disks are those of one moment, all of them", point.ID, len(point.Volumes), len(r.Volumes))
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
	var paths []string
	for _, p := range r.Volumes {
		paths = append(paths, p.Path)
	}
	return s.Rollback(ctx, point, views, paths)
}

func write(ctx context.Context, places []Place, views []*store.View) (done []*store.Restored, err error) {
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
