package session

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/session/recovery"
)

// opens has a task of the workload's open a file that begins as a database.
func (r *rig) opens(path string) {
	r.t.Helper()
	ready := filepath.Join(r.control, "open")
	task := exec.Command("sh", "-c", `printf 'SQLite format 3\0%1024s' > "$0" && exec 9<"$0" && touch "$1" && exec sleep 600`, path, ready)
	if err := task.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = task.Process.Kill(); _ = task.Wait() })
	if err := await(ready); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(string(r.spec.src.Hooks.Freeze.Cgroup), "cgroup.procs"), []byte(strconv.Itoa(task.Process.Pid)), 0); err != nil {
		r.t.Fatal(err)
	}
}

// The check was before the session, and the workload has opened a database since.
func TestADatabaseThatWasOpenedAfterTheCheckTakesTheMoveBack(t *testing.T) {
	for name, c := range map[string]struct {
		volume, same, ignored, back bool
	}{
		"on the host's own files":              {back: true},
		"on a volume that may get any device":  {volume: true, back: true},
		"on a volume that keeps its own":       {volume: true, same: true},
		"elsewhere, beside a volume with such": {same: true, back: true},
		"anywhere, and none counts":            {ignored: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			runs := r.withCgroup()
			for i := range r.spec.src.Volumes {
				r.spec.src.Volumes[i].SameDevice = c.same
			}
			r.spec.src.Policy.IgnoreDatabases, r.spec.dst.Policy.IgnoreDatabases = c.ignored, c.ignored
			if c.ignored { // and so does the number of its device, which the source has
				r.spec.dst.Volumes[0].Device, r.spec.dst.Volumes[0].SameDevice = r.device, true
			}
			path := filepath.Join(t.TempDir(), "db")
			if c.volume {
				path = filepath.Join(r.mountpoint, "db")
			}
			w := r.startWriter()
			r.start()
			r.wait(r.src, record.UntilConverged)
			r.opens(path)
			if !c.back {
				go func() { _, _ = recovery.Cutover(context.Background(), r.src) }()
				r.moved(w)
				return
			}
			src, _ := r.cutover()
			if src.State != record.Thawed || !strings.Contains(src.Error, "it has opened the SQLite database "+path+" (pid ") {
				t.Errorf("source %s %q", src.State, src.Error)
			}
			if !runs() {
				t.Error("the workload stands still")
			}
			r.runsOnce(w, record.Source)
			r.cleanDestination()
		})
	}
}
