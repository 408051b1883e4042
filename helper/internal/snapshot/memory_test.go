package snapshot

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/hooks/cgrouptest"
	"github.com/livefleet/handover/helper/internal/loop"
	"github.com/livefleet/handover/helper/internal/store"
)

// memoryBench is a workload whose memory is taken.
type memoryBench struct {
	*Memory
	t       *testing.T
	dir     string
	control string
	runs    func() bool
	cgroup  string
}

func newMemoryBench(t *testing.T) *memoryBench {
	t.Helper()
	cgroup, runs := cgrouptest.New(t)
	dir, err := os.MkdirTemp("", "memory-") // a socket has a short path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	m := &memoryBench{t: t, dir: dir, runs: runs, cgroup: cgroup}
	m.control = filepath.Join(m.dir, "control")
	shm := filepath.Join(m.dir, "shm")
	for _, dir := range []string{m.control, shm, filepath.Join(m.dir, "run")} {
		m.must(os.Mkdir(dir, 0o700))
	}
	m.must(os.WriteFile(filepath.Join(shm, "word"), []byte("shared"), 0o600))
	pids, err := os.ReadFile(filepath.Join(cgroup, "cgroup.procs"))
	m.must(err)
	counts := ""
	links, err := filepath.Glob("/proc/" + strings.Fields(string(pids))[0] + "/fd/*")
	m.must(err)
	for _, link := range links {
		if to, err := os.Readlink(link); err == nil && filepath.Base(to) == "count" {
			counts = to
		}
	}
	m.must(os.WriteFile(filepath.Join(m.control, "counts"), []byte(counts), 0o600))
	self, err := os.Executable()
	m.must(err)
	gate := filepath.Join(m.dir, "gate")
	m.Memory = &Memory{
		Dump: hooks.Command{Argv: []string{self, "act-dump", m.control, filepath.Join(m.dir, "run"), gate, cgroup}, Gate: gate, Cgroup: hooks.Cgroup(cgroup), Log: filepath.Join(m.dir, "dump.log")},
		Into: filepath.Join(m.dir, "memory"), As: "checkpoint",
		Layers: []Place{{"layer", filepath.Dir(counts)}}, Archives: []Place{{"shm.tar", shm}},
		Beside: []Place{{"shm.tar", filepath.Join(m.control, "shm.tar")}, {"network.status", filepath.Join(m.control, "network.status")}},
	}
	return m
}

func (m *memoryBench) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *memoryBench) ask(word string) {
	m.must(os.WriteFile(filepath.Join(m.control, word), nil, 0o600))
}

func (m *memoryBench) there(path ...string) bool {
	_, err := os.Lstat(filepath.Join(append([]string{m.dir}, path...)...))
	return err == nil
}

