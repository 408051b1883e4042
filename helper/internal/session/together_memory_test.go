package session

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/precopy"
	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/session/recovery"
	"github.com/livefleet/handover/helper/internal/wire"
)

// memberMemory is what each member holds: less than is worth sending ahead for one alone, and more for both.
const memberMemory = worthwhile / 2

func newGroupWithMemory(t *testing.T) *group {
	t.Helper()
	g := newGroup(t)
	for i, name := range g.names {
		holdMemory(t, g.control[name], g.spec.src.Members[i].Freeze.Cgroup, memberMemory)
	}
	return g
}

// The memory of all members goes ahead, counted together, and each dump there is as it is here: files of one name are in both.
func TestTheMemoryOfAllMembersGoesAhead(t *testing.T) {
	g := newGroupWithMemory(t)
	g.start()
	g.wait(g.src, record.UntilConverged)
	scans := g.events(g.src, "memory")
	if len(scans) == 0 || scans[0]["fresh"].(float64) < 2*memberMemory {
		t.Errorf("it has converged, and of %d bytes went ahead: %v", 2*memberMemory, scans)
	}
	src, dst := g.cutover()
	if src.State != record.Done || dst.State != record.Done || src.Error+dst.Error != "" {
		t.Fatalf("source %s %q, destination %s %q", src.State, src.Error, dst.State, dst.Error)
	}
	g.allRun(record.Destination)
	pages := g.events(g.src, "pages")
	if len(pages) != 1 {
		t.Fatalf("%d events about the dumps' pages", len(pages))
	}
	all, sent := pages[0]["bytes"].(float64), pages[0]["sent"].(float64)
	if all < 2*memberMemory || sent > all/4 {
		t.Errorf("of %.0f bytes of the dumps %.0f were sent in the pause", all, sent)
	}
	for _, tree := range g.events(g.src, "tree") {
		if tree["bytes"].(float64) > memberMemory/4 {
			t.Errorf("pages travelled with their tree, too: %v", tree)
		}
	}
	for _, name := range g.names {
		sameDump(t, g.control[name], memberMemory)
	}
}

// Memory of one member that the destination has wrong ends the move of all before anything is released.
func TestMemoryOfAMemberThatWentBadTakesAllBack(t *testing.T) {
	g := newGroupWithMemory(t)
	planted.decode = func(a *arrivedMemory, piece []byte) ([]byte, int64, error) {
		bad := make([]byte, precopy.PageSize)
		for at := a.stock.Size() / 2 / precopy.PageSize * precopy.PageSize; at < a.stock.Size(); at += precopy.PageSize { // the last member's
			if err := a.stock.Put(bad, at, a.room); err != nil {
				return nil, 0, err
			}
		}
		return a.stock.Decode(a.buf, piece)
	}
	t.Cleanup(func() { planted.decode = nil })
	g.start()
	g.wait(g.src, record.UntilConverged)
	src, dst := g.cutover()
	g.goesBack(src, "a page was taken for another one")
	if dst.State != record.Discarded {
		t.Errorf("the destination is %s", dst.State)
	}
}

// Dumps under way end with the fault of one.
func TestAFaultBesidePagesThatTravelTakesAllBack(t *testing.T) {
	for _, c := range []struct{ member, file string }{{"db", "dump-fails"}, {"web", "dump-writes"}, {"web", "restore-fails"}} {
		t.Run(c.member+" "+c.file, func(t *testing.T) {
			g := newGroupWithMemory(t)
			g.note(c.member, c.file, "CRIU says no")
			g.start()
			g.wait(g.src, record.UntilConverged)
			src, _ := g.cutover()
			g.goesBack(src, c.member+": ")
		})
	}
}

// Killed in the pause, with the memory of all on the other side, the sender leaves all members running here, and nothing there.
func TestAKilledSenderOfMembersLeavesNoMemoryBehind(t *testing.T) {
	g := newGroupWithMemory(t)
	g.note("db", "restore-takes", "1s")
	kill := g.startApart(record.Source)
	g.wait(g.src, record.UntilConverged)
	go func() { _, _ = recovery.Cutover(context.Background(), g.src) }()
	g.wait(g.src, string(record.Flushed))
	kill()
	<-g.receive
	g.waitForHook(g.src, string(record.Thawed))
	if _, err := recovery.Recover(brief(t), g.src, g.srcRun, false); err != nil {
		t.Fatal(err)
	}
	g.goesBack(g.waitForHook(g.src, string(record.Thawed)), "")
	for _, m := range g.spec.dst.Members {
		if exists(m.Restore.Gate) {
			t.Errorf("%s: the folder of its dump is left there", m.Name)
		}
	}
}

// A piece for one member's dump is written into that one, and into no folder that is none's.
func TestPagesOfMembers(t *testing.T) {
	dir := t.TempDir()
	d := lonelyDestination(t, dir, "")
	d.Spec.Hooks.Restore = nil
	for _, name := range []string{"db", "web", "layer"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if name != "layer" {
			d.Spec.Members = append(d.Spec.Members, record.Member{Name: name, Restore: &hooks.Command{Argv: []string{"true"}, Gate: filepath.Join(dir, name)}})
		}
	}
	for _, st := range []record.State{record.Presync, record.Barrier, record.Frozen} {
		if err := d.Reach(st, ""); err != nil {
			t.Fatal(err)
		}
	}
	send := func(name string) error {
		piece, _ := precopy.NewKnown(0).Encode(append([]byte{11}, "pages-1.img"...), []byte("of "+name), 0)
		return d.pages(&record.Tree{Name: name, Path: filepath.Join(dir, name)}, &wire.Frame{Flags: flagPages, Payload: piece})
	}
	if err := send("layer"); err == nil || !strings.Contains(err.Error(), "no dump") {
		t.Errorf("another tree: %v", err)
	}
	for _, name := range []string{"db", "web"} {
		if err := send(name); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"db", "web"} {
		if b, err := os.ReadFile(filepath.Join(dir, name, "pages-1.img")); err != nil || string(b) != "of "+name {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
	if err := d.memory.close(); err != nil {
		t.Error(err)
	}
}
