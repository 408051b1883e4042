package recovery

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/session/record"
)

// What may not be left behind keeps a source from being done: it is tried again.
func TestASourceIsNotDoneWhileSomethingIsLeft(t *testing.T) {
	dir, run := t.TempDir(), t.TempDir()
	file := filepath.Join(dir, "no-folder")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	spec := &record.Spec{ID: "shop-1", Role: record.Source, Mode: record.Live, Hooks: record.Hooks{Freeze: &hooks.Command{Argv: []string{"x"}, Cgroup: hooks.Cgroup(file)}}}
	j, err := record.OpenJournal(dir, record.Source)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	for _, st := range []record.State{record.Presync, record.Barrier, record.Frozen, record.Flushed, record.Prepared, record.Released, record.Resumed, record.Settled} {
		if err := j.Append(st, ""); err != nil {
			t.Fatal(err)
		}
	}
	if err := endSource(t.Context(), dir, run, spec, j); err == nil || j.State() != record.Settled {
		t.Errorf("the source is %s: %v", j.State(), err)
	}
	spec.Hooks.Freeze.Cgroup = hooks.Cgroup(filepath.Join(dir, "gone"))
	if err := endSource(t.Context(), dir, run, spec, j); err != nil || j.State() != record.Done {
		t.Errorf("the source is %s: %v", j.State(), err)
	}
}
