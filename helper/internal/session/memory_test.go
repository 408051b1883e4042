package session

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/precopy"
	"github.com/livefleet/handover/helper/internal/report"
	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/wire"
)

// taskMemory is what the workload's further task holds.
const taskMemory = 24 << 20

// withMemory gives the workload a cgroup, and one more task, which holds memory: the
// dump holds it too, with some of it changed.
func (r *rig) withMemory(t *testing.T) (runs func() bool) {
	t.Helper()
	runs = r.withCgroup()
	holdMemory(t, r.control, r.spec.src.Hooks.Freeze.Cgroup, taskMemory)
	return runs
}

// holdMemory has a task in the cgroup that holds so much memory, which the dump of control finds.
func holdMemory(t *testing.T, control string, cgroup hooks.Cgroup, bytes int) {
	t.Helper()
	held := filepath.Join(control, memoryFile)
	program := "import mmap, os, time\nb = mmap.mmap(-1, int(os.sys.argv[1]), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\nb.write(os.urandom(len(b)))\nwith open(os.sys.argv[2] + '.new', 'wb') as f: f.write(b)\nos.rename(os.sys.argv[2] + '.new', os.sys.argv[2])\nwhile True: time.sleep(1)"
	p := exec.Command("python3", "-c", program, strconv.Itoa(bytes), held)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Process.Kill()
		_ = p.Wait()
	})
	if err := os.WriteFile(filepath.Join(string(cgroup), "cgroup.procs"), []byte(strconv.Itoa(p.Process.Pid)), 0); err != nil {
		t.Fatal(err)
	}
	if err := await(held); err != nil {
		t.Fatal(err)
	}
}

// events are what a side has written of one kind.
func (r *rig) events(dir, kind string) (found []map[string]any) {
	r.t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, record.EventsFile))
	if err != nil {
		r.t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		var e map[string]any
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			r.t.Fatal(err)
		}
		if e["event"] == kind {
			found = append(found, e)
		}
	}
	return found
}

// Most of a task's memory is on the other side before the freeze: of the dump only
// what has changed since travels in the pause, and the dump there is as it is here.
func TestMemoryGoesAhead(t *testing.T) {
	r := newRig(t)
	r.withMemory(t)
	w := r.startWriter()
	r.start()
	r.wait(r.src, record.UntilConverged)
	if n := len(r.events(r.src, "memory")); n == 0 {
		t.Error("it has converged, and no memory has gone ahead")
	}
	r.cutover()
	r.moved(w)
	pages := r.events(r.src, "pages")
	if len(pages) != 1 {
		t.Fatalf("%d events about the dump's pages", len(pages))
	}
	all, sent := pages[0]["bytes"].(float64), pages[0]["sent"].(float64)
	if all < taskMemory || sent > all/4 {
		t.Errorf("of %.0f bytes of the dump %.0f were sent in the pause", all, sent)
	}
	r.sameDump()
}

// Without a word of what has gone ahead, the dump travels while it is written.
func TestADumpTravelsWhileItIsWritten(t *testing.T) {
	r := newRig(t)
	r.withMemory(t)
	no := false
	r.spec.src.Policy.Precopy = &no
	w := r.startWriter()
	r.start()
	r.wait(r.src, record.UntilConverged)
	r.cutover()
	r.moved(w)
	if n := len(r.events(r.src, "memory")); n != 0 {
		t.Errorf("%d scans of the memory, and none was wanted", n)
	}
	pages := r.events(r.src, "pages")
	if len(pages) != 1 || pages[0]["sent"].(float64) < taskMemory {
		t.Errorf("the dump's pages: %v", pages)
	}
	r.sameDump()
}

// What came ahead and is not what the source takes it for ends the move before
// anything is released: here the destination's own memory has gone bad.
func TestMemoryThatWentBadMovesNothing(t *testing.T) {
	r := newRig(t)
	r.withMemory(t)
	planted.decode = func(a *arrivedMemory, piece []byte) ([]byte, int64, error) {
		bad := make([]byte, precopy.PageSize)
		for at := int64(0); at < a.stock.Size(); at += precopy.PageSize {
			if err := a.stock.Put(bad, at, a.room); err != nil {
				return nil, 0, err
			}
		}
		return a.stock.Decode(a.buf, piece)
	}
	t.Cleanup(func() { planted.decode = nil })
	w := r.startWriter()
	r.start()
	r.wait(r.src, record.UntilConverged)
	src, _ := r.cutover()
	if src.State != record.Thawed || !strings.Contains(src.Error, "a page was taken for another one") {
		t.Errorf("the source is %s (%s)", src.State, src.Error)
	}
	r.runsOnce(w, record.Source)
	r.cleanDestination()
}

