package session

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/session/engine"
	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/session/recovery"
)

// heldByItsEngine makes the rig's session one of an engine that freezes, dumps and restores by commands, and holds the
// workload between them. Each command notes in "order" that it ran, with the journal's last word of both sides.
func (r *rig) heldByItsEngine() {
	r.t.Helper()
	r.networkless()
	for _, dir := range []string{r.gate, r.dstGate} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			r.t.Fatal(err)
		}
	}
	say := func(word, then string) *hooks.Command {
		script := `cd "$1" || exit 1; last() { grep -o '"state":"[a-z_]*"' "$1/journal" 2>/dev/null | tail -n 1 | cut -d '"' -f 4; }
		echo "` + word + ` $(last "$2") $(last "$3")" >>order; if test -e "` + word + `-fails"; then echo "planted" >&2; exit 1; fi; ` + then
		return &hooks.Command{Argv: []string{"sh", "-c", script, "sh", r.control, r.src, r.dst, r.gate, r.dstGate}, Timeout: 20}
	}
	src, dst := &r.spec.src, &r.spec.dst
	src.Bundle, dst.Bundle = filepath.Join(r.top, "bundle-src"), filepath.Join(r.top, "bundle-dst")
	src.Trees = []record.Tree{src.Trees[0], {Name: "dump", Path: r.gate, Stage: record.StageFreeze}}
	dst.Trees = []record.Tree{dst.Trees[0], {Name: "dump", Path: r.dstGate}}
	src.Hooks = record.Hooks{
		Freeze:  say("freeze", `touch frozen; until test -e stopped; do sleep 0.01; done; cp counter "$4/dump"`),
		Thaw:    say("thaw", `rm -f frozen "$4/dump"`),
		Reclaim: say("reclaim", `touch reclaimed`),
	}
	dst.Hooks = record.Hooks{
		Restore: say("restore", `cp "$5/dump" restored`),
		Resume:  say("resume", `cp restored resumed; rm -rf "$5"`),
		Discard: say("discard", `rm -f restored; touch discarded`),
	}
}

// networkless leaves the namespaces away, which CRIU's gate would be needed for.
func (r *rig) networkless() {
	r.spec.src.Network, r.spec.dst.Network = record.Network{}, record.Network{}
}

// order is the commands that ran, with the states of the source and of the destination at that time.
func (r *rig) order() []string {
	r.t.Helper()
	b, err := os.ReadFile(filepath.Join(r.control, "order"))
	if err != nil {
		r.t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(b)), "\n")
}

