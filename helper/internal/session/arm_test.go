package session

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/hooks/cgrouptest"
	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/session/recovery"
)

// withCgroup gives the workload one more task, in a cgroup of its own.
func (r *rig) withCgroup() (runs func() bool) {
	dir, runs := cgrouptest.New(r.t)
	f := r.spec.src.Hooks.Freeze
	f.Cgroup = hooks.Cgroup(dir)
	f.Argv = append(f.Argv, dir)
	return runs
}

// comesBack waits for a task that somebody thaws behind a process that ended.
func comesBack(t *testing.T, runs func() bool) {
	t.Helper()
	for range 100 {
		if runs() {
			return
		}
	}
	t.Error("the workload's cgroup stays frozen")
}

// Rule 1 for the cgroup: whatever refuses the dump, its tasks run on.
func TestARefusedDumpThawsTheCgroup(t *testing.T) {
	r := newRig(t)
	runs := r.withCgroup()
	_ = os.WriteFile(filepath.Join(r.control, "restore-fails"), []byte("CRIU says no"), 0o600)
	w := r.startWriter()
	r.start()
	r.wait(r.src, record.UntilConverged)
	src, _ := r.cutover()
	if src.State != record.Thawed || !strings.Contains(src.Error, "CRIU says no") {
		t.Fatalf("the source is %s (%s)", src.State, src.Error)
	}
	r.runsOnce(w, record.Source)
	if !runs() {
		t.Error("the workload's cgroup stays frozen")
	}
	if !exists(filepath.Join(r.src, record.RunsFile)) {
		t.Error("a recovery would thaw it again, whoever has paused it by then")
	}
}

// A sender that is killed in the freeze: CRIU's hook sees to the cgroup, when
// CRIU has let go.
func TestAKilledSenderThawsTheCgroup(t *testing.T) {
	r := newRig(t)
	runs := r.withCgroup()
	_ = os.WriteFile(filepath.Join(r.control, "restore-takes"), []byte("1s"), 0o600)
	w, _ := r.killFlushed()
	r.runsOnce(w, record.Source)
	comesBack(t, runs)
}

// A sender that is killed after it froze the cgroup and before CRIU was let go.
func TestAKilledSenderThawsTheCgroupBeforeTheDump(t *testing.T) {
	r := newRig(t)
	runs := r.withCgroup()
	stop := filepath.Join(r.control, "armed-takes")
	_ = os.WriteFile(stop, nil, 0o600)
	w := r.startWriter()
	kill := r.startApart(record.Source)
	r.wait(r.src, record.UntilConverged)
	go func() { _, _ = recovery.Cutover(context.Background(), r.src) }()
	// The gate stands as long as CRIU has not come to it; then the process that
	// would answer is gone, and its last deed was the freeze.
	if err := await(filepath.Join(r.control, "arming")); err != nil {
		t.Fatal(err)
	}
	kill()
	if err := os.Remove(filepath.Join(r.src, record.RunsFile)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.spec.src.Hooks.Freeze.Cgroup.Freeze(context.Background()); err != nil {
		t.Fatal(err)
	}
	_ = os.Remove(stop)
	<-r.receive
	r.waitForHook(r.src, string(record.Thawed))
	comesBack(t, runs)
	r.runsOnce(w, record.Source)
	r.cleanDestination()
}

// Rule 3 for a CRIU that is killed while it holds the tasks of a source that was
// released: it was their debugger, and a debugger's tasks run on without it.
func TestAKilledCRIULetsNothingRun(t *testing.T) {
	for name, sender := range map[string]bool{"the sender goes on": true, "the sender is killed, too": false} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			runs := r.withCgroup()
			r.note("resume-takes", "2s")
			w := r.startWriter()
			apart := record.Role("")
			if !sender {
				apart = record.Source
			}
			kill := r.startApart(apart)
			r.wait(r.src, record.UntilConverged)
			go func() { _, _ = recovery.Cutover(context.Background(), r.src) }()
			r.wait(r.dst, string(record.Released))
			r.killCRIU()
			if !sender {
				kill()
			}
			if runs() {
				t.Error("what CRIU held runs on")
			}
			<-r.receive
			if sender {
				<-r.send
			} else {
				ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
				defer cancel()
				if s, err := recovery.Resolve(ctx, r.src, r.srcRun, record.Resumed); err != nil || s.State != record.Done {
					t.Fatalf("%+v, %v", s, err)
				}
			}
			if left, err := os.ReadFile(filepath.Join(string(r.spec.src.Hooks.Freeze.Cgroup), "cgroup.procs")); err != nil || len(left) > 0 {
				t.Errorf("in the end these tasks are left: %q (%v)", left, err)
			}
			r.runsOnce(w, record.Destination)
		})
	}
}

