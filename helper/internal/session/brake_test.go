package session

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/livefleet/handover/helper/internal/hooks/cgrouptest"
	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/session/recovery"
	"github.com/livefleet/handover/helper/internal/throttle"
)

// Where the test's CRIU finds which limit to look at, and notes what it was when the
// workload was frozen.
const (
	limitFile   = "limit-file"
	frozenLimit = "frozen-limit"
)

// withBrake gives the workload one more task, and lets the session slow that down. It
// returns the file with the limit, and what that says now.
func (r *rig) withBrake(program string) (file, original string) {
	r.t.Helper()
	dir, file := cgrouptest.Limitable(r.t)
	groups := []string{dir}
	if own := string(r.spec.src.Hooks.Freeze.Cgroup); own != "" {
		groups = append(groups, own)
		if filepath.Base(file) == "cpu.max" { // a task is in one group of that version
			dir, file, groups = own, filepath.Join(own, "cpu.max"), []string{own}
		}
	}
	cgrouptest.Enter(r.t, exec.Command("python3", "-c", program), groups...)
	r.spec.src.Policy.Throttle = dir
	if err := os.WriteFile(filepath.Join(r.control, limitFile), []byte(file), 0o600); err != nil {
		r.t.Fatal(err)
	}
	return file, r.limit(file)
}

