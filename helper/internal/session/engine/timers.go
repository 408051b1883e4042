package engine

import (
	"fmt"
	"io/fs"
	"strings"

	"github.com/livefleet/handover/helper/internal/criuimage"
	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/tasks"
	"github.com/livefleet/handover/helper/internal/timers"
)

// FiredSince tells how often a timer of a member's frozen tasks has fired and was not read.
func FiredSince(part record.Member) func(criuimage.Timer) (uint64, error) {
	return func(t criuimage.Timer) (ticks uint64, err error) {
		if !part.Freeze.Given() || part.Freeze.Cgroup == "" {
			return 0, nil
		}
		return ticks, part.Freeze.Cgroup.EachTask(func(proc string) error {
			inside, err := tasks.Inside(proc)
			if err != nil || inside != t.Process {
				return err
			}
			if ticks, err = timers.Ticks(proc, t.Descriptor); err == nil {
				err = fs.SkipAll
			}
			return err
		})
	}
}

// hasTimers is an error where a timer of the restored tasks is not as the dump has it: a program
// that waits for it would wait for ever.
func hasTimers(r *criuRestore) error {
	if r.gate.Root() == "" { // no process was told
		return nil
	}
	want, err := criuimage.ReadTimers(r.h.Restore.Gate)
	if err != nil {
		return fmt.Errorf("session: %w", err)
	}
	lost, err := timers.Lost(want, r.gate.Root())
	if err == nil && len(lost) > 0 {
		err = fmt.Errorf("CRIU has not restored them as they were: %s: move it offline", strings.Join(lost, ", "))
	}
	if err != nil {
		return fmt.Errorf("session: the workload's timers: %w", err)
	}
	return nil
}
