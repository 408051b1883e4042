package session

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/livefleet/handover/helper/internal/session/record"
)

// A controller that died when both sides had converged needs no one to undo what
// it began.
func TestASessionThatNobodyCutsOverEndsItself(t *testing.T) {
	r := newRig(t)
	r.spec.src.Policy.WaitTimeout = 1
	w := r.startWriter()
	r.start()
	<-r.send
	<-r.receive
	src, dst := r.show()
	if src.State != record.Failed || dst.State != record.Discarded || !strings.Contains(src.Error, "the cutover was not asked for within 1s") {
		t.Errorf("source %s (%s), destination %s (%s)", src.State, src.Error, dst.State, dst.Error)
	}
	r.runsOnce(w, record.Source)
	r.cleanDestination()
}

// The same before it told the source.
func TestADestinationToWhichNobodyConnectsEndsItself(t *testing.T) {
	r := newRig(t)
	r.spec.dst.Policy.WaitTimeout = 1
	r.write(r.dst, r.spec.dst)
	if err := Receive(brief(t), r.dst, r.dstRun, planted); err == nil || !strings.Contains(err.Error(), "the source has not connected within 1s") {
		t.Errorf("%v", err)
	}
	if s, err := record.Show(r.dst); err != nil || s.State != record.Discarded {
		t.Errorf("%+v, %v", s, err)
	}
	r.cleanDestination()
}

// A rehearsal stands still exactly where it was told to, on either side, and goes
// on when it is told to.
func TestASessionStopsWhereItIsTold(t *testing.T) {
	for role, at := range map[record.Role]record.State{record.Source: record.Flushed, record.Destination: record.Resumed} {
		t.Run(string(role), func(t *testing.T) {
			r := newRig(t)
			dir := r.src
			if role == record.Source {
				r.spec.src.Policy.PauseAt = at
			} else {
				r.spec.dst.Policy.PauseAt = at
				dir = r.dst
			}
			w := r.startWriter()
			r.start()
			r.wait(r.src, record.UntilConverged)
			go func() {
				r.wait(dir, string(at))
				time.Sleep(100 * time.Millisecond)
				if s, err := record.Show(dir); err != nil || s.State != at {
					t.Errorf("it did not stop: %+v, %v", s, err)
				}
				if err := record.Continue(dir); err != nil {
					t.Error(err)
				}
			}()
			src, dst := r.cutover()
			if src.State != record.Done || dst.State != record.Done {
				t.Errorf("source %s (%s), destination %s (%s)", src.State, src.Error, dst.State, dst.Error)
			}
			r.runsOnce(w, record.Destination)
			events, err := os.ReadFile(filepath.Join(dir, record.EventsFile))
			if err != nil || !strings.Contains(string(events), `"event":"paused"`) {
				t.Errorf("it does not say that it stopped: %v", err)
			}
		})
	}
}
