package session

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/lazy"
	"github.com/livefleet/handover/helper/internal/lazy/lazytest"
	"github.com/livefleet/handover/helper/internal/precopy"
	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/session/recovery"
	"github.com/livefleet/handover/helper/internal/wire"
)

// Files by which the tests, and what they play, tell each other things.
const (
	frozenTask   = "frozen-task"    // the ID of the task whose memory follows
	lazySocket   = "lazy-socket"    // where CRIU is to hand over
	lazyCgroup   = "lazy-cgroup"    // where what is restored is
	lazySays     = "lazy-says"      // what it has found in its memory
	letGo        = "let-go"         // systemd has been told to let go
	lendingHolds = "/lending-holds" // no page is lent while this is there
	handsOver    = "hands-over"     // the ID of the task that CRIU hands over, if it is another
	toBePlaced   = "to-be-placed"   // the memory does not follow: it is there before
)

// playMemory is a task whose memory follows.
func playMemory(mark string) error {
	m, err := lazytest.Map()
	if err != nil {
		return err
	}
	lazytest.Fill(m)
	for i := range ballast {
		ballast[i] = byte(i >> 12 * 31)
	}
	if err := os.WriteFile(mark, []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
		return err
	}
	select {}
}

// ballast is more memory of that task, or none would be sent ahead.
var ballast [worthwhile]byte

// playLazy is that task, restored: systemd keeps what it would have handed to it.
func playLazy(control, socket string) error {
	m, err := lazytest.Map()
	if err != nil {
		return err
	}
	task, err := os.ReadFile(filepath.Join(control, handsOver))
	if err != nil {
		task, err = os.ReadFile(filepath.Join(control, frozenTask))
	}
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(string(task))
	if err != nil {
		return err
	}
	cgroup, err := os.ReadFile(filepath.Join(control, lazyCgroup))
	if err == nil {
		err = os.WriteFile(filepath.Join(string(cgroup), "cgroup.procs"), []byte("0"), 0)
	}
	if err != nil {
		return err
	}
	restored, keep, err := lazytest.HandOver(socket, uint32(pid))
	if err == nil && exists(filepath.Join(control, toBePlaced)) {
		err = unix.Close(keep)
		keep = -1
	}
	if err != nil {
		return err
	}
	fmt.Println("handed over")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return nil //nolint:nilerr // it was refused
	}
	if keep >= 0 {
		go func() {
			if await(filepath.Join(control, letGo)) == nil {
				_ = unix.Close(keep)
			}
		}()
	}
	if err := restored(); err != nil {
		return err
	}
	said := "all is there"
	if err := lazytest.Check(m, 0, lazytest.Pages, lazytest.Want); err != nil {
		said = err.Error()
	}
	return os.WriteFile(filepath.Join(control, lazySays), []byte(said), 0o600)
}

func dumpLazily(control, imageDir string) error {
	task, err := os.ReadFile(filepath.Join(control, frozenTask))
	if err != nil {
		return nil //nolint:nilerr // the memory does not follow
	}
	return os.WriteFile(filepath.Join(imageDir, "pagemap-"+string(task)+".img"), lazytest.Pagemap(), 0o600)
}

// restoreLazily begins to restore; the function says whether it runs.
func restoreLazily(control string) (func(runs bool) error, error) {
	socket, err := os.ReadFile(filepath.Join(control, lazySocket))
	if err != nil {
		return func(bool) error { return nil }, nil //nolint:nilerr // the memory does not follow
	}
	c := exec.Command("/proc/self/exe", actLazy, control, string(socket))
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err == nil {
		_, err = bufio.NewReader(out).ReadString('\n')
	}
	return func(runs bool) error {
		if runs {
			if _, err := in.Write([]byte("go on\n")); err != nil {
				return err
			}
		}
		return in.Close()
	}, err
}

// systemd is what the restored task plays: it keeps its own descriptor.
type systemd struct{}

func (systemd) Keep(string, int) error { return nil }

func (systemd) LetGo(...string) error {
	return os.WriteFile(filepath.Join(os.Getenv("RIG_CONTROL"), letGo), nil, 0o600)
}

// lendAtLeisure has pages lent only while nobody holds that up.
var lendAtLeisure = sync.OnceFunc(func() {
	planted.keeper = systemd{}
	planted.serveMemory = func(m *lazy.Memory, c *wire.Conn, known *precopy.Known, count func(int64)) error {
		for lendingHeld() {
			time.Sleep(5 * time.Millisecond)
		}
		return m.Serve(c, known, count)
	}
})

// lendingHeld asks the environment, which a process of its own inherits.
func lendingHeld() bool { return exists(os.Getenv("RIG_CONTROL") + lendingHolds) }

