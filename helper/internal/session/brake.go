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
	"github.com/livefleet/handover/helper/internal/throttle"
)

// A workload that writes too much for the pause that was allowed is slowed down, if the
// operator allows that, from when a cutover is asked for until just before the freeze.
// It is never frozen slowed down: it would be slow to stop, and CRIU would find a limit
// that is not its own. And it never stays so: see package throttle.

// brakeHold is how long a step is given to show, and how long is measured what the
// workload uses of processors before the first: the kernel deals out a limited time in
// tenths of a second. It is a variable so that a test can go through all steps.
var brakeHold = time.Second

// brake is how a workload is slowed down.
type brake struct {
	since    time.Time     // when was begun to measure what it uses
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
func (s *source) brakes() bool { return s.spec.Policy.Throttle != "" }

// canBrake refuses to begin what could not be done in the end.
func (s *source) canBrake() error {
	if !s.brakes() {
		return nil
	}
	if err := throttle.Possible(s.spec.Policy.Throttle); err != nil {
		return fmt.Errorf("session: %s cannot be slowed down: %w", s.spec.Workload, err)
	}
	return nil
}

// mayBrake says whether the next step is due: the forecast is not within the limit, and
// it was made of what the workload did since the last step.
func (s *source) mayBrake(f forecast) bool {
	b := &s.brake
	switch {
	case !s.brakes() || s.within(f):
		return false
	case b.throttle == nil:
		return b.since.IsZero() || time.Since(b.since) >= brakeHold
	}
	return time.Since(b.stepped) >= brakeHold+f.since
}

// lookAtMemory finds out how much of the memory would travel in the pause: what changes
// between two looks, and what the destination would have no room for before. It sends
// nothing: what is sent ahead takes up that room.
func (s *source) lookAtMemory(ctx context.Context) error {
	m, before, now := &s.memory, s.brake.pages, precopy.NewKnown(0) // no secret: only the forecast would be wrong
	var changed, missing int64
	scan := precopy.NewScan()
	err := s.spec.Hooks.Freeze.Cgroup.EachTask(func(proc string) error {
		return scan.Task(proc, func(pages []byte) error {
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
	m.fresh = changed + max(0, missing-(m.room-m.known.Size()))
	s.brake.pages = now
	return nil
}

// slowDown takes the next step if it is due. Last says that there is none, and that
// the last one has not helped.
func (s *source) slowDown(f forecast) (last bool, err error) {
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
		if b.throttle, err = throttle.Begin(string(s.cgroup()), used, filepath.Join(s.dir, throttleFile)); err != nil {
			return false, fmt.Errorf("session: slowing %s down: %w", s.spec.Workload, err)
		}
	}
	percent, limit, err := b.throttle.Harder()
	if errors.Is(err, throttle.ErrLast) {
		return true, nil
	} else if err != nil {
		return false, fmt.Errorf("session: slowing %s down: %w", s.spec.Workload, err)
	}
	b.stepped, b.percent, b.most = time.Now(), percent, max(b.most, percent)
	s.log.Emit("throttle", map[string]any{"percent": percent, "limit": limit, "forecast_ms": ms(f.Total()), "limit_ms": s.spec.Policy.MaxFrozen})
	s.update(true, func(st *Status) { st.Throttle = percent })
	return false, nil
}

func (s *source) cgroup() hooks.Cgroup { return hooks.Cgroup(s.spec.Policy.Throttle) }

// unbrake gives the workload back all of its processor time. It may be called at any
// time, and again.
func (s *source) unbrake() error {
	b := &s.brake
	if err := b.throttle.Lift(); err != nil {
		return fmt.Errorf("session: letting %s have its processor time again: %w", s.spec.Workload, err)
	}
	if b.percent > 0 {
		s.log.Emit("throttle", map[string]any{"percent": 0})
		s.update(true, func(st *Status) { st.Throttle = 0 })
	}
	*b = brake{most: b.most}
	return nil
}
