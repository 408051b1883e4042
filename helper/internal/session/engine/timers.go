package engine

import (
	"fmt"
	"strings"

	"github.com/livefleet/handover/helper/internal/criuimage"
	"github.com/livefleet/handover/helper/internal/timers"
)

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