// A CRIU that is killed when it has dumped, and before the cgroup is frozen under
// its hold: what ran in between is in no dump, and nothing is handed over.
func TestACRIUThatIsKilledTooEarlyStopsTheMove(t *testing.T) {
	r := newRig(t)
	runs := r.withCgroup()
	r.spec.src.Policy.PauseAt = record.Frozen
	w := r.startWriter()
	r.start()
	r.wait(r.src, record.UntilConverged)
	go func() { _, _ = recovery.Cutover(context.Background(), r.src) }()
	r.wait(r.src, string(record.Frozen))
	if err := await(filepath.Join(r.gate, stateMark)); err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond) // until it holds at post-dump
	r.killCRIU()
	// What it held runs on.
	if err := errors.Join(os.Remove(filepath.Join(r.control, "frozen")), record.Continue(r.src)); err != nil {
		t.Fatal(err)
	}
	<-r.send
	if s := r.wait(r.src, record.UntilEnded); s.State != record.Thawed || !strings.Contains(s.Error, "it was killed") {
		t.Errorf("the source is %s: %s", s.State, s.Error)
	}
	<-r.receive
	if !runs() {
		t.Error("the workload's cgroup stays frozen")
	}
	r.runsOnce(w, record.Source)
	r.cleanDestination()
}

// killCRIU kills what dumps, and returns when the last of its threads is gone: until
// then it may still hold its tasks, as one does that was killed later.
func (r *rig) killCRIU() {
	r.t.Helper()
	note, err := os.ReadFile(filepath.Join(r.control, "arming"))
	if err != nil {
		r.t.Fatal(err)
	}
	pid, err := strconv.Atoi(string(note))
	if err != nil {
		r.t.Fatal(err)
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil {
		r.t.Fatal(err)
	}
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 30_000)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			r.t.Fatalf("process %d is killed and does not end: %v", pid, err)
		}
		return
	}
}

// A freeze command that fails before it has frozen anything: nothing was moved,
// and nothing was ever stopped.
func TestAFreezeThatCannotBeginStopsNothing(t *testing.T) {
	r := newRig(t)
	_ = os.WriteFile(filepath.Join(r.control, "dump-fails"), []byte("CRIU is not there"), 0o600)
	w := r.startWriter()
	r.start()
	r.wait(r.src, record.UntilConverged)
	src, dst := r.cutover()
	if src.State != record.Failed || dst.State != record.Discarded || !strings.Contains(src.Error, "CRIU is not there") {
		t.Fatalf("source %s (%s), destination %s", src.State, src.Error, dst.State)
	}
	r.runsOnce(w, record.Source)
	r.cleanDestination()
}

