package recovery

import (
	"context"

	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/session/record"
)

// Holder decides for the stand-in for CRIU on this host.
type Holder struct {
	RunDir string
	PID    int
}

// MayStart asks the session.
func (h Holder) MayStart(imageDir string) (bool, error) {
	return Hook(h.RunDir, Call{Action: hooks.StartUp, ImageDir: imageDir, CRIU: h.PID})
}

// Options are those of a session's CRIU; any other has none. They say whether the session has
// CRIU leave the memory alone, and whether CRIU is to put the tasks into their cgroups: it makes
// a cgroup namespace only with them. A dump needs that only of a workload with cgroups below its
// own. Of others it says which namespace they had, and a look at all hierarchies of the host
// would lengthen the pause.
func (h Holder) Options(imageDir string, restores bool) (*hooks.Options, error) {
	reg, err := hooks.Lookup(h.RunDir, imageDir)
	if err != nil || reg == nil {
		return nil, err
	}
	spec, err := record.LoadSpec(reg.Session)
	if err != nil {
		return nil, err
	}
	part := spec.PartAt(imageDir)
	o := &hooks.Options{Config: part.File(reg.Session, record.CRIUFile), Lazy: record.CRIULeavesMemory(reg.Session, spec)}
	if restores {
		o.Joins, o.Unlocked = part.Joins, part.Restore.Given() && part.Restore.Unlocked
		o.Cgroups, err = hooks.TakeCgroups(imageDir)
	} else {
		o.Cgroups = part.Freeze.Given() && part.Freeze.Cgroup.Divided()
	}
	if err != nil {
		return nil, err
	}
	return o, nil
}

// endLost ends tasks that run on without all of their memory, on behalf of a process
// that is gone.
func endLost(ctx context.Context, dir, runDir string, spec *record.Spec) error {
	if err := hooks.KillLeft(ctx, spec.Hooks.Restore.Container); err != nil {
		return err
	}
	return forgetDestination(ctx, dir, runDir, spec)
}
