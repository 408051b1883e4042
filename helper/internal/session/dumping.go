package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/livefleet/handover/helper/internal/criuimage"
	"github.com/livefleet/handover/helper/internal/session/engine"
	"github.com/livefleet/handover/helper/internal/session/protocol"
	"github.com/livefleet/handover/helper/internal/session/record"
)

// sendState sends the trees' changes since presync, and the dump when it is complete.
func (s *source) sendState(ctx context.Context, frozen time.Time, dumped chan<- struct{}) error {
	pages, places := s.sendPages(ctx), s.sendPlaces(ctx)
	// Nothing of the workload's runs any more: its own layer, and its memory
	// that has a path, are as they will be.
	at, err := s.dumped(ctx)
	if err != nil {
		return errors.Join(err, pages.abandon(), places.abandon())
	}
	close(dumped)
	s.stage("dump", frozen, at)
	began := time.Now()
	if err := errors.Join(pages.finish(), places.finish(ctx)); err != nil {
		return err
	}
	if err := errors.Join(mendDump(s.Session), s.leftTmpfs()); err != nil {
		return err
	}
	// The layer once more: CRIU gives a deleted file that is open a name there.
	if err := s.sendTrees(ctx, record.StagePresync, record.StageDump); err != nil {
		return err
	}
	if err := protocol.Send(s.conn, &protocol.Dumped{}); err != nil {
		return err
	}
	s.stage("copy_dump", began, time.Now())
	return nil
}

// mendDump corrects the dump, to be as the workload was: see criuimage.
func mendDump(b *record.Session) error {
	for _, t := range b.Spec.Trees {
		if t.Stage != record.StageDump {
			continue
		}
		part := b.Spec.PartAt(t.Path)
		timers, err := criuimage.MendTimers(t.Path, engine.FiredSince(part))
		if err != nil {
			return fmt.Errorf("session: %w", err)
		}
		sleeps, err := criuimage.MendSleeps(t.Path)
		if err != nil {
			return fmt.Errorf("session: %w", err)
		}
		if err := errors.Join(engine.WriteCgroups(b.Log, part.Freeze, t.Path), engine.WriteAttributes(part.Freeze, t.Path), engine.WriteBound(part, t.Path), engine.WriteNames(part, t.Path)); err != nil {
			return err
		}
		if timers+sleeps > 0 {
			b.Log.Emit("mended", map[string]any{"timers": timers, "sleeps": sleeps})
		}
	}
	return nil
}

// dumped sends everything that can be sent before the dump is complete, and returns when
// it is.
func (s *source) dumped(ctx context.Context) (time.Time, error) {
	if err := s.sendTrees(ctx, record.StagePresync, record.StageFreeze); err != nil {
		return time.Time{}, err
	}
	threads, err := engine.BoundThreads(s.Spec.Hooks.Freeze) // beside the dump, as the settings
	if err = errors.Join(s.settings.LookAgain(), s.noDatabase(), err); err != nil {
		return time.Time{}, err
	}
	s.threads = threads
	if s.flows, err = engine.ReadFlows(s.Spec); err != nil {
		return time.Time{}, err
	}
	at, err := s.freezer.Dumped(ctx)
	if err != nil {
		return at, fmt.Errorf("session: dumping: %w", err)
	}
	return at, s.lender.lend(s.memory.known)
}

// sendTrees sends the trees of some stages.
func (s *outgoing) sendTrees(ctx context.Context, stages ...string) error {
	for _, t := range s.trees {
		if !slices.Contains(stages, t.Stage) {
			continue
		}
		if err := s.sendTree(ctx, t); err != nil {
			return err
		}
	}
	return nil
}