// A workload that an operator pauses while the move copies: podman refuses the dump then,
// CRIU does not, and a sender may be killed at that moment. In no case is it let go on by
// us: podman, which has paused it, would not know, and could not let it go on either.
func TestWhatOthersHavePausedStaysSo(t *testing.T) {
	for name, c := range map[string]struct {
		dumpFails, killed bool
		says              string
	}{
		"the engine refuses":   {dumpFails: true, says: "it is paused"},
		"CRIU does not":        {says: "somebody has paused the workload"},
		"the sender is killed": {killed: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			runs := r.withCgroup()
			cgroup := r.spec.src.Hooks.Freeze.Cgroup
			stop := filepath.Join(r.control, "armed-takes")
			apart := record.Role("")
			if c.dumpFails {
				_ = os.WriteFile(filepath.Join(r.control, "dump-fails"), []byte(c.says), 0o600)
			}
			if c.killed {
				apart = record.Source
				_ = os.WriteFile(stop, nil, 0o600)
			}
			w := r.startWriter()
			kill := r.startApart(apart)
			r.wait(r.src, record.UntilConverged)
			if _, err := cgroup.Freeze(context.Background()); err != nil {
				t.Fatal(err)
			}
			if c.killed {
				go func() { _, _ = recovery.Cutover(context.Background(), r.src) }()
				if err := await(filepath.Join(r.control, "arming")); err != nil {
					t.Fatal(err)
				}
				kill()
				_ = os.Remove(stop)
				<-r.receive
				r.waitForHook(r.src, string(record.Thawed))
			} else if src, _ := r.cutover(); !strings.Contains(src.Error, c.says) {
				t.Errorf("the source is %s (%s)", src.State, src.Error)
			}
			if stopped, err := cgroup.Stopped(); err != nil || !stopped || runs() {
				t.Errorf("the workload was let go on (%v)", err)
			}
			if err := cgroup.Thaw(); err != nil {
				t.Fatal(err)
			}
			r.runsOnce(w, record.Source)
			r.cleanDestination()
		})
	}
}

// An abort while the freeze command starts: CRIU comes to a gate that refuses.
func TestAbortWhileArming(t *testing.T) {
	r := newRig(t)
	runs := r.withCgroup()
	stop := filepath.Join(r.control, "armed-takes")
	_ = os.WriteFile(stop, nil, 0o600)
	w := r.startWriter()
	r.start()
	r.wait(r.src, record.UntilConverged)
	go func() { _, _ = recovery.Cutover(context.Background(), r.src) }()
	if err := await(filepath.Join(r.control, "arming")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := record.Ask(ctx, r.src, record.Request{Do: record.AskAbort}); err != nil {
		t.Fatal(err)
	}
	_ = os.Remove(stop)
	<-r.send
	if s := r.wait(r.src, record.UntilEnded); s.State != record.Failed {
		t.Errorf("the source is %+v", s)
	}
	<-r.receive
	r.runsOnce(w, record.Source)
	comesBack(t, runs)
	r.cleanDestination()
}

func TestAnotherRoundIsWorthIt(t *testing.T) {
	for name, c := range map[string]struct {
		took []int // ms
		want int   // the round that is the last
	}{
		"nothing is written":           {[]int{3}, 1},
		"it shrinks to nothing":        {[]int{400, 200, 80, 12}, 4},
		"it does not shrink any more":  {[]int{400, 300, 200, 190, 185}, 5},
		"a steady writer":              {[]int{300, 310, 290}, 3},
		"some have far more":           {[]int{100, 900, 300, 110}, 4},
		"one has more, and it goes on": {[]int{400, 500, 300, 280, 290}, 5},
		"each has more than before":    {[]int{16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144, 524288, 1048576}, 16},
	} {
		t.Run(name, func(t *testing.T) {
			var p pace
			for n, ms := range c.took {
				if p.enough(time.Duration(ms) * time.Millisecond) {
					if n+1 != c.want {
						t.Errorf("round %d was the last, want %d", n+1, c.want)
					}
					return
				}
			}
			t.Errorf("it went on after round %d", len(c.took))
		})
	}
}

// A gate that another session or a snapshot has ends the move before anything is stopped.
func TestAGateThatAnotherSessionHas(t *testing.T) {
	r := newRig(t)
	if err := os.MkdirAll(r.gate, 0o700); err != nil {
		t.Fatal(err)
	}
	other, err := hooks.OpenGate(r.srcRun, r.gate, "/sessions/other")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	r.write(r.src, r.spec.src)
	if err := Send(brief(t), r.src, r.srcRun, planted); err == nil || !strings.Contains(err.Error(), "session other still has a gate") {
		t.Errorf("%v", err)
	}
	if s, err := record.Show(r.src); err != nil || s.State != record.Failed {
		t.Errorf("%+v, %v", s, err)
	}
}
