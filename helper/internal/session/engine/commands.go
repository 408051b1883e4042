package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/report"
	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/tree"
)

// DiscardWorkload has the engine remove everything that it prepared for the workload.
// It fails at a file that is immutable or append only, and such files may have come in
// the trees.
func DiscardWorkload(ctx context.Context, spec *record.Spec) error {
	if !spec.Hooks.Discard.Given() {
		return nil
	}
	for _, t := range spec.Trees {
		if err := tree.Unlock(t.Path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return spec.Hooks.Discard.Run(ctx)
}

// StartAgain starts a workload that was stopped for a handover which has failed.
func StartAgain(ctx context.Context, dir string, spec *record.Spec) error {
	if err := record.InPlace(dir, spec); err != nil {
		return err
	}
	return runIfGiven(ctx, spec.Hooks.Thaw)
}

// Reclaim ends the workload that a command has frozen here, once it runs on the other host.
func Reclaim(ctx context.Context, spec *record.Spec) error {
	return runIfGiven(ctx, spec.Hooks.Reclaim)
}

// RunBeside runs the command that a driver has beside CRIU when the workload runs: on the
// source again, or on the destination. Whatever becomes of it, the workload does run, so
// a failure is told and ends nothing.
func RunBeside(ctx context.Context, log *report.Log, c *hooks.Command) {
	if err := runIfGiven(ctx, c); err != nil {
		log.Emit("warning", map[string]any{"text": err.Error()})
	}
}

func runIfGiven(ctx context.Context, c *hooks.Command) error {
	if !c.Given() {
		return nil
	}
	return c.Run(ctx)
}

// A workload that is stopped and started, not restored, has run when it was let
// through here. The note goes with a boot, like the tasks it is about.
func startNote(runDir string, spec *record.Spec) string {
	return filepath.Join(runDir, "started", spec.ID)
}

func NoteStart(runDir string, spec *record.Spec) error {
	path := startNote(runDir, spec)
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = os.WriteFile(path, nil, 0o600)
	}
	if err != nil {
		return fmt.Errorf("session: %w", err)
	}
	return nil
}

// StartedHere reports whether the workload may have been started. Without a
// bundle no hook saw it.
func StartedHere(runDir string, spec *record.Spec) bool {
	_, err := os.Lstat(startNote(runDir, spec))
	return !spec.Hooked() || !errors.Is(err, os.ErrNotExist)
}
