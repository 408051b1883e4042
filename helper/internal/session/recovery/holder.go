package recovery

import (
	"context"
	"path/filepath"

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

// Lazy looks whether the session has CRIU leave the memory alone.
func (h Holder) Lazy(imageDir string) (*hooks.LazyPages, error) {
	reg, err := hooks.Lookup(h.RunDir, imageDir)
	if err != nil || reg == nil {
		return nil, err
	}
	spec, err := record.LoadSpec(reg.Session)
	if err != nil || !record.CRIULeavesMemory(reg.Session, spec) {
		return nil, err
	}
	return &hooks.LazyPages{Config: filepath.Join(reg.Session, record.CRIUFile)}, nil
}

// endLost ends tasks that run on without all of their memory, on behalf of a process
// that is gone.
func endLost(ctx context.Context, dir, runDir string, spec *record.Spec) error {
	if err := hooks.KillLeft(ctx, spec.Hooks.Restore.Container); err != nil {
		return err
	}
	return forgetDestination(ctx, dir, runDir, spec)
}
