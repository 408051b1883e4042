package session

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/livefleet/handover/helper/internal/fsid"
	"github.com/livefleet/handover/helper/internal/image"
	"github.com/livefleet/handover/helper/internal/loop"
	"github.com/livefleet/handover/helper/internal/session/record"
)

// places are where the destination stores the received data: images, folders and mount points. It removes
// those that it made.
type places struct {
	*record.Session
	options Options
	targets []*image.Target
	images  []record.Vol       // whose images we made, or took
	kept    bool               // one of them was there from an earlier time
	created []string           // other paths that we made
	filled  []record.Directory // they were empty
	rooms   map[uint32]*room   // of the directory volumes that have not come, by stream
	mounted []string           // mount points that we mounted
	binds   map[string][]loop.Bind
	bound   []string // where volumes are shown by us
}

func (d *places) datasync() error {
	var g errgroup.Group
	for _, t := range d.targets {
		g.Go(t.Datasync)
	}
	g.Go(d.syncDirectories)
	return g.Wait()
}

func (d *places) removeReceived() (err error) {
	for _, m := range slices.Concat(d.bound, d.mounted) {
		err = errors.Join(err, loop.Unmount(m), fsid.Unguard(m))
	}
	d.bound, d.mounted = nil, nil
	for _, t := range d.targets {
		err = errors.Join(err, t.Close())
	}
	d.targets = nil
	d.leaveRooms()
	for _, v := range d.filled {
		err = errors.Join(err, v.Clear())
	}
	d.filled = nil
	for _, v := range d.images {
		err = errors.Join(err, record.DiscardImage(v))
	}
	d.images = nil
	for _, path := range d.created {
		if e := os.Remove(path); e != nil && !errors.Is(e, os.ErrNotExist) {
			err = errors.Join(err, fmt.Errorf("session: %w", e))
		}
	}
	d.created = nil
	return err
}

// makeMountpoint makes the directory, and remembers it if it is new.
func (d *places) makeMountpoint(v record.Vol) error {
	if _, err := os.Lstat(v.Mountpoint); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := record.NoteMade(d.Dir, v.Mountpoint); err != nil {
		return err
	}
	d.created = append(d.created, v.Mountpoint)
	if err := os.MkdirAll(v.Mountpoint, 0o711); err != nil {
		return fmt.Errorf("session: the mount point: %w", err)
	}
	return nil
}

// show binds a mounted volume to where its cover was bound.
func (d *places) show(v record.Vol) error {
	for _, b := range d.binds[v.Mountpoint] {
		if err := loop.BindTo(v.Mountpoint, b); err != nil {
			return err
		}
		d.bound = append(d.bound, b.Path)
	}
	delete(d.binds, v.Mountpoint)
	return nil
}