// A connection that broke takes along what nobody knows whether it came: the memory
// goes ahead once more over the next one.
func TestMemoryGoesAheadAgainOverAnotherConnection(t *testing.T) {
	r := newRig(t)
	r.withMemory(t)
	w := r.startWriter()
	r.start()
	r.wait(r.src, record.UntilConverged)
	before := len(r.events(r.src, "memory"))
	r.proxy.cut()
	for range 600 {
		if len(r.events(r.src, "reconnected")) > 0 && len(r.events(r.src, "memory")) > before {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	scans := r.events(r.src, "memory")
	if len(scans) <= before {
		t.Fatal("after the break nothing was sent ahead")
	}
	if again := scans[before]; again["fresh"].(float64) < taskMemory {
		t.Errorf("after the break only %.0f bytes were sent ahead again", again["fresh"])
	}
	r.cutover()
	r.moved(w)
	r.sameDump()
}

// A sender that is killed in the pause, with the memory on the other side: the
// workload runs on here, and nothing stays there.
func TestAKilledSenderLeavesNoMemoryBehind(t *testing.T) {
	r := newRig(t)
	runs := r.withMemory(t)
	w, _ := r.killFlushed()
	r.runsOnce(w, record.Source)
	comesBack(t, runs)
	r.cleanDestination()
}

// What the other side cannot have meant is no page of a dump.
func TestPagesThatNobodyMeant(t *testing.T) {
	dir := t.TempDir()
	gate := filepath.Join(dir, "gate")
	if err := os.Mkdir(gate, 0o700); err != nil {
		t.Fatal(err)
	}
	d := lonelyDestination(t, dir, gate)
	piece, _ := precopy.NewKnown(0).Encode(nil, []byte("page"), 0)
	frame := func(name string) *wire.Frame {
		return &wire.Frame{Flags: flagPages, Payload: append(append([]byte{byte(len(name))}, name...), piece...)}
	}
	dump, layer := &record.Tree{Name: "dump", Path: gate}, &record.Tree{Name: "layer", Path: dir}
	if err := d.pages(dump, frame("pages-1.img")); err == nil || !strings.Contains(err.Error(), "while this side is prepare") {
		t.Errorf("before the freeze: %v", err)
	}
	for _, st := range []record.State{record.Presync, record.Barrier} {
		if err := d.Reach(st, ""); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.stock(&wire.Frame{Payload: piece}); err == nil || !strings.Contains(err.Error(), "promised") {
		t.Errorf("memory for which there is no room: %v", err)
	}
	if err := d.Reach(record.Frozen, ""); err != nil {
		t.Fatal(err)
	}
	if err := d.stock(&wire.Frame{Payload: piece}); err == nil || !strings.Contains(err.Error(), "while this side is frozen") {
		t.Errorf("memory ahead after the freeze: %v", err)
	}
	for _, name := range []string{"", "core-1.img", "../pages-1.img", "pages-1.img/x"} {
		if err := d.pages(dump, frame(name)); err == nil || !strings.Contains(err.Error(), "no page file") {
			t.Errorf("%q: %v", name, err)
		}
	}
	if err := d.pages(layer, frame("pages-1.img")); err == nil || !strings.Contains(err.Error(), "no dump") {
		t.Errorf("another tree: %v", err)
	}
	for _, payload := range [][]byte{nil, {200}, {0}} {
		if err := d.pages(dump, &wire.Frame{Flags: flagPages, Payload: payload}); err == nil {
			t.Errorf("%v is taken for a piece", payload)
		}
	}
	if err := os.Symlink(filepath.Join(dir, "elsewhere"), filepath.Join(gate, "pages-7.img")); err != nil {
		t.Fatal(err)
	}
	if err := d.pages(dump, frame("pages-7.img")); err == nil {
		t.Error("a page file was written that something else has the name of")
	}
	if err := d.pages(dump, frame("pages-1.img")); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(gate, "pages-1.img")); err != nil || string(b) != "page" {
		t.Errorf("%q, %v", b, err)
	}
	if err := d.memory.close(); err != nil {
		t.Error(err)
	}
}

// Room is given only for what fits beside everything else.
func TestRoomForMemory(t *testing.T) {
	d := lonelyDestination(t, t.TempDir(), t.TempDir())
	available, err := hooks.MemoryAvailable()
	if err != nil || available <= 0 {
		t.Fatal(available, err)
	}
	for memory, want := range map[int64]bool{0: false, 1 << 20: available > 1<<30, available / 2: false, mostStock + 1: false, 1 << 62: false} {
		if err := d.makeRoom(memory); err != nil {
			t.Fatal(err)
		}
		if (d.memory.room > 0) != want {
			t.Errorf("%d bytes of memory with %d available: room for %d", memory, available, d.memory.room)
		}
	}
}

// lonelyDestination is a destination's side without a source.
func lonelyDestination(t *testing.T, dir, gate string) *destination {
	t.Helper()
	j, err := record.OpenJournal(dir, record.Destination)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	spec := &record.Spec{Hooks: record.Hooks{Restore: &hooks.Command{Argv: []string{"true"}, Gate: gate}}}
	return newDestination(&record.Session{Dir: dir, Spec: spec, Journal: j, Log: report.NewWriter(io.Discard)}, planted)
}

// sameDump demands that what the destination restored from was the dump.
func (r *rig) sameDump() {
	r.t.Helper()
	sameDump(r.t, r.control, taskMemory)
}

func sameDump(t *testing.T, control string, least int) {
	t.Helper()
	here, err1 := os.ReadFile(filepath.Join(control, dumpedPages))
	there, err2 := os.ReadFile(filepath.Join(control, restoredPages))
	if err1 != nil || err2 != nil || len(here) < least || !bytes.Equal(here, there) {
		t.Errorf("the dump has %d bytes (%v), and %d came (%v)", len(here), err1, len(there), err2)
	}
}
