package treedisk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/diskfull"
	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/loop"
	"github.com/livefleet/handover/helper/internal/tree"
)

// Filling gives an image the files of a folder that is in use. The image has an empty
// file system already, and is mounted nowhere.
//
// First passes bring all files, and then those that fanotify saw touched. Then the workload
// is stopped, and the last pass follows. The folder gets another name, by which
// nothing finds it, and it is proven that nothing was touched since the last pass. So each
// change in the folder is in the image, or it could not be made.
type Filling struct {
	Folder string
	Image  string
	Type   string         // of the file system
	Again  bool           // the image may have files already: it is compared, and all that the folder does not have goes
	Cgroup hooks.Cgroup   // of the workload, for this process alone until it has stopped; empty: it has none
	Stop   *hooks.Command // stops the workload; nil: it does not run, or Leave ends it
	Leave  Leave          // ends the workload and keeps its memory; it has the cgroup then
	Away   string         // the folder's name afterwards; empty: it has that already
}

// Leave ends a workload. pass is for the time when that is prepared, and last has to return without an error while nothing
// of it runs: else it runs on. Since when it stood still is returned.
type Leave func(ctx context.Context, pass, last func(context.Context) error) (began time.Time, err error)

// Filled is the work that it took.
type Filled struct {
	Passes int     `json:"passes"`
	Bytes  int64   `json:"bytes"`      // of files, in all passes
	Last   int64   `json:"last_bytes"` // of those in the last, when nothing ran any more
	StopMS float64 `json:"stop_ms"`    // to stop the workload, or to dump and end it
	LastMS float64 `json:"last_ms"`    // all else while it did not run, until everything was on the disk
}

// The passes before the stop go on while each is much shorter than the one before.
const (
	mostPasses = 8
	smallPass  = 4 << 20
)

// ownPatience is how long another may have the workload's cgroup.
const ownPatience = 10 * time.Second

// beforeTheLook is called between the last pass and the proof, by tests.
var beforeTheLook = func() {}

// fill is one that is under way.
type fill struct {
	Filling
	Filled
	began    time.Time // since then the workload stops
	follower *tree.Follower
	to       *os.File // the root of the file system in the image
}

// Fill does it. After an error the folder has its name, if it had it before.
func Fill(ctx context.Context, f Filling) (_ *Filled, err error) {
	own, err := f.have(ctx)
	if err != nil {
		return nil, err
	}
	if own != nil {
		defer func() { err = errors.Join(err, own.Close()) }()
	}
	lock, err := f.lock()
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	w := &fill{Filling: f}
	if err := w.open(); err != nil {
		return nil, errors.Join(err, w.close())
	}
	if err := errors.Join(w.run(ctx), w.close()); err != nil {
		return nil, errors.Join(err, w.back())
	}
	if err := w.settle(); err != nil {
		return nil, errors.Join(err, w.back())
	}
	w.LastMS = sinceMS(w.began) - w.StopMS
	return &w.Filled, nil
}

// lock has the image, so that another run finds that it is worked on, whatever has become of
// the one that started this.
func (f *Filling) lock() (*os.File, error) {
	image, err := os.OpenFile(f.Image, os.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("treedisk: %w", err)
	}
	if err := unix.Flock(int(image.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		image.Close()
		return nil, fmt.Errorf("treedisk: %s is being filled by another process, or is in use (%w): try again when that has ended", f.Image, err)
	}
	return image, nil
}

// have has the cgroup, in which everything has to run.
func (f *Filling) have(ctx context.Context) (*os.File, error) {
	if f.Cgroup == "" {
		return nil, nil
	}
	ctx, done := context.WithTimeout(ctx, ownPatience)
	defer done()
	own, err := f.Cgroup.Own(ctx)
	if err != nil {
		return nil, fmt.Errorf("treedisk: %w", err)
	}
	stopped, err := f.Cgroup.Stopped()
	if err == nil && stopped {
		err = fmt.Errorf("the workload stands still (%s is frozen), for a move or by somebody's hand: try again when it runs", f.Cgroup)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("treedisk: %w", err), own.Close())
	}
	return own, nil
}

func (w *fill) open() (err error) {
	if w.Away != "" && there(w.Away) {
		return fmt.Errorf("treedisk: %s is there already: see what it is, and move it away", w.Away)
	}
	options := map[string]string{}
	if w.Type == "ext4" {
		options["errors"] = "remount-ro"
	}
	if w.to, err = loop.OpenImage(w.Image, w.Type, false, options); err != nil {
		return err
	}
	if w.follower, err = tree.Follow(w.Folder); err == nil {
		w.follower.Filled = w.Again
	}
	return err
}

func (w *fill) close() (err error) {
	if w.follower != nil {
		err = w.follower.Close()
	}
	if w.to != nil {
		err = errors.Join(err, w.to.Close())
	}
	return err
}

