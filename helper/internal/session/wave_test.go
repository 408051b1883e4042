package session

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/session/recovery"
	"github.com/livefleet/handover/helper/internal/session/wave"
)

// newWave is two workloads that were copied and wait for their cutover.
func newWave(t *testing.T) (rigs [2]*rig, writers [2]*writer) {
	t.Helper()
	for i, id := range []string{"rig-a", "rig-b"} {
		r := newRig(t)
		r.spec.src.ID, r.spec.dst.ID = id, id
		writers[i] = r.startWriter()
		rigs[i] = r
		r.start()
	}
	for _, r := range rigs {
		r.wait(r.src, record.UntilConverged)
	}
	return rigs, writers
}

func cutoverWave(ctx context.Context, rigs [2]*rig, i int) (*record.Status, error) {
	return wave.Cutover(ctx, rigs[i].src, rigs[0].srcRun, []string{rigs[0].src, rigs[1].src})
}

// ends waits for both sides of both.
func ends(t *testing.T, rigs [2]*rig) {
	t.Helper()
	for _, r := range rigs {
		<-r.send
		<-r.receive
	}
}

func TestAWaveMovesAsOne(t *testing.T) {
	rigs, writers := newWave(t)
	limited, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	// Asked for each of them at once, as a play does.
	second := make(chan *record.Status, 1)
	go func() {
		s, err := cutoverWave(limited, rigs, 1)
		if err != nil {
			t.Error(err)
		}
		second <- s
	}()
	s, err := cutoverWave(limited, rigs, 0)
	if err != nil {
		t.Fatal(err)
	}
	other := <-second
	if s.ID != "rig-a" || s.State != record.Done || other == nil || other.ID != "rig-b" || other.State != record.Done {
		t.Fatalf("%+v, %+v", s, other)
	}
	ends(t, rigs)
	for _, r := range rigs {
		for _, o := range rigs {
			if r.reached(r.src, record.Source, record.Released).Before(o.reached(o.src, record.Source, record.Prepared)) {
				t.Errorf("%s was released before %s was prepared", r.spec.src.ID, o.spec.src.ID)
			}
			if r.reached(r.src, record.Source, record.Frozen).Before(o.reached(o.src, record.Source, record.Barrier)) {
				t.Errorf("%s was frozen before %s had come to its barrier", r.spec.src.ID, o.spec.src.ID)
			}
		}
	}
	for i, w := range writers {
		rigs[i].runsOnce(w, record.Destination)
	}
	// Asked again, it tells how it went.
	if s, err := cutoverWave(limited, rigs, 1); err != nil || s.State != record.Done {
		t.Errorf("%+v, %v", s, err)
	}
}

// Whatever goes wrong for one of them before the release, none has moved.
func TestAWaveThatIsNotWholeDoesNotMove(t *testing.T) {
	for name, c := range map[string]struct{ file, says string }{
		"no dump":    {"dump-fails", "out of ideas"},
		"no restore": {"restore-fails", "out of ideas"},
	} {
		t.Run(name, func(t *testing.T) {
			rigs, writers := newWave(t)
			if err := os.WriteFile(filepath.Join(rigs[1].control, c.file), []byte("out of ideas"), 0o600); err != nil {
				t.Fatal(err)
			}
			limited, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			s, err := cutoverWave(limited, rigs, 0)
			if err != nil {
				t.Fatal(err)
			}
			if s.State != record.Thawed && s.State != record.Failed {
				t.Fatalf("rig-a is %s", s.State)
			}
			if !strings.Contains(s.Error, "the wave: rig-b ") {
				t.Errorf("it says %q", s.Error)
			}
			ends(t, rigs)
			broken, err := record.Show(rigs[1].src)
			if err != nil {
				t.Fatal(err)
			}
			if broken.State != record.Thawed && broken.State != record.Failed || !strings.Contains(broken.Error, c.says) {
				t.Errorf("rig-b is %s: %s", broken.State, broken.Error)
			}
			for i, w := range writers {
				rigs[i].runsOnce(w, record.Source)
			}
		})
	}
}

// The command that holds the meeting is killed: those that wait run on.
func TestAWaveWithoutItsMeetingDoesNotMove(t *testing.T) {
	rigs, writers := newWave(t)
	held := filepath.Join(rigs[1].control, "armed-takes")
	if err := os.WriteFile(held, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	limited, cancel := context.WithCancel(t.Context())
	asked := make(chan error, 1)
	go func() {
		_, err := cutoverWave(limited, rigs, 0)
		asked <- err
	}()
	if err := await(filepath.Join(rigs[1].control, "arming")); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := os.Remove(held); err != nil {
		t.Fatal(err)
	}
	if err := <-asked; err == nil {
		t.Error("the cutover was given up and says nothing")
	}
	ends(t, rigs)
	for i, w := range writers {
		rigs[i].runsOnce(w, record.Source)
		if s, err := record.Show(rigs[i].src); err != nil || s.State != record.Failed && s.State != record.Thawed {
			t.Errorf("%+v, %v", s, err)
		}
	}
}

func TestAWaveOfWhichOneIsMissingIsNotFrozen(t *testing.T) {
	rigs, writers := newWave(t)
	_, err := wave.Cutover(t.Context(), rigs[0].src, rigs[0].srcRun, []string{rigs[0].src, rigs[1].src, filepath.Join(rigs[0].top, "none")})
	if err == nil || !strings.Contains(err.Error(), "there is no session in") || !strings.Contains(err.Error(), "nothing of the wave is frozen") {
		t.Error(err)
	}
	for i, w := range writers {
		if _, err := recovery.Abort(t.Context(), rigs[i].src, rigs[i].srcRun); err != nil {
			t.Error(err)
		}
		rigs[i].runsOnce(w, record.Source)
	}
	ends(t, rigs)
}
