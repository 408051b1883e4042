package engine

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/livefleet/handover/helper/internal/criuimage"
	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/hooks/cgrouptest"
	"github.com/livefleet/handover/helper/internal/session/record"
)

// A timer of a frozen task that was due when CRIU asked for it has fired a moment later.
func TestATimerFiresInAFrozenTask(t *testing.T) {
	dir, _ := cgrouptest.New(t)
	task := exec.Command("python3", "-c", `
import ctypes, sys
libc = ctypes.CDLL(None)
timer = libc.timerfd_create(1, 0)
libc.timerfd_settime(timer, 0, (ctypes.c_long * 4)(0, 0, 0, int(sys.argv[1])), None)
print(timer, flush=True)
sys.stdin.read()
`, "300000000")
	in, err := task.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := task.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := task.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = task.Process.Kill(); _ = task.Wait() })
	pid, timer := task.Process.Pid, 0
	if _, err := fmt.Fscan(out, &timer); err != nil {
		t.Fatal(err)
	}
	cgroup := hooks.Cgroup(dir)
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := cgroup.Freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	since := FiredSince(record.Member{Freeze: &hooks.Command{Argv: []string{"true"}, Cgroup: cgroup}})
	of := criuimage.Timer{Process: pid, Descriptor: timer}
	for until := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		ticks, err := since(of)
		if err != nil {
			t.Fatal(err)
		}
		if ticks == 1 {
			break
		}
		if time.Now().After(until) {
			t.Fatal("it has not fired")
		}
	}
	if ticks, err := since(criuimage.Timer{Process: 1 << 22, Descriptor: timer}); err != nil || ticks != 0 {
		t.Errorf("%d ticks of a process that is not there, %v", ticks, err)
	}
	if _, err := since(criuimage.Timer{Process: pid, Descriptor: 0}); err == nil {
		t.Error("its standard input is taken for a timer")
	}
}
