package session

import (
	"testing"
	"time"

	"github.com/livefleet/handover/helper/internal/session/protocol"
)

func TestTheClockIsReadFromTheAnswerWithTheLeastDoubt(t *testing.T) {
	var c clock
	at := time.Unix(1700000000, 0)
	answer := func(ahead, there, work, back time.Duration) {
		heard := at.Add(there + ahead)
		c.hear(&protocol.Synced{Answer: protocol.Answer{Echo: at.UnixNano(), Heard: heard.UnixNano()}, Sent: protocol.Sent{Said: heard.Add(work).UnixNano()}}, at.Add(there+work+back))
	}
	c.hear(&protocol.Synced{}, at)
	if c.known {
		t.Error("an answer without times is one")
	}
	const ahead = -3 * time.Second
	answer(ahead, 40*time.Millisecond, time.Minute, 0)
	if !c.known || c.ahead != ahead+20*time.Millisecond || c.within != 20*time.Millisecond {
		t.Errorf("%+v", c)
	}
	answer(ahead, time.Millisecond, time.Second, time.Millisecond)
	answer(ahead, time.Second, 0, 0)
	if c.ahead != ahead || c.within != time.Millisecond {
		t.Errorf("%+v", c)
	}
	answer(0, -time.Second, 0, -time.Second)
	if c.ahead != ahead {
		t.Errorf("a clock that was set was believed: %+v", c)
	}
}
