package recovery

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/report"
	"github.com/livefleet/handover/helper/internal/session/engine"
	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/undump"
)

// runOn lets the workload of a process that is gone run on as it was before a dump.
// Whatever cannot be given back is told in the events of the session in dir, and keeps
// it from nothing.
func runOn(dir string, spec *record.Spec) (err error) {
	for _, part := range spec.Parts() {
		err = errors.Join(err, runOnPart(dir, part))
	}
	return err
}

func runOnPart(dir string, part record.Member) error {
	f := part.Freeze
	if f == nil || hasNotFrozen(dir, part) {
		return nil
	}
	if hooks.InUse(f.Gate) { // CRIU has the tasks still; its hook leaves a process behind
		return f.Cgroup.Thaw()
	}
	r, err := f.Cgroup.RunOn(f.Gate)
	tell(dir, r, err)
	return f.Cgroup.Thaw()
}

// hasNotFrozen says whether a session has left the workload's cgroup alone. A session that
// an earlier helper has begun tells nothing of it, and may have frozen it.
func hasNotFrozen(dir string, part record.Member) bool {
	_, err := os.Lstat(part.File(dir, record.RunsFile))
	return err == nil
}

// tell writes what was given back to the events of a session whose process is gone.
func tell(dir string, r undump.Report, err error) {
	withEvents(dir, func(log *report.Log) { r.Tell(log, err) })
}

// withEvents is for the events of a session whose process is gone; one that was removed
// has none.
func withEvents(dir string, write func(*report.Log)) {
	f, e := os.OpenFile(filepath.Join(dir, record.EventsFile), os.O_APPEND|os.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if e != nil {
		return
	}
	defer f.Close()
	write(report.NewWriter(f))
}

// runBeside runs the command that a driver has beside CRIU, in the place of a process that
// is gone. Where commands stop and start a workload, it is no such command.
func runBeside(ctx context.Context, dir string, spec *record.Spec, c *hooks.Command) {
	if !spec.ByCommands() {
		withEvents(dir, func(log *report.Log) { engine.RunBeside(ctx, log, c) })
	}
}

// runOnLater leaves a process behind that lets the workload run on when CRIU has ended:
// CRIU, refused, lets go of the tasks and leaves the cgroup as it found it, frozen. The
// session's process may be gone by then, and CRIU's caller takes its time.
func runOnLater(dir string, c Call) error {
	spec, err := record.LoadSpec(dir)
	if err != nil || spec.Role != record.Source {
		return err
	}
	part := spec.PartAt(c.ImageDir)
	if part.Freeze == nil || part.Freeze.Cgroup == "" || hasNotFrozen(dir, part) {
		return nil
	}
	b := hooks.Behind{Cgroup: part.Freeze.Cgroup, Session: dir, Held: c.Action == hooks.NetworkLock || c.Action == hooks.PostDump}
	if c.Action == hooks.PostDump {
		b.Images = c.ImageDir
	}
	return b.RunOn(c.CRIU)
}

// RunOnWhenGone is the process that this leaves behind. It tells in the session's events
// what it has done.
func RunOnWhenGone(b hooks.Behind) error {
	r, err := b.RunOnWhenGone()
	tell(b.Session, r, err)
	return err
}
