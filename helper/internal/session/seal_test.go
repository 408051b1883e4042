package session

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/session/recovery"
)

// holdDump has the dump go no further than the test wants.
func (r *rig) holdDump() (goOn func()) {
	r.note("dump-holds", "")
	return func() { _ = os.Remove(filepath.Join(r.control, "dump-holds")) }
}

// event waits for a line of a side's events that contains a text.
func (r *rig) event(dir, text string) {
	r.t.Helper()
	var said []byte
	for range 3000 {
		said, _ = os.ReadFile(filepath.Join(dir, record.EventsFile))
		if strings.Contains(string(said), text) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	r.t.Fatalf("no event says %s:\n%s", text, said)
}

func TestFileSystemsAreFrozenBesideTheDump(t *testing.T) {
	r := newRig(t)
	r.withCgroup()
	goOn := r.holdDump()
	defer goOn()
	w := r.startWriter()
	r.start()
	r.wait(r.src, record.UntilConverged)
	go func() { _, _ = recovery.Cutover(context.Background(), r.src) }()
	r.event(r.src, "freeze_fs") // the dump is held until this is said
	goOn()
	r.moved(w)
}

// A CRIU that writes to a file system that is frozen, whatever for, is not
// blocked for ever, and what it has written is on the destination.
func TestADumpThatWritesGoesOn(t *testing.T) {
	r := newRig(t)
	was := planted.dumpAfter
	planted.dumpAfter = 300 * time.Millisecond
	t.Cleanup(func() { planted.dumpAfter = was })
	r.withCgroup()
	r.note("dump-writes", "")
	goOn := r.holdDump()
	defer goOn()
	w := r.startWriter()
	r.start()
	r.wait(r.src, record.UntilConverged)
	go func() { _, _ = recovery.Cutover(context.Background(), r.src) }()
	r.event(r.src, "freeze_fs")
	goOn()
	r.moved(w)
	r.event(r.src, "the dump was not complete")
	if b, err := os.ReadFile(filepath.Join(r.dstMnt, "by-criu")); err != nil || string(b) != "by CRIU" {
		t.Errorf("what CRIU wrote is %q on the destination (%v)", b, err)
	}
}

// A file that CRIU will have to name keeps its file system writable.
func TestAFileWithoutItsNameKeepsItsFileSystemWritable(t *testing.T) {
	r := newRig(t)
	r.withCgroup()
	open, other := filepath.Join(r.mountpoint, "open"), filepath.Join(r.mountpoint, "other")
	task := exec.Command("sh", "-c", `exec 9>"$0" && ln "$0" "$1" && rm "$0" && touch "$2" && exec sleep 600`, open, other, filepath.Join(r.control, "nameless"))
	if err := task.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = task.Process.Kill(); _ = task.Wait() })
	if err := await(filepath.Join(r.control, "nameless")); err != nil {
		t.Fatal(err)
	}
	cgroup := r.spec.src.Hooks.Freeze.Cgroup
	if err := os.WriteFile(filepath.Join(string(cgroup), "cgroup.procs"), []byte(strconv.Itoa(task.Process.Pid)), 0); err != nil {
		t.Fatal(err)
	}
	goOn := r.holdDump()
	defer goOn()
	w := r.startWriter()
	r.start()
	r.wait(r.src, record.UntilConverged)
	go func() { _, _ = recovery.Cutover(context.Background(), r.src) }()
	r.event(r.src, "CRIU gives a name to "+open)
	goOn()
	r.moved(w)
}
