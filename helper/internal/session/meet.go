package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/livefleet/handover/helper/internal/report"
	"github.com/livefleet/handover/helper/internal/session/record"
)

// meet waits until all of the wave are there; anything that ends the session also
// ends the wait.
func (s *source) meet(ctx context.Context, at string) error {
	if s.wave == nil {
		return nil
	}
	began := time.Now()
	limit := s.patience() + hooksLimit(s.Spec)
	if err := s.wave.Say(at); err != nil {
		return err
	}
	answer := make(chan error, 1)
	go func() { answer <- s.wave.Hear() }()
	t := time.NewTimer(limit)
	defer t.Stop()
	for {
		select {
		case err := <-answer:
			if err == nil {
				s.Log.Emit("wave", map[string]any{"at": at, "ms": report.MS(time.Since(began))})
			}
			return err
		case r := <-s.Control.Requests:
			if r.Do == record.AskAbort {
				r.Answer(nil)
				return errAborted
			}
			r.Answer(errors.New("the session waits for the others of its wave: it can be aborted until the workload is released"))
		case <-s.lost:
			return fmt.Errorf("session: the connection to the destination is lost: %w", s.lostErr)
		case m := <-s.inbox:
			if err := s.hear(m); err != nil {
				return err
			}
			return notDue(m, "the others of the wave")
		case <-t.C:
			return fmt.Errorf("session: the wave: the others have not come to %q within %s", at, limit)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
