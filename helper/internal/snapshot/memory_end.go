package snapshot

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/livefleet/handover/helper/internal/criuimage"
	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/loop"
)

// finish puts all of it in its place. The workload runs.
func (d *dump) finish() error {
	err := d.mend()
	if err == nil {
		err = d.takeImages(filepath.Join(d.folder, d.As))
	}
	for _, each := range d.Beside {
		if err == nil {
			err = d.beside(each)
		}
	}
	if err == nil {
		err = os.Rename(d.folder, d.Into)
	}
	if err != nil {
		return fmt.Errorf("snapshot: the dump: %w", err)
	}
	return nil
}

// mend has the images as a restore needs them.
func (d *dump) mend() error {
	gate := d.Dump.Gate
	for _, name := range ownFiles {
		if err := os.Remove(filepath.Join(gate, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("snapshot: %w", err)
		}
	}
	_, err := criuimage.MendTimers(gate, nil)
	if err == nil {
		_, err = criuimage.MendSleeps(gate)
	}
	if err == nil {
		_, err = os.Stat(filepath.Join(gate, inventoryImage))
	}
	return err
}

// inventoryImage is in each whole dump, and ownFiles are the helper's in one.
const inventoryImage = "inventory.img"

var ownFiles = []string{hooks.FrozenMark, "handover-put-back"}

// beside takes a file that the dump's command has laid down; it is of a later moment than an
// archive of the same name. Where the command has made none, there is nothing to go back to.
func (d *dump) beside(place Place) error {
	kept := filepath.Join(d.folder, place.Name)
	_, err := os.Lstat(place.Path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return os.RemoveAll(kept)
	case err != nil:
		return err
	}
	if _, err := os.Lstat(kept); err == nil {
		return os.Remove(place.Path)
	}
	return os.Rename(place.Path, kept)
}

// clear removes the rest. A dump that stays would be gone back to by the engine. The images and
// the gate of a CRIU at work are left: the process that it has left behind lets the tasks run.
func (d *dump) clear() (err error) {
	if d.own != nil {
		err = d.own.Close()
	}
	for _, l := range d.layers {
		err = errors.Join(err, l.mirror.Close())
	}
	if d.process != nil {
		select {
		case <-d.process.Done():
		default:
			return err // it has its gate still
		}
	}
	if d.atWork {
		return err
	}
	rest := []string{d.Dump.Gate}
	if d.ended { // there is nothing else to go back to
		rest = nil
	}
	err = errors.Join(err, loop.Unmount(d.Dump.Gate))
	for _, path := range append(rest, d.folder, filepath.Join(filepath.Dir(d.Dump.Log), criuimage.WatchedFile)) {
		err = errors.Join(err, os.RemoveAll(path))
	}
	for _, each := range d.Beside {
		err = errors.Join(err, os.RemoveAll(each.Path))
	}
	return errors.Join(err, d.gate.Close())
}
