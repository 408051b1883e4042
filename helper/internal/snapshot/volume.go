package snapshot

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/blockmap"
	"github.com/livefleet/handover/helper/internal/changes"
	"github.com/livefleet/handover/helper/internal/image"
	"github.com/livefleet/handover/helper/internal/loop"
	"github.com/livefleet/handover/helper/internal/passes"
	"github.com/livefleet/handover/helper/internal/store"
)

// cluster is the unit that a store keeps, and a tracker marks.
const cluster = changes.DefaultCluster

// volume is a disk of which a snapshot is taken.
type volume struct {
	Place
	part       *part
	device     string // that is tracked; empty: an image file that nothing uses
	mountpoint string // empty: no file system is mounted from it
	source     *image.Source
	writing    store.VolumeWriter
	pass       *passes.Volume
	stat       unix.Stat_t // of a file that nothing uses
	mark       *store.Mark // where the tracker that stays stands; nil: none does
	byMarks    bool        // the clusters to read are those that the tracker has marked
	unread     *blockmap.Map
}

// find looks how a volume is used.
func find(p Place) (_ *volume, err error) {
	v := &volume{Place: p}
	if v.Path, err = filepath.Abs(p.Path); err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	if err := unix.Stat(v.Path, &v.stat); err != nil {
		return nil, fmt.Errorf("snapshot: the volume %s: %s: %w", p.Name, v.Path, err)
	}
	read := v.Path
	switch v.stat.Mode & unix.S_IFMT {
	case unix.S_IFBLK:
		v.device = v.Path
	case unix.S_IFREG:
		if v.device, err = loop.DeviceOf(v.Path); err != nil {
			return nil, err
		}
		if v.device != "" {
			read = v.device
		} else if err := unused(v.Path); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("snapshot: the volume %s: %s is no image file and no block device", p.Name, v.Path)
	}
	if v.device != "" {
		if v.mountpoint, err = loop.MountpointOf(v.device); err != nil {
			return nil, err
		}
	}
	if v.source, err = image.OpenSource(read); err != nil {
		return nil, err
	}
	point, shut, err := store.Shut(v.source)
	if err == nil && shut {
		err = fmt.Errorf("snapshot: the volume %s: a rollback of %s to the snapshot %s was begun, and has not ended: run it again", p.Name, v.Path, point)
	}
	if err != nil {
		return nil, errors.Join(err, v.source.Close())
	}
	return v, nil
}

// same reports whether two volumes are one disk: one device, or one file.
func (v *volume) same(w *volume) bool {
	if v.device != "" && w.device != "" {
		return v.device == w.device || v.mountpoint != "" && v.mountpoint == w.mountpoint
	}
	return v.stat.Dev == w.stat.Dev && v.stat.Ino == w.stat.Ino
}

// unused demands that no process has a file open for writing: nothing would tell of its
// writes. The kernel gives a lease for reading on such a file only.
func unused(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	defer f.Close()
	_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK)
	switch {
	case errors.Is(err, unix.EAGAIN):
		return fmt.Errorf("snapshot: %s is open for writing, and no loop device has it: stop the program that writes it, such as a running guest", path)
	case err != nil: // not every file system has leases
		return nil
	}
	_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_UNLCK)
	return err
}

// untouched demands that a file that nothing used was not written meanwhile.
func (v *volume) untouched() error {
	if v.device != "" {
		return nil
	}
	var now unix.Stat_t
	if err := unix.Stat(v.Path, &now); err != nil {
		return fmt.Errorf("snapshot: %s: %w", v.Path, err)
	}
	dev, err := loop.DeviceOf(v.Path)
	if err != nil {
		return err
	}
	if dev != "" || now.Mtim != v.stat.Mtim || now.Ctim != v.stat.Ctim || now.Ino != v.stat.Ino {
		return fmt.Errorf("snapshot: %s was used while it was read: take the snapshot once more", v.Path)
	}
	return unused(v.Path)
}

// carries reports whether a path lies on the volume's file system.
func (v *volume) carries(path string) (bool, error) {
	if v.device == "" {
		return false, nil
	}
	var dev unix.Stat_t
	if err := unix.Stat(v.device, &dev); err != nil {
		return false, fmt.Errorf("snapshot: %s: %w", v.device, err)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return false, fmt.Errorf("snapshot: %w", err)
	}
	for { // the store may still have to be made
		var st unix.Stat_t
		err := unix.Stat(path, &st)
		if err == nil {
			return st.Dev == dev.Rdev, nil
		}
		if !errors.Is(err, unix.ENOENT) || path == filepath.Dir(path) {
			return false, fmt.Errorf("snapshot: %s: %w", path, err)
		}
		path = filepath.Dir(path)
	}
}
