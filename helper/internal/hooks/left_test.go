package hooks

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/livefleet/handover/helper/internal/hooks/cgrouptest"
)

// What waits for a CRIU that is gone is ended, and nobody else.
func TestWhatACRIUThatWasKilledLeft(t *testing.T) {
	left, _ := cgrouptest.New(t)
	another, runs := cgrouptest.New(t)
	if _, err := Cgroup(left).Freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time there is nothing
		if err := KillLeft(t.Context(), filepath.Base(left)); err != nil {
			t.Fatal(err)
		}
	}
	if tasks, err := os.ReadFile(filepath.Join(left, "cgroup.procs")); err != nil || len(tasks) > 0 {
		t.Errorf("left: %q, %v", tasks, err)
	}
	if !runs() {
		t.Errorf("what is in %s was ended, too", another)
	}
	for _, none := range []string{"", "0123456789ab"} {
		if err := KillLeft(t.Context(), none); err != nil {
			t.Errorf("%q: %v", none, err)
		}
	}
}
