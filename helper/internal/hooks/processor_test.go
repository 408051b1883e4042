package hooks

import (
	"os/exec"
	"testing"
	"time"

	"github.com/livefleet/handover/helper/internal/hooks/cgrouptest"
)

func TestProcessorTime(t *testing.T) {
	for stat, want := range map[string]time.Duration{
		"7 (sh) S 1 7 7 0 -1 4194304 100 0 0 0 250 50 3 4 20 0 1 0 100": 307 * tick,
		"7 (a) (b) R 1 7 7 0 -1 4194304 100 0 0 0 1 2 0 0 20 0 1 0 100": 3 * tick,
	} {
		if got, err := processorTime(stat); err != nil || got != want {
			t.Errorf("%q: %s (%v), and %s wanted", stat, got, err, want)
		}
	}
	for _, stat := range []string{"", "7 (sh) S 1", "7 (sh) S 1 7 7 0 -1 4194304 100 0 0 0 x 50 3 4 20 0"} {
		if _, err := processorTime(stat); err == nil {
			t.Errorf("%q was read", stat)
		}
	}
}

func TestABusyCgroupUsesProcessors(t *testing.T) {
	dir, _ := cgrouptest.Limitable(t)
	cgrouptest.Enter(t, exec.Command("python3", "-c", "while True: pass"), dir)
	c := Cgroup(dir)
	before, err := c.ProcessorTime()
	if err != nil {
		t.Fatal(err)
	}
	for range 500 {
		time.Sleep(10 * time.Millisecond)
		if now, err := c.ProcessorTime(); err != nil {
			t.Fatal(err)
		} else if now >= before+200*time.Millisecond {
			return
		}
	}
	t.Error("a loop that does nothing else has not used a processor for 0.2 s in five")
}
