package undump

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/criuimage"
)

func TestASleepGoesOn(t *testing.T) {
	needsRoot(t)
	for name, dumped := range map[string]bool{"after a dump": true, "after a freeze": false} {
		t.Run(name, func(t *testing.T) {
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			p := exec.Command(self, sleeper)
			p.Stdout = &out
			if err := p.Start(); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			thread := asleep(t, p.Process.Pid)
			time.Sleep(200 * time.Millisecond)
			if dumped {
				dump(t, thread)
			} else if r, err := PutBack(only(p.Process.Pid), ""); err != nil || r.Waits == 0 {
				t.Fatalf("put back is %+v (%v)", r, err)
			}
			if asleep(t, p.Process.Pid) != thread {
				t.Error("the call is another one")
			}
			if err := p.Wait(); err != nil || strings.TrimSpace(out.String()) != "<nil>" {
				t.Errorf("the sleep ended with %q (%v)", out.String(), err)
			}
			if took := time.Since(began); took < sleeps {
				t.Errorf("it slept for %s only", took)
			}
		})
	}
}

// asleep returns the thread that sleeps, by the call that it made itself.
func asleep(t *testing.T, pid int) int {
	t.Helper()
	for range 500 {
		calls, _ := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task/*/syscall"))
		for _, path := range calls {
			if text, _ := os.ReadFile(path); bytes.HasPrefix(text, []byte("35 ")) && sleptInMain(path) {
				thread, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
				return thread
			}
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("it does not sleep")
	return 0
}

// sleptInMain leaves out the short sleeps of Go's own threads: they ask for no rest.
func sleptInMain(path string) bool {
	text, _ := os.ReadFile(path)
	fields := strings.Fields(string(text))
	return len(fields) > 2 && fields[2] != "0x0"
}

// dump does to a thread that sleeps as CRIU does, and has it put back before it runs.
func dump(t *testing.T, thread int) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.PtraceSeize(thread); err != nil {
		t.Fatal(err)
	}
	if err := unix.PtraceInterrupt(thread); err != nil {
		t.Fatal(err)
	}
	if err := stopped(thread); err != nil {
		t.Fatal(err)
	}
	var regs unix.PtraceRegs
	if err := unix.PtraceGetRegs(thread, &regs); err != nil {
		t.Fatal(err)
	}
	if regs.Rax != criuimage.Restarts {
		t.Fatalf("the sleep tells %#x, and not that it goes on", regs.Rax)
	}
	regs.Rax = criuimage.Interrupted
	if err := unix.PtraceSetRegs(thread, &regs); err != nil {
		t.Fatal(err)
	}
	r, err := again(thread)
	if err != nil || r != (Report{Waits: 1}) {
		t.Fatalf("put back is %+v (%v)", r, err)
	}
}