// isAsBefore demands that the workload runs, and that nothing of the dump is left.
func (m *memoryBench) isAsBefore() {
	m.t.Helper()
	if !m.runs() {
		m.t.Error("the workload stands still")
	}
	if m.there("memory") {
		m.t.Error("an incomplete dump is in the place of a whole one")
	}
	var left []string
	var covered bool
	for range 100 { // the process that was left behind has its time
		left, _ = filepath.Glob(filepath.Join(m.dir, "run/gates/*"))
		covered = m.covered()
		if len(left) == 0 && !covered && !m.there("memory.frozen") {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	m.t.Errorf("left: %v, frozen %v, memory %v", left, m.there("memory.frozen"), covered)
}

// covered says whether CRIU writes to memory.
func (m *memoryBench) covered() bool {
	m.t.Helper()
	mounted, err := loop.Mounted(m.Dump.Gate)
	m.must(err)
	return mounted
}

func nothing(context.Context) error { return nil }

// around makes the same pass while the workload runs and beside the dump.
func around(pass, last func(context.Context) error) beside {
	return beside{pass, func(ctx context.Context, _ <-chan struct{}) error { return pass(ctx) }, last, func() error { return nil }}
}

func (m *memoryBench) takeIt(pass, last func(context.Context) error) error {
	_, err := m.take(m.t.Context(), filepath.Join(m.dir, "run"), 10*time.Second, around(pass, last))
	return err
}

func TestTheMemoryTheLayerAndTheDisksAreOfOneMoment(t *testing.T) {
	m := newMemoryBench(t)
	for range 2 { // an earlier one is no part of it
		var said []string
		say := func(word string) func(context.Context) error {
			return func(context.Context) error { said = append(said, word); return nil }
		}
		m.must(m.takeIt(say("pass"), say("last")))
		if got := strings.Join(said, " "); got != "pass pass last" {
			t.Error(got)
		}
		count, err := os.Stat(filepath.Join(m.dir, "memory/layer/count"))
		m.must(err)
		dumped := read(t, filepath.Join(m.dir, "memory/checkpoint", inventoryImage))
		if strconv.FormatInt(count.Size(), 10) != dumped {
			t.Errorf("the layer has %d, and the dump %s", count.Size(), dumped)
		}
		out, err := exec.Command("tar", "--extract", "--to-stdout", "--file="+filepath.Join(m.dir, "memory/shm.tar"), "./word").Output()
		if string(out) != "shared" || err != nil {
			t.Errorf("%q, %v", out, err)
		}
		if got := read(t, filepath.Join(m.dir, "memory/network.status")); got != "status" {
			t.Error(got)
		}
		if m.there("gate") || m.there("memory.new") || m.there("control/shm.tar") {
			t.Error("something is left of the dump, which the engine would go back to")
		}
		if !m.runs() {
			t.Fatal("the workload stands still")
		}
	}
}

func TestTheWorkloadRunsOnWhenTheDumpComesToNothing(t *testing.T) {
	fails := func(context.Context) error { return errors.New("no pass") }
	for _, c := range []struct {
		name, word string
		pass, last func(context.Context) error
		text       string
	}{
		{"CRIU fails", "fails", nothing, nothing, "act-dump"},
		{"CRIU is killed", "dies", nothing, nothing, "killed"},
		{"the engine fails when all is dumped", "late", nothing, nothing, "the engine fails behind CRIU"},
		{"the pass fails", "", fails, nothing, "no pass"},
		{"the last pass fails", "", nothing, fails, "no pass"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMemoryBench(t)
			if c.word != "" {
				m.ask(c.word)
			}
			if err := m.takeIt(c.pass, c.last); err == nil || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%v", err)
			}
			if m.there("gate") {
				t.Error("there is a dump, which the engine would go back to")
			}
			m.isAsBefore()
		})
	}
}

// The engine's process was killed, and its CRIU works on: it leaves the cgroup frozen when it lets go.
func TestTheWorkloadRunsOnWhenTheEngineIsKilledAndItsCRIUWorksOn(t *testing.T) {
	for _, at := range []string{"early", "hold"} {
		t.Run(at, func(t *testing.T) {
			m := newMemoryBench(t)
			m.ask("orphan")
			m.ask(at)
			inHold := func(context.Context) error {
				m.ask("kill")
				time.Sleep(100 * time.Millisecond)
				return nil
			}
			if err := m.takeIt(nothing, inHold); err == nil || !strings.Contains(err.Error(), "killed") {
				t.Errorf("%v", err)
			}
			if m.there("gate") || hooks.InUse(m.Dump.Gate) {
				t.Error("there is a dump, which the engine would go back to")
			}
			m.isAsBefore()
		})
	}
}

// On a host with little memory the dump is the same, and on the disk from the beginning.
func TestADumpOfAHostWithLittleMemory(t *testing.T) {
	usual := roomFor
	defer func() { roomFor = usual }()
	roomFor = func(memory, available int64) bool {
		if memory <= 0 || available <= memory || !usual(memory, available) {
			t.Errorf("%d of %d", memory, available)
		}
		return false
	}
	m := newMemoryBench(t)
	m.must(m.takeIt(func(context.Context) error {
		if m.covered() {
			t.Error("it is in memory")
		}
		return nil
	}, nothing))
	if !m.there("memory/checkpoint", inventoryImage) {
		t.Error("there is no dump")
	}
}

func TestADumpThatFailsAtLastMakesNoSnapshot(t *testing.T) {
	b, m := newBench(t, "ext4"), newMemoryBench(t)
	r := b.request()
	r.Memory, r.RunDir = m.Memory, filepath.Join(m.dir, "run")
	m.ask("late")
	if taken, err := Take(t.Context(), r); err == nil || taken != nil || !strings.Contains(err.Error(), "the engine fails behind CRIU") {
		t.Errorf("%v, %v", taken, err)
	}
	if x, err := store.Peek(b.store()); err == nil && len(x.Points) > 0 {
		t.Errorf("%d snapshots of disks without their memory", len(x.Points))
	}
	m.isAsBefore()
	m.must(os.Remove(filepath.Join(m.control, "late")))
	taken, err := Take(t.Context(), r)
	m.must(err)
	if taken.FrozenMS <= taken.Took["dump"] || !m.there("memory/checkpoint", inventoryImage) {
		t.Errorf("%v, %v", taken.FrozenMS, taken.Took)
	}
}

