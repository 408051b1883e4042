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
)

// brief ends a test that hangs.
func brief(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// restartHost plays a restart: another boot, and what lived in /run is gone.
func restartHost(t *testing.T, runDir string) {
	t.Helper()
	real := thisBoot
	t.Cleanup(func() { thisBoot = real })
	thisBoot = func() string { return "the next one" }
	if err := os.RemoveAll(runDir); err != nil {
		t.Fatal(err)
	}
}

// recovered runs Recover, twice: what it has done it does not do again.
func (r *rig) recovered(dir, runDir string, want State) *Status {
	r.t.Helper()
	var s *Status
	var err error
	for range 2 {
		if s, err = Recover(brief(r.t), dir, runDir, false); err != nil {
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
	r.wait(r.src, UntilConverged)
	src, dst := r.cutover()
	if src.State != Thawed || dst.State != Discarded || !strings.Contains(src.Error, "CRIU cannot unlock the network") {
		t.Fatalf("source %s (%s), destination %s (%s)", src.State, src.Error, dst.State, dst.Error)
	}
	r.runsOnce(w, Source)
	r.cleanDestination()
}

// If it fails later, it may have run: nobody but somebody who looks can tell.
func TestAResumeThatMayHaveRunStaysInDoubt(t *testing.T) {
	r := newRig(t)
	_ = os.WriteFile(filepath.Join(r.control, "resume-fails-late"), []byte("killed by somebody"), 0o600)
	w := r.startWriter()
	r.start()
	r.wait(r.src, UntilConverged)
	src, dst := r.cutover()
	if src.State != InDoubt || !src.Held || dst.State != InDoubt || !strings.Contains(src.Error, "killed by somebody") {
		t.Fatalf("source %s (%s), destination %s (%s)", src.State, src.Error, dst.State, dst.Error)
	}
	// Its data are here, so it is at home here, whether it runs or not.
	r.recovered(r.dst, r.dstRun, Settled)
	if s, err := Resolve(brief(t), r.src, r.srcRun, Resumed); err != nil || s.State != Done {
		t.Fatalf("%+v, %v", s, err)
	}
	<-r.send
	if s, err := Resolve(brief(t), r.dst, r.dstRun, Resumed); err != nil || s.State != Done {
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
	kill := r.startApart(Destination)
	r.wait(r.src, UntilConverged)
	go func() { _, _ = Cutover(context.Background(), r.src) }()
	r.wait(r.dst, string(Released))
	kill()
	r.wait(r.src, UntilHeld)
	r.recovered(r.dst, r.dstRun, Settled)
	r.runsOnce(w, Destination)
	if m, err := loop.Mounted(r.dstGate); err != nil || m {
		t.Errorf("the dump's tmpfs is still mounted (%v)", err)
	}
	if s, err := Resolve(brief(t), r.src, r.srcRun, Resumed); err != nil || s.State != Done {
		t.Fatalf("%+v, %v", s, err)
	}
	<-r.send
	r.runsOnce(w, Destination)
}

// A side whose process died before the release gives up by itself.
func TestWhatIsLeftBeforeTheReleaseIsGivenUp(t *testing.T) {
	for _, c := range []struct {
		apart    Role
		at       State
		src, dst State
	}{
		{Source, Presync, Failed, Discarded},
		{Source, Flushed, Thawed, Discarded},
		{Destination, Presync, Failed, Discarded},
		{Destination, Frozen, Thawed, Discarded},
	} {
		t.Run(string(c.apart)+" in "+string(c.at), func(t *testing.T) {
			r := newRig(t)
			_ = os.WriteFile(filepath.Join(r.control, "restore-takes"), []byte("500ms"), 0o600)
			w := r.startWriter()
			kill := r.startApart(c.apart)
			r.wait(r.src, UntilConverged)
			dir, run, other := r.src, r.srcRun, r.receive
			if c.apart == Destination {
				dir, run, other = r.dst, r.dstRun, r.send
			}
			if c.at != Presync {
				go func() { _, _ = Cutover(context.Background(), r.src) }()
				r.wait(dir, string(c.at))
			}
			kill()
			<-other
			if c.apart == Source {
				r.recovered(dir, run, c.src)
			} else {
				r.recovered(dir, run, c.dst)
			}
			src, dst := r.show()
			if src.State != c.src || dst.State != c.dst {
				t.Errorf("source %s (%s), destination %s (%s)", src.State, src.Error, dst.State, dst.Error)
			}
			r.runsOnce(w, Source)
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
			if err := os.WriteFile(filepath.Join(r.srcRun, workloadLock, "shop"), []byte(c.last), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		r.recovered(r.src, r.srcRun, Thawed)
		if m, err := loop.Mounted(r.gate); err != nil || m != c.remain {
			t.Errorf("last came %q: the tmpfs is mounted: %v (%v)", c.last, m, err)
		}
		if !c.remain {
			r.cleanSource()
		}
		r.runsOnce(w, Source)
	}
}

func (r *rig) show() (src, dst *Status) {
	r.t.Helper()
	src, err := Show(r.src)
	if err != nil {
		r.t.Fatal(err)
	}
	if dst, err = Show(r.dst); err != nil {
		r.t.Fatal(err)
	}
	return src, dst
}

// moved is a handover that is over, but for the goodbye, which did not come.
func (r *rig) movedWithoutGoodbye(w *writer) {
	r.t.Helper()
	_ = os.WriteFile(filepath.Join(r.control, "resume-takes"), []byte("500ms"), 0o600)
	r.start()
	r.wait(r.src, UntilConverged)
	looked := make(chan struct{}) // nobody looks at the session any more when the test goes on
	go func() {
		defer close(looked)
		if _, err := Wait(brief(r.t), r.dst, []string{string(Released)}); err == nil {
			r.proxy.cut()
		}
	}()
	src, dst := r.cutover()
	<-looked
	if src.State != InDoubt || dst.State != Settled {
		r.t.Fatalf("source %s (%s), destination %s (%s)", src.State, src.Error, dst.State, dst.Error)
	}
	r.runsOnce(w, Destination)
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
	restartHost(t, r.dstRun)
	if err := r.dstMayStart(); err == nil || !strings.Contains(err.Error(), "the other one may have gone on without it") {
		t.Errorf("after the restart it may start: %v", err)
	}
	r.recovered(r.dst, r.dstRun, Settled)
	if r.lastLine(r.dstMnt) != w.acknowledged() {
		t.Error("writes are missing on the volume that was mounted again")
	}
	if err := r.dstMayStart(); err == nil {
		t.Error("recovered, and nobody was asked, it may start")
	}
	if s, err := Resolve(brief(t), r.src, r.srcRun, Resumed); err != nil || s.State != Done {
		t.Fatalf("%+v, %v", s, err)
	}
	<-r.send
	for range 2 {
		if s, err := Resolve(brief(t), r.dst, r.dstRun, Resumed); err != nil || s.State != Done {
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
	return MayStart(brief(r.t), r.top, r.dstRun, &OCIState{Bundle: filepath.Join(r.top, "bundle")})
}

// The operator's way out: the destination is switched off, the source goes on, and
// when the destination comes back it has nothing.
func TestFencing(t *testing.T) {
	r := newRig(t)
	w := r.startWriter()
	r.movedWithoutGoodbye(w)
	if s, err := Resolve(brief(t), r.src, r.srcRun, Fenced); err != nil || s.State != Thawed || !strings.Contains(s.Error, "fenced") {
		t.Fatalf("%+v, %v", s, err)
	}
	<-r.send
	_ = os.Remove(filepath.Join(r.control, "resumed")) // it was switched off
	r.runsOnce(w, Source)
	for range 2 {
		if s, err := Resolve(brief(t), r.dst, r.dstRun, Fenced); err != nil || s.State != Discarded {
			t.Fatalf("%+v, %v", s, err)
		}
	}
	r.cleanDestination()
	r.runsOnce(w, Source)
}

// Once the source knows that the destination has everything, nobody makes it thaw.
func TestASettledSourceIsNotFenced(t *testing.T) {
	r := newRig(t)
	w := r.startWriter()
	r.start()
	r.wait(r.src, UntilConverged)
	r.cutover()
	if s, err := Resolve(brief(t), r.src, r.srcRun, Fenced); err != nil || s.State != Done {
		t.Errorf("%+v, %v", s, err)
	}
	r.runsOnce(w, Destination)
}

// What a session may let start, state by state.
func TestWhoMayStart(t *testing.T) {
	sourceStops := slices.Clip(slices.Clone(sourceWay[:6]))
	for _, c := range []struct {
		role      Role
		way       []State
		restarted bool
		no        string
	}{
		{Source, nil, false, ""},
		{Source, sourceWay[:5], false, ""}, // its process is gone, and will never send the token
		{Source, []State{Presync, Failed}, false, ""},
		{Source, append(sourceWay[:4:4], Thawed), false, ""},
		{Source, sourceStops, false, "may run on the other host"},
		{Source, append(sourceStops, InDoubt), true, "may run on the other host"},
		{Source, append(sourceStops, Refused), true, ""}, // how it gets to thawed
		{Source, append(sourceStops, InDoubt, Fenced), true, ""},
		{Source, append(sourceStops, Refused, Thawed), true, ""},
		{Source, sourceWay[:7], false, "may run on the other host"},
		{Source, sourceWay, false, "has moved to the other host"},
		{Source, sourceWay, true, "has moved to the other host"},
		{Destination, nil, false, "is the other host's"},
		{Destination, destinationWay[:5], true, "is the other host's"},
		{Destination, append(destinationWay[:5:5], Refused, Discarded), false, "is the other host's"},
		{Destination, destinationWay[:6], false, "was then restarted"},
		{Destination, destinationWay[:7], false, ""},
		{Destination, destinationWay[:7], true, "was then restarted"},
		{Destination, destinationWay[:8], false, ""},
		{Destination, destinationWay[:8], true, "was then restarted"},
		{Destination, destinationWay, true, ""},
	} {
		r := &rig{t: t, top: t.TempDir()}
		dir := filepath.Join(r.top, "session")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		stop := &hooks.Command{Argv: []string{"true"}}
		spec := Spec{
			Version: 1, ID: "rig", Role: c.role, Mode: Offline, Workload: "shop", Bundle: filepath.Join(r.top, "bundle"),
			Listen: "127.0.0.1:0", Peer: Peer{Address: "127.0.0.1:1", Fingerprint: goodPrint}, Hooks: Hooks{Freeze: stop, Thaw: stop, Resume: stop},
		}
		r.write(dir, spec)
		j, err := OpenJournal(dir, c.role)
		if err != nil {
			t.Fatal(err)
		}
		appendAll(t, j, c.way...)
		j.Close()
		real := thisBoot
		if c.restarted {
			thisBoot = func() string { return "the next one" }
		}
		err = r.dstMayStart()
		thisBoot = real
		if (err == nil) != (c.no == "") || err != nil && !strings.Contains(err.Error(), c.no) {
			t.Errorf("%s %v, restarted %t: %v, and %q was expected", c.role, c.way, c.restarted, err, c.no)
		}
		if err := MayStart(brief(t), r.top, r.top, &OCIState{Bundle: "/somebody/else"}); err != nil {
			t.Errorf("another container: %v", err)
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
	if err := Receive(brief(t), r.dst, r.dstRun); err == nil || !strings.Contains(err.Error(), "exists already") {
		t.Errorf("over a file that was there: %v", err)
	}
	// The same, and the process died over it.
	if err := os.Remove(filepath.Join(r.dst, journalFile)); err != nil {
		t.Fatal(err)
	}
	r.recovered(r.dst, r.dstRun, Discarded)
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
	w := r.startWriter()
	r.start()
	r.wait(r.src, UntilConverged)
	real := syncVolumes
	t.Cleanup(func() { syncVolumes = real })
	syncVolumes = func(d *destination) error {
		if d.journal.Reached(Flushed) {
			return errors.New("the disk does not take it")
		}
		return real(d)
	}
	src, dst := r.cutover()
	if src.State != Thawed || dst.State != Discarded || !strings.Contains(src.Error, "the disk does not take it") {
		t.Fatalf("source %s (%s), destination %s (%s)", src.State, src.Error, dst.State, dst.Error)
	}
	r.runsOnce(w, Source)
	r.cleanDestination()
}

// What may not be left behind keeps a source from being done: it is tried again.
func TestASourceIsNotDoneWhileSomethingIsLeft(t *testing.T) {
	dir, run := t.TempDir(), t.TempDir()
	file := filepath.Join(dir, "no-folder")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	spec := &Spec{ID: "shop-1", Role: Source, Mode: Live, Hooks: Hooks{Freeze: &hooks.Command{Argv: []string{"x"}, Cgroup: hooks.Cgroup(file)}}}
	j, err := OpenJournal(dir, Source)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	for _, st := range []State{Presync, Barrier, Frozen, Flushed, Prepared, Released, Resumed, Settled} {
		if err := j.Append(st, ""); err != nil {
			t.Fatal(err)
		}
	}
	if err := endSource(t.Context(), dir, run, spec, j); err == nil || j.State() != Settled {
		t.Errorf("the source is %s: %v", j.State(), err)
	}
	spec.Hooks.Freeze.Cgroup = hooks.Cgroup(filepath.Join(dir, "gone"))
	if err := endSource(t.Context(), dir, run, spec, j); err != nil || j.State() != Done {
		t.Errorf("the source is %s: %v", j.State(), err)
	}
}
