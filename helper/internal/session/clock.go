package session

import (
	"time"

	"github.com/livefleet/handover/helper/internal/session/protocol"
)

// clock is how far the destination's clock is ahead of ours, by the way of NTP: an
// answer carries when the question was sent, when it was heard and when it was
// answered, and the rest of the round trip is the doubt. Of several answers the one
// with the least doubt counts. It is for reports, which show both hosts' events in
// one picture: nothing is decided by it.
type clock struct {
	known         bool
	ahead, within time.Duration
}

// hear takes an answer that was received now. A peer that sends no times is none
// to learn from.
func (c *clock) hear(m protocol.Message, now time.Time) {
	answer, ok := m.(interface{ Times() (echo, heard int64) })
	if !ok {
		return
	}
	echo, heard := answer.Times()
	if echo == 0 || heard == 0 || m.SentAt() == 0 {
		return
	}
	there, back := time.Duration(heard-echo), time.Duration(m.SentAt()-now.UnixNano())
	ahead, within := (there+back)/2, (there-back)/2
	if within < 0 { // one of the clocks was set in between
		return
	}
	if !c.known || within < c.within {
		*c = clock{true, ahead, within}
	}
}