// withLazyPages has the workload's memory follow. Held says that none of it does yet.
func (r *rig) withLazyPages(held bool) (runs func() bool) {
	r.t.Helper()
	runs = r.withTask()
	r.t.Setenv("RIG_CONTROL", r.control)
	lendAtLeisure()
	if held {
		r.note(lendingHolds, "")
	}
	r.spec.src.Policy.LazyPages, r.spec.dst.Policy.LazyPages = true, true
	return runs
}

// withTask has the workload be a task whose memory CRIU leaves alone.
func (r *rig) withTask() (runs func() bool) {
	r.t.Helper()
	runs = r.withCgroup()
	r.addTask(r.control, r.spec.src.Hooks.Freeze, r.spec.dst.Hooks.Restore, os.Getpid())
	return runs
}

// addTask has a workload that is played by the files in control, or a member, be such a task. The number is no other's.
func (r *rig) addTask(control string, freeze, restore *hooks.Command, number int) {
	r.t.Helper()
	task := exec.Command("/proc/self/exe", actMemory, filepath.Join(control, frozenTask))
	if err := task.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = task.Process.Kill(); _ = task.Wait() })
	if err := await(filepath.Join(control, frozenTask)); err != nil {
		r.t.Fatal(err)
	}
	own := string(freeze.Cgroup)
	there := filepath.Join(filepath.Dir(own), fmt.Sprintf("handover-test-%012x", number))
	if err := errors.Join(os.WriteFile(filepath.Join(own, "cgroup.procs"), []byte(strconv.Itoa(task.Process.Pid)), 0), os.Mkdir(there, 0o700)); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := errors.Join(hooks.Cgroup(there).Kill(context.Background()), removeCgroup(there)); err != nil {
			r.t.Error(err)
		}
	})
	for name, text := range map[string]string{lazySocket: filepath.Join(control, lazy.SocketName), lazyCgroup: there} {
		if err := os.WriteFile(filepath.Join(control, name), []byte(text), 0o600); err != nil {
			r.t.Fatal(err)
		}
	}
	freeze.Hold = filepath.Join(control, "hold")
	restore.Log = filepath.Join(control, "restore.log")
	restore.Container = fmt.Sprintf("%012x", number)
}