// owner is a process of its own that takes the memory.
func (m *memoryBench) owner(limit time.Duration) (*exec.Cmd, *bufio.Scanner, func()) {
	m.t.Helper()
	words, err := json.Marshal(map[string]any{"Memory": m.Memory, "RunDir": filepath.Join(m.dir, "run"), "Limit": limit})
	m.must(err)
	cmd := exec.Command(m.Dump.Argv[0], "act-memory", string(words))
	in, err := cmd.StdinPipe()
	m.must(err)
	out, err := cmd.StdoutPipe()
	m.must(err)
	m.must(cmd.Start())
	m.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd, bufio.NewScanner(out), func() { _, _ = in.Write([]byte("\n")) }
}

func TestAKillLeavesNothingFrozen(t *testing.T) {
	for _, at := range []string{"armed", "beside", "last"} {
		t.Run(at, func(t *testing.T) {
			m := newMemoryBench(t)
			cmd, said, goOn := m.owner(10 * time.Second)
			for said.Scan() && said.Text() != at {
				goOn()
			}
			if frozen := m.there("memory.frozen"); frozen != (at != "armed") {
				t.Errorf("frozen: %v", frozen)
			}
			if at == "last" && m.runs() {
				t.Error("it runs in the last pass")
			}
			if !m.covered() {
				t.Error("CRIU writes to the disk")
			}
			m.must(cmd.Process.Kill())
			_ = cmd.Wait()
			m.isAsBefore()
		})
	}
}

func TestAnOwnerThatIsStoppedIsNotWaitedFor(t *testing.T) {
	m := newMemoryBench(t)
	cmd, said, goOn := m.owner(300 * time.Millisecond)
	for said.Scan() && said.Text() != "last" {
		goOn()
	}
	m.must(cmd.Process.Signal(unix.SIGSTOP))
	if !m.runs() {
		t.Error("the workload stands still")
	}
	m.must(cmd.Process.Signal(unix.SIGCONT))
	goOn()
	if err := cmd.Wait(); err == nil {
		t.Error("its memory counts as taken")
	}
	m.isAsBefore()
}

func TestACRIUThatDoesNotLetGoIsNotWaitedForWhenAllIsToEnd(t *testing.T) {
	m := newMemoryBench(t)
	runtime.LockOSThread()
	letGo, err := cgrouptest.Hold(m.cgroup)
	m.must(err)
	d := &dump{Memory: m.Memory, stays: hooks.Stays{Cgroup: m.Dump.Cgroup}}
	d.process, err = (&hooks.Command{Argv: []string{"sleep", "5"}}).Start()
	m.must(err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.untilTheyRun(ctx, time.Now()); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	m.must(letGo())
}

func TestAWorkloadThatAnotherHasFrozenStaysSo(t *testing.T) {
	m := newMemoryBench(t)
	_, err := m.Dump.Cgroup.Freeze(t.Context())
	m.must(err)
	if err := m.takeIt(nothing, nothing); err == nil || !strings.Contains(err.Error(), "the workload stands still") {
		t.Errorf("%v", err)
	}
	if stopped, err := m.Dump.Cgroup.Stopped(); err != nil || !stopped {
		t.Errorf("it runs: %v", err)
	}
}

// All processes were killed at once, and the next run lets it run on.
func TestWhatIsLeftStandingStillRunsOnLater(t *testing.T) {
	m := newMemoryBench(t)
	_, err := m.Dump.Cgroup.Freeze(t.Context())
	m.must(err)
	m.must(m.LetRun(filepath.Join(m.dir, "run")))
	if m.runs() {
		t.Error("it was frozen by another hand")
	}
	m.must(os.WriteFile(m.frozen(), nil, 0o600))
	m.must(os.Mkdir(m.Dump.Gate, 0o700))
	g, err := hooks.OpenStaying(filepath.Join(m.dir, "run"), m.Dump.Gate, hooks.Stays{})
	m.must(err)
	if err := m.LetRun(filepath.Join(m.dir, "run")); err == nil || !strings.Contains(err.Error(), "is being taken still") {
		t.Errorf("%v", err)
	}
	m.must(g.Close())
	m.must(m.LetRun(filepath.Join(m.dir, "run")))
	if !m.runs() || m.there("memory.frozen") {
		t.Error("it stands still")
	}
}
