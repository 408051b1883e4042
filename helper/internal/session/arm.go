package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/livefleet/handover/helper/internal/session/protocol"
	"github.com/livefleet/handover/helper/internal/session/record"
)

// The writes of the barrier are sent before the freeze, round by round: a round
// flushes the file systems and sends the result, so only the writes of the last round
// are left for the flush in the pause. There are rounds for as long as both sides
// need to get ready, and then while they become shorter. Those beside the getting
// ready are no measure for that, for they share the processors with it; and the
// freeze does not come right after one in which the workload wrote far more than in
// others.
const (
	roundShrink  = 0.9 // of the shortest: no more is shorter
	roundsStale  = 2   // so many that are not are enough
	roundBurst   = 1.5 // times the shortest: no moment for the freeze
	roundsAtMost = 16
	readyAtMost  = 5 * time.Second       // that both sides, when they are ready, wait for a better moment
	roundShort   = 15 * time.Millisecond // shorter than that is not worth another
	roundIdle    = 50 * time.Millisecond // between rounds that only wait for the freeze command
)

// pace tells when another round gains nothing.
type pace struct {
	rounds, stale int
	best          time.Duration
}

func (p *pace) enough(took time.Duration) bool {
	p.rounds++
	if p.rounds == 1 {
		p.best = took
		return took < roundShort
	}
	p.stale++
	if float64(took) <= roundShrink*float64(p.best) {
		p.stale = 0
	}
	p.best = min(p.best, took)
	calm := p.stale >= roundsStale && float64(took) <= roundBurst*float64(p.best)
	return calm || took < roundShort || p.rounds >= roundsAtMost
}

// arm brings the freeze command to the point before it stops anything, and the
// destination's restore to the point before it needs anything of the freeze.
func (s *source) arm(ctx context.Context) error {
	if s.Spec.Mode == record.Copy {
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

// armBoth arms the freeze command, and then tells the destination to get ready: the
// command's output until then, and the present roots, are all that it needs for that.
func (s *source) armBoth(ctx context.Context) error {
	if err := s.choosePlacing(); err != nil {
		return err
	}
	if err := s.freezer.Arm(ctx); err != nil {
		return fmt.Errorf("session: preparing the freeze: %w", err)
	}
	if err := s.sendTrees(ctx, record.StagePresync, record.StageDump); err != nil {
		return err
	}
	network, err := s.settings.Look()
	if err != nil {
		return err
	}
	return protocol.Send(s.conn, &protocol.Arm{Warm: touched(s.Session), Mapped: mapped(s.Session), Settings: network, Own: s.settings.Own(), Place: s.placing})
}

// rounds returns when both sides are armed and another round gains nothing.
// pending is nil when the answer of armBoth has come.
func (s *source) rounds(ctx context.Context, pending *chan error) error {
	armed, until := false, time.Now().Add(2*hooksLimit(s.Spec))
	var p pace
	for {
		began := time.Now()
		if err := s.copy.Sync(); err != nil {
			return err
		}
		if err := s.sendPass(ctx); err != nil {
			return err
		}
		took := time.Since(began)
		enough := p.enough(took)
		idle := time.Duration(0)
		if !armed && enough {
			idle = roundIdle
		}
		ready, err := s.between(ctx, pending, idle)
		if err != nil {
			return err
		}
		if ready {
			armed, until = true, time.Now().Add(readyAtMost)
			if took >= roundShort {
				p, enough = pace{}, false
			}
		}
		late := time.Now().After(until)
		enough = enough || armed && late
		if armed && enough && time.Since(began)-took < roundIdle {
			if some, err := s.lastScan(ctx); err != nil || !some {
				return err
			}
			// And once more the writes to the volumes of that time.
		}
		if late && !armed {
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
		case r := <-s.Control.Requests:
			if r.Do == record.AskAbort {
				r.Answer(nil)
				return false, errAborted
			}
			r.Answer(errors.New("a cutover is under way: it can be aborted until the workload is released"))
		case <-s.lost:
			return false, s.hungUp()
		case m := <-s.inbox:
			if err := s.hear(m); err != nil {
				return false, err
			}
			if _, ok := m.(*protocol.Armed); ok {
				return true, nil
			}
			return false, notDue(m, "armed")
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-t.C:
			return false, nil
		}
	}
}