// removeCgroup waits for its tasks to be gone for good.
func removeCgroup(dir string) (err error) {
	for range 200 {
		if err = os.Remove(dir); err == nil {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return err
}

// saw is what the restored task found in its memory; empty if it has not come so far.
func (r *rig) saw() string {
	said, _ := os.ReadFile(filepath.Join(r.control, lazySays))
	return string(said)
}

func (r *rig) sees(want string) {
	r.t.Helper()
	_ = await(filepath.Join(r.control, lazySays))
	if said := r.saw(); said != want {
		r.t.Errorf("the restored task says %q", said)
	}
}

// The workload runs before its memory is there, and the source keeps what it has until all
// has come.
func TestMemoryFollowsTheWorkload(t *testing.T) {
	for _, ahead := range []bool{true, false} {
		t.Run(fmt.Sprintf("ahead %t", ahead), func(t *testing.T) { memoryFollows(t, ahead) })
	}
}

// memoryFollows does that, with most of it gone ahead or none.
func memoryFollows(t *testing.T, ahead bool) {
	r := newRig(t)
	r.withLazyPages(true)
	r.spec.src.Policy.Precopy = &ahead
	w := r.startWriter()
	r.start()
	r.wait(r.src, record.UntilConverged)
	go func() { _, _ = recovery.Cutover(brief(t), r.src) }()
	r.wait(r.dst, string(record.Resumed))
	r.wait(r.src, string(record.Resumed))
	time.Sleep(300 * time.Millisecond)
	if r.saw() != "" || exists(filepath.Join(r.control, "killed")) {
		t.Errorf("the task says %q, and no memory has come", r.saw())
	}
	if err := os.Remove(r.control + lendingHolds); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(<-r.send, <-r.receive); err != nil {
		t.Fatal(err)
	}
	r.sees("all is there")
	r.runsOnce(w, record.Destination)
	events := r.events(r.dst, "fetched")
	if len(events) != 1 || events[0]["bytes"] != events[0]["total"] {
		t.Fatalf("%v", events)
	}
	if sent := events[0]["sent"].(float64); ahead != (sent < lazytest.Size/4) {
		t.Errorf("%v bytes travelled after the resume", sent)
	}
	s, err := record.Show(r.src)
	if err != nil || s.State != record.Done || ahead != (len(r.events(r.src, "memory")) > 0) || s.AtRiskMS <= 0 {
		t.Errorf("%+v, %v", s, err)
	}
	for _, stage := range s.Stages {
		if end := stage.Start + stage.MS; stage.Stage == "fetch" && end < s.FrozenMS+s.AtRiskMS-1 {
			t.Errorf("it was at risk for %v ms after %v, and %+v", s.AtRiskMS, s.FrozenMS, stage)
		}
	}
}

// Whatever is wrong before the release, the workload runs on where it was.
func TestALazyMoveThatFailsThaws(t *testing.T) {
	r := newRig(t)
	runs := r.withLazyPages(false)
	r.note("restore-fails", "CRIU says no")
	w := r.startWriter()
	r.start()
	r.wait(r.src, record.UntilConverged)
	src, dst := r.cutover()
	if src.State != record.Thawed || dst.State != record.Discarded {
		t.Errorf("%s and %s", src.State, dst.State)
	}
	r.runsOnce(w, record.Source)
	comesBack(t, runs)
}

// A link that breaks while memory follows: whoever needs it waits, nothing is let go, and
// it goes on when there is a connection again.
func TestALinkThatBreaksWhileMemoryFollows(t *testing.T) {
	r := newRig(t)
	runs := r.withLazyPages(true)
	w := r.startWriter()
	r.start()
	up := r.proxy.up
	r.wait(r.src, record.UntilConverged)
	go func() { _, _ = recovery.Cutover(brief(t), r.src) }()
	r.wait(r.dst, string(record.Resumed))
	r.wait(r.src, string(record.Resumed))
	r.proxy.to("127.0.0.1:1")
	r.proxy.cut()
	s := r.wait(r.src, record.UntilHeld)
	if s.State != record.Resumed || !strings.Contains(s.Error, "a part of its memory may be here alone") {
		t.Errorf("%s: %s", s.State, s.Error)
	}
	if err := os.Remove(r.control + lendingHolds); err != nil {
		t.Fatal(err)
	}
	time.Sleep(500 * time.Millisecond)
	if d, err := record.Show(r.dst); err != nil || d.State != record.Resumed || !d.Running || r.saw() != "" || runs() {
		t.Errorf("%+v, %v; the task says %q", d, err, r.saw())
	}
	r.proxy.to(up)
	if err := <-r.receive; err != nil {
		t.Fatal(err)
	}
	r.sees("all is there")
	if d, err := record.Show(r.dst); err != nil || d.State != record.Settled {
		t.Fatalf("%+v, %v", d, err)
	}
	if s, err := recovery.Resolve(brief(t), r.src, r.srcRun, record.Resumed); err != nil || s.State != record.Done {
		t.Fatalf("%+v, %v", s, err)
	}
	<-r.send
	r.runsOnce(w, record.Destination)
}

// A source's process that is killed while memory follows may be started again, and lends
// what is left.
func TestAKilledSenderLendsAgain(t *testing.T) {
	r := newRig(t)
	runs := r.withLazyPages(true)
	w := r.startWriter()
	kill := r.startApart(record.Source)
	r.wait(r.src, record.UntilConverged)
	go func() { _, _ = recovery.Cutover(brief(t), r.src) }()
	r.wait(r.dst, string(record.Resumed))
	r.wait(r.src, string(record.Resumed))
	kill()
	if s, err := recovery.Recover(brief(t), r.src, r.srcRun, true); err != nil || s.State != record.Resumed {
		t.Fatalf("%+v, %v", s, err)
	}
	if err := os.Remove(r.control + lendingHolds); err != nil {
		t.Fatal(err)
	}
	time.Sleep(300 * time.Millisecond)
	if r.saw() != "" || runs() {
		t.Errorf("nobody lends anything, and the task says %q", r.saw())
	}
	defer r.apart(actSend, r.src, r.srcRun)()
	if err := <-r.receive; err != nil {
		t.Fatal(err)
	}
	r.sees("all is there")
	if s, err := recovery.Resolve(brief(t), r.src, r.srcRun, record.Resumed); err != nil || s.State != record.Done {
		t.Fatalf("%+v, %v", s, err)
	}
	r.runsOnce(w, record.Destination)
	if runs() {
		t.Error("the frozen tasks run")
	}
}

// A destination's process that is killed while memory follows takes along what that was
// waited for with. What was restored is ended, it is never run without its memory, and
// nothing goes on anywhere until somebody has said so.
func TestAKilledReceiverEndsWhatHasNotItsMemory(t *testing.T) {
	for _, outcome := range []record.State{record.Fenced, record.Resumed} {
		t.Run(string(outcome), func(t *testing.T) {
			r := newRig(t)
			runs := r.withLazyPages(true)
			r.spec.dst.Bundle = filepath.Join(r.top, "bundle")
			w := r.startWriter()
			kill := r.startApart(record.Destination)
			r.wait(r.src, record.UntilConverged)
			go func() { _, _ = recovery.Cutover(brief(t), r.src) }()
			r.wait(r.dst, string(record.Resumed))
			r.wait(r.src, string(record.Resumed))
			kill()
			for range 2 {
				s, err := recovery.Recover(brief(t), r.dst, r.dstRun, false)
				if err != nil || s.State != record.Resumed || !strings.Contains(s.Error, "part of its memory was on the source still") {
					t.Fatalf("%+v, %v", s, err)
				}
			}
			// A restart policy would give its memory up, and whoever decides for the source afterwards what it has written since.
			if err := r.dstMayStart(); err == nil || !strings.Contains(err.Error(), "part of its memory was on the source still") {
				t.Errorf("it may start anew on the destination: %v", err)
			}
			cgroup, _ := os.ReadFile(filepath.Join(r.control, lazyCgroup))
			if left, err := os.ReadFile(filepath.Join(string(cgroup), "cgroup.procs")); err != nil || len(left) > 0 || r.saw() != "" {
				t.Errorf("%q is left of it, which says %q, %v", left, r.saw(), err)
			}
			if s := r.wait(r.src, record.UntilHeld); s.State != record.Resumed || runs() {
				t.Errorf("%+v", s)
			}
			if err := errors.Join(os.Remove(r.control+lendingHolds), os.Remove(filepath.Join(r.control, "resumed"))); err != nil { // it was ended
				t.Fatal(err)
			}
			if outcome == record.Fenced {
				d, err := recovery.Resolve(brief(t), r.dst, r.dstRun, record.Fenced)
				if err != nil || d.State != record.Discarded {
					t.Fatalf("%+v, %v", d, err)
				}
			}
			want := map[record.State]record.State{record.Fenced: record.Thawed, record.Resumed: record.Done}[outcome]
			if s, err := recovery.Resolve(brief(t), r.src, r.srcRun, outcome); err != nil || s.State != want {
				t.Fatalf("%+v, %v", s, err)
			}
			<-r.send
			if outcome == record.Resumed {
				if d, err := recovery.Resolve(brief(t), r.dst, r.dstRun, record.Resumed); err != nil || d.State != record.Done {
					t.Fatalf("%+v, %v", d, err)
				}
				if err := r.dstMayStart(); err != nil && strings.Contains(err.Error(), "memory") {
					t.Error(err)
				}
				return
			}
			r.runsOnce(w, record.Source)
			comesBack(t, runs)
		})
	}
}

func TestLazyPagesAreForBothSidesOfALiveMove(t *testing.T) {
	r := newRig(t)
	r.spec.src.Hooks.Freeze.Hold, r.spec.src.Hooks.Freeze.Cgroup = "/hold", "/cgroup"
	r.spec.src.Policy.LazyPages = true
	r.start()
	if err := <-r.receive; err == nil || !strings.Contains(err.Error(), "(lazy_pages) is true on the source and false here") {
		t.Error(err)
	}
	<-r.send
	for name, c := range map[string]struct {
		spoil func(*record.Spec)
		says  string
	}{
		"offline":            {func(s *record.Spec) { s.Mode, s.Hooks.Thaw = record.Offline, s.Hooks.Freeze }, "is for the mode live"},
		"no cgroup":          {func(s *record.Spec) { s.Hooks.Freeze.Cgroup = "" }, "hooks.freeze has cgroup or hold missing"},
		"no stand-in":        {func(s *record.Spec) { s.Hooks.Freeze.Hold = "" }, "hooks.freeze has cgroup or hold missing"},
		"no stand-in there":  {func(s *record.Spec) { *s = r.spec.dst; s.Policy.LazyPages, s.Hooks.Restore.Hold = true, "" }, "hooks.restore has hold, log or container missing"},
		"nobody knows whose": {func(s *record.Spec) { *s = r.spec.dst; s.Policy.LazyPages, s.Hooks.Restore.Log = true, "/l" }, "hooks.restore has hold, log or container missing"},
	} {
		s := r.spec.src
		freeze, restore := *s.Hooks.Freeze, *r.spec.dst.Hooks.Restore
		s.Hooks.Freeze = &freeze
		was := r.spec.dst.Hooks.Restore
		r.spec.dst.Hooks.Restore = &restore
		c.spoil(&s)
		r.spec.dst.Hooks.Restore = was
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := record.ParseSpec(b); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
