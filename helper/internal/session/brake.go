package session

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/precopy"
	"github.com/livefleet/handover/helper/internal/report"
	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/throttle"
)

// A workload that writes too much for the pause that was allowed is slowed down, if the
// operator allows that, from when a cutover is asked for until just before the freeze.
// It is never frozen slowed down: it would be slow to stop, and CRIU would find a limit
// that is not its own. And it never stays so: see package throttle.

// brake is how a workload is slowed down.
type brake struct {
	since    time.Time     // the start of measuring its use
	had      time.Duration // of processors, until then
	throttle *throttle.Throttle
	stepped  time.Time      // when the last step was taken
	percent  int            // that it is without now
	most     int            // and at most was
	pages    *precopy.Known // that the last look at the memory saw
}

// said is for the sentence with which a cutover is given up.
func (b *brake) said() string {
	if b.most == 0 {
		return ""
	}
	return fmt.Sprintf(", also not with its processor time cut by %d %% (auto-converge)", b.most)
}

// brakes says whether the workload may be slowed down.
func (s *limiter) brakes() bool { return s.Spec.Policy.Throttle != "" }

// canBrake refuses to begin a throttling that could not be done.
func (s *limiter) canBrake() error {
	if !s.brakes() {
		return nil
	}
	if err := throttle.Possible(s.Spec.Policy.Throttle); err != nil {
		return fmt.Errorf("session: %s cannot be slowed down: %w", s.Spec.Workload, err)
	}
	return nil
}

// mayBrake says whether the next step is due: the forecast is not within the limit, and
// it was made from the workload's work since the last step.
func (s *limiter) mayBrake(f forecast) bool {
	b := &s.brake
	switch {
	case !s.brakes() || s.within(f):
		return false
	case b.throttle == nil:
		return b.since.IsZero() || time.Since(b.since) >= s.options.brakeHold
	}
	return time.Since(b.stepped) >= s.options.brakeHold+f.since
}

// lookAtMemory finds out how much of the memory would travel in the pause: the changes
// between two looks, and the part that the destination would have no room for before.
// It sends nothing: memory sent ahead takes up that room.
func (s *limiter) lookAtMemory(ctx context.Context) error {
	m, before, now := &s.memory, s.brake.pages, precopy.NewKnown(0) // no secret: only the forecast would be wrong
	var changed, missing int64
	scan := precopy.NewScan()
	err := s.eachTask(func(proc string) error {
		return scan.Task(proc, func(_ uint64, pages []byte) error {
			for page := range slices.Chunk(pages, precopy.PageSize) {
				if _, other := now.Add(page); !other {
					continue
				}
				if !m.known.Has(page) {
					missing += precopy.PageSize
				}
				if before != nil && !before.Has(page) {
					changed += precopy.PageSize
				}
			}
			return context.Cause(ctx)
		})
	})
	if err != nil {
		return fmt.Errorf("session: how fast memory changes: %w", err)
	}
	if before == nil {
		changed = missing
	}
	m.fresh, m.told = changed+max(0, missing-(m.room-m.known.Size())), true
	s.brake.pages = now
	return nil
}

// sinceStep has the next look find what changes from here on: the changes before a step
// would make it seem to be of no use.
func (s *limiter) sinceStep(ctx context.Context) error {
	if s.memory.scans == 0 {
		return nil
	}
	fresh := s.memory.fresh // what changed in the moment since the look before says nothing of the step
	err := s.lookAtMemory(ctx)
	s.memory.fresh, s.brake.stepped = fresh, time.Now()
	return err
}

// goAhead sends all memory, and looks at it once more: only then is it known how fast
// it changes. A second scan would send the changes too, and leave no room for those
// before the pause.
func (s *limiter) goAhead(ctx context.Context) error {
	if s.memory.scans > 0 {
		return nil
	}
	if err := s.carryAhead(ctx); err != nil || s.memory.scans == 0 { // there is none to send
		return err
	}
	err := s.lookAtMemory(ctx)
	s.brake.pages = nil // a later look compares with the sent memory again, and not with a moment ago
	return err
}

// slowDown takes the next step if it is due. Last says that there is none, and that
// the last one has not helped.
func (s *limiter) slowDown(f forecast) (last bool, err error) {
	b := &s.brake
	if !s.mayBrake(f) {
		return false, nil
	}
	if b.since.IsZero() {
		b.had, err = s.cgroup().ProcessorTime()
		b.since = time.Now()
		return false, err
	}
	if b.throttle == nil {
		has, err := s.cgroup().ProcessorTime()
		if err != nil {
			return false, err
		}
		used := max(0, has-b.had).Seconds() / time.Since(b.since).Seconds()
		if b.throttle, err = throttle.Begin(string(s.cgroup()), used, filepath.Join(s.Dir, record.ThrottleFile)); err != nil {
			return false, fmt.Errorf("session: slowing %s down: %w", s.Spec.Workload, err)
		}
	}
	percent, limit, err := b.throttle.Harder()
	if errors.Is(err, throttle.ErrLast) {
		return true, nil
	} else if err != nil {
		return false, fmt.Errorf("session: slowing %s down: %w", s.Spec.Workload, err)
	}
	b.stepped, b.percent, b.most = time.Now(), percent, max(b.most, percent)
	s.Log.Emit("throttle", map[string]any{"percent": percent, "limit": limit, "forecast_ms": report.MS(f.Total()), "limit_ms": s.Spec.Policy.MaxFrozenMS})
	s.Update(true, func(st *record.Status) { st.Throttle = percent })
	return false, nil
}

func (s *limiter) cgroup() hooks.Cgroup { return hooks.Cgroup(s.Spec.Policy.Throttle) }

// unbrake gives the workload back all of its processor time. It may be called at any
// time, and again.
func (s *limiter) unbrake() error {
	b := &s.brake
	if err := b.throttle.Lift(); err != nil {
		return fmt.Errorf("session: letting %s have its processor time again: %w", s.Spec.Workload, err)
	}
	if b.percent > 0 {
		s.Log.Emit("throttle", map[string]any{"percent": 0})
		s.Update(true, func(st *record.Status) { st.Throttle = 0 })
	}
	*b = brake{most: b.most}
	return nil
}
