package session

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// What was written during the barrier is sent before the freeze, round by round:
// a round flushes the file systems and sends what that wrote, so what is left
// for the flush in the pause is what was written during the last round. There
// are rounds for as long as the freeze command needs to start, and then while
// each is clearly shorter than the one before.
const (
	roundShrink  = 0.75
	roundsAtMost = 8
	roundShort   = 15 * time.Millisecond // shorter than that is not worth another
	roundIdle    = 50 * time.Millisecond // between rounds that only wait for the freeze command
)

// arm brings the freeze command to the point before it stops anything, and the
// destination's restore to the point before it needs anything of the freeze.
func (s *source) arm(ctx context.Context) error {
	if s.spec.Mode == Copy {
		return nil
	}
	began := time.Now()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	told := make(chan error, 1)
	go func() { told <- s.armBoth(ctx) }()
	pending := told
	err := s.rounds(ctx, &pending)
	if err != nil {
		cancel()
		if pending != nil {
			<-pending // two must not use the freezer at once
		}
		return err
	}
	s.before("arm", began, time.Now())
	return nil
}

// armBoth arms the freeze command, and then tells the destination to get ready:
// what the command has written until then, and the roots as they are now, are
// all that it needs for that.
func (s *source) armBoth(ctx context.Context) error {
	if err := s.freezer.arm(ctx); err != nil {
		return fmt.Errorf("session: preparing the freeze: %w", err)
	}
	if err := s.sendTrees(ctx, StagePresync, StageDump); err != nil {
		return err
	}
	return send(s.conn, message{Kind: msgArm})
}

// rounds returns when both sides are armed and another round gains nothing.
// pending is nil when the answer of armBoth has come.
func (s *source) rounds(ctx context.Context, pending *chan error) error {
	armed := false
	until := time.Now().Add(2 * hooksLimit(s.spec))
	var last time.Duration
	for n := 1; ; n++ {
		began := time.Now()
		if err := s.copy.Sync(); err != nil {
			return err
		}
		if err := s.sendPass(ctx); err != nil {
			return err
		}
		took := time.Since(began)
		enough := took < roundShort || n >= roundsAtMost || n > 1 && float64(took) > roundShrink*float64(last)
		last = took
		idle := time.Duration(0)
		if !armed && enough {
			idle = roundIdle
		}
		ready, err := s.between(ctx, pending, idle)
		if err != nil {
			return err
		}
		armed = armed || ready
		if armed && enough && time.Since(began)-took < roundIdle {
			if some, err := s.lastScan(ctx); err != nil || !some {
				return err
			}
			// And once more what was written to the volumes meanwhile.
		}
		if time.Now().After(until) {
			return errors.New("session: the destination has not prepared its restore in time, and has not said why")
		}
	}
}

// between waits for a while until both sides are armed, and looks whether
// anything has happened that ends the session.
func (s *source) between(ctx context.Context, pending *chan error, idle time.Duration) (armed bool, err error) {
	t := time.NewTimer(idle)
	defer t.Stop()
	for {
		select {
		case err := <-*pending:
			*pending = nil
			if err != nil {
				return false, err
			}
		case r := <-s.control.requests:
			if r.Do == askAbort {
				r.answer(nil)
				return false, errAborted
			}
			r.answer(errors.New("a cutover is under way: it can be aborted until the workload is released"))
		case <-s.lost:
			return false, s.hungUp()
		case m := <-s.inbox:
			if m.Kind == msgArmed {
				return true, nil
			}
			return false, fmt.Errorf("session: on the destination: %s", m.Why)
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-t.C:
			return false, nil
		}
	}
}

// before notes a stage that ended before the freeze began: its place in time is
// known only then.
func (s *source) before(name string, from, to time.Time) {
	s.early = append(s.early, func() { s.stage(name, from, to) })
}

// frozenAt makes the freeze the zero of the session's time.
func (s *source) frozenAt(at time.Time) {
	s.t0 = at
	for _, note := range s.early {
		note()
	}
	s.early = nil
}
