package session

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/livefleet/handover/helper/internal/loop"
	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/session/recovery"
)

// trial makes the rig's source a trial.
func (r *rig) trial() {
	r.t.Helper()
	s := r.spec.src
	s.Mode, s.Peer, s.Volumes = record.Trial, record.Peer{}, nil
	r.write(r.src, s)
}

// tried runs it to its end.
func (r *rig) tried() (*record.Status, error) {
	r.t.Helper()
	r.trial()
	err := Send(context.Background(), r.src, r.srcRun, planted)
	st, e := record.Show(r.src)
	if e != nil {
		r.t.Fatal(e)
	}
	return st, err
}

// nothingLeft demands that no dump and no gate is left on the source.
func (r *rig) nothingLeft() {
	r.t.Helper()
	if m, err := loop.Mounted(r.gate); err != nil || m {
		r.t.Errorf("the dump is still there (%v)", err)
	}
	if left, _ := filepath.Glob(filepath.Join(r.srcRun, "gates", "*")); len(left) > 0 {
		r.t.Errorf("left over: %v", left)
	}
}

func TestATrialFreezesAndRunsOn(t *testing.T) {
	r := newRig(t)
	here, _ := r.networks()
	w := r.startWriter()
	for w.acknowledged() < 100 {
		time.Sleep(time.Millisecond)
	}
	st, err := r.tried()
	if err != nil || st.State != record.Thawed || !st.Ended || st.Error != "" {
		t.Fatalf("%v: %+v", err, st)
	}
	// The writer notes where it stood when it was frozen.
	if !exists(filepath.Join(r.control, "counter")) {
		t.Error("nothing was frozen")
	}
	if st.FrozenMS <= 0 || st.StateBytes <= 0 {
		t.Errorf("%+v", st)
	}
	var stages []string
	for _, s := range st.Stages {
		stages = append(stages, s.Stage)
	}
	if strings.Join(stages, " ") != "freeze dump thaw" {
		t.Errorf("stages %v", stages)
	}
	r.runsOnce(w, record.Source)
	r.silence(here, false)
	r.nothingLeft()
}

func TestATrialThatFailsSaysWhy(t *testing.T) {
	r := newRig(t)
	w := r.startWriter()
	r.note("dump-fails", "CRIU says no")
	st, err := r.tried()
	if err == nil || !strings.Contains(st.Error, "CRIU says no") || !st.Ended {
		t.Fatalf("%v: %+v", err, st)
	}
	r.runsOnce(w, record.Source)
	r.nothingLeft()
}

// Killed in the middle, the workload runs on: CRIU's hook sees to that.
func TestAKilledTrialThaws(t *testing.T) {
	r := newRig(t)
	w := r.startWriter()
	r.trial()
	r.note("dump-takes", "500ms")
	kill := r.apart(actSend, r.src, r.srcRun)
	if err := await(filepath.Join(r.control, "counter")); err != nil {
		t.Fatal(err)
	}
	kill()
	for exists(filepath.Join(r.control, "frozen")) {
		time.Sleep(5 * time.Millisecond)
	}
	r.runsOnce(w, record.Source)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	st, err := recovery.Abort(ctx, r.src, r.srcRun)
	if err != nil || st.State != record.Thawed {
		t.Fatalf("%+v, %v", st, err)
	}
}

func TestATrialNeedsNoPeer(t *testing.T) {
	const begin = `{"version":1,"id":"a","workload":"shop","mode":"trial",`
	for rest, text := range map[string]string{
		`"role":"source","hooks":{"freeze":{"argv":["podman"],"gate":"/g"}}}`: "",
		`"role":"destination"}`:                                   "for the source alone",
		`"role":"source","hooks":{"freeze":{"argv":["podman"]}}}`: "needs a gate",
		`"role":"source","network":{"namespace":"ns"},"hooks":{"freeze":{"argv":["podman"],"gate":"/g"}}}`: "not an absolute path",
	} {
		_, err := record.ParseSpec([]byte(begin + rest))
		if (err == nil) != (text == "") || err != nil && !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", rest, err)
		}
	}
}
