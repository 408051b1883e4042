package hooks

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/livefleet/handover/helper/internal/hooks/cgrouptest"
)

// The tests start this binary again: as what ThawBehind leaves behind, as what
// stands in for CRIU, and as CRIU.
func TestMain(m *testing.M) {
	acts := map[string]func(args []string) error{
		ThawBehindWord: func(args []string) error { return ThawWhenGone(Cgroup(args[0])) },
		actHeld:        standIn,
		actCRIU:        func([]string) error { return beCRIU() },
	}
	if len(os.Args) > 1 && acts[os.Args[1]] != nil {
		if err := acts[os.Args[1]](os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func busy(t *testing.T) (Cgroup, func() bool) {
	dir, runs := cgrouptest.New(t)
	return Cgroup(dir), runs
}

func TestAFrozenCgroupStandsStillUntilItIsThawed(t *testing.T) {
	c, runs := busy(t)
	if !runs() {
		t.Fatal("it does not run")
	}
	if _, err := c.Freeze(context.Background()); err != nil {
		t.Fatal(err)
	}
	if runs() {
		t.Error("a task of a frozen cgroup runs")
	}
	for range 2 { // every way out may call it
		if err := c.Thaw(); err != nil {
			t.Fatal(err)
		}
	}
	if !runs() {
		t.Error("a task of a thawed cgroup does not run")
	}
}

func TestNoCgroup(t *testing.T) {
	if err := Cgroup("").Thaw(); err != nil {
		t.Error(err)
	}
	gone := Cgroup(filepath.Join(t.TempDir(), "gone"))
	if err := gone.Thaw(); err != nil { // its tasks went with it
		t.Error(err)
	}
	if _, err := gone.Freeze(context.Background()); err == nil {
		t.Error("a directory that is no cgroup was frozen")
	}
}

func TestThawBehindWaitsForTheEndOfTheProcess(t *testing.T) {
	c, runs := busy(t)
	criu := exec.Command("sleep", "60")
	if err := criu.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Freeze(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := c.ThawBehind(criu.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if runs() {
		t.Error("it was thawed before the process had ended")
	}
	_ = criu.Process.Kill()
	_ = criu.Wait()
	for range 100 {
		if runs() {
			return
		}
	}
	t.Error("nobody has thawed it")
}
