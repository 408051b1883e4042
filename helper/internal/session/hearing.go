package session

import (
	"fmt"
	"time"

	"github.com/livefleet/handover/helper/internal/report"
	"github.com/livefleet/handover/helper/internal/session/protocol"
	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/wire"
)

// hearing is how a side takes in the other's messages: each has to be allowed in the
// side's state, and has to lead to a state that is reached by it.
type hearing struct {
	of   *record.Session
	by   record.Role
	turn protocol.Turn // the last one
}

func (h *hearing) hear(m protocol.Message) (err error) {
	h.turn, err = protocol.Hear(h.by, h.of.State(), m)
	return err
}

// reach records a state to which the last message leads.
func (h *hearing) reach(to record.State, why string) error {
	if err := h.turn.Leads(to); err != nil {
		return err
	}
	return h.of.Reach(to, why)
}

// onDestination is the other side's reason to give up.
func onDestination(m interface{ Text() string }) error {
	return fmt.Errorf("session: on the destination: %s", m.Text())
}

// lastWordPatience is how long a side that gives up waits for the other to have
// heard why.
const lastWordPatience = 3 * time.Second

// lastWord tells the other side why this one gives up. It may be gone already; then
// it has noticed.
func lastWord(log *report.Log, c *wire.Conn, m protocol.Message) {
	f, err := protocol.Frame(m)
	if err == nil {
		err = c.LastWord(f, lastWordPatience)
	}
	if err != nil {
		log.Emit("warning", map[string]any{"text": "the other side may not have heard why: " + err.Error()})
	}
}
