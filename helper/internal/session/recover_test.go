package session

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/loop"
	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/session/recovery"
)

// brief ends a test that hangs.
func brief(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// recovered runs Recover, twice: what it has done it does not do again.
func (r *rig) recovered(dir, runDir string, want record.State) *record.Status {
	r.t.Helper()
	var s *record.Status
	var err error
	for range 2 {
		if s, err = recovery.Recover(brief(r.t), dir, runDir, false); err != nil {
			r.t.Fatal(err)
		}
		if s.State != want {
			r.t.Fatalf("recovered, it is %s (%s) and not %s", s.State, s.Error, want)
		}
	}
	return s
}

// CRIU fails after the token came and before anything runs: that is known, so the
// destination refuses and the source thaws, by themselves.
func TestAResumeThatNeverRanIsRefused(t *testing.T) {
	r := newRig(t)
	_ = os.WriteFile(filepath.Join(r.control, "resume-fails"), []byte("CRIU cannot unlock the network"), 0o600)
	w := r.startWriter()
	r.start()
	r.wait(r.src, record.UntilConverged)
	src, dst := r.cutover()
	if src.State != record.Thawed || dst.State != record.Discarded || !strings.Contains(src.Error, "CRIU cannot unlock the network") {
		t.Fatalf("source %s (%s), destination %s (%s)", src.State, src.Error, dst.State, dst.Error)
	}
	r.runsOnce(w, record.Source)
	r.cleanDestination()
}

// If it fails later, it may have run: nobody but somebody who looks can tell.
func TestAResumeThatMayHaveRunStaysInDoubt(t *testing.T) {
	r := newRig(t)
	_ = os.WriteFile(filepath.Join(r.control, "resume-fails-late"), []byte("killed by somebody"), 0o600)
	w := r.startWriter()
	r.start()
	r.wait(r.src, record.UntilConverged)
	src, dst := r.cutover()
	if src.State != record.InDoubt || !src.Held || dst.State != record.InDoubt || !strings.Contains(src.Error, "killed by somebody") {
		t.Fatalf("source %s (%s), destination %s (%s)", src.State, src.Error, dst.State, dst.Error)
	}
	// Its data are here, so it is at home here, whether it runs or not.
	r.recovered(r.dst, r.dstRun, record.Settled)
	if s, err := recovery.Resolve(brief(t), r.src, r.srcRun, record.Resumed); err != nil || s.State != record.Done {
		t.Fatalf("%+v, %v", s, err)
	}
	<-r.send
	if s, err := recovery.Resolve(brief(t), r.dst, r.dstRun, record.Resumed); err != nil || s.State != record.Done {
		t.Fatalf("%+v, %v", s, err)
	}
	if r.lastLine(r.dstMnt) != w.acknowledged() {
		t.Error("writes are missing on the destination")
	}
}

// The receiver dies between the token and its word: CRIU goes on, and what is
// left to do is done behind it.
func TestAReceiverKilledAfterTheTokenIsRecovered(t *testing.T) {
	r := newRig(t)
	_ = os.WriteFile(filepath.Join(r.control, "resume-takes"), []byte("500ms"), 0o600)
	w := r.startWriter()
	kill := r.startApart(record.Destination)
	r.wait(r.src, record.UntilConverged)
	go func() { _, _ = recovery.Cutover(context.Background(), r.src) }()
	r.wait(r.dst, string(record.Released))
	kill()
	r.wait(r.src, record.UntilHeld)
	r.recovered(r.dst, r.dstRun, record.Settled)
	r.runsOnce(w, record.Destination)
	if m, err := loop.Mounted(r.dstGate); err != nil || m {
		t.Errorf("the dump's tmpfs is still mounted (%v)", err)
	}
	if s, err := recovery.Resolve(brief(t), r.src, r.srcRun, record.Resumed); err != nil || s.State != record.Done {
		t.Fatalf("%+v, %v", s, err)
	}
	<-r.send
	r.runsOnce(w, record.Destination)
}

// A side whose process died before the release gives up by itself.
func TestWhatIsLeftBeforeTheReleaseIsGivenUp(t *testing.T) {
	for _, c := range []struct {
		apart    record.Role
		at       record.State
		src, dst record.State
	}{
		{record.Source, record.Presync, record.Failed, record.Discarded},
		{record.Source, record.Flushed, record.Thawed, record.Discarded},
		{record.Destination, record.Presync, record.Failed, record.Discarded},
		{record.Destination, record.Frozen, record.Thawed, record.Discarded},
	} {
		t.Run(string(c.apart)+" in "+string(c.at), func(t *testing.T) {
			r := newRig(t)
			_ = os.WriteFile(filepath.Join(r.control, "restore-takes"), []byte("500ms"), 0o600)
			w := r.startWriter()
			kill := r.startApart(c.apart)
			r.wait(r.src, record.UntilConverged)
			dir, run, other := r.src, r.srcRun, r.receive
			if c.apart == record.Destination {
				dir, run, other = r.dst, r.dstRun, r.send
			}
			if c.at != record.Presync {
				go func() { _, _ = recovery.Cutover(context.Background(), r.src) }()
				r.wait(dir, string(c.at))
			}
			kill()
			<-other
			if c.apart == record.Source {
				r.recovered(dir, run, c.src)
			} else {
				r.recovered(dir, run, c.dst)
			}
			src, dst := r.show()
			if src.State != c.src || dst.State != c.dst {
				t.Errorf("source %s (%s), destination %s (%s)", src.State, src.Error, dst.State, dst.Error)
			}
			r.runsOnce(w, record.Source)
			r.cleanSource()
			r.cleanDestination()
		})
	}
}

// A hook that decides in the place of the process cannot wait for CRIU's end, and
// so leaves the gate and the tmpfs. Whoever comes after it removes them; but not
// what a later session has there.
func TestAGateThatTheHookLeftIsRemoved(t *testing.T) {
	for _, c := range []struct {
		last   string
		remain bool
	}{{"", false}, {"a-later-one", true}} {
		r := newRig(t)
		r.note("restore-takes", "500ms")
		w, _ := r.killFlushed()
		if m, err := loop.Mounted(r.gate); err != nil || !m {
			t.Fatalf("the hook has removed it itself (%v): this test is about nothing", err)
		}
		if c.last != "" {
			if err := os.WriteFile(filepath.Join(r.srcRun, record.WorkloadLock, "shop"), []byte(c.last), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		r.recovered(r.src, r.srcRun, record.Thawed)
		if m, err := loop.Mounted(r.gate); err != nil || m != c.remain {
			t.Errorf("last came %q: the tmpfs is mounted: %v (%v)", c.last, m, err)
		}
		if !c.remain {
			r.cleanSource()
		}
		r.runsOnce(w, record.Source)
	}
}

func (r *rig) show() (src, dst *record.Status) {
	r.t.Helper()
	src, err := record.Show(r.src)
	if err != nil {
		r.t.Fatal(err)
	}
	if dst, err = record.Show(r.dst); err != nil {
		r.t.Fatal(err)
	}
	return src, dst
}

// moved is a handover that is over, but for the goodbye, which did not come.
func (r *rig) movedWithoutGoodbye(w *writer) {
	r.t.Helper()
	_ = os.WriteFile(filepath.Join(r.control, "resume-takes"), []byte("500ms"), 0o600)
	r.start()
	r.wait(r.src, record.UntilConverged)
	looked := make(chan struct{}) // nobody looks at the session any more when the test goes on
	go func() {
		defer close(looked)
		if _, err := record.Wait(brief(r.t), r.dst, []string{string(record.Released)}); err == nil {
			r.proxy.cut()
		}
	}()
	src, dst := r.cutover()
	<-looked
	if src.State != record.InDoubt || dst.State != record.Settled {
		r.t.Fatalf("source %s (%s), destination %s (%s)", src.State, src.Error, dst.State, dst.Error)
	}
	r.runsOnce(w, record.Destination)
}

// A destination that has not heard that the source let go, and was restarted,
// starts nothing: an operator may have let the source thaw. Its volumes are there.
func TestADestinationThatWasRestartedWaits(t *testing.T) {
	r := newRig(t)
	r.spec.dst.Bundle = filepath.Join(r.top, "bundle")
	w := r.startWriter()
	r.movedWithoutGoodbye(w)
	if err := r.dstMayStart(); err != nil {
		t.Errorf("it runs here, and may start again: %v", err)
	}
	if err := loop.Unmount(r.dstMnt); err != nil {
		t.Fatal(err)
	}
	restartHost(t, r.dst, r.dstRun)
	if err := r.dstMayStart(); err == nil || !strings.Contains(err.Error(), "the other one may have gone on without it") {
		t.Errorf("after the restart it may start: %v", err)
	}
	r.recovered(r.dst, r.dstRun, record.Settled)
	if r.lastLine(r.dstMnt) != w.acknowledged() {
		t.Error("writes are missing on the volume that was mounted again")
	}
	if err := r.dstMayStart(); err == nil {
		t.Error("recovered, and nobody was asked, it may start")
	}
	if s, err := recovery.Resolve(brief(t), r.src, r.srcRun, record.Resumed); err != nil || s.State != record.Done {
		t.Fatalf("%+v, %v", s, err)
	}
	<-r.send
	for range 2 {
		if s, err := recovery.Resolve(brief(t), r.dst, r.dstRun, record.Resumed); err != nil || s.State != record.Done {
			t.Fatalf("%+v, %v", s, err)
		}
	}
	if err := r.dstMayStart(); err != nil {
		t.Errorf("the source has let go, and it may not start: %v", err)
	}
	if err := loop.Unmount(r.dstMnt); err != nil {
		t.Fatal(err)
	}
	if err := r.dstMayStart(); err == nil || !strings.Contains(err.Error(), "its volume data is not mounted") {
		t.Errorf("without its volume: %v", err)
	}
}

func (r *rig) dstMayStart() error {
	return recovery.MayStart(brief(r.t), r.top, r.dstRun, &recovery.OCIState{Bundle: filepath.Join(r.top, "bundle")})
}

// The operator's way out: the destination is switched off, the source goes on, and
// when the destination comes back it has nothing.
func TestFencing(t *testing.T) {
	r := newRig(t)
	w := r.startWriter()
	r.movedWithoutGoodbye(w)
	if s, err := recovery.Resolve(brief(t), r.src, r.srcRun, record.Fenced); err != nil || s.State != record.Thawed || !strings.Contains(s.Error, "fenced") {
		t.Fatalf("%+v, %v", s, err)
	}
	<-r.send
	_ = os.Remove(filepath.Join(r.control, "resumed")) // it was switched off
	r.runsOnce(w, record.Source)
	for range 2 {
		if s, err := recovery.Resolve(brief(t), r.dst, r.dstRun, record.Fenced); err != nil || s.State != record.Discarded {
			t.Fatalf("%+v, %v", s, err)
		}
	}
	r.cleanDestination()
	r.runsOnce(w, record.Source)
}

// Once the source knows that the destination has everything, nobody makes it thaw.
func TestASettledSourceIsNotFenced(t *testing.T) {
	r := newRig(t)
	w := r.startWriter()
	r.start()
	r.wait(r.src, record.UntilConverged)
	r.cutover()
	if s, err := recovery.Resolve(brief(t), r.src, r.srcRun, record.Fenced); err != nil || s.State != record.Done {
		t.Errorf("%+v, %v", s, err)
	}
	r.runsOnce(w, record.Destination)
}

// What a session may let start, state by state.
func TestWhoMayStart(t *testing.T) {
	sourceStops := slices.Clip(slices.Clone(theWay[:6]))
	for _, c := range []struct {
		role      record.Role
		way       []record.State
		restarted bool
		no        string
	}{
		{record.Source, nil, false, ""},
		{record.Source, theWay[:5], false, ""}, // its process is gone, and will never send the token
		{record.Source, []record.State{record.Presync, record.Failed}, false, ""},
		{record.Source, append(theWay[:4:4], record.Thawed), false, ""},
		{record.Source, sourceStops, false, "may run on the other host"},
		{record.Source, append(sourceStops, record.InDoubt), true, "may run on the other host"},
		{record.Source, append(sourceStops, record.Refused), true, ""}, // how it gets to thawed
		{record.Source, append(sourceStops, record.InDoubt, record.Fenced), true, ""},
		{record.Source, append(sourceStops, record.Refused, record.Thawed), true, ""},
		{record.Source, theWay[:7], false, "may run on the other host"},
		{record.Source, theWay, false, "has moved to the other host"},
		{record.Source, theWay, true, "has moved to the other host"},
		{record.Destination, nil, false, "is the other host's"},
		{record.Destination, theWay[:5], true, "is the other host's"},
		{record.Destination, append(theWay[:5:5], record.Refused, record.Discarded), false, "is the other host's"},
		{record.Destination, theWay[:6], false, "was then restarted"},
		{record.Destination, theWay[:7], false, ""},
		{record.Destination, theWay[:7], true, "was then restarted"},
		{record.Destination, theWay[:8], false, ""},
		{record.Destination, theWay[:8], true, "was then restarted"},
		{record.Destination, theWay, true, ""},
	} {
		r := &rig{t: t, top: t.TempDir()}
		dir := filepath.Join(r.top, "session")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		stop := &hooks.Command{Argv: []string{"true"}}
		spec := record.Spec{
			Version: 1, ID: "rig", Role: c.role, Mode: record.Offline, Workload: "shop", Bundle: filepath.Join(r.top, "bundle"),
			Listen: "127.0.0.1:0", Peer: record.Peer{Address: "127.0.0.1:1", Fingerprint: anotherPrint}, Hooks: record.Hooks{Freeze: stop, Thaw: stop, Resume: stop},
		}
		r.write(dir, spec)
		j, err := record.OpenJournal(dir, c.role)
		if err != nil {
			t.Fatal(err)
		}
		goAlong(t, j, c.way...)
		j.Close()
		if c.restarted {
			anotherBoot(t, dir)
		}
		err = r.dstMayStart()
		if (err == nil) != (c.no == "") || err != nil && !strings.Contains(err.Error(), c.no) {
			t.Errorf("%s %v, restarted %t: %v, and %q was expected", c.role, c.way, c.restarted, err, c.no)
		}
		if err := recovery.MayStart(brief(t), r.top, r.top, &recovery.OCIState{Bundle: "/somebody/else"}); err != nil {
			t.Errorf("another container: %v", err)
		}
	}
}

// While the receiver lives and nothing is released, only the engine's own restore passes, which
// CRIU's hooks hold: a start would run beside the source.
func TestAReceiverLetsNothingStartBeforeTheRelease(t *testing.T) {
	held, byEngine := &hooks.Command{Argv: []string{"true"}, Gate: "/images"}, &hooks.Command{Argv: []string{"true"}}
	prepares := &hooks.Command{Argv: []string{"true"}}
	for _, c := range []struct {
		steps    int
		restore  *hooks.Command
		restores bool
		may      bool
	}{
		{2, held, true, false}, {2, held, false, false}, {2, nil, false, false},
		{3, held, true, true}, {3, held, false, false}, {3, nil, false, false}, {3, nil, true, false},
		{4, held, true, true}, {4, held, false, false}, {4, nil, false, false}, {4, nil, true, false},
		{3, byEngine, false, false}, {4, byEngine, true, true}, {4, byEngine, false, false}, {5, byEngine, true, false}, {6, byEngine, false, true},
		{5, held, true, false}, {5, nil, false, false},
		{6, held, false, true}, {6, nil, false, true}, {7, nil, false, true},
		// Offline nothing holds what a restore brings up.
		{3, prepares, true, false}, {4, prepares, true, false}, {6, prepares, false, true},
	} {
		r := &rig{t: t, top: t.TempDir()}
		mode := record.Live
		if c.restore == nil || c.restore == prepares {
			mode = record.Offline
		}
		stop := &hooks.Command{Argv: []string{"true"}}
		r.write(r.top, record.Spec{
			Version: 1, ID: "rig", Role: record.Destination, Mode: mode, Workload: "shop", Bundle: filepath.Join(r.top, "bundle"),
			Listen: "127.0.0.1:0", Peer: record.Peer{Fingerprint: anotherPrint}, Hooks: record.Hooks{Restore: c.restore, Resume: stop, Discard: stop},
		})
		j, err := record.OpenJournal(r.top, record.Destination)
		if err != nil {
			t.Fatal(err)
		}
		goAlong(t, j, theWay[:c.steps]...)
		j.Close()
		if err := recovery.ReceiverMayStart(r.top, r.top, c.restores); (err == nil) != c.may {
			t.Errorf("%s at %s, restore held %t, it restores %t: %v", mode, theWay[c.steps-1], c.restore != nil, c.restores, err)
		}
	}
}

// A destination removes what it made, and what was there before stays.
func TestOnlyWhatWasMadeIsRemoved(t *testing.T) {
	r := newRig(t)
	if err := os.WriteFile(r.dstImage, []byte("somebody's"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.write(r.dst, r.spec.dst)
	if err := Receive(brief(t), r.dst, r.dstRun, planted); err == nil || !strings.Contains(err.Error(), "exists already") {
		t.Errorf("over a file that was there: %v", err)
	}
	// The same, and the process died over it.
	if err := os.Remove(filepath.Join(r.dst, record.JournalFile)); err != nil {
		t.Fatal(err)
	}
	r.recovered(r.dst, r.dstRun, record.Discarded)
	if b, err := os.ReadFile(r.dstImage); err != nil || string(b) != "somebody's" {
		t.Errorf("what was there before: %q, %v", b, err)
	}
	if err := os.Remove(r.dstImage); err != nil {
		t.Fatal(err)
	}
}

// Nothing is resumed unless all that came for it is on the disk.
func TestNothingRunsBeforeItsDataAreOnTheDisk(t *testing.T) {
	r := newRig(t)
	t.Cleanup(func() { planted.syncVolumes = nil })
	planted.syncVolumes = func(d *places) error {
		if d.Journal.Reached(record.Flushed) {
			return errors.New("the disk does not take it")
		}
		return d.datasync()
	}
	w := r.startWriter()
	r.start()
	r.wait(r.src, record.UntilConverged)
	src, dst := r.cutover()
	if src.State != record.Thawed || dst.State != record.Discarded || !strings.Contains(src.Error, "the disk does not take it") {
		t.Fatalf("source %s (%s), destination %s (%s)", src.State, src.Error, dst.State, dst.Error)
	}
	r.runsOnce(w, record.Source)
	r.cleanDestination()
}
