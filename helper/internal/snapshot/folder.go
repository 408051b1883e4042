package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/image"
	"github.com/livefleet/handover/helper/internal/passes"
	"github.com/livefleet/handover/helper/internal/pipeline"
	"github.com/livefleet/handover/helper/internal/store"
	"github.com/livefleet/handover/helper/internal/tree"
	"github.com/livefleet/handover/helper/internal/treedisk"
)

// folder is a plain folder of which a snapshot is taken. Passes bring its files to a disk
// of its own (package treedisk): first all that differ, then those that fanotify saw
// touched, and the last ones while the workload stands still. When that runs again, the
// disk goes into the store as any other.
type folder struct {
	Place
	part     *part
	disk     *treedisk.Disk
	follower *tree.Follower
	writing  store.VolumeWriter
	source   *image.Source
	due      bool // the next pass may have something to look at
}

// findFolder looks at a folder, and begins to watch it.
func (j *job) findFolder(ctx context.Context, place Place) (_ *folder, err error) {
	f := &folder{Place: place, due: true}
	if f.Path, err = filepath.Abs(place.Path); err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	if err := treedisk.Begun(f.Path); err != nil {
		return nil, fmt.Errorf("snapshot: the volume %s: %w", f.Name, err)
	}
	bytes, entries, err := treedisk.Weigh(f.Path)
	if err != nil {
		return nil, fmt.Errorf("snapshot: the volume %s: %w", f.Name, err)
	}
	if f.disk, err = treedisk.Hold(j.FolderRoot, f.Path); err != nil {
		return nil, fmt.Errorf("snapshot: the volume %s: %w", f.Name, err)
	}
	j.folders = append(j.folders, f)
	if err := f.disk.Fit(ctx, bytes, entries); err != nil {
		return nil, fmt.Errorf("snapshot: the volume %s: %w", f.Name, err)
	}
	if err := f.disk.Mount(false); err != nil {
		return nil, fmt.Errorf("snapshot: the volume %s: %w", f.Name, err)
	}
	if f.follower, err = tree.Follow(f.Path); err != nil {
		return nil, fmt.Errorf("snapshot: the volume %s: %w", f.Name, err)
	}
	f.follower.Filled = true
	return f, nil
}

// holds reports whether a path lies in the folder.
func (f *folder) holds(path string) (bool, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return false, fmt.Errorf("snapshot: %w", err)
	}
	for {
		real, err := filepath.EvalSymlinks(path)
		if err == nil {
			root, err := filepath.EvalSymlinks(f.Path)
			return err == nil && strings.HasPrefix(real+"/", root+"/"), err
		}
		if path == filepath.Dir(path) {
			return false, fmt.Errorf("snapshot: %w", err)
		}
		path = filepath.Dir(path) // it has yet to be made
	}
}

// collect takes the entries touched since the last time, and tells about how many bytes
// they have.
func (f *folder) collect() (int64, error) {
	if f.follower.First() {
		return 0, nil
	}
	entries, bytes, err := f.follower.Collect()
	if err != nil {
		return 0, fmt.Errorf("snapshot: the volume %s: %w", f.Name, err)
	}
	f.due = f.due || entries > 0
	return bytes, nil
}

// send brings the touched files to the disk. With last, the workload stands still.
func (f *folder) send(ctx context.Context, last bool) error {
	if _, err := f.collect(); err != nil {
		return err
	}
	if !f.due && !last {
		return nil
	}
	f.due = false
	err := treedisk.Pour(f.disk.Folder(), func(w io.Writer) error {
		_, _, err := f.follower.Pass(untilDone{ctx, w}, last)
		return err
	})
	if err != nil {
		return fmt.Errorf("snapshot: the volume %s: %w", f.Name, err)
	}
	return nil
}

// sendWarm is send while the workload runs.
func (f *folder) sendWarm(ctx context.Context) error { return f.send(ctx, false) }

