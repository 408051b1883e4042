package session

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/livefleet/handover/helper/internal/passes"
	"github.com/livefleet/handover/helper/internal/session/protocol"
	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/transport"
)

// link is the source's end of the connections to the destination, and of the messages over
// them.
type link struct {
	*record.Session
	*line
	hearing
	options    Options
	way        transport.Way // to the destination, for all connections
	sent       int64         // bytes that went over connections that are gone
	reconnects bool          // the destination knows how to go on over another connection
	confirms   atomic.Pointer[passes.Copy]
	clock      clock
	differs    func(context.Context, *protocol.Differs) error // handles a destination's report of a difference
}

// patience is how long an answer may take that needs no work.
func (s *link) patience() time.Duration {
	return time.Duration(s.Spec.Policy.PeerTimeout) * time.Second
}

// next waits for the destination's next message, of the kinds that are due.
func (s *link) next(ctx context.Context, limit time.Duration, kinds ...protocol.Kind) (protocol.Message, error) {
	t := time.NewTimer(limit)
	defer t.Stop()
	for {
		select {
		case m := <-s.inbox:
			return s.due(ctx, m, kinds)
		case <-s.lost:
			select { // messages before the end still count
			case m := <-s.inbox:
				return s.due(ctx, m, kinds)
			default:
				return nil, fmt.Errorf("session: the connection to the destination is lost: %w", s.lostErr)
			}
		case r := <-s.Control.Requests:
			if r.Do == record.AskAbort && !s.Journal.Reached(record.Released) {
				r.Answer(nil)
				return nil, errAborted
			}
			r.Answer(fmt.Errorf("the session is %s: it is too late, or too early, for that", s.Journal.State()))
		case <-t.C:
			return nil, fmt.Errorf("session: the destination has not answered within %s (waiting for %v)", limit, kinds)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// due is the message if it is of the kinds.
func (s *link) due(ctx context.Context, m protocol.Message, kinds []protocol.Kind) (protocol.Message, error) {
	if err := s.hear(m); err != nil {
		return nil, err
	}
	if slices.Contains(kinds, m.Kind()) {
		s.clock.hear(m, time.Now())
		return m, nil
	}
	if m, ok := m.(*protocol.Differs); ok {
		return nil, s.differs(ctx, m)
	}
	return nil, notDue(m, fmt.Sprint(kinds))
}

// notDue is why a message ends the session that is allowed, and not the one that is due.
func notDue(m protocol.Message, due string) error {
	if m, ok := m.(interface{ Text() string }); ok {
		return &refusal{onDestination(m)}
	}
	return fmt.Errorf("session: the destination said %q where %s was due", m.Kind(), due)
}

// expect is next for one kind.
func expect[M protocol.Message](ctx context.Context, s *link, limit time.Duration) (M, error) {
	var none M
	m, err := s.next(ctx, limit, none.Kind())
	if err != nil {
		return none, err
	}
	return m.(M), nil
}

var errAborted = record.ErrAborted

// hungUp is why the connection is gone: the destination's last words, if there were
// any.
func (s *link) hungUp() error {
	select {
	case m := <-s.inbox:
		if m, ok := m.(*protocol.Fail); ok {
			return &refusal{onDestination(m)}
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
		if m, ok := m.(*protocol.Fail); ok {
			return &refusal{onDestination(m)}
		}
	case <-t.C:
	}
	return err
}
