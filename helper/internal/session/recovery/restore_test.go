package recovery

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/session/record"
)

// restoring is a destination that listens for a container with its memory.
func restoring(t *testing.T) (root, run string, c *OCIState, gate *hooks.Gate) {
	t.Helper()
	root, run = t.TempDir(), t.TempDir()
	dir, images := filepath.Join(root, "shop-1"), filepath.Join(t.TempDir(), "images")
	bundle := filepath.Join(t.TempDir(), "bundle")
	for _, d := range []string{dir, images, bundle} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	spec := `{"version": 1, "id": "shop-1", "role": "destination", "mode": "live", "workload": "shop", "driver": "docker", "bundle": "` + bundle + `", ` +
		link[record.Destination] + `, "hooks": {"restore": {"argv": ["x"], "gate": "` + images + `"}, "discard": {"argv": ["x"]}}}`
	if err := os.WriteFile(filepath.Join(dir, record.SpecFile), []byte(spec), 0o600); err != nil {
		t.Fatal(err)
	}
	gate, err := hooks.OpenGate(run, images, dir)
	if err != nil {
		t.Fatal(err)
	}
	j, err := record.OpenJournal(dir, record.Destination)
	if err != nil {
		t.Fatal(err)
	}
	j.Close()
	return root, run, &OCIState{Bundle: bundle}, gate
}

func reach(t *testing.T, root string, states ...record.State) {
	t.Helper()
	j, err := record.OpenJournal(filepath.Join(root, "shop-1"), record.Destination)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	for _, st := range states {
		if err := j.Append(st, ""); err != nil {
			t.Fatal(err)
		}
	}
}

// Beside a restore that is under way nothing is made anew, whatever the session has come
// to: not even when it was released, for what was restored is about to run.
func TestNothingIsStartedBesideARestore(t *testing.T) {
	root, run, c, gate := restoring(t)
	for _, st := range []record.State{record.Presync, record.Barrier, record.Frozen, record.Flushed, record.Prepared, record.Released, record.Resumed} {
		reach(t, root, st)
		if err := MayCreate(t.Context(), root, run, c); err == nil || !strings.Contains(err.Error(), "comes to this host with its memory (session shop-1)") {
			t.Errorf("%s: %v", st, err)
		}
	}
	if err := gate.Close(); err != nil {
		t.Fatal(err)
	}
	// It runs here, and may be started again after it has ended.
	if err := MayCreate(t.Context(), root, run, c); err != nil {
		t.Errorf("it is at home here, and does not start: %v", err)
	}
	if err := MayCreate(t.Context(), root, run, &OCIState{Bundle: c.Bundle + "2"}); err != nil {
		t.Errorf("another container: %v", err)
	}
}

// A restore whose session is over, or whose process is gone before the release, ends
// where it would have got its network.
func TestARestoreWithoutItsSessionDoesNotEnter(t *testing.T) {
	root, run, c, gate := restoring(t)
	reach(t, root, record.Presync, record.Barrier, record.Frozen, record.Flushed)
	if err := Enter(t.Context(), root, run, c); err == nil || !strings.Contains(err.Error(), "is the other host's") {
		t.Errorf("no process serves the session: %v", err)
	}
	if err := gate.Close(); err != nil {
		t.Fatal(err)
	}
	if err := Enter(t.Context(), root, run, c); err == nil || !strings.Contains(err.Error(), "is over") {
		t.Errorf("the session has no gate any more: %v", err)
	}
}

func TestOnlyTheSessionWithTheGateRestores(t *testing.T) {
	root, run, c, gate := restoring(t)
	if spec, err := Restoring(root, run, c.Bundle); err != nil || spec == nil || spec.ID != "shop-1" {
		t.Errorf("%v, %v", spec, err)
	}
	if spec, err := Restoring(root, t.TempDir(), c.Bundle); err != nil || spec != nil {
		t.Errorf("of another boot: %v, %v", spec, err)
	}
	if err := gate.Close(); err != nil {
		t.Fatal(err)
	}
	if spec, err := Restoring(root, run, c.Bundle); err != nil || spec != nil {
		t.Errorf("without a gate: %v, %v", spec, err)
	}
}

// A driver may have something to put back beside CRIU: it is, whoever brings the source to its
// end, and not behind a release.
func TestWhatADriverTookFromTheSourceIsPutBack(t *testing.T) {
	for _, c := range []struct {
		last []record.State
		mode string
		put  bool
	}{
		{nil, record.Live, false}, // it has taken nothing yet
		{[]record.State{record.Barrier, record.Frozen}, record.Live, true},
		{[]record.State{record.Barrier, record.Frozen, record.Flushed, record.Prepared, record.Released, record.Refused}, record.Live, true},
		{[]record.State{record.Barrier, record.Frozen, record.Flushed, record.Prepared, record.Released}, record.Live, false},
		{[]record.State{record.Barrier, record.Frozen, record.Flushed, record.Prepared, record.Released, record.Resumed, record.Settled}, record.Live, false},
	} {
		dir, mark := t.TempDir(), filepath.Join(t.TempDir(), "put-back")
		spec := &record.Spec{ID: "shop-1", Role: record.Source, Mode: c.mode, Hooks: record.Hooks{
			Freeze: &hooks.Command{Argv: []string{"x"}, Gate: filepath.Join(dir, "images")}, Thaw: &hooks.Command{Argv: []string{"touch", mark}},
		}}
		j, err := record.OpenJournal(dir, record.Source)
		if err != nil {
			t.Fatal(err)
		}
		defer j.Close()
		for _, st := range append([]record.State{record.Presync}, c.last...) {
			if err := j.Append(st, ""); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, record.EventsFile), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := recoverSource(t.Context(), dir, t.TempDir(), spec, j); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(mark); (err == nil) != c.put {
			t.Errorf("after %v: put back: %v", c.last, err == nil)
		}
	}
}