// untilDone is a writer that ends with its context.
type untilDone struct {
	ctx context.Context
	io.Writer
}

func (u untilDone) Write(p []byte) (int, error) {
	if err := context.Cause(u.ctx); err != nil {
		return 0, err
	}
	return u.Writer.Write(p)
}

// rest brings the last to the disk, while the workload stands still, and proves that
// nothing is left.
func (f *folder) rest(ctx context.Context) error {
	if err := f.send(ctx, true); err != nil {
		return err
	}
	if f.follower.Async() { // its end is no event: the next pass finds it
		return f.send(ctx, true)
	}
	return nil
}

// quiet demands that nothing was touched since the last pass.
func (f *folder) quiet() error {
	if err := f.follower.Quiet(); err != nil {
		return fmt.Errorf("snapshot: the volume %s: %w", f.Name, err)
	}
	return nil
}

// storeFolders puts the disks of all folders into their stores. They are at rest.
func (j *job) storeFolders(ctx context.Context) error {
	if len(j.folders) == 0 {
		return nil
	}
	var vs []*passes.Volume
	for n, f := range j.folders {
		err := f.disk.Unmount()
		if err == nil {
			f.source, err = image.OpenSource(f.disk.Image())
		}
		if err == nil {
			f.writing, err = f.part.take.Volume(f.Name, f.source.Size(), j.Full)
		}
		if err != nil {
			return fmt.Errorf("snapshot: the volume %s: %w", f.Name, err)
		}
		if !f.writing.Full() {
			f.writing.Found(store.Digests, "it is a folder, whose disk is compared", nil)
		}
		vs = append(vs, &passes.Volume{
			Name: f.Path, Tracker: passes.Untracked, Cluster: cluster, Stream: uint32(len(j.volumes) + n), Source: f.source, Empty: f.writing.Full(), SkipFree: true,
		})
	}
	sender, err := pipeline.NewSender([]pipeline.FrameWriter{j}, pipeline.SendOptions{})
	if err != nil {
		return err
	}
	c := passes.New(sender, vs, passes.Options{})
	_, err = c.Track()
	if err == nil {
		_, err = c.Send(ctx, nil)
	}
	return errors.Join(err, c.Close())
}

// close ends the watch, and lets go of the disk.
func (f *folder) close() (err error) {
	if f.follower != nil {
		err = f.follower.Close()
	}
	if f.source != nil {
		err = errors.Join(err, f.source.Close())
	}
	return errors.Join(err, f.disk.Close())
}

// cgroups are those that halt stops.
func (j *job) cgroups() (found []hooks.Cgroup) {
	for _, p := range j.parts {
		if p.Cgroup != "" && len(p.Folders) > 0 {
			found = append(found, hooks.Cgroup(p.Cgroup))
		}
	}
	return found
}

// have has the cgroups for this snapshot alone. One that stands still already is another's
// to let go: after a move's release it may be all that keeps a second copy from running.
func (j *job) have(ctx context.Context) error {
	for _, c := range j.cgroups() {
		own, err := c.Own(ctx)
		if err != nil {
			return fmt.Errorf("snapshot: %w", err)
		}
		j.owned = append(j.owned, own)
		stopped, err := c.Stopped()
		if err != nil {
			return fmt.Errorf("snapshot: %w", err)
		}
		if stopped {
			return fmt.Errorf("snapshot: the workload stands still (%s is frozen), for a move or by somebody's hand: take the snapshot when it runs", c)
		}
	}
	return nil
}

// halt stops the workloads whose folders are taken.
func (j *job) halt(ctx context.Context) error {
	for _, c := range j.cgroups() {
		j.halted = append(j.halted, c)
		if _, err := c.Freeze(ctx); err != nil {
			return fmt.Errorf("snapshot: %w", err)
		}
	}
	return nil
}

// goOn lets them run.
func (j *job) goOn() (err error) {
	for _, c := range j.halted {
		err = errors.Join(err, c.Thaw())
	}
	j.halted = nil
	return err
}
