package affinity

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/hooks/cgrouptest"
)

// asleep starts a process in the cgroup.
func asleep(t *testing.T, cgroup string, words ...string) int {
	t.Helper()
	c := exec.Command(words[0], words[1:]...)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	if err := os.WriteFile(filepath.Join(cgroup, "cgroup.procs"), []byte(strconv.Itoa(c.Process.Pid)), 0); err != nil {
		t.Fatal(err)
	}
	return c.Process.Pid
}

func affinityOf(t *testing.T, pid int) (set unix.CPUSet) {
	t.Helper()
	if err := unix.SchedGetaffinity(pid, &set); err != nil {
		t.Fatal(err)
	}
	return set
}

func TestAThreadIsBoundAgain(t *testing.T) {
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	if all.Count() < 2 {
		t.Skip("needs two processors")
	}
	last := processors(&all)[all.Count()-1]
	cgroup, _ := cgrouptest.New(t)
	free, bound := asleep(t, cgroup, "sleep", "1000"), asleep(t, cgroup, "sleep", "1000")
	var one unix.CPUSet
	one.Set(last)
	if err := unix.SchedSetaffinity(bound, &one); err != nil {
		t.Fatal(err)
	}
	threads, err := Read(cgroup)
	if err != nil || len(threads) != 1 || len(threads[bound]) != 1 || threads[bound][0] != last {
		t.Fatalf("bound are %v (%v)", threads, err)
	}
	// As CRIU restores it.
	if err := unix.SchedSetaffinity(bound, &all); err != nil {
		t.Fatal(err)
	}
	unbound, err := threads.Bind(strconv.Itoa(os.Getpid()))
	if err != nil || len(unbound) > 0 {
		t.Fatalf("not bound are %v (%v)", unbound, err)
	}
	if affinityOf(t, bound) != one {
		t.Error("it may run where it likes")
	}
	if affinityOf(t, free) != all {
		t.Error("the other one is bound, too")
	}
}

func TestAProcessorThatIsNotThere(t *testing.T) {
	me := os.Getpid()
	unbound, err := Threads{me: {1000}}.Bind(strconv.Itoa(me))
	if err != nil || len(unbound) != 1 || unbound[0] != me {
		t.Errorf("not bound are %v (%v)", unbound, err)
	}
	if _, err := (Threads{1 << 22: {0}}).Bind(strconv.Itoa(me)); err == nil {
		t.Error("a thread that is not there is no error")
	}
}
