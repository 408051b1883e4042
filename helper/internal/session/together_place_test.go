package session

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/session/recovery"
	"github.com/livefleet/handover/helper/internal/wire"
)

// newGroupToBePlaced is a group whose members are tasks with memory that CRIU leaves alone.
func newGroupToBePlaced(t *testing.T) *group {
	t.Helper()
	g := newGroup(t)
	for i, name := range g.names {
		g.addTask(g.control[name], g.spec.src.Members[i].Freeze, g.spec.dst.Members[i].Restore, os.Getpid()*len(g.names)+i)
		g.note(name, toBePlaced, "")
	}
	g.spec.src.Policy.PlaceMemory, g.spec.dst.Policy.PlaceMemory = true, true
	return g
}

// saw is the word of a member's restored task about its memory; empty if it has not come so far.
func (g *group) saw(name string) string {
	said, _ := os.ReadFile(filepath.Join(g.control[name], lazySays))
	return string(said)
}

// neverRan demands that no restored task of any member has run.
func (g *group) neverRan() {
	g.t.Helper()
	for _, name := range g.names {
		if said := g.saw(name); said != "" {
			g.t.Errorf("%s ran on the destination: %s", name, said)
		}
	}
}

// The memory of each member is in its own tasks before the release.
func TestTheMemoryOfMembersIsPlacedBeforeTheRelease(t *testing.T) {
	g := newGroupToBePlaced(t)
	g.start()
	g.wait(g.src, record.UntilConverged)
	if src, dst := g.cutover(); src.State != record.Done || dst.State != record.Done || src.Error+dst.Error != "" {
		t.Fatalf("source %s %q, destination %s %q", src.State, src.Error, dst.State, dst.Error)
	}
	g.allRun(record.Destination)
	for _, name := range g.names {
		_ = await(filepath.Join(g.control[name], lazySays))
		if said := g.saw(name); said != "all is there" {
			t.Errorf("the restored task of %s says %q", name, said)
		}
	}
	said, left := g.events(g.dst, "placed"), g.events(g.src, "places")
	if len(said) != 1 || len(left) != 1 || said[0]["bytes"] != left[0]["bytes"] || said[0]["tasks"].(float64) != 2 {
		t.Fatalf("%v of %v", said, left)
	}
	kinds := g.kinds(g.dst)
	if placed, prepared := slices.Index(kinds, "placed"), slices.Index(kinds, "prepared"); placed < 0 || prepared < placed {
		t.Errorf("%v", kinds)
	}
}

// Memory that is wrong in one member takes all of them back.
func TestPlacedMemoryOfAMemberThatFailsTakesAllBack(t *testing.T) {
	for name, c := range map[string]struct{ member, file, text, says string }{
		"a restore fails":                   {"db", "restore-fails", "CRIU says no", "db: "},
		"a page that no task has":           {"web", frozenTask, "1", "the dump leaves memory in task 1"},
		"another task than the dump's":      {"web", handsOver, "4711", "web: "},
		"another task, of the first of all": {"db", handsOver, "4711", "db: "},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGroupToBePlaced(t)
			g.note(c.member, c.file, c.text)
			for _, m := range g.spec.dst.Members {
				m.Restore.Timeout = 3
			}
			g.start()
			g.wait(g.src, record.UntilConverged)
			src, dst := g.cutover()
			if why := src.Error + dst.Error; !strings.Contains(why, c.says) {
				t.Errorf("%q does not say %q", why, c.says)
			}
			g.goesBack(src, "")
			if dst.State != record.Discarded {
				t.Errorf("the destination is %s", dst.State)
			}
			g.neverRan()
		})
	}
}

// A process that is killed leaves all members with one host.
func TestPlacedMembersWhoseProcessIsKilled(t *testing.T) {
	for _, side := range []record.Role{record.Source, record.Destination} {
		for _, at := range []record.State{record.Flushed, record.Prepared} {
			t.Run(string(side)+" "+string(at), func(t *testing.T) {
				g := newGroupToBePlaced(t)
				dir, run, other := g.src, g.srcRun, &g.receive
				if side == record.Source {
					g.spec.src.Policy.PauseAt = at
				} else {
					g.spec.dst.Policy.PauseAt = at
					dir, run, other = g.dst, g.dstRun, &g.send
				}
				kill := g.startApart(side)
				g.wait(g.src, record.UntilConverged)
				go func() { _, _ = recovery.Cutover(brief(t), g.src) }()
				g.wait(dir, string(at))
				kill()
				if _, err := recovery.Recover(brief(t), dir, run, true); err != nil {
					t.Fatal(err)
				}
				<-*other
				src, err := record.Show(g.src)
				if err != nil {
					t.Fatal(err)
				}
				g.goesBack(src, "")
				g.neverRan()
			})
		}
	}
}

// Memory of a part that there is not is an error, and no crash.
func TestMemoryOfAPartThatThereIsNot(t *testing.T) {
	d := lonelyDestination(t, t.TempDir(), "")
	for _, st := range []record.State{record.Presync, record.Barrier, record.Frozen} {
		if err := d.Reach(st, ""); err != nil {
			t.Fatal(err)
		}
	}
	d.memory.placing, d.memory.parts = true, []*placed{{}}
	if err := d.place(&wire.Frame{Flags: flagPlace, Stream: 1, Pos: 1}); err == nil || !strings.Contains(err.Error(), "memory of part 1, and there are 1") {
		t.Error(err)
	}
	d.memory.parts = nil
	if err := d.memory.close(); err != nil {
		t.Error(err)
	}
}
