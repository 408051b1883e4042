package session

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/hooks/cgrouptest"
	"github.com/livefleet/handover/helper/internal/loop"
	"github.com/livefleet/handover/helper/internal/network"
	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/session/recovery"
)

// group is a workload of two members, each with tasks in a cgroup and a CRIU that the test plays.
type group struct {
	*rig
	names   []string
	runs    map[string]func() bool
	control map[string]string
}

func newGroup(t *testing.T) *group {
	t.Helper()
	r := newRig(t)
	g := &group{rig: r, names: []string{"db", "web"}, runs: map[string]func() bool{}, control: map[string]string{}}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*record.Spec{&r.spec.src, &r.spec.dst} {
		s.Volumes, s.Directories, s.Trees, s.Bundles = nil, nil, nil, []string{"/bundle/infra", "/bundle/db", "/bundle/web"}
	}
	r.spec.src.Hooks = record.Hooks{Reclaim: g.touches("reclaimed")}
	r.spec.dst.Hooks = record.Hooks{Discard: g.touches("discarded")}
	for i, name := range g.names {
		top := filepath.Join(r.top, name)
		control, gate, dstGate := filepath.Join(top, "control"), filepath.Join(top, "gate"), filepath.Join(top, "gate-dst")
		for _, dir := range []string{filepath.Join(control, "hold"), filepath.Join(top, "mnt-dst"), filepath.Join(top, "layer-dst")} {
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		t.Cleanup(func() {
			for _, dir := range []string{filepath.Join(control, "shown"), gate, dstGate} {
				if err := loop.Unmount(dir); err != nil {
					t.Error(err)
				}
			}
		})
		for _, file := range []string{filepath.Join(control, "stopped"), filepath.Join(control, "counter"), filepath.Join(top, "mnt-dst", "ledger")} {
			if err := os.WriteFile(file, []byte("1"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		cgroup, runs := cgrouptest.New(t)
		g.runs[name], g.control[name] = runs, control
		r.spec.src.Trees = append(r.spec.src.Trees, record.Tree{Name: "dump-" + name, Path: gate, Stage: record.StageDump})
		r.spec.dst.Trees = append(r.spec.dst.Trees, record.Tree{Name: "dump-" + name, Path: dstGate})
		r.spec.src.Members = append(r.spec.src.Members, record.Member{
			Name: name, Freeze: &hooks.Command{Argv: []string{self, actDump, control, r.srcRun, gate, cgroup}, Gate: gate, Cgroup: hooks.Cgroup(cgroup)},
		})
		r.spec.dst.Members = append(r.spec.dst.Members, record.Member{Name: name, Restore: &hooks.Command{
			Argv: []string{self, actRestore, control, r.dstRun, dstGate}, Gate: dstGate, Hold: filepath.Join(control, "hold"), Container: []string{"0123456789aa", "0123456789ab"}[i],
		}})
	}
	for i, name := range g.names {
		g.note(name, "stands", string(r.spec.src.Members[1-i].Freeze.Cgroup)+"\n"+g.control[g.names[1-i]])
	}
	return g
}

func (g *group) touches(name string) *hooks.Command {
	return &hooks.Command{Argv: []string{"touch", filepath.Join(g.rig.control, name)}}
}

func (g *group) note(member, name, text string) {
	g.t.Helper()
	if err := os.WriteFile(filepath.Join(g.control[member], name), []byte(text), 0o600); err != nil {
		g.t.Fatal(err)
	}
}

// allRun demands that each member runs on this side, and none on the other.
func (g *group) allRun(side record.Role) {
	g.t.Helper()
	for _, name := range g.names {
		there := exists(filepath.Join(g.control[name], "resumed"))
		if here := g.runs[name](); here != (side == record.Source) || there != (side == record.Destination) {
			g.t.Errorf("%s runs on the source: %v, on the destination: %v; it should run on the %s only", name, here, there, side)
		}
	}
}

// goesBack demands that nothing of a move is left but its reason.
func (g *group) goesBack(src *record.Status, why string) {
	g.t.Helper()
	if src.State != record.Thawed && src.State != record.Failed || !strings.Contains(src.Error, why) {
		g.t.Fatalf("the source is %s (%s)", src.State, src.Error)
	}
	for _, name := range g.names {
		comesBack(g.t, g.runs[name])
		if why != "" && !exists(filepath.Join(g.src, record.RunsFile+"-"+name)) { // the process itself has undone it
			g.t.Errorf("a recovery would thaw %s again, whoever has paused it by then", name)
		}
	}
	g.allRun(record.Source)
	if exists(filepath.Join(g.rig.control, "reclaimed")) {
		g.t.Error("what holds the network of the members was ended on the source")
	}
	for _, run := range []string{g.srcRun, g.dstRun} {
		if left, _ := filepath.Glob(filepath.Join(hooks.Gates(run), "*.json")); len(left) > 0 {
			g.t.Errorf("gates are left: %q", left)
		}
	}
}

func TestMembersMoveAsOne(t *testing.T) {
	g := newGroup(t)
	g.start()
	g.wait(g.src, record.UntilConverged)
	src, dst := g.cutover()
	if src.State != record.Done || dst.State != record.Done || src.Error+dst.Error != "" {
		t.Fatalf("source %s %q, destination %s %q", src.State, src.Error, dst.State, dst.Error)
	}
	g.allRun(record.Destination)
	if !exists(filepath.Join(g.rig.control, "reclaimed")) {
		t.Error("what holds the network of the members is left on the source")
	}
}

// No member is dumped while another still runs: it could act on one that is in its dump already.
func TestAllMembersStandBeforeTheFirstIsDumped(t *testing.T) {
	g := newGroup(t)
	g.note("web", "armed-takes", "")
	g.start()
	g.wait(g.src, record.UntilConverged)
	done := make(chan struct{})
	go func() { defer close(done); _, _ = recovery.Cutover(context.Background(), g.src) }()
	time.Sleep(300 * time.Millisecond)
	if exists(filepath.Join(g.control["db"], "frozen")) || !g.runs["db"]() {
		t.Error("db was stopped, and web's CRIU is not even ready")
	}
	if err := os.Remove(filepath.Join(g.control["web"], "armed-takes")); err != nil {
		t.Fatal(err)
	}
	<-done
	g.wait(g.src, record.UntilEnded)
	<-g.receive
	g.allRun(record.Destination)
}

// Before the release the fault of one member takes all of them back.
func TestAFaultOfOneMemberTakesAllBack(t *testing.T) {
	for name, c := range map[string]struct{ member, file, text, why string }{
		"the first cannot be dumped":    {"db", "dump-fails", "CRIU says no", "db: "},
		"the last cannot be dumped":     {"web", "dump-fails", "CRIU says no", "web: "},
		"the first cannot be restored":  {"db", "restore-fails", "no such file", "db: "},
		"the last cannot be restored":   {"web", "restore-fails", "no such file", "web: "},
		"the last is slow, and refused": {"web", "restore-takes", "10s", ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGroup(t)
			g.note(c.member, c.file, c.text)
			g.start()
			g.wait(g.src, record.UntilConverged)
			if c.why == "" {
				go func() { _, _ = recovery.Cutover(context.Background(), g.src) }()
				if err := await(filepath.Join(g.control["db"], "restoring")); err != nil {
					t.Fatal(err)
				}
				if _, err := recovery.Abort(brief(t), g.dst, g.dstRun); err != nil {
					t.Fatal(err)
				}
				g.goesBack(g.wait(g.src, record.UntilEnded), "aborted")
				return
			}
			src, dst := g.cutover()
			g.goesBack(src, c.why)
			if dst.State != record.Discarded || !exists(filepath.Join(g.rig.control, "discarded")) {
				t.Errorf("the destination is %s", dst.State)
			}
		})
	}
}

// A snapshot that has one member's cgroup keeps the others from standing still for it.
func TestAMemberThatASnapshotHasStopsNone(t *testing.T) {
	g := newGroup(t)
	db, web := g.spec.src.Members[0].Freeze, g.spec.src.Members[1].Freeze
	web.Timeout = 2
	own, err := web.Cgroup.Own(brief(t))
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	g.start()
	g.wait(g.src, record.UntilConverged)
	over, stood := make(chan struct{}), make(chan bool, 1)
	go func() {
		at := false
		for {
			select {
			case <-over:
				stood <- at
				return
			case <-time.After(5 * time.Millisecond):
				stopped, err := db.Cgroup.Stopped()
				at = at || err != nil || stopped
			}
		}
	}()
	src, _ := g.cutover()
	close(over)
	if <-stood {
		t.Error("db stood still for a snapshot of web")
	}
	g.goesBack(src, "a move or a snapshot has the cgroup")
	if strings.Contains(src.Error, "invalid argument") {
		t.Errorf("what it never had was given back: %s", src.Error)
	}
}

// Another session's gate before one member leaves no gate of this one before the others.
func TestAMemberWithAnothersGateLeavesNone(t *testing.T) {
	for side, c := range map[record.Role]struct {
		gate  string
		serve func(context.Context, string, string, Options) error
	}{record.Source: {"gate", Send}, record.Destination: {"gate-dst", Receive}} {
		t.Run(string(side), func(t *testing.T) {
			g := newGroup(t)
			dir, run, spec := g.src, g.srcRun, g.spec.src
			if side == record.Destination {
				dir, run, spec = g.dst, g.dstRun, g.spec.dst
			}
			gate := filepath.Join(g.top, "web", c.gate)
			if err := os.MkdirAll(gate, 0o700); err != nil {
				t.Fatal(err)
			}
			other, err := hooks.OpenGate(run, gate, "/sessions/other")
			if err != nil {
				t.Fatal(err)
			}
			defer other.Close()
			g.write(dir, spec)
			if err := c.serve(brief(t), dir, run, planted); err == nil || !strings.Contains(err.Error(), "web: hooks: session other still has a gate") {
				t.Errorf("%v", err)
			}
			if left, _ := filepath.Glob(filepath.Join(hooks.Gates(run), "*.json")); len(left) != 1 {
				t.Errorf("gates are left: %q", left)
			}
		})
	}
}

// What is no member of the dump must not run on the source when it is released.
func TestOneThatWasStartedMeanwhileTakesAllBack(t *testing.T) {
	g := newGroup(t)
	g.spec.src.Hooks.Still = &hooks.Command{Argv: []string{"sh", "-c", "echo job was started meanwhile >&2; exit 1"}}
	g.start()
	g.wait(g.src, record.UntilConverged)
	src, _ := g.cutover()
	g.goesBack(src, "job was started meanwhile")
}

// A restore that ends while it is held never runs: then no member is let run here. It is no doubt either, also where its
// engine was killed before its CRIU.
func TestAMemberThatDiesHeldKeepsAllHere(t *testing.T) {
	for name, lingers := range map[string]bool{"with its CRIU": false, "before its CRIU": true} {
		t.Run(name, func(t *testing.T) {
			g := newGroup(t)
			g.spec.dst.Policy.PauseAt = record.Released
			until := ""
			if lingers {
				until = filepath.Join(g.control["web"], "let-go")
				t.Cleanup(func() { g.note("web", "let-go", "") })
			}
			g.note("web", "dies-held", until)
			g.start()
			g.wait(g.src, record.UntilConverged)
			go func() { _, _ = recovery.Cutover(context.Background(), g.src) }()
			if err := await(filepath.Join(g.control["web"], "died")); err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond) // its engine has ended by then
			if err := record.Continue(g.dst); err != nil {
				t.Fatal(err)
			}
			if lingers {
				time.Sleep(500 * time.Millisecond)
				if src, err := record.Show(g.src); err != nil || src.State != record.Released {
					t.Errorf("with a CRIU that is there still, the source is %+v, %v", src, err)
				}
				g.note("web", "let-go", "")
			}
			g.goesBack(g.wait(g.src, record.UntilEnded), "web: its restore ended while it was held")
		})
	}
}

// Killed at each step, the sender leaves all members where they belong.
func TestAKilledSenderOfMembers(t *testing.T) {
	t.Run("before the release", func(t *testing.T) {
		g := newGroup(t)
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
	})
	t.Run("after it", func(t *testing.T) {
		g := newGroup(t)
		g.note("db", "resume-takes", "1s")
		kill := g.startApart(record.Source)
		g.wait(g.src, record.UntilConverged)
		go func() { _, _ = recovery.Cutover(context.Background(), g.src) }()
		g.wait(g.dst, string(record.Released))
		kill()
		<-g.receive
		g.allRun(record.Destination)
		if _, err := recovery.Recover(brief(t), g.src, g.srcRun, false); err != nil {
			t.Fatal(err)
		}
		g.allRun(record.Destination) // in doubt: frozen still
		if s, err := recovery.Resolve(brief(t), g.src, g.srcRun, record.Resumed); err != nil || s.State != record.Done {
			t.Fatalf("%+v, %v", s, err)
		}
		for _, name := range g.names {
			if err := await(filepath.Join(g.control[name], "killed")); err != nil {
				t.Error(err)
			}
		}
		if !exists(filepath.Join(g.rig.control, "reclaimed")) {
			t.Error("what holds the network of the members is left on the source")
		}
	})
}

// Killed at each step, the receiver lets all members run, or none.
func TestAKilledReceiverOfMembers(t *testing.T) {
	for _, c := range []struct {
		at   record.State
		side record.Role
	}{{record.Prepared, record.Source}, {record.Released, record.Destination}} {
		t.Run(string(c.at), func(t *testing.T) {
			g := newGroup(t)
			g.spec.dst.Policy.PauseAt = c.at
			kill := g.startApart(record.Destination)
			g.wait(g.src, record.UntilConverged)
			go func() { _, _ = recovery.Cutover(context.Background(), g.src) }()
			g.wait(g.dst, string(c.at))
			kill()
			s, err := recovery.Recover(brief(t), g.dst, g.dstRun, false)
			if err != nil {
				t.Fatal(err)
			}
			if c.side == record.Source {
				g.goesBack(g.wait(g.src, record.UntilEnded), "")
				return
			}
			if s.State != record.Settled {
				t.Errorf("the destination is %s (%s)", s.State, s.Error)
			}
			g.allRun(record.Destination)
			if _, err := recovery.Resolve(brief(t), g.src, g.srcRun, record.Resumed); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// Where some members run here and others never did, no side decides by itself: the source still has those.
func TestAHalfResumeIsInDoubt(t *testing.T) {
	g := newGroup(t)
	g.note("web", "resume-fails", "CRIU was killed")
	g.start()
	g.wait(g.src, record.UntilConverged)
	src, dst := g.cutover()
	if !src.Held || dst.State != record.InDoubt {
		t.Fatalf("the source is %s (%s), the destination %s (%s)", src.State, src.Error, dst.State, dst.Error)
	}
	for range 2 {
		_, err := recovery.Recover(brief(t), g.dst, g.dstRun, false)
		if err == nil || !strings.Contains(err.Error(), "the members db run here and web never did") {
			t.Errorf("the recovery decided: %v", err)
		}
	}
	if s, err := record.Show(g.dst); err != nil || s.State != record.InDoubt {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := recovery.Resolve(brief(t), g.src, g.srcRun, record.Fenced); err != nil {
		t.Fatal(err)
	}
	<-g.send
}

// A boot ends the members that ran here, and takes what told which did. The source still has those that never did.
func TestAHalfResumeIsInDoubtAfterABoot(t *testing.T) {
	g := newGroup(t)
	g.note("web", "resume-fails", "CRIU was killed")
	g.start()
	g.wait(g.src, record.UntilConverged)
	if src, dst := g.cutover(); !src.Held || dst.State != record.InDoubt {
		t.Fatalf("the source is %s (%s), the destination %s (%s)", src.State, src.Error, dst.State, dst.Error)
	}
	restartHost(t, g.dst, g.dstRun)
	for range 2 {
		_, err := recovery.Recover(brief(t), g.dst, g.dstRun, false)
		if err == nil || !strings.Contains(err.Error(), "some of its members may never have run here") {
			t.Errorf("the recovery decided: %v", err)
		}
	}
	if s, err := record.Show(g.dst); err != nil || s.State != record.InDoubt {
		t.Errorf("%+v, %v", s, err)
	}
	if s, err := record.Show(g.src); err != nil || !s.Held {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := recovery.Resolve(brief(t), g.src, g.srcRun, record.Fenced); err != nil {
		t.Fatal(err)
	}
	<-g.send
}

// Where CRIU is gone, too, the recovery alone lets the members run on.
func TestARecoveryThawsAllMembers(t *testing.T) {
	g := newGroup(t)
	g.write(g.src, g.spec.src)
	j, err := record.OpenJournal(g.src, record.Source)
	if err != nil {
		t.Fatal(err)
	}
	for _, st := range []record.State{record.Presync, record.Barrier, record.Frozen} {
		if err := j.Append(st, ""); err != nil {
			t.Fatal(err)
		}
	}
	j.Close()
	for _, m := range g.spec.src.Members {
		if _, err := m.Freeze.Cgroup.Freeze(brief(t)); err != nil {
			t.Fatal(err)
		}
	}
	s, err := recovery.Recover(brief(t), g.src, g.srcRun, false)
	if err != nil || s.State != record.Thawed {
		t.Fatalf("%+v, %v", s, err)
	}
	g.allRun(record.Source)
}

// The peers of the members' connections talk to the destination: until what holds the network is gone, the source is silent there.
func TestARecoveryEndsMembersInSilence(t *testing.T) {
	g := newGroup(t)
	here, _ := g.networks()
	g.write(g.src, g.spec.src)
	j, err := record.OpenJournal(g.src, record.Source)
	if err != nil {
		t.Fatal(err)
	}
	goAlong(t, j, record.Presync, record.Barrier, record.Frozen, record.Flushed, record.Prepared, record.Released, record.Resumed, record.Settled)
	j.Close()
	// The hook that CRIU leaves behind has the namespace for a moment still.
	guard, err := network.NewGuard(here)
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(200*time.Millisecond, guard.Close)
	s, err := recovery.Recover(brief(t), g.src, g.srcRun, false)
	if err != nil || s.State != record.Done {
		t.Fatalf("%+v, %v", s, err)
	}
	g.silence(here, true)
	if !exists(filepath.Join(g.rig.control, "reclaimed")) {
		t.Error("what holds the network of the members is left on the source")
	}
}