func (r *rig) limit(file string) string {
	r.t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		r.t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// steps are what the source's events tell of the throttle, in percent.
func (r *rig) steps() (percents []int) {
	r.t.Helper()
	for _, e := range r.events(r.src, "throttle") {
		percents = append(percents, int(e["percent"].(float64)))
	}
	return percents
}

// unbraked demands that nothing is left of a throttle.
func (r *rig) unbraked(file, original string) {
	r.t.Helper()
	if now := r.limit(file); now != original {
		r.t.Errorf("the limit is %q, and was %q", now, original)
	}
	noted := filepath.Join(r.src, record.ThrottleFile)
	if exists(noted) {
		r.t.Errorf("the record of a limit is still there")
	}
	left := ""
	for range 300 {
		if left = guardOf(noted); left == "" {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	r.t.Errorf("process %s still watches over a limit that was lifted", left)
}

// guardOf is a process that watches over a record; empty if there is none.
func guardOf(noted string) string {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range all {
		line, _ := os.ReadFile(path)
		if words := strings.Split(string(line), "\x00"); len(words) > 2 && words[1] == throttle.LiftBehindWord && words[2] == noted {
			return filepath.Base(filepath.Dir(path))
		}
	}
	return ""
}

func quickly(t *testing.T) {
	before := planted.brakeHold
	planted.brakeHold = 200 * time.Millisecond
	t.Cleanup(func() { planted.brakeHold = before })
}

const busyLoop = "while True: pass"

// A workload for which no step is enough goes through all of them, has its processor
// time back, and was never stopped.
func TestAThrottleThatDoesNotHelpIsLifted(t *testing.T) {
	quickly(t)
	r := newRig(t)
	r.spec.src.Policy.MaxFrozenMS = 100 // less than any pause
	file, original := r.withBrake(busyLoop)
	w := r.startWriter()
	r.start()
	r.wait(r.src, record.UntilConverged)
	src, _ := r.cutover()
	// To the last; a workload that had little of a processor comes to the least that there is before.
	steps := r.steps()
	most := slices.Max(append(steps, 0))
	if n := len(steps); n < 3 || steps[0] != 20 || steps[n-1] != 0 || steps[n-2] != most || !slices.IsSorted(steps[:n-1]) {
		t.Errorf("the steps were %v: from 20 on, and in the end 0 are wanted", steps)
	}
	for _, said := range []string{"would pause shop for about", "max_frozen_ms allows 100 ms", fmt.Sprintf("there was no better moment, also not with its processor time cut by %d %% (auto-converge): allow more", most)} {
		if !strings.Contains(src.Error, said) {
			t.Errorf("the source says %q, and not %q", src.Error, said)
		}
	}
	if src.State != record.Failed || src.FrozenMS != 0 || src.Throttle != 0 {
		t.Errorf("the source is %s, frozen for %v ms, throttled by %d %%", src.State, src.FrozenMS, src.Throttle)
	}
	r.unbraked(file, original)
	r.runsOnce(w, record.Source)
}

// A task that does so much, whatever else the machine does, until it is braked: as long as
// it has more than a twenty-fifth of a processor.
const given = `
import mmap, os, time
def given():
    began, used = time.monotonic(), time.process_time()
    while time.monotonic() < began + 0.05:
        pass
    return time.process_time() - used > (time.monotonic() - began) / 25
`

// heavyWriter writes 4 MiB of random blocks past the page cache, again and again.
const heavyWriter = given + `
import random
size, block, random_size = 32 << 20, 128 << 10, 4 << 20
f = os.open(%q, os.O_CREAT | os.O_RDWR | os.O_DIRECT, 0o600)
b = mmap.mmap(-1, random_size)
b[:] = os.urandom(random_size)
view, at = memoryview(b), 0
while True:
    for _block in range(random_size // block if given() else 0):
        start = random.randrange(0, random_size - block, 512)
        os.pwritev(f, [view[start:start + block]], at)
        at = (at + block) %% size
`

// heavyMemory changes all pages of its memory, again and again, an eighth at a time. The
// destination has room to be sent all of it twice: before its brake, and in the end.
const heavyMemory = given + `
size, page = 12 << 20, 4096
part, at, written = size // 8, 0, 0
b = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
b.write(os.urandom(size))
while True:
    if given():
        b[at + written:at + part:page] = os.urandom(len(range(at + written, at + part, page)))
        at = (at + part) % size
        written = (written + (at == 0)) % page
`

// A workload that writes too much is slowed down until it does not, and is frozen with
// all of its processor time.
func TestAWorkloadIsSlowedDownUntilThePauseIsShortEnough(t *testing.T) {
	if testing.Short() {
		t.Skip("with the race detector memory is read so slowly that a task at one percent of a processor changes it faster: the suite runs this without")
	}
	for name, c := range map[string]struct {
		allowed int   // ms
		limit   int64 // bytes a second
		begin   func(r *rig) (file, original string)
	}{
		// What is written in the last 50 ms is to be sent in 10.
		"disk": {10, 16 << 20, func(r *rig) (string, string) {
			return r.withBrake(fmt.Sprintf(heavyWriter, filepath.Join(r.mountpoint, "heavy")))
		}},
		// 12 MiB that always change take 0.75 s.
		"memory": {400, 16 << 20, func(r *rig) (string, string) {
			r.withCgroup()
			file, original := r.withBrake(heavyMemory)
			for range 1000 {
				if has, err := r.spec.src.Hooks.Freeze.Cgroup.Memory(); err != nil {
					r.t.Fatal(err)
				} else if has > 16<<20 {
					return file, original
				}
				time.Sleep(10 * time.Millisecond)
			}
			r.t.Fatal("the task has not come by its memory")
			return "", ""
		}},
	} {
		t.Run(name, func(t *testing.T) {
			// The throttle is for the writes. How long it takes to find them is the machine's.
			planted.lookTakes = func(time.Duration) time.Duration { return 0 }
			t.Cleanup(func() { planted.lookTakes = nil })
			r := newRig(t)
			r.spec.src.Policy.PauseBaseMS, r.spec.src.Policy.MaxFrozenMS, r.spec.src.Policy.Limit = 1, c.allowed, c.limit
			r.fill(filepath.Join(r.mountpoint, "first"), 12<<20) // that tells how fast the link is
			file, original := c.begin(r)
			w := r.startWriter()
			r.start()
			r.wait(r.src, record.UntilConverged)
			go func() { _, _ = recovery.Cutover(context.Background(), r.src) }()
			r.moved(w)
			r.slowedDown(file, original)
		})
	}
}

// fill writes what cannot be packed to a file, and that to its disk.
func (r *rig) fill(path string, size int) {
	r.t.Helper()
	b := make([]byte, size)
	_, _ = rand.Read(b)
	f, err := os.Create(path)
	if err == nil {
		_, err = f.Write(b)
		err = errors.Join(err, f.Sync(), f.Close())
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// slowedDown demands that the source took steps, and that nothing was left of them when
// it froze the workload.
func (r *rig) slowedDown(file, original string) {
	r.t.Helper()
	steps := r.steps()
	r.t.Logf("the steps were %v, and then %v", steps, r.events(r.src, "forecast"))
	if len(steps) < 2 || steps[0] != 20 || steps[len(steps)-1] != 0 {
		r.t.Fatalf("the steps were %v: some, from 20 on, and in the end 0 are wanted", steps)
	}
	r.event(r.src, `"event":"forecast"`)
	if now, err := os.ReadFile(filepath.Join(r.control, frozenLimit)); err != nil || string(now) != original {
		r.t.Errorf("when it was frozen the limit was %q (%v), and %q before", now, err, original)
	}
	last, freeze := r.events(r.src, "throttle")[len(steps)-1], r.stage("freeze")
	if at := eventTime(r.t, last); !at.Before(freeze) {
		r.t.Errorf("the limit was lifted at %s, and the freeze began at %s", at, freeze)
	}
	r.unbraked(file, original)
}

// stage is when a stage of the source began.
func (r *rig) stage(name string) time.Time {
	r.t.Helper()
	for _, e := range r.events(r.src, "stage") {
		if e["stage"] == name {
			return eventTime(r.t, e).Add(-time.Duration(e["ms"].(float64) * float64(time.Millisecond)))
		}
	}
	r.t.Fatalf("there was no stage %s", name)
	return time.Time{}
}

func eventTime(t *testing.T, e map[string]any) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, e["time"].(string))
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// braking brings a sender in a process of its own as far as its first step.
func (r *rig) braking() (kill func()) {
	r.t.Helper()
	r.spec.src.Policy.MaxFrozenMS = 100
	kill = r.startApart(record.Source)
	r.wait(r.src, record.UntilConverged)
	go func() { _, _ = recovery.Cutover(context.Background(), r.src) }()
	for range 1000 {
		if s, err := record.Show(r.src); err == nil && s.Throttle > 0 {
			return kill
		}
		time.Sleep(10 * time.Millisecond)
	}
	kill()
	r.t.Fatal("it was not slowed down")
	return nil
}

// A sender that is killed leaves its workload all of its processor time; and what a
// guard could not give back because it was killed too, the recovery does.
func TestAKilledSenderLiftsTheThrottle(t *testing.T) {
	r := newRig(t)
	r.withCgroup()
	file, original := r.withBrake(busyLoop)
	r.startWriter()
	kill := r.braking()
	path := filepath.Join(r.src, record.ThrottleFile)
	noted, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	slow := r.limit(file)
	if slow == original {
		t.Fatalf("the limit is %q, as it was", slow)
	}
	kill()
	for i := 0; exists(path); i++ {
		if i == 300 {
			t.Fatal("three seconds after its death the record is still there")
		}
		time.Sleep(10 * time.Millisecond)
	}
	r.unbraked(file, original)

	if err := errors.Join(os.WriteFile(path, noted, 0o600), os.WriteFile(file, []byte(slow), 0)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		s, err := recovery.Recover(context.Background(), r.src, r.srcRun, false)
		if err != nil || s.State != record.Failed {
			t.Fatalf("%+v %v", s, err)
		}
		r.unbraked(file, original)
	}
	<-r.receive
}

// An abort gives it back, too; and so does a connection that breaks.
func TestAnAbortLiftsTheThrottle(t *testing.T) {
	r := newRig(t)
	file, original := r.withBrake(busyLoop)
	w := r.startWriter()
	r.braking()
	if _, err := recovery.Abort(context.Background(), r.src, r.srcRun); err != nil {
		t.Fatal(err)
	}
	r.unbraked(file, original)
	<-r.receive
	r.runsOnce(w, record.Source)
}

func TestABrokenConnectionLiftsTheThrottle(t *testing.T) {
	r := newRig(t)
	r.spec.src.Policy.ReconnectTimeout = 600 // it would be slow for ten minutes
	file, original := r.withBrake(busyLoop)
	r.startWriter()
	kill := r.braking()
	defer func() { kill(); <-r.receive }()
	r.proxy.to("127.0.0.1:9") // nobody is there
	r.proxy.cut()
	for i := 0; r.limit(file) != original; i++ {
		if i == 500 {
			t.Fatal("the connection is broken for five seconds, and it is slowed down still")
		}
		time.Sleep(10 * time.Millisecond)
	}
	if s, err := record.Show(r.src); err != nil || s.Ended {
		t.Errorf("%+v %v", s, err)
	}
}

// What could not be done in the end is not begun.
func TestAThrottleThatIsNotPossibleIsSaidAtOnce(t *testing.T) {
	r := newRig(t)
	r.spec.src.Policy.MaxFrozenMS, r.spec.src.Policy.Throttle = 100, r.control
	r.start()
	err := <-r.send
	if err == nil || !strings.Contains(err.Error(), "shop cannot be slowed down: throttle: "+r.control+" has neither cpu.max nor cpu.cfs_quota_us") {
		t.Errorf("%v", err)
	}
	if _, err := recovery.Abort(context.Background(), r.dst, r.dstRun); err != nil {
		t.Error(err)
	}
	<-r.receive
}
