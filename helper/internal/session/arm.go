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

// arm brings the freeze command to the point before it stops anything.
func (s *source) arm(ctx context.Context) error {
	began := time.Now()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ready := make(chan error, 1)
	go func() { ready <- s.freezer.arm(ctx) }()
	waiting, err := s.rounds(ctx, ready)
	if err != nil {
		cancel()
		if waiting {
			<-ready // two must not use the freezer at once
		}
		return err
	}
	s.before("arm", began, time.Now())
	return nil
}

// rounds returns when the freezer is armed and another round gains nothing.
// After an error it says whether the freezer is still being armed.
func (s *source) rounds(ctx context.Context, ready <-chan error) (waiting bool, err error) {
	waiting = true
	var last time.Duration
	for n := 1; ; n++ {
		began := time.Now()
		if err := s.copy.Sync(); err != nil {
			return waiting, err
		}
		if err := s.sendPass(ctx); err != nil {
			return waiting, err
		}
		took := time.Since(began)
		enough := took < roundShort || n >= roundsAtMost || n > 1 && float64(took) > roundShrink*float64(last)
		last = took
		idle := time.Duration(0)
		if waiting && enough {
			idle = roundIdle
		}
		armed, err := s.between(ctx, ready, idle)
		if armed {
			waiting = false
		}
		if err != nil {
			return waiting, err
		}
		if !waiting && enough && time.Since(began)-took < roundIdle {
			return false, nil
		}
	}
}

// between waits for the freezer for a while, and looks whether anything has
// happened that ends the session.
func (s *source) between(ctx context.Context, ready <-chan error, idle time.Duration) (armed bool, err error) {
	t := time.NewTimer(idle)
	defer t.Stop()
	for {
		select {
		case err := <-ready:
			if err != nil {
				return true, fmt.Errorf("session: preparing the freeze: %w", err)
			}
			return true, nil
		case r := <-s.control.requests:
			if r.Do == askAbort {
				r.answer(nil)
				return false, errAborted
			}
			r.answer(errors.New("a cutover is under way: it can be aborted until the workload is released"))
		case <-s.lost:
			return false, fmt.Errorf("session: the connection to the destination is lost: %w", s.lostErr)
		case m := <-s.inbox:
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
