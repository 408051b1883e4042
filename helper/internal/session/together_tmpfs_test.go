package session

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/livefleet/handover/helper/internal/loop"
	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/session/recovery"
)

// scratch are the tmpfs of members: of each the folder on the source, and that on the destination.
type scratch struct {
	g        *group
	from, to map[string]string
	before   map[string]string // digests
}

// withTmpfs gives members a tmpfs of their own, each with a file that no other has.
func (g *group) withTmpfs(members ...string) *scratch {
	g.t.Helper()
	s := &scratch{g, map[string]string{}, map[string]string{}, map[string]string{}}
	for i, name := range g.names {
		for _, member := range members {
			if member != name {
				continue
			}
			s.from[name], s.to[name] = g.ownTmpfs(filepath.Join(g.top, name), g.control[name], name)
			g.spec.src.Members[i].Freeze.Hold = filepath.Join(g.control[name], "hold")
			if err := os.WriteFile(filepath.Join(s.from[name], "whose"), []byte(name), 0o600); err != nil {
				g.t.Fatal(err)
			}
			s.before[name] = g.digest(s.from[name])
		}
	}
	return s
}

// stays demands that the files of all are on the source as they were, and that none wait on the destination.
func (s *scratch) stays() {
	s.g.t.Helper()
	for name, from := range s.from {
		if s.g.digest(from) != s.before[name] {
			s.g.t.Errorf("the tmpfs of %s has changed on the source", name)
		}
	}
	if mounted, err := loop.Mounted(filepath.Join(s.g.dst, record.TmpfsFolder)); err != nil || mounted {
		s.g.t.Errorf("the folder in which the files waited is mounted still: %v, %v", mounted, err)
	}
}

func TestEachMembersOwnTmpfsMovesBesideItsDump(t *testing.T) {
	for name, members := range map[string][]string{"one of them": {"web"}, "both": {"db", "web"}} {
		t.Run(name, func(t *testing.T) {
			g := newGroup(t)
			s := g.withTmpfs(members...)
			g.start()
			g.wait(g.src, record.UntilConverged)
			late := filepath.Join(s.from["web"], "late")
			if err := os.WriteFile(late, []byte("late"), 0o600); err != nil {
				t.Fatal(err)
			}
			s.before["web"] = g.digest(s.from["web"])
			if src, dst := g.cutover(); src.State != record.Done || dst.State != record.Done || src.Error+dst.Error != "" {
				t.Fatalf("source %s %q, destination %s %q", src.State, src.Error, dst.State, dst.Error)
			}
			g.allRun(record.Destination)
			for _, name := range members {
				if g.digest(s.to[name]) != s.before[name] {
					t.Errorf("the restored tmpfs of %s is not the source's", name)
				}
			}
			s.stays()
		})
	}
}

// Any other way of CRIU's with the tmpfs of one member takes all of them back, with all files of each.
func TestATmpfsOfAMemberThatCRIUHandlesOtherwiseTakesAllBack(t *testing.T) {
	for _, c := range []struct{ member, file, text, says string }{
		{"db", "tar-is-not-called", "", "CRIU's dump has 0 marks"},
		{"web", "tar-is-not-called", "", "CRIU's dump has 0 marks"},
		{"web", "dump-takes-another-tar", "", "CRIU's dump has 0 marks"},
		{"db", "has-another-mark", "web", "has 0 marks"},
		{"db", "restore-takes-another-tar", "", "can't restore tmpfs content"},
		{"web", "tar-is-not-called-at-the-restore", "", "was filled 0 times"},
		{"web", "mounts-another", "", "another file system in the place of"},
	} {
		t.Run(c.member+" "+c.file, func(t *testing.T) {
			g := newGroup(t)
			s := g.withTmpfs("db", "web")
			if c.text != "" {
				c.text = "handover-tmpfs rig " + record.TmpfsName(c.text, s.to[c.text]) + "\n"
			}
			g.note(c.member, c.file, c.text)
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
			s.stays()
		})
	}
}

// The mark of a member is filled from that member's files alone, also where another one's lie there, too.
func TestAMarkOfAMemberIsInItsOwnDump(t *testing.T) {
	g := newGroup(t)
	s := g.withTmpfs("web")
	// db has a tmpfs that the session does not follow, and the mark of web's in the place of its archive.
	if err := os.WriteFile(filepath.Join(g.control["db"], tmpfsFile), []byte(s.from["web"]+"\n"+s.to["web"]), 0o600); err != nil {
		t.Fatal(err)
	}
	g.note("db", "has-another-mark", "handover-tmpfs rig "+record.TmpfsName("web", s.to["web"])+"\n")
	g.start()
	g.wait(g.src, record.UntilConverged)
	src, _ := g.cutover()
	g.goesBack(src, "which is not carried beside it")
	s.stays()
}

// Killed in the freeze, the helper of either side leaves all files of all members where they were.
func TestTheTmpfsOfMembersAreThereStillWhereAHelperIsKilled(t *testing.T) {
	t.Run("sender", func(t *testing.T) {
		g := newGroup(t)
		s := g.withTmpfs("db", "web")
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
		s.stays()
	})
	t.Run("receiver", func(t *testing.T) {
		g := newGroup(t)
		s := g.withTmpfs("db", "web")
		g.spec.dst.Policy.PauseAt = record.Prepared
		kill := g.startApart(record.Destination)
		g.wait(g.src, record.UntilConverged)
		go func() { _, _ = recovery.Cutover(context.Background(), g.src) }()
		g.wait(g.dst, string(record.Prepared))
		kill()
		if _, err := recovery.Recover(brief(t), g.dst, g.dstRun, false); err != nil {
			t.Fatal(err)
		}
		g.goesBack(g.wait(g.src, record.UntilEnded), "")
		s.stays()
	})
}
