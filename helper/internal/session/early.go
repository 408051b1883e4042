package session

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/loop"
	"github.com/livefleet/handover/helper/internal/session/engine"
	"github.com/livefleet/handover/helper/internal/session/protocol"
	"github.com/livefleet/handover/helper/internal/session/record"
)

// The destination's restore needs the state, and the volumes, only in its last
// part. So it is armed: the command is started while the workload still runs on
// the source, and held until they are there. It finds
//
//   - where the state is to be, the one file that tells an engine that there is a
//     state at all;
//   - where a volume is to be mounted, an empty cover: the engine may bind it to
//     other places. When CRIU waits for the volumes the cover is taken away, with
//     everything that was bound to it, and the volume is shown in all of them.
//     Not earlier: a command that fails unmounts what it had bound, and podman
//     keeps a wrong count of a volume's users if there is nothing to unmount.
//
// The roots it finds are those of that moment, and changes below a mounted root may
// not be seen through it. So if anything changes there until the end of the dump, the
// command is refused, and armed again.
//
// If arming fails, the restore is done from its beginning when everything is
// there, as it would be without.

// stateMark is the file by which engines know that CRIU's images are complete.
const stateMark = "inventory.img"

// earlyRestore brings the workload up, and begins with that before all has come.
type earlyRestore struct {
	*incoming
	restorer engine.Restorer
	carried  engine.Carried
	arming   *arming  // nil: the restore was not begun early
	warming  *warming // nil: nothing is to be brought into memory
}

// arming is a restore that is being armed.
type arming struct {
	ready  chan struct{} // closed when it waits, or has failed
	err    error         // it starts over
	covers []string
}

// arm begins it. The source waits for the answer, which is the same whether it has
// worked or not.
func (d *earlyRestore) arm(ctx context.Context, m *protocol.Arm) error {
	if err := d.carried.Rehearse(m.Settings, m.Own); err != nil {
		return err
	}
	if err := d.choosePlacing(m.Place); err != nil {
		return err
	}
	if d.warming != nil {
		return protocol.Send(d.conn, &protocol.Armed{})
	}
	if d.restorer.CanArm() {
		d.armAgain(ctx)
	}
	d.warm(ctx, m)
	w := d.warming
	go func() {
		<-w.done
		_ = protocol.Send(d.conn, &protocol.Armed{}) // the reader of a lost connection notices
	}()
	return nil
}

// changed is for a tree in which something has been laid down or removed: if the
// engine has mounted it, it starts over.
func (d *earlyRestore) changed(ctx context.Context, t *record.Tree, entry string) {
	if t.Mounted && d.arming != nil {
		d.Log.Emit("changed", map[string]any{"tree": t.Name, "entry": entry})
		d.armAgain(ctx)
	}
}

// armAgain arms the restore, also if it was armed before.
func (d *earlyRestore) armAgain(ctx context.Context) {
	old := d.arming
	a := &arming{ready: make(chan struct{})}
	d.arming = a
	answer := d.restorer.Arm(ctx, func() error {
		if old != nil {
			<-old.ready
			if err := d.uncover(old); err != nil {
				return err
			}
		}
		return d.cover(a)
	})
	go func() {
		defer close(a.ready)
		a.err = <-answer
		d.Log.Emit("armed", map[string]any{"ok": a.err == nil, "again": old != nil})
	}()
}

// dumped says that CRIU's images are complete: nothing else is in their folder
// now.
func (d *earlyRestore) dumped(context.Context, *protocol.Dumped) error {
	if err := d.memory.complete(); err != nil {
		return err
	}
	for _, part := range d.Spec.Parts() {
		if r := part.Restore; r.Given() && r.Gate != "" {
			if err := hooks.WatchRun(r.Gate); err != nil {
				return err
			}
		}
	}
	d.restorer.Dumped()
	return nil
}

// armed waits until the restore wants its volumes, or says that it will start over;
// then nothing stands in their places any more.
func (d *earlyRestore) armed(ctx context.Context) error {
	if d.arming == nil {
		return nil
	}
	<-d.arming.ready
	if d.arming.err != nil {
		d.Log.Emit("warning", map[string]any{"text": fmt.Sprintf("the restore could not be prepared and begins from its beginning: %v", d.arming.err)})
	} else if err := d.restorer.Wants(ctx); err != nil {
		return fmt.Errorf("session: restoring: %w", err)
	}
	return d.uncover(d.arming)
}

// cover makes the files that the command looks for.
func (d *earlyRestore) cover(a *arming) error {
	mark := filepath.Join(d.Spec.Hooks.Restore.Gate, stateMark)
	f, err := os.OpenFile(mark, os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return fmt.Errorf("session: %w", err)
	}
	for _, v := range d.Spec.Volumes {
		if v.Mountpoint == "" {
			continue
		}
		if err := d.makeMountpoint(v); err != nil {
			return err
		}
		if err := loop.Cover(v.Mountpoint, v.Options); err != nil {
			return err
		}
		a.covers = append(a.covers, v.Mountpoint)
		for _, f := range v.Folders {
			if err := os.MkdirAll(filepath.Join(v.Mountpoint, f), 0o755); err != nil {
				return fmt.Errorf("session: %w", err)
			}
		}
	}
	return nil
}

// uncover takes the covers away and remembers where they were bound to.
func (d *earlyRestore) uncover(a *arming) error {
	for len(a.covers) > 0 {
		dir := a.covers[0]
		binds, err := loop.Binds(dir)
		if err != nil {
			return err
		}
		for _, b := range slices.Backward(binds) {
			if err := loop.Unmount(b.Path); err != nil {
				return err
			}
		}
		if err := loop.Unmount(dir); err != nil {
			return err
		}
		if a.err == nil {
			d.binds[dir] = binds
		}
		a.covers = a.covers[1:]
	}
	return nil
}

// coverAgain is for volumes that could not be mounted: an engine whose restore is refused
// unmounts what it has bound, and counts a volume's users wrong where nothing is.
func (d *earlyRestore) coverAgain(volumes []record.Vol) error {
	for _, v := range volumes {
		binds := d.binds[v.Mountpoint]
		if len(binds) == 0 || slices.Contains(d.mounted, v.Mountpoint) {
			continue
		}
		if err := loop.Cover(v.Mountpoint, v.Options); err != nil {
			return err
		}
		d.mounted = append(d.mounted, v.Mountpoint)
		for _, b := range binds {
			if err := os.MkdirAll(filepath.Join(v.Mountpoint, b.Root), 0o700); err != nil {
				return fmt.Errorf("session: %w", err)
			}
		}
		if err := d.show(v); err != nil {
			return err
		}
	}
	return nil
}

// attach makes a received image a mounted file system.
func (d *earlyRestore) attach(v record.Vol) error {
	if v.Mountpoint == "" {
		return nil
	}
	if err := d.makeMountpoint(v); err != nil {
		return err
	}
	image := loop.Image{Path: v.Image, Mountpoint: v.Mountpoint, Fstype: v.Fstype, Options: v.Options, Cached: d.warming.has(v.Image), Device: v.Device}
	image.Same = v.SameDevice && !d.Spec.Policy.IgnoreDatabases
	if err := image.Mount(); err != nil {
		return err
	}
	d.mounted = append(d.mounted, v.Mountpoint)
	return d.show(v)
}
