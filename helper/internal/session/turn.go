package session

import (
	"context"
	"time"

	"github.com/livefleet/handover/helper/internal/session/record"
)

// turnPause is how often is looked whether it is a session's turn.
const turnPause = 250 * time.Millisecond

// inTurn waits until fewer than policy.at_once sessions of this host that began
// earlier have yet to converge. Sessions that share a link all end late; in turn the
// first ends early, and while it is cut over the others have the link. A cutover that
// is asked for in that time is returned, with the time of the request.
func (s *presyncer) inTurn(ctx context.Context) (asked *record.Request, at time.Time, err error) {
	if s.queue == nil {
		return nil, at, nil
	}
	if err := s.queue.Join(); err != nil {
		return nil, at, err
	}
	defer func() {
		if err != nil {
			s.queue.Leave()
		}
	}()
	var said int64
	for {
		ahead := s.queue.Ahead()
		if ahead < s.Spec.Policy.AtOnce {
			ahead = 0
		}
		if ahead != said {
			s.Update(true, func(st *record.Status) { st.Waits = ahead })
			s.Log.Emit("waits", map[string]any{"ahead": ahead})
			said = ahead
		}
		if ahead == 0 {
			return asked, at, nil
		}
		r, err := s.listen(ctx, turnPause)
		if err != nil {
			if err := s.reconnect(ctx, err); err != nil {
				return nil, at, err
			}
			continue
		}
		if r != nil {
			asked, at = r, time.Now()
		}
	}
}
