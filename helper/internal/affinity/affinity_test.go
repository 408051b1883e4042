package affinity

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

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

// bindTo binds a process to one processor.
func bindTo(t *testing.T, pid, processor int) (one unix.CPUSet) {
	t.Helper()
	one.Set(processor)
	if err := unix.SchedSetaffinity(pid, &one); err != nil {
		t.Fatal(err)
	}
	return one
}

// last is the last of this process's processors, of which there are several.
func last(t *testing.T) (all unix.CPUSet, processor int) {
	t.Helper()
	all = affinityOf(t, 0)
	if all.Count() < 2 {
		t.Skip("needs two processors")
	}
	return all, processors(&all)[all.Count()-1]
}

func TestAThreadIsBoundAgain(t *testing.T) {
	all, last := last(t)
	cgroup, _ := cgrouptest.New(t)
	free, bound := asleep(t, cgroup, "sleep", "1000"), asleep(t, cgroup, "sleep", "1000")
	one := bindTo(t, bound, last)
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

// As with `taskset 1 program`: no thread of the workload tells that it is bound.
func TestAllThreadsAreBoundAlike(t *testing.T) {
	_, last := last(t)
	cgroup, _ := cgrouptest.New(t)
	tasks, err := os.ReadFile(filepath.Join(cgroup, "cgroup.procs"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(tasks)))
	if err != nil {
		t.Fatal(err)
	}
	bindTo(t, pid, last)
	threads, err := Read(cgroup)
	if err != nil || len(threads) != 1 || !slices.Equal(threads[pid], []int{last}) {
		t.Errorf("bound are %v (%v)", threads, err)
	}
}

// A host may keep processors from its init, and so from all that it starts.
func TestWhatAHostKeepsBackIsNoBinding(t *testing.T) {
	all, last := last(t)
	cgroup, _ := cgrouptest.New(t)
	held, stand := asleep(t, cgroup, "sleep", "1000"), asleep(t, cgroup, "sleep", "1000")
	bindTo(t, held, last)
	bindTo(t, stand, last)
	before := initTask
	initTask = stand
	t.Cleanup(func() { initTask = before })
	if threads, err := Read(cgroup); err != nil || len(threads) > 0 {
		t.Errorf("bound are %v (%v)", threads, err)
	}
	bindTo(t, held, processors(&all)[0])
	if threads, err := Read(cgroup); err != nil || len(threads) != 1 || len(threads[held]) != 1 {
		t.Errorf("bound are %v (%v)", threads, err)
	}
}

// The processors that a cgroup leaves its tasks are no binding of theirs, and bound each of theirs.
func TestWhatACgroupLeaves(t *testing.T) {
	all, last := last(t)
	cgroup, _ := cgrouptest.New(t)
	inside, old := limited(t, last)
	pid := asleep(t, inside, "sleep", "1000")
	if !old {
		cgroup = inside
	} else if err := os.WriteFile(filepath.Join(cgroup, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
		t.Fatal(err)
	}
	if threads, err := Read(cgroup); err != nil || len(threads) > 0 {
		t.Errorf("bound are %v (%v)", threads, err)
	}
	unbound, err := Threads{pid: processors(&all)}.Bind(strconv.Itoa(os.Getpid()))
	if err != nil || len(unbound) > 0 {
		t.Errorf("not bound are %v (%v)", unbound, err)
	}
}

// limited is a cgroup whose tasks have one processor; old is one of the first version, which
// is no cgroup of the workload's.
func limited(t *testing.T, processor int) (dir string, old bool) {
	t.Helper()
	l, err := newLimits()
	if err != nil {
		t.Fatal(err)
	}
	if !l.old {
		_ = os.WriteFile(filepath.Join(l.place, "cgroup.subtree_control"), []byte("+cpuset"), 0)
	}
	if dir, err = os.MkdirTemp(l.place, "handover-test-"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for until := time.Now().Add(10 * time.Second); os.Remove(dir) != nil; time.Sleep(time.Millisecond) {
			if time.Now().After(until) {
				t.Errorf("%s is left", dir)
				return
			}
		}
	})
	if l.old {
		memory, err := os.ReadFile(filepath.Join(l.place, "cpuset.mems"))
		if err := errors.Join(err, os.WriteFile(filepath.Join(dir, "cpuset.mems"), memory, 0)); err != nil {
			t.Fatal(err)
		}
	}
	if os.WriteFile(filepath.Join(dir, "cpuset.cpus"), []byte(strconv.Itoa(processor)), 0) != nil {
		t.Skip("no cgroup here has the controller cpuset")
	}
	return dir, l.old
}

func TestABindingThatDoesNotHoldIsAnError(t *testing.T) {
	_, last := last(t)
	c := exec.Command("sleep", "1000")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	setAffinity = func(int, *unix.CPUSet) error { return nil }
	t.Cleanup(func() { setAffinity = unix.SchedSetaffinity })
	_, err := Threads{c.Process.Pid: {last}}.Bind(strconv.Itoa(c.Process.Pid))
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("was bound to the processors [%d] on the source", last)) {
		t.Error(err)
	}
}

func TestLists(t *testing.T) {
	for list, want := range map[string][]int{"0\n": {0}, "0-3,7\n": {0, 1, 2, 3, 7}, "1,3": {1, 3}} {
		if set, err := parse(list); err != nil || !slices.Equal(processors(&set), want) {
			t.Errorf("%q: %v, %v", list, processors(&set), err)
		}
	}
	for _, list := range []string{"", "3-1", "a", "0-"} {
		if set, err := parse(list); err == nil {
			t.Errorf("%q is %v", list, processors(&set))
		}
	}
}
