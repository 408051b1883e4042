package session

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/loop"
	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/session/recovery"
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

// A side that a rehearsal holds heeds an abort, of its own or of the other side, at
// once: an operator has not to know that it is held.
func TestAHeldSideHeedsAnAbort(t *testing.T) {
	for _, c := range []struct {
		way      string
		held, by record.Role
	}{
		{"TCP", record.Source, record.Source},
		{"TCP", record.Source, record.Destination},
		{"TCP", record.Destination, record.Source},
		{"TCP", record.Destination, record.Destination},
		{"ssh", record.Source, record.Destination},
		{"ssh", record.Destination, record.Source},
	} {
		t.Run(fmt.Sprintf("over %s the %s, aborted on the %s", c.way, c.held, c.by), func(t *testing.T) {
			r := newRig(t)
			if c.way == "ssh" {
				r.overStreams()
			}
			dir, at := r.src, record.Flushed
			if c.held == record.Source {
				r.spec.src.Policy.PauseAt = at
			} else {
				dir, r.spec.dst.Policy.PauseAt = r.dst, at
			}
			w := r.startWriter()
			r.start()
			r.wait(r.src, record.UntilConverged)
			go func() { _, _ = recovery.Cutover(brief(t), r.src) }()
			r.wait(dir, string(at))
			where, run := r.src, r.srcRun
			if c.by == record.Destination {
				where, run = r.dst, r.dstRun
			}
			if _, err := recovery.Abort(brief(t), where, run); err != nil {
				t.Fatal(err)
			}
			<-r.send
			<-r.receive
			if s := r.wait(r.src, record.UntilEnded); s.State != record.Thawed {
				t.Errorf("the source is %s: %s", s.State, s.Error)
			}
			if s := r.wait(r.dst, record.UntilEnded); s.State != record.Discarded {
				t.Errorf("the destination is %s: %s", s.State, s.Error)
			}
			r.runsOnce(w, record.Source)
			r.cleanDestination()
		})
	}
}

// A destination without room for the images is known before a byte is copied, if it is
// to reserve that.
func TestADestinationWithoutRoomSaysSoAtOnce(t *testing.T) {
	r := newRig(t)
	images := filepath.Dir(r.spec.dst.Volumes[0].Image)
	if err := loop.MountTmpfs(images); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := loop.Unmount(images); err != nil {
			t.Error(err)
		}
	})
	if err := unix.Mount("", images, "", unix.MS_REMOUNT, "size=1m"); err != nil {
		t.Fatal(err)
	}
	r.spec.dst.Policy.ReserveSpace = true
	r.write(r.dst, r.spec.dst)
	err := Receive(brief(t), r.dst, r.dstRun, planted)
	if err == nil || !strings.Contains(err.Error(), "image: the file system that holds "+r.spec.dst.Volumes[0].Image+" is full") {
		t.Errorf("%v", err)
	}
	if s, err := record.Show(r.dst); err != nil || s.State != record.Discarded {
		t.Errorf("%+v, %v", s, err)
	}
	if left, err := os.ReadDir(images); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
