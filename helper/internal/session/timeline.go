package session

import (
	"time"

	"github.com/livefleet/handover/helper/internal/report"
	"github.com/livefleet/handover/helper/internal/session/protocol"
	"github.com/livefleet/handover/helper/internal/session/record"
)

// timeline notes the stages of a cutover, counted from the freeze.
type timeline struct {
	session *record.Session
	t0      time.Time // when the freeze began
	early   []func()  // stages from before the freeze, to be noted when it begins
}

// stage notes a stage of the cutover.
func (s *timeline) stage(name string, from, to time.Time) {
	st := record.Stage{Stage: name, Start: report.MS(from.Sub(s.t0)), MS: report.MS(to.Sub(from))}
	s.session.Log.Emit("stage", map[string]any{"stage": name, "start_ms": st.Start, "ms": st.MS})
	s.session.Update(false, func(status *record.Status) { status.AddStage(st) })
}

// remote notes the pieces that the destination measured itself; they lie one
// after the other from began.
func (s *timeline) remote(m *protocol.Prepared, began time.Time) {
	for _, name := range []string{"armed", "attach", "criu_restore", "place", "datasync"} {
		if t, ok := m.Took[name]; ok {
			d := time.Duration(t * float64(time.Millisecond))
			s.stage(name, began, began.Add(d))
			began = began.Add(d)
		}
	}
}

// before notes a stage that ended before the freeze began: its place in time is
// known only then.
func (s *timeline) before(name string, from, to time.Time) {
	s.early = append(s.early, func() { s.stage(name, from, to) })
}

// frozenAt makes the freeze the zero of the session's time.
func (s *timeline) frozenAt(at time.Time) {
	s.t0 = at
	for _, note := range s.early {
		note()
	}
	s.early = nil
}
