package engine

import (
	"context"
	"time"

	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/network"
	"github.com/livefleet/handover/helper/internal/session/record"
)

// stopper is for an engine's own commands: one stops the workload, another starts it. Or, live, one freezes and dumps
// it, and the engine holds it until another lets it run on, or ends it.
type stopper struct {
	*record.Session
	h       record.Hooks
	stopped bool
}

func (s *stopper) Arm(context.Context) error { return nil }

func (s *stopper) Told() []network.Connection { return nil }

func (s *stopper) Shut(context.Context) error { return nil }

func (s *stopper) Freeze(ctx context.Context) (time.Time, error) {
	s.stopped = true // also if it fails: a stop that failed half-way has to be undone
	return time.Now(), toItsEnd(ctx, s.h.Freeze)
}

func (s *stopper) Dumped(context.Context) (time.Time, error) { return time.Now(), nil }

func (s *stopper) Thaw(ctx context.Context) error {
	if !s.stopped {
		return nil
	}
	if err := StartAgain(ctx, s.Dir, s.Spec); err != nil {
		return err
	}
	s.stopped = false
	return nil
}

func (s *stopper) Reclaim(ctx context.Context) error { return Reclaim(ctx, s.Spec) }

// starter is for an engine's own commands on the destination: restore prepares the workload, and resume starts it. Or,
// live, restore brings it up from its dump and the engine holds it, and resume lets it run.
type starter struct {
	*record.Session
	h        record.Hooks
	restored bool
}

func (s *starter) CanArm() bool                                   { return false }
func (s *starter) Arm(context.Context, func() error) <-chan error { return nil }
func (s *starter) Wants(context.Context) error                    { return nil }
func (s *starter) Dumped()                                        {}
func (s *starter) Deny()                                          {}
func (s *starter) MayHaveRun() bool                               { return StartedHere(s.RunDir, s.Spec) }

func (s *starter) Restore(ctx context.Context) error {
	s.restored = s.h.Restore.Given() // also if it fails: some of it may be held
	return toItsEnd(ctx, s.h.Restore)
}

// Refuse ends the workload that is held before the source hears of it: nothing else keeps it from running here.
func (s *starter) Refuse(ctx context.Context) error {
	if !s.restored {
		return nil
	}
	if err := DiscardWorkload(ctx, s.Spec); err != nil {
		return err
	}
	s.restored = false
	return nil
}

func (s *starter) Resume(ctx context.Context) (time.Time, error) {
	err := record.InPlace(s.Dir, s.Spec)
	if err == nil && s.restored {
		// No gate sees it: it was mounted when it was restored.
		err = NoteStart(s.RunDir, s.Spec)
	}
	if err == nil {
		err = runIfGiven(ctx, s.h.Resume)
	}
	if err == nil {
		err = comeUp(s.Session)
	}
	return time.Now(), err
}

// ResumeAgain is for a workload that was told to run, and of which it is not known that it does: the engine may hold it
// still. To one that runs it does nothing.
func ResumeAgain(ctx context.Context, dir string, spec *record.Spec) error {
	if err := record.InPlace(dir, spec); err != nil {
		return err
	}
	return runIfGiven(ctx, spec.Hooks.Resume)
}

// toItsEnd runs a command that the end of this side does not leave alone: the command that undoes it would overtake it,
// and what it does then would not be undone. Its own limit ends it.
func toItsEnd(ctx context.Context, c *hooks.Command) error {
	if err := runIfGiven(context.WithoutCancel(ctx), c); err != nil {
		return err
	}
	return context.Cause(ctx)
}
