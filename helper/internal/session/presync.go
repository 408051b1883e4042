package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/share"
)

// When presync has done enough. A pass that does not shrink to this part of the
// one before gains nothing: the workload writes as fast as the passes are, and
// the next one will be as long.
const shrink = 0.9

// idlePass is how often, once converged, new writes are sent, so that the cutover
// finds little whenever it is asked for.
const idlePass = 250 * time.Millisecond

// idleShare is how many times longer than finding the written clusters a pause
// between two passes is, once converged: where finding them means reading everything,
// the workload needs the disk, too.
const idleShare = 10

// presyncer sends while the workload runs, until a cutover is asked for.
type presyncer struct {
	*limiter
	queue *share.Member // of the copies that take turns; nil: it copies at once
	deaf  bool          // a cutover was asked for: no second one
	token string
}

// presync sends everything while the workload runs, then the writes of that time, and
// so on, until a cutover is asked for. It converges, that is, it says that a cutover
// now would be a short one, when
//
//   - less than policy.target_dirty was written during the last pass, or
//   - the passes do not get shorter any more, or
//   - policy.max_passes were done.
//
// A cutover that is asked for earlier waits for that, and if policy.max_frozen_ms is
// set, for a moment in which the forecast is within it. One that is never asked for
// ends the session, after policy.wait_timeout.
func (s *presyncer) presync(ctx context.Context) (*record.Request, error) {
	asked, askedAt, err := s.inTurn(ctx)
	if err != nil {
		return nil, err
	}
	defer s.queue.Leave()
	if s.Spec.Mode == record.Live {
		s.foresee(0, 0) // by the memory alone: writes show later
	}
	var before int64
	var ready time.Time  // since when it only waits to be cut over
	var looked time.Time // when the dirty clusters were last counted
	for {
		// Only the pass numbers and sizes decide; they are in the status too.
		if err := s.presyncPass(ctx); err != nil {
			if err := s.reconnect(ctx, err); err != nil {
				return nil, err
			}
			continue
		}
		dirty, _, err := s.collect()
		if err != nil {
			return nil, err
		}
		var since time.Duration
		if !looked.IsZero() {
			since = time.Since(looked)
		}
		looked = time.Now()
		s.Update(true, func(st *record.Status) { st.DirtyBytes = dirty })
		if s.Spec.Mode == record.Live {
			s.foresee(dirty, since)
		}
		if why := s.converged(dirty, before); why != "" {
			if err := s.rest(ctx, why, dirty); err != nil {
				if err := s.reconnect(ctx, err); err != nil {
					return nil, err
				}
				continue
			}
		}
		if s.isConverged() {
			f := s.foresee(dirty, since)
			if asked != nil {
				if now, err := s.goes(ctx, f, askedAt); err != nil || now {
					return asked, err
				}
			} else if ready.IsZero() {
				ready = time.Now()
			} else if time.Since(ready) > s.WaitTimeout() {
				return nil, fmt.Errorf("session: the cutover was not asked for within %s: the controller that began this move is gone", s.WaitTimeout())
			}
		}
		before = dirty
		r, err := s.idle(ctx)
		if err != nil {
			if err := s.reconnect(ctx, err); err != nil {
				return nil, err
			}
			continue
		}
		if r != nil {
			asked, askedAt = r, time.Now()
			if s.isConverged() {
				if now, err := s.goes(ctx, s.foresee(dirty, since), askedAt); err != nil || now {
					return asked, err
				}
			}
		}
	}
}

// rest is for when it has converged: the memory goes ahead, and the next in turn may copy.
func (s *presyncer) rest(ctx context.Context, why string, dirty int64) error {
	if err := s.goAhead(ctx); err != nil {
		return err
	}
	s.queue.Leave()
	s.Update(true, func(st *record.Status) {
		if !st.Converged {
			s.Log.Emit("converged", map[string]any{"why": why, "pass": s.pass, "dirty": dirty})
		}
		st.Converged, st.Why = true, why
	})
	return nil
}

// goes says whether the cutover that was asked for begins now. A connection that
// breaks over it is made again, and it does not.
func (s *presyncer) goes(ctx context.Context, f forecast, askedAt time.Time) (bool, error) {
	if s.mayBrake(f) && s.memory.scans > 0 {
		if err := s.lookAtMemory(ctx); err != nil {
			return false, err
		}
		s.foreseeMemory(&f)
	}
	step := s.brake.stepped
	if now, err := s.timely(f, askedAt); err != nil || !now {
		if err == nil && s.brake.stepped != step {
			err = s.sinceStep(ctx)
		}
		return false, err
	}
	if err := s.catchUp(ctx); err != nil {
		return false, s.reconnect(ctx, err)
	}
	return true, nil
}

func (s *presyncer) isConverged() (is bool) {
	s.Look(func(st *record.Status) { is = st.Converged })
	return is
}

// converged says why a cutover now would be short, or as short as it will get.
func (s *presyncer) converged(dirty, before int64) string {
	switch {
	case dirty <= s.Spec.Policy.TargetDirty:
		return fmt.Sprintf("%d bytes are left, at most %d were wanted", dirty, s.Spec.Policy.TargetDirty)
	case s.pass >= 2 && float64(dirty) > shrink*float64(before) && before > 0:
		return fmt.Sprintf("the passes do not get shorter: %d bytes were written during the last one, %d during the one before", dirty, before)
	case s.pass >= s.Spec.Policy.MaxPasses:
		return fmt.Sprintf("%d passes were done", s.pass)
	}
	return ""
}

// idle looks for requests between two passes. Until the session has converged
// there is no pause.
func (s *presyncer) idle(ctx context.Context) (*record.Request, error) {
	if !s.isConverged() {
		return s.listen(ctx, 0)
	}
	return s.listen(ctx, max(idlePass, idleShare*s.collecting))
}

// listen waits for a request, and for a failure while nothing is sent.
func (s *presyncer) listen(ctx context.Context, wait time.Duration) (*record.Request, error) {
	t := time.NewTimer(wait)
	defer t.Stop()
	for {
		select {
		case r := <-s.Control.Requests:
			switch {
			case r.Do == record.AskAbort:
				r.Answer(nil)
				return nil, errAborted
			case r.Do != record.AskCutover:
				r.Answer(fmt.Errorf("the session is in presync: it can be cut over or aborted"))
				continue
			case s.deaf:
				r.Answer(errors.New("a cutover was asked for already"))
				continue
			}
			s.deaf = true
			r.Answer(nil)
			return &r, nil
		case <-s.lost:
			return nil, s.hungUp()
		case m := <-s.inbox:
			if err := s.hear(m); err != nil {
				return nil, &refusal{err}
			}
			return nil, &refusal{notDue(m, "no message")}
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-t.C:
			return nil, nil
		}
	}
}
