package timers

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/criuimage"
)

// set arms a timerfd: it fires after first, and then every so often.
func set(t *testing.T, fd int, first, every time.Duration) {
	t.Helper()
	spec := [2]unix.Timespec{unix.NsecToTimespec(every.Nanoseconds()), unix.NsecToTimespec(first.Nanoseconds())}
	if _, _, errno := unix.Syscall6(unix.SYS_TIMERFD_SETTIME, uintptr(fd), 0, uintptr(unsafe.Pointer(&spec)), 0, 0, 0); errno != 0 {
		t.Fatal(errno)
	}
}

// fire gives it the ticks that CRIU restores, beside the time that is left.
func fire(t *testing.T, fd int, times uint64) {
	t.Helper()
	const setTicks = 0x40085400
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), setTicks, uintptr(unsafe.Pointer(&times))); errno != 0 {
		t.Skip("this kernel restores no ticks: ", errno)
	}
}

func newTimer(t *testing.T) int {
	t.Helper()
	fd, _, errno := unix.Syscall(unix.SYS_TIMERFD_CREATE, unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC, 0)
	if errno != 0 {
		t.Fatal(errno)
	}
	t.Cleanup(func() { _ = unix.Close(int(fd)) })
	return int(fd)
}

func TestATimerfdThatIsLost(t *testing.T) {
	for name, c := range map[string]struct {
		want   criuimage.Timer
		first  time.Duration
		every  time.Duration
		ticks  uint64
		passes time.Duration
		lost   string
	}{
		"periodic, and runs":                {want: criuimage.Timer{Armed: true, Periodic: true}, first: time.Hour, every: time.Hour},
		"periodic, and lost":                {want: criuimage.Timer{Armed: true, Periodic: true}, every: time.Hour, lost: "does not fire again and again any more"},
		"as CRIU leaves one that has fired": {want: criuimage.Timer{Armed: true, Periodic: true, Ticks: 1}, every: time.Hour, ticks: 1, lost: "does not fire again and again any more"},
		"periodic, and due all the time":    {want: criuimage.Timer{Armed: true, Periodic: true}, first: time.Microsecond, every: time.Microsecond, passes: 5 * time.Millisecond},
		"periodic, and has fired since":     {want: criuimage.Timer{Armed: true, Periodic: true}, first: time.Millisecond, every: time.Hour, passes: 5 * time.Millisecond},
		"once, and runs":                    {want: criuimage.Timer{Armed: true}, first: time.Hour},
		"once, and has fired since":         {want: criuimage.Timer{Armed: true}, first: time.Millisecond, passes: 5 * time.Millisecond},
		"once, and lost":                    {want: criuimage.Timer{Armed: true}, lost: "is not armed any more"},
		"once, had fired, and is so":        {want: criuimage.Timer{Ticks: 1}, ticks: 1},
		"once, had fired, and is lost":      {want: criuimage.Timer{Ticks: 1}, lost: "has fired, and nothing tells it any more"},
		"disarmed by its program":           {want: criuimage.Timer{Periodic: true}, every: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			fd := newTimer(t)
			set(t, fd, c.first, c.every)
			if c.ticks > 0 {
				fire(t, fd, c.ticks)
			}
			time.Sleep(c.passes)
			c.want.Process, c.want.Descriptor = os.Getpid(), fd
			lost, err := Lost(criuimage.Timers{Files: []criuimage.Timer{c.want}}, strconv.Itoa(os.Getpid()))
			want := fmt.Sprintf("[the timerfd %d of process %d %s]", fd, os.Getpid(), c.lost)
			if c.lost == "" {
				want = "[]"
			}
			if err != nil || fmt.Sprint(lost) != want {
				t.Errorf("%v, %q", err, lost)
			}
		})
	}
}

// Of a timer that has fired every tick is there after the look, and those that follow come.
func TestALookTakesNoTick(t *testing.T) {
	fd := newTimer(t)
	set(t, fd, time.Millisecond, 20*time.Millisecond)
	time.Sleep(10 * time.Millisecond)
	want := criuimage.Timer{Process: os.Getpid(), Descriptor: fd, Armed: true, Periodic: true}
	if lost, err := Lost(criuimage.Timers{Files: []criuimage.Timer{want}}, strconv.Itoa(os.Getpid())); err != nil || len(lost) > 0 {
		t.Fatal(lost, err)
	}
	b := make([]byte, 8)
	for n := range 3 {
		if _, err := unix.Read(fd, b); err != nil {
			t.Fatal(n, err)
		}
	}
}

// The timers of POSIX are those of a process: another one than this has them.
func TestATimerOfPOSIXThatIsLost(t *testing.T) {
	if runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		t.Skip("needs the numbers of the kernel's calls")
	}
	c := exec.Command("python3", "-c", fmt.Sprintf(`
import ctypes, sys
libc, number = ctypes.CDLL(None), ctypes.c_int()
print(libc.syscall(%d, 1, None, ctypes.byref(number)), number.value, flush=True)
sys.stdin.read()
`, unix.SYS_TIMER_CREATE))
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = c.Process.Kill(); _ = c.Wait() })
	var failed, number int
	if _, err := fmt.Fscan(out, &failed, &number); err != nil || failed != 0 {
		t.Fatal(failed, err)
	}
	pid := c.Process.Pid
	if _, err := os.Stat(fmt.Sprintf("/proc/%d/timers", pid)); err != nil {
		t.Skip("this kernel tells nothing of timers: ", err)
	}
	for want, said := range map[int]string{number: "", number + 7: fmt.Sprintf("the timer %d of process %d is not there", number+7, pid)} {
		lost, err := Lost(criuimage.Timers{POSIX: map[int][]int{pid: {want}}}, strconv.Itoa(os.Getpid()))
		if err != nil || strings.Join(lost, "") != said {
			t.Errorf("%q, %v", lost, err)
		}
	}
}
