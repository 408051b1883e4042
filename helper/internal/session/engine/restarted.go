package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/livefleet/handover/helper/internal/loop"
)

// runcFirst is the file that runc has written into the folder of a dump before CRIU begins.
const runcFirst = "descriptors.json"

// intoMemory demands that a dump goes into its tmpfs. An engine that is restarted unmounts all
// that it finds in a container's own folder: it would go onto the disk, and stay there.
func intoMemory(dir string) error {
	mounted, err := loop.Mounted(dir)
	if err != nil || mounted {
		return err
	}
	if err := os.Remove(filepath.Join(dir, runcFirst)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("session: %w", err)
	}
	return fmt.Errorf("session: the tmpfs on %s was unmounted: move the workload again, once its engine runs", dir)
}

// notLetRun is an error if the command of a restore has ended that is held still. Its engine was
// killed, and would not know of what runs here; the source has it still.
func notLetRun(r *criuRestore) error {
	select {
	case <-r.p.Done():
		return fmt.Errorf("session: %w: it is not let run", endedHeld(r))
	default:
		return nil
	}
}

// restoreGone returns when the command of a refused restore has ended, and with it every CRIU of it: one whose command was
// killed goes on until it has heard its answer. Until then it is not known that nothing has run.
func restoreGone(ctx context.Context, r *criuRestore) error {
	if err := released(ctx, r.p, r.h.Restore.Argv); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, thawLimit, fmt.Errorf("it has not ended within %s", thawLimit))
	defer cancel()
	return r.gate.Idle(ctx)
}