func (w *fill) run(ctx context.Context) error {
	if err := w.warm(ctx); err != nil {
		return err
	}
	if w.Leave != nil {
		return w.leave(ctx)
	}
	w.began = time.Now()
	if err := w.stop(ctx); err != nil {
		return err
	}
	return w.last(ctx)
}

// leave has the workload end with its memory kept.
func (w *fill) leave(ctx context.Context) (err error) {
	var took float64
	w.began, err = w.Leave(ctx, func(ctx context.Context) error { return w.pass(ctx, false) }, func(ctx context.Context) error {
		began := time.Now()
		err := w.last(ctx)
		took = sinceMS(began)
		return err
	})
	if err != nil {
		return fmt.Errorf("treedisk: %w", err)
	}
	w.StopMS = sinceMS(w.began) - took
	return nil
}

func sinceMS(t time.Time) float64 { return float64(time.Since(t).Microseconds()) / 1000 }

// last brings the rest, when nothing of the workload runs, and proves that it is all.
func (w *fill) last(ctx context.Context) error {
	if err := w.pass(ctx, true); err != nil {
		return err
	}
	if w.follower.Async() { // its end is no event: the next pass finds it
		if err := w.pass(ctx, true); err != nil {
			return err
		}
	}
	if err := w.put(); err != nil {
		return err
	}
	beforeTheLook()
	if err := w.follower.Quiet(); err != nil {
		return err
	}
	return w.sync()
}

// warm makes passes while the workload runs, if it does.
func (w *fill) warm(ctx context.Context) error {
	if !w.Stop.Given() && w.Leave == nil {
		return nil
	}
	before := int64(-1)
	for range mostPasses {
		if err := w.pass(ctx, false); err != nil {
			return err
		}
		if err := w.sync(); err != nil { // so that little is left to be written in the pause
			return err
		}
		_, left, err := w.follower.Collect()
		if err != nil {
			return err
		}
		if left <= smallPass || before >= 0 && left > before/2 {
			return nil
		}
		before = left
	}
	return nil
}

// pass brings to the image all that was touched since the one before.
func (w *fill) pass(ctx context.Context, last bool) error {
	var stats tree.Stats
	err := Pour(fmt.Sprintf("/proc/self/fd/%d", w.to.Fd()), func(to io.Writer) (err error) {
		stats, _, err = w.follower.Pass(contextWriter{ctx, to}, last)
		return err
	})
	w.Passes++
	w.Bytes += stats.Bytes
	if last {
		w.Last += stats.Bytes
	}
	return diskfull.Explain(w.Image, err)
}

// stop stops the workload, and demands that nothing of it runs any more.
func (w *fill) stop(ctx context.Context) error {
	if !w.Stop.Given() {
		return nil
	}
	if err := w.Stop.Run(ctx); err != nil {
		return fmt.Errorf("treedisk: stopping the workload: %w", err)
	}
	w.StopMS = sinceMS(w.began)
	if w.Cgroup == "" {
		return nil
	}
	runs, err := w.Cgroup.Populated()
	if err == nil && runs {
		err = fmt.Errorf("something still runs in %s after the command that stops the workload", w.Cgroup)
	}
	if err != nil {
		return fmt.Errorf("treedisk: %w", err)
	}
	return nil
}

// put gives the folder its other name.
func (w *fill) put() error {
	if w.Away == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(w.Away), 0o700); err != nil {
		return fmt.Errorf("treedisk: %w", err)
	}
	return rename(w.Folder, w.Away)
}

// back gives the folder its first name, if it has lost that.
func (w *fill) back() error {
	if w.Away == "" || there(w.Folder) || !there(w.Away) {
		return nil
	}
	return rename(w.Away, w.Folder)
}

func rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return fmt.Errorf("treedisk: %w", err)
	}
	return errors.Join(syncDir(filepath.Dir(to)), syncDir(filepath.Dir(from)))
}

func (w *fill) sync() error {
	if err := unix.Syncfs(int(w.to.Fd())); err != nil {
		return fmt.Errorf("treedisk: writing the files to %s: %w", w.Image, diskfull.Explain(w.Image, err))
	}
	return nil
}

// settle has the image on the host's disk, and free for others.
func (w *fill) settle() error {
	if err := awaitDetached(w.Image); err != nil {
		return err
	}
	f, err := os.OpenFile(w.Image, os.O_RDWR|unix.O_CLOEXEC, 0)
	if err == nil {
		err = errors.Join(f.Sync(), f.Close())
	}
	if err != nil {
		return fmt.Errorf("treedisk: %w", err)
	}
	return nil
}

// awaitDetached waits until no loop device has an image. The kernel unmounts it when the last file
// in it is closed, and then gives the device back; a program that looks at new devices may have it
// for a moment.
func awaitDetached(image string) error {
	for until := time.Now().Add(detached); ; time.Sleep(time.Millisecond) {
		dev, err := loop.DeviceOf(image)
		if err != nil || dev == "" {
			return err
		}
		if time.Now().After(until) {
			return fmt.Errorf("treedisk: %s is still attached to %s after %v: find what uses it", image, dev, detached)
		}
	}
}
