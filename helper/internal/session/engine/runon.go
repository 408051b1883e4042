package engine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// noteRuns notes that the cgroup is not frozen by this session.
func (d *criuDump) noteRuns() error {
	if d.h.Freeze.Cgroup == "" {
		return nil
	}
	if err := os.WriteFile(d.runs, nil, 0o600); err != nil {
		return fmt.Errorf("session: %w", err)
	}
	return nil
}

// stop takes that note back, before the cgroup is frozen. One that somebody else has
// frozen is not ours to let go on, also where this move comes to nothing: an engine
// that has paused its container would not know.
func (d *criuDump) stop() error {
	stopped, err := d.h.Freeze.Cgroup.Stopped()
	if err == nil && stopped {
		err = fmt.Errorf("session: somebody has paused the workload (%s is frozen): let it go on, and move it again", d.h.Freeze.Cgroup)
	}
	if err != nil {
		return err
	}
	if err := os.Remove(d.runs); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("session: %w", err)
	}
	d.froze = true
	return nil
}

// runOn lets the workload run on in its cgroup as it was before a dump. Whatever cannot
// be given back is said, and keeps it from nothing. A cgroup that this session has not
// frozen stays as it is.
func (d *criuDump) runOn() error {
	if !d.froze {
		return nil
	}
	images := ""
	if d.begun {
		images = d.h.Freeze.Gate
	}
	r, err := d.h.Freeze.Cgroup.RunOn(images)
	r.Tell(d.quiet.Log, err)
	if err := d.h.Freeze.Cgroup.Thaw(); err != nil {
		return err
	}
	// CRIU is gone. Where a later step of the undo fails, a recovery thaws nothing again.
	d.froze = false
	return d.noteRuns()
}
