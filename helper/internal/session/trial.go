package session

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/report"
	"github.com/livefleet/handover/helper/internal/session/record"
)

// try freezes the workload and has CRIU dump it, as a move would, and lets it run on:
// CRIU is refused at its post-dump. So it is known long before a move whether CRIU
// can dump it, and how long the source's half of the pause is. Nothing of the trial
// stays, and no other host has a part in it.
//
// It goes through the states of a source as far as frozen, and so has its way back:
// even if this process dies, the workload runs on.
func (s *source) try(ctx context.Context) (err error) {
	if s.freezer, err = s.prepareFreezer(); err != nil {
		return err
	}
	for _, st := range []record.State{record.Presync, record.Barrier} {
		if err := s.Reach(st, ""); err != nil {
			return err
		}
	}
	if err := s.freezer.Arm(ctx); err != nil {
		return fmt.Errorf("session: preparing the freeze: %w", err)
	}
	if err := s.freezer.Shut(ctx); err != nil {
		return fmt.Errorf("session: before the freeze: %w", err)
	}
	s.frozenAt(time.Now())
	frozen, err := s.freezer.Freeze(ctx)
	if err != nil {
		return fmt.Errorf("session: freezing: %w", err)
	}
	s.stage("freeze", s.t0, frozen)
	if err := s.Reach(record.Frozen, ""); err != nil {
		return err
	}
	dumped, err := s.freezer.Dumped(ctx)
	if err != nil {
		return fmt.Errorf("session: dumping: %w", err)
	}
	s.stage("dump", frozen, dumped)
	// While it is there: the thaw takes the dump away.
	state, err := stateBytes(s.Spec)
	if err := s.freezer.Thaw(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("session: thawing: %w", err)
	}
	thawed := time.Now()
	s.stage("thaw", dumped, thawed)
	if err != nil {
		return err
	}
	s.Update(false, func(st *record.Status) { st.FrozenMS, st.StateBytes = report.MS(thawed.Sub(s.t0)), state })
	return s.Reach(record.Thawed, "")
}

// stateBytes is how much of the trees would have to travel in the pause: the size of
// files without holes.
func stateBytes(spec *record.Spec) (sum int64, err error) {
	for _, t := range spec.Trees {
		if t.Stage == record.StagePresync {
			continue
		}
		err := filepath.WalkDir(t.Path, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			var st unix.Stat_t
			if err := unix.Lstat(path, &st); err != nil {
				return err
			}
			sum += st.Blocks * 512
			return nil
		})
		if err != nil {
			return 0, fmt.Errorf("session: tree %s: %w", t.Name, err)
		}
	}
	return sum, nil
}
