package snapshot

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/livefleet/handover/helper/internal/hooks"
)

// leavingBench is a workload that ends with its dump, and a process beside it.
func leavingBench(t *testing.T) (m *memoryBench, watcher func() string) {
	t.Helper()
	m = newMemoryBench(t)
	m.Ends, m.Layers, m.Archives, m.Beside = true, nil, nil, nil
	m.ask("ends")
	p := exec.Command("sleep", "600")
	m.Watches = "1a2b3c"
	p.Args[0] = m.Watches
	m.must(p.Start())
	t.Cleanup(func() { _ = p.Process.Kill(); _ = p.Wait() })
	m.Watcher = p.Process.Pid
	m.must(os.WriteFile(filepath.Join(m.control, "watcher"), []byte(strconv.Itoa(m.Watcher)), 0o600))
	return m, func() (state string) {
		for range 100 { // it runs for as long as it takes to act on a signal
			b, err := os.ReadFile("/proc/" + strconv.Itoa(m.Watcher) + "/stat")
			m.must(err)
			if state = strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))[0]; state != "R" {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		return state
	}
}

func (m *memoryBench) leave(pass, last func(context.Context) error) error {
	_, err := m.Leave(m.t.Context(), filepath.Join(m.dir, "run"), 10*time.Second, pass, last)
	return err
}

func (m *memoryBench) populated() bool {
	m.t.Helper()
	runs, err := m.Dump.Cgroup.Populated()
	m.must(err)
	return runs
}

func TestAWorkloadEndsWithItsDumpWhichStays(t *testing.T) {
	m, watcher := leavingBench(t)
	var said []string
	m.must(m.leave(func(context.Context) error {
		if !m.runs() {
			t.Error("it stands still in the pass ahead")
		}
		said = append(said, "pass")
		return nil
	}, func(context.Context) error {
		if m.runs() || !m.populated() {
			t.Error("it does not stand still in the last pass")
		}
		if m.covered() {
			t.Error("the dump is in memory, and its folder could not be removed")
		}
		said = append(said, "last")
		return nil
	}))
	if got := strings.Join(said, " "); got != "pass last" {
		t.Error(got)
	}
	if m.populated() {
		t.Error("it has not ended")
	}
	count, err := os.Stat(read(t, filepath.Join(m.control, "counts")))
	m.must(err)
	if dumped := read(t, filepath.Join(m.Dump.Gate, inventoryImage)); dumped != strconv.FormatInt(count.Size(), 10) {
		t.Errorf("it ran on behind its dump: %s, %d", dumped, count.Size())
	}
	if seen, state := read(t, filepath.Join(m.control, "watched")), watcher(); !strings.Contains(seen, ") T ") || state != "Z" {
		t.Errorf("the process beside it acts on its end: %s, %s", seen, state)
	}
	if m.there("gate", hooks.FrozenMark) {
		t.Error("the helper's mark is left in the dump")
	}
	m.isGone()
}

// isGone demands that nothing is left but the dump.
func (m *memoryBench) isGone() {
	m.t.Helper()
	var left []string
	for range 150 {
		left, _ = filepath.Glob(filepath.Join(m.dir, "run/gates/*"))
		if len(left) == 0 && !m.there("memory.frozen") && !m.there("memory.new") {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if len(left) > 0 || m.there("memory.frozen") || m.there("memory.new") {
		m.t.Errorf("left: %v, %v, %v", left, m.there("memory.frozen"), m.there("memory.new"))
	}
	if !m.there("gate", inventoryImage) {
		m.t.Error("its dump, which is all that is left of it, is gone")
	}
}

func TestAWorkloadThatWasToEndRunsOn(t *testing.T) {
	fails := func(context.Context) error { return errors.New("no pass") }
	for _, c := range []struct {
		name, word string
		pass, last func(context.Context) error
		text       string
	}{
		{"CRIU fails", "fails", nothing, nothing, "act-dump"},
		{"CRIU is killed", "dies", nothing, nothing, "killed"},
		{"CRIU fails when it has its answer", "lives", nothing, nothing, "act-dump"},
		{"the pass fails", "", fails, nothing, "no pass"},
		{"the last pass fails", "", nothing, fails, "no pass"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, watcher := leavingBench(t)
			if c.word != "" {
				m.ask(c.word)
			}
			if err := m.leave(c.pass, c.last); err == nil || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%v", err)
			}
			if m.there("gate") {
				t.Error("there is a dump, which the engine would go back to")
			}
			if state := watcher(); state != "S" {
				t.Errorf("the process beside it does not act: %s", state)
			}
			m.isAsBefore()
		})
	}
}

// The script gives up on an owner that is slow, and CRIU lets the tasks run: the owner's yes comes too late.
func TestALastPassThatIsTooSlowEndsNothing(t *testing.T) {
	m, watcher := leavingBench(t)
	_, err := m.Leave(t.Context(), filepath.Join(m.dir, "run"), time.Second, nothing, func(context.Context) error { time.Sleep(2 * time.Second); return nil })
	if err == nil || !strings.Contains(err.Error(), "did not come to its end within 1s (--freeze-limit)") {
		t.Errorf("%v", err)
	}
	if state := watcher(); state != "S" {
		t.Error(state)
	}
	m.isAsBefore()
}

// The number of the process beside it may be another's when the disks have been copied.
func TestAProcessThatIsNotTheWorkloadsIsLeftAlone(t *testing.T) {
	for _, is := range []string{"", "1a2b"} {
		m, watcher := leavingBench(t)
		m.Watches = is
		m.must(m.leave(nothing, nothing))
		if state := watcher(); m.populated() || state != "S" {
			t.Errorf("%v, %s", m.populated(), state)
		}
		m.isGone()
	}
}

func TestAWorkloadEndsThoughNothingIsBesideItAnyMore(t *testing.T) {
	m, _ := leavingBench(t)
	p := exec.Command("true")
	m.must(p.Run())
	m.Watcher = p.Process.Pid
	m.must(m.leave(nothing, nothing))
	m.isGone()
}

func TestADumpStaysWhenTheEngineFailsBehindIt(t *testing.T) {
	m, watcher := leavingBench(t)
	m.ask("late")
	if err := m.leave(nothing, nothing); err == nil || !strings.Contains(err.Error(), "the engine fails behind CRIU") {
		t.Errorf("%v", err)
	}
	if state := watcher(); m.populated() || state != "Z" {
		t.Errorf("%v, %s", m.populated(), state)
	}
	m.isGone()
}

func TestAKillBeforeTheAnswerEndsNothing(t *testing.T) {
	for _, at := range []string{"armed", "last"} {
		t.Run(at, func(t *testing.T) {
			m, _ := leavingBench(t)
			cmd, said, goOn := m.owner(10 * time.Second)
			for said.Scan() && said.Text() != at {
				goOn()
			}
			if at == "last" && m.runs() {
				t.Error("it runs in the last pass")
			}
			m.must(cmd.Process.Kill())
			_ = cmd.Wait()
			m.isAsBefore()
		})
	}
}

func TestAMemoryThatIsToStayIsNotOfAWorkloadThatEnds(t *testing.T) {
	m := newMemoryBench(t)
	if err := m.leave(nothing, nothing); err == nil || !strings.Contains(err.Error(), "runs on") {
		t.Errorf("%v", err)
	}
}
