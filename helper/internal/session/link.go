package session

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/livefleet/handover/helper/internal/passes"
	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/transport"
)

// link is the source's end of the connections to the destination, and of the messages over
// them.
type link struct {
	*record.Session
	*line
	options   Options
	way       transport.Way // to the destination, for all connections
	sent      int64         // bytes that went over connections that are gone
	resumable bool          // the destination knows how to go on over another connection
	confirms  atomic.Pointer[passes.Copy]
	clock     clock
	differs   func(context.Context, *message) error // handles a destination's report of a difference
}

// patience is how long an answer may take that needs no work.
func (s *link) patience() time.Duration {
	return time.Duration(s.Spec.Policy.PeerTimeout) * time.Second
}

// expect waits for the peer's next message, which has to be one of the kinds.
func (s *link) expect(ctx context.Context, limit time.Duration, kinds ...kind) (*message, error) {
	t := time.NewTimer(limit)
	defer t.Stop()
	for {
		var m *message
		select {
		case m = <-s.inbox:
		case <-s.lost:
			select { // messages before the end still count
			case m = <-s.inbox:
			default:
				return nil, fmt.Errorf("session: the connection to the destination is lost: %w", s.lostErr)
			}
		case r := <-s.Control.Requests:
			if r.Do == record.AskAbort && !s.Journal.Reached(record.Released) {
				r.Answer(nil)
				return nil, errAborted
			}
			r.Answer(fmt.Errorf("the session is %s: it is too late, or too early, for that", s.Journal.State()))
			continue
		case <-t.C:
			return nil, fmt.Errorf("session: the destination has not answered within %s (waiting for %v)", limit, kinds)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		for _, k := range kinds {
			if m.Kind == k {
				s.clock.hear(m, time.Now())
				return m, nil
			}
		}
		if m.Kind == msgDiffers {
			return nil, s.differs(ctx, m)
		}
		if m.Kind == msgFail || m.Kind == msgRefused {
			return nil, &refusal{fmt.Errorf("session: on the destination: %s", m.Why)}
		}
		return nil, fmt.Errorf("session: the destination said %q where %v was due", m.Kind, kinds)
	}
}

var errAborted = record.ErrAborted

// hungUp is why the connection is gone: the destination's last words, if there were
// any.
func (s *link) hungUp() error {
	select {
	case m := <-s.inbox:
		if m.Kind == msgFail {
			return &refusal{fmt.Errorf("session: on the destination: %s", m.Why)}
		}
	default:
	}
	return fmt.Errorf("session: the connection to the destination is lost: %w", s.lostErr)
}

// explain prefers the destination's own reason over the bare fact that the connection
// broke while we were sending.
func (s *link) explain(err error) error {
	t := time.NewTimer(time.Second)
	defer t.Stop()
	select {
	case m := <-s.inbox:
		if m.Kind == msgFail {
			return &refusal{fmt.Errorf("session: on the destination: %s", m.Why)}
		}
	case <-t.C:
	}
	return err
}
