package hooks

import (
	thread "runtime"
	"strings"
	"testing"

	"github.com/livefleet/handover/helper/internal/hooks/cgrouptest"
)

func TestHolding(t *testing.T) {
	for status, want := range map[string][2]bool{
		"Name:\tsh\nState:\tt (tracing stop)\nTracerPid:\t4711\n": {false, true},
		"Name:\tsh\nState:\tS (sleeping)\nTracerPid:\t0\n":        {false, false},
		"Name:\tsh\nState:\tZ (zombie)\nTracerPid:\t0\n":          {true, false},
	} {
		if ended, held := holding(status); ended != want[0] || held != want[1] {
			t.Errorf("%q: ended %t, held %t", status, ended, held)
		}
	}
}

func TestWhoHoldsTheTasks(t *testing.T) {
	dir, _ := cgrouptest.New(t)
	c := Cgroup(dir)
	if err := c.Held(); err == nil || !strings.Contains(err.Error(), "CRIU does not hold process") {
		t.Errorf("nobody holds them: %v", err)
	}
	thread.LockOSThread() // a debugger is a thread
	defer thread.UnlockOSThread()
	release, err := cgrouptest.Hold(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.Held(); err != nil {
		t.Error(err)
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
	if err := c.Held(); err == nil {
		t.Error("they were let go, and it is not seen")
	}
	if err := c.Thaw(); err != nil {
		t.Fatal(err)
	}
}