func (r *rig) inOrder(want ...string) {
	r.t.Helper()
	if got := r.order(); strings.Join(got, "; ") != strings.Join(want, "; ") {
		r.t.Errorf("it went\n%s\nand not\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestAnEngineHoldsWhatItHasFrozenAndRestored(t *testing.T) {
	r := newRig(t)
	r.heldByItsEngine()
	w := r.startWriter()
	r.start()
	r.wait(r.src, record.UntilConverged)
	r.cutover()
	r.moved(w)
	r.inOrder("freeze barrier barrier", "restore flushed flushed", "resume released released", "reclaim settled settled")
	if exists(r.dstGate) {
		t.Error("the dump stays on the destination")
	}
}

// A restore that fails may have left a part of the workload held: that ends before the source hears of it.
func TestWhatIsHeldEndsBeforeTheRefusal(t *testing.T) {
	r := newRig(t)
	r.heldByItsEngine()
	plant(t, r.control, "restore-fails")
	w := r.startWriter()
	r.start()
	r.wait(r.src, record.UntilConverged)
	src, dst := r.cutover()
	if src.State != record.Thawed || dst.State != record.Discarded || !strings.Contains(src.Error, "planted") {
		t.Fatalf("source %s (%s), destination %s (%s)", src.State, src.Error, dst.State, dst.Error)
	}
	if got := r.order(); got[1] != "restore flushed flushed" || got[2] != "discard flushed flushed" {
		t.Errorf("it went %q", got)
	}
	r.runsOnce(w, record.Source)
	if exists(filepath.Join(r.control, "restored")) {
		t.Error("it is held on the destination still")
	}
}

// The receiver dies while all is held: it refuses, and the source's copy goes on.
func TestAReceiverThatDiesWhileItsEngineHoldsIsRecovered(t *testing.T) {
	r := newRig(t)
	r.heldByItsEngine()
	r.spec.dst.Policy.PauseAt = record.Prepared
	w := r.startWriter()
	kill := r.startApart(record.Destination)
	r.wait(r.src, record.UntilConverged)
	go func() { _, _ = recovery.Cutover(context.Background(), r.src) }()
	r.wait(r.dst, string(record.Prepared))
	kill()
	<-r.send
	r.recovered(r.dst, r.dstRun, record.Discarded)
	r.recovered(r.src, r.srcRun, record.Thawed)
	r.runsOnce(w, record.Source)
	if exists(filepath.Join(r.control, "restored")) {
		t.Error("it is held on the destination still")
	}
}

// The sender dies with the workload frozen by its engine: the recovery lets it run on.
func TestASenderThatDiesWhileItsEngineHoldsIsRecovered(t *testing.T) {
	r := newRig(t)
	r.heldByItsEngine()
	r.spec.src.Policy.PauseAt = record.Frozen
	w := r.startWriter()
	kill := r.startApart(record.Source)
	r.wait(r.src, record.UntilConverged)
	go func() { _, _ = recovery.Cutover(context.Background(), r.src) }()
	r.wait(r.src, string(record.Frozen))
	kill()
	<-r.receive
	r.recovered(r.src, r.srcRun, record.Thawed)
	r.runsOnce(w, record.Source)
}

// Nothing but the engine's command sees that it is let run: it is noted before, so that a failure is no proof that it never ran.
func TestAFailedResumeOfWhatIsHeldStaysInDoubt(t *testing.T) {
	r := newRig(t)
	r.heldByItsEngine()
	plant(t, r.control, "resume-fails")
	w := r.startWriter()
	r.start()
	r.wait(r.src, record.UntilConverged)
	src, dst := r.cutover()
	if src.State != record.InDoubt || !src.Held || dst.State != record.InDoubt {
		t.Fatalf("source %s (%s), destination %s (%s)", src.State, src.Error, dst.State, dst.Error)
	}
	// It may be held there still. As long as that is so neither side says that it runs, and nothing of the source's ends.
	for _, try := range []func(context.Context, string, string) error{
		func(ctx context.Context, dir, run string) error {
			_, err := recovery.Recover(ctx, dir, run, false)
			return err
		},
		func(ctx context.Context, dir, run string) error {
			_, err := recovery.Resolve(ctx, dir, run, record.Resumed)
			return err
		},
	} {
		if err := try(brief(t), r.dst, r.dstRun); err == nil || !strings.Contains(err.Error(), "planted") {
			t.Errorf("the workload is held on the destination: %v", err)
		}
		if s, err := record.Show(r.dst); err != nil || s.State != record.InDoubt {
			t.Fatalf("%+v, %v", s, err)
		}
	}
	if exists(filepath.Join(r.control, "resumed")) || exists(filepath.Join(r.control, "reclaimed")) {
		t.Error("it was resumed, or ended on the source")
	}
	if err := os.Remove(filepath.Join(r.control, "resume-fails")); err != nil {
		t.Fatal(err)
	}
	r.recovered(r.dst, r.dstRun, record.Settled)
	if !exists(filepath.Join(r.control, "resumed")) {
		t.Fatal("it is settled, and held")
	}
	if s, err := recovery.Resolve(brief(t), r.src, r.srcRun, record.Resumed); err != nil || s.State != record.Done {
		t.Fatalf("%+v, %v", s, err)
	}
	<-r.send
	last := r.order()[len(r.order())-2:]
	if strings.Join(last, "; ") != "resume in_doubt in_doubt; reclaim settled settled" {
		t.Errorf("it ended with %q", last)
	}
	if !exists(filepath.Join(r.control, "reclaimed")) || w.acknowledged() != r.lastLine(r.dstMnt) {
		t.Error("the source's copy was not ended, or wrote on")
	}
}

// slowly makes a command of the engine's wait for the file "goes" at this part of it, and note in "order" when it has gone on.
func (r *rig) slowly(c *hooks.Command, part, done string) {
	r.t.Helper()
	slow := `touch waits; until test -e goes; do sleep 0.01; done; ` + part + `; echo ` + done + ` >>order`
	c.Argv[2] = strings.Replace(c.Argv[2], part, slow, 1)
}

// A command that is under way when its side is ended comes to its end before another one undoes it. Else the workload
// would be frozen after it was let run on, or held after it was discarded.
func TestAnUndoingDoesNotOvertakeWhatItUndoes(t *testing.T) {
	for _, c := range []struct {
		side record.Role
		want []string
	}{
		{record.Source, []string{"freeze barrier barrier", "froze", "thaw barrier barrier"}},
		{record.Destination, []string{"freeze barrier barrier", "restore flushed flushed", "held", "discard flushed flushed"}},
	} {
		t.Run(string(c.side), func(t *testing.T) {
			r := newRig(t)
			r.heldByItsEngine()
			if c.side == record.Source {
				r.slowly(r.spec.src.Hooks.Freeze, "touch frozen", "froze")
			} else {
				r.slowly(r.spec.dst.Hooks.Restore, `cp "$5/dump" restored`, "held")
			}
			w := r.startWriter()
			kill := r.startApart(record.Source)
			defer kill()
			r.wait(r.src, record.UntilConverged)
			go func() { _, _ = recovery.Cutover(context.Background(), r.src) }()
			if err := await(filepath.Join(r.control, "waits")); err != nil {
				t.Fatal(err)
			}
			if c.side == record.Source {
				if err := syscall.Kill(r.apartPid, syscall.SIGTERM); err != nil {
					t.Fatal(err)
				}
			} else {
				go func() { _, _ = recovery.Abort(context.Background(), r.dst, r.dstRun) }()
			}
			time.Sleep(300 * time.Millisecond) // an undoing that does not wait comes in this time
			plant(t, r.control, "goes")
			<-r.receive
			if s := r.wait(r.src, record.UntilEnded); s.State != record.Thawed {
				t.Errorf("the source is %s (%s)", s.State, s.Error)
			}
			got := r.order()
			if n := len(c.want); len(got) < n || strings.Join(got[:n], "; ") != strings.Join(c.want, "; ") {
				t.Errorf("it went\n%s\nand not\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
			r.runsOnce(w, record.Source)
			if exists(filepath.Join(r.control, "restored")) {
				t.Error("it is held on the destination still")
			}
		})
	}
}

// A destination whose process is gone in the resume says it again before it settles: the note of it is older than the
// command. Without the note nothing was let run, and what is held ends. A boot has ended it.
func TestTheRecoveryLetsRunWhatTheEngineMayHold(t *testing.T) {
	for _, c := range []struct {
		way       []record.State
		noted     bool
		restarted bool
		resolve   bool
		want      record.State
		runs      string
	}{
		{way: theWay[:6], noted: true, want: record.Settled, runs: "resume released"},
		{way: theWay[:6], want: record.Discarded, runs: "discard refused"},
		{way: append(theWay[:6:6], record.InDoubt), noted: true, want: record.Settled, runs: "resume in_doubt"},
		{way: append(theWay[:6:6], record.InDoubt), noted: true, resolve: true, want: record.Done, runs: "resume in_doubt"},
		{way: append(theWay[:6:6], record.InDoubt), noted: true, restarted: true, want: record.Settled},
		{way: append(theWay[:6:6], record.InDoubt), noted: true, restarted: true, resolve: true, want: record.Done},
		{way: theWay[:7], noted: true, want: record.Settled},
	} {
		r := newRig(t)
		r.heldByItsEngine()
		r.spec.dst.Volumes, r.spec.dst.Directories = nil, nil
		r.write(r.dst, r.spec.dst)
		j, err := record.OpenJournal(r.dst, record.Destination)
		if err != nil {
			t.Fatal(err)
		}
		goAlong(t, j, c.way...)
		j.Close()
		plant(t, r.dstGate, "dump")
		if c.noted {
			if err := engine.NoteStart(r.dstRun, &r.spec.dst); err != nil {
				t.Fatal(err)
			}
		}
		if c.restarted {
			anotherBoot(t, r.dst)
		}
		plant(t, r.control, "restored")
		if c.resolve {
			if s, err := recovery.Resolve(brief(t), r.dst, r.dstRun, record.Resumed); err != nil || s.State != c.want {
				t.Fatalf("after %v: %+v, %v", c.way, s, err)
			}
		} else {
			r.recovered(r.dst, r.dstRun, c.want)
		}
		b, err := os.ReadFile(filepath.Join(r.control, "order"))
		lines := strings.Split(strings.TrimSpace(string(b)), "\n")
		if err != nil && !errors.Is(err, os.ErrNotExist) || len(lines) > 1 || !strings.HasPrefix(strings.ReplaceAll(lines[0], "  ", " "), c.runs) || c.runs == "" && lines[0] != "" {
			t.Errorf("after %v, noted %t, restarted %t, resolved %t: %q", c.way, c.noted, c.restarted, c.resolve, b)
		}
	}
}

// A source whose process is gone ends the workload that its engine holds, and no sooner than the destination has settled.
func TestTheRecoveryEndsWhatTheEngineHolds(t *testing.T) {
	for _, c := range []struct {
		way  []record.State
		want record.State
		runs string
	}{
		{theWay[:6], record.InDoubt, ""},
		{theWay[:7], record.Resumed, ""},
		{theWay[:8], record.Done, "reclaim"},
		{append(theWay[:6:6], record.Refused), record.Thawed, "thaw"},
		{append(theWay[:6:6], record.InDoubt, record.Fenced), record.Thawed, "thaw"},
		{theWay[:3], record.Thawed, "thaw"},
		{theWay[:1], record.Failed, ""},
	} {
		r := newRig(t)
		r.heldByItsEngine()
		r.spec.src.Volumes, r.spec.src.Directories = nil, nil
		r.write(r.src, r.spec.src)
		j, err := record.OpenJournal(r.src, record.Source)
		if err != nil {
			t.Fatal(err)
		}
		goAlong(t, j, c.way...)
		j.Close()
		r.recovered(r.src, r.srcRun, c.want)
		b, err := os.ReadFile(filepath.Join(r.control, "order"))
		if ran, _, _ := strings.Cut(string(b), " "); ran != c.runs || strings.Count(string(b), "\n") > 1 || err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Errorf("after %v: %q", c.way, b)
		}
	}
}

// A copy that the source could not end is held there still. So its own process is not done with it, as a recovery is not,
// and the recovery tries again.
func TestASourceThatCouldNotEndWhatIsHeldIsNotDone(t *testing.T) {
	r := newRig(t)
	r.heldByItsEngine()
	plant(t, r.control, "reclaim-fails")
	r.startWriter()
	r.start()
	r.wait(r.src, record.UntilConverged)
	src, err := recovery.Cutover(brief(t), r.src)
	if err == nil || !strings.Contains(err.Error(), "clearing up here failed") || !strings.Contains(err.Error(), "planted") || src.State != record.Settled || src.Ended {
		t.Errorf("the source is %s: %v", src.State, err)
	}
	if err := <-r.send; err == nil {
		t.Error("its process ends as if all was well")
	}
	if err := <-r.receive; err != nil {
		t.Error(err)
	}
	if s, err := record.Show(r.dst); err != nil || s.State != record.Done {
		t.Errorf("the destination: %+v, %v", s, err)
	}
	if _, err := recovery.Recover(brief(t), r.src, r.srcRun, false); err == nil || !strings.Contains(err.Error(), "planted") {
		t.Errorf("it is held still: %v", err)
	}
	if _, err := recovery.Cutover(brief(t), r.src); err == nil || !strings.Contains(err.Error(), "is settled: session: the workload runs on the destination; clearing up here failed") {
		t.Errorf("a play that asks again hears: %v", err)
	}
	if err := os.Remove(filepath.Join(r.control, "reclaim-fails")); err != nil {
		t.Fatal(err)
	}
	r.recovered(r.src, r.srcRun, record.Done)
	if !exists(filepath.Join(r.control, "reclaimed")) {
		t.Error("it is done, and held")
	}
}

func plant(t *testing.T, folder, name string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(folder, name), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}
