package snapshot

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// opens has a task of the workload's open a file that begins as a database.
func (m *memoryBench) opens(path string) {
	m.t.Helper()
	ready := filepath.Join(m.control, "open")
	task := exec.Command("sh", "-c", `printf 'SQLite format 3\0%1024s' > "$0" && exec 9<"$0" && touch "$1" && exec sleep 600`, path, ready)
	m.must(task.Start())
	m.t.Cleanup(func() { _ = task.Process.Kill(); _ = task.Wait() })
	for until := time.Now().Add(time.Minute); !m.there("control/open") && time.Now().Before(until); {
		time.Sleep(10 * time.Millisecond)
	}
	m.must(os.WriteFile(filepath.Join(m.cgroup, "cgroup.procs"), []byte(strconv.Itoa(task.Process.Pid)), 0))
}

// The workload was looked at before, and has opened a database since.
func TestADatabaseWhoseFilesWillBeOthersEndsTheDump(t *testing.T) {
	for name, c := range map[string]struct {
		folders func(dir string) []string
		found   bool
	}{
		"everywhere":      {func(string) []string { return []string{"/"} }, true},
		"in its folder":   {func(dir string) []string { return []string{"/none", dir} }, true},
		"in another":      {func(dir string) []string { return []string{dir + "/d"} }, false},
		"in none, at all": {func(string) []string { return nil }, false},
	} {
		for _, ends := range []bool{false, true} {
			t.Run(name+", ends "+strconv.FormatBool(ends), func(t *testing.T) {
				var m *memoryBench
				take := func() error { return m.takeIt(nothing, nothing) }
				if ends {
					m, _ = leavingBench(t)
					take = func() error { return m.leave(nothing, nothing) }
				} else {
					m = newMemoryBench(t)
				}
				dir := t.TempDir()
				m.Databases = c.folders(dir)
				m.opens(filepath.Join(dir, "db"))
				err := take()
				if !c.found {
					m.must(err)
					return
				}
				if err == nil || !strings.Contains(err.Error(), "it has opened the SQLite database "+filepath.Join(dir, "db")+" (pid ") {
					t.Errorf("%v", err)
				}
				if m.there("gate") {
					t.Error("there is a dump, which the engine would go back to")
				}
				m.isAsBefore()
			})
		}
	}
}
