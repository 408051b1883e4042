package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/blockmap"
	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/image"
	"github.com/livefleet/handover/helper/internal/loop"
	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/session/recovery"
	"github.com/livefleet/handover/helper/internal/tracker"
	"github.com/livefleet/handover/helper/internal/tree"
)

// runsOnce demands that exactly one copy runs, and on which side.
func (r *rig) runsOnce(w *writer, side record.Role) {
	r.t.Helper()
	here := w.acknowledged()
	time.Sleep(50 * time.Millisecond)
	// A busy disk can hold a writer up for longer than that.
	for range 500 {
		if side != record.Source || w.acknowledged() > here {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	runsHere := w.acknowledged() > here
	runsThere := exists(filepath.Join(r.control, "resumed"))
	if runsHere != (side == record.Source) || runsThere != (side == record.Destination) {
		r.t.Fatalf("runs on the source: %v, on the destination: %v; it should run on the %s only", runsHere, runsThere, side)
	}
}

// moved demands that both sides came to their end without an error, that the
// workload runs on the destination alone, in the state in which it was frozen, and
// that every write that was acknowledged is there, and every byte as on the source.
func (r *rig) moved(w *writer) (src, dst *record.Status) {
	r.t.Helper()
	src, dst = r.wait(r.src, record.UntilEnded), r.wait(r.dst, record.UntilEnded)
	if src.State != record.Done || dst.State != record.Done || src.Error != "" || dst.Error != "" {
		r.t.Fatalf("source %s %q, destination %s %q", src.State, src.Error, dst.State, dst.Error)
	}
	r.runsOnce(w, record.Destination)
	if got, want := r.lastLine(r.dstMnt), w.acknowledged(); got != want {
		r.t.Errorf("the destination's ledger ends with %d, and %d was acknowledged", got, want)
	}
	state, err := os.ReadFile(filepath.Join(r.control, "resumed"))
	if err != nil || string(state) != strconv.Itoa(w.acknowledged()) {
		r.t.Errorf("resumed with state %q (%v), acknowledged: %d", state, err, w.acknowledged())
	}
	if !src.Verify.Checked || src.Verify.Source["data"] != src.Verify.Destination["data"] || src.Verify.Source["data"] == "" {
		r.t.Errorf("verify: %+v", src.Verify)
	}
	// Whatever it was attached as for the restore.
	if dev, err := loop.DeviceOf(r.dstImage); err != nil || dev != "" && directIO(dev) != directIO(r.device) {
		r.t.Errorf("%s does direct I/O: %q, and the source's device: %q (%v)", dev, directIO(dev), directIO(r.device), err)
	}
	return src, dst
}

// directIO is what the kernel says of a loop device.
func directIO(dev string) string {
	said, _ := os.ReadFile(filepath.Join("/sys/block", filepath.Base(dev), "loop/dio"))
	return string(said)
}

// cleanSource demands that a source that gave up left nothing, and nobody who
// would take a later dump for its own.
func (r *rig) cleanSource() {
	r.t.Helper()
	if m, err := loop.Mounted(r.gate); err != nil || m {
		r.t.Errorf("%s is still mounted (%v)", r.gate, err)
	}
	if left, err := filepath.Glob(filepath.Join(hooks.Gates(r.srcRun), "*")); err != nil || len(left) > 0 {
		r.t.Errorf("the gate is still there: %v (%v)", left, err)
	}
}

// cleanDestination demands that a destination that gave up left nothing.
func (r *rig) cleanDestination() {
	r.t.Helper()
	if exists(r.dstImage) {
		r.t.Error("the image is still on the destination")
	}
	if empty, err := tree.Empty(r.dstFiles); err != nil || !empty {
		r.t.Errorf("the directory volume is not as empty as it was (%v)", err)
	}
	if exists(r.dstGate) {
		r.t.Error("the folder of the dump is still on the destination")
	}
	for _, dir := range []string{r.dstMnt, filepath.Join(r.control, "shown")} {
		if m, err := loop.Mounted(dir); err != nil || m {
			r.t.Errorf("%s is still mounted (%v)", dir, err)
		}
	}
	if !exists(filepath.Join(r.control, "discarded")) {
		r.t.Error("the discard hook was not run")
	}
}

func TestLiveHandover(t *testing.T) {
	r := newRig(t)
	w := r.startWriter()
	r.start()
	r.wait(r.src, record.UntilConverged)
	if err := os.WriteFile(filepath.Join(r.layer, "late"), []byte("written after the first pass"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(r.layer, "file")); err != nil {
		t.Fatal(err)
	}
	r.cutover()
	src, _ := r.moved(w)

	if !exists(filepath.Join(r.control, "early")) {
		t.Error("the restore was not begun before its state had arrived")
	}
	r.sameFiles()
	if b, err := os.ReadFile(filepath.Join(r.dstLayer, "late")); err != nil || string(b) != "written after the first pass" {
		t.Errorf("the layer's late file: %q, %v", b, err)
	}
	if exists(filepath.Join(r.dstLayer, "file")) {
		t.Error("a file that was removed from the layer is on the destination")
	}
	// Rule 4: what was frozen went only after the destination had settled.
	killed, err := os.Stat(filepath.Join(r.control, "killed"))
	if err != nil {
		t.Fatal("the source's tasks are still there: ", err)
	}
	if at := r.reached(r.dst, record.Destination, record.Settled); killed.ModTime().Before(at) {
		t.Errorf("the source's tasks were let go at %s, and the destination settled at %s", killed.ModTime(), at)
	}
	// Rule 2: it resumed only after the release was on the source's disk.
	resumed, err := os.Stat(filepath.Join(r.control, "resumed"))
	if err != nil {
		t.Fatal(err)
	}
	if at := r.reached(r.src, record.Source, record.Released); resumed.ModTime().Before(at) {
		t.Errorf("it resumed at %s, and the source released it at %s", resumed.ModTime(), at)
	}
	if src.FrozenMS <= 0 || len(src.Stages) < 6 {
		t.Errorf("frozen %v ms, stages %+v", src.FrozenMS, src.Stages)
	}
	for _, dir := range []string{r.gate, r.dstGate} {
		if exists(dir) {
			t.Errorf("the folder of the dump, %s, is still there", dir)
		}
	}
}

// reached is when a side recorded a state.
func (r *rig) reached(dir string, role record.Role, st record.State) time.Time {
	r.t.Helper()
	j, err := record.ReadJournal(dir, role)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, rec := range j.Records() {
		if rec.State == st {
			// A file's time comes from a clock that ticks more coarsely.
			return rec.Time.Add(-20 * time.Millisecond)
		}
	}
	r.t.Fatalf("the %s never was %s", role, st)
	return time.Time{}
}

// intruder writes to the device past its file system, each time that the marks
// were taken in the freeze.
type intruder struct {
	tracker.Tracker
	frozen string
	dev    *os.File
}

func (i intruder) Swap() (*blockmap.Map, error) {
	m, err := i.Tracker.Swap()
	if err == nil && exists(i.frozen) {
		_, err = i.dev.WriteAt(image.Buffer(4096), rigSize-4096) // nothing of the file system's is there
	}
	return m, err
}

// Whatever writes past the frozen file system is seen by the last look at the
// tracker.
func TestAWriteAfterTheFreezeIsSeen(t *testing.T) {
	r := newRig(t)
	w := r.startWriter()
	dev, err := os.OpenFile(r.device, os.O_RDWR|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	planted.openTrackers = func(kind string, devs []tracker.Device) ([]tracker.Tracker, error) {
		ts, err := tracker.Open(kind, devs)
		for i := range ts {
			ts[i] = intruder{ts[i], filepath.Join(r.control, "frozen"), dev}
		}
		return ts, err
	}
	defer func() { planted.openTrackers = nil }()
	r.start()
	r.wait(r.src, record.UntilConverged)
	src, dst := r.cutover()
	if src.State != record.Thawed || dst.State != record.Discarded {
		t.Fatalf("source %s (%s), destination %s", src.State, src.Error, dst.State)
	}
	if !strings.Contains(src.Error, "something writes to the device past its file system") {
		t.Errorf("the error is %q", src.Error)
	}
	r.runsOnce(w, record.Source)
	r.cleanDestination()
}

// lossy loses the mark of one cluster that was really written.
type lossy struct {
	tracker.Tracker
	lost *int64
}

func (l lossy) Swap() (*blockmap.Map, error) {
	m, err := l.Tracker.Swap()
	if err != nil {
		return nil, err
	}
	for off := range m.Runs(int64(m.Cluster())) {
		if *l.lost < 0 || *l.lost == off {
			*l.lost = off
			m.Clear(off)
			break
		}
	}
	return m, nil
}

func TestALostMarkIsFound(t *testing.T) {
	lost := int64(-1)
	planted.openTrackers = func(kind string, devs []tracker.Device) ([]tracker.Tracker, error) {
		ts, err := tracker.Open(kind, devs)
		for i := range ts {
			ts[i] = lossy{ts[i], &lost}
		}
		return ts, err
	}
	defer func() { planted.openTrackers = nil }()
	r := newRig(t)
	w := r.startWriter()
	r.start()
	r.wait(r.src, record.UntilConverged)
	src, dst := r.cutover()
	if src.State != record.Thawed || dst.State != record.Discarded {
		t.Fatalf("a lost mark at %d went unseen: source %s, destination %s", lost, src.State, dst.State)
	}
	if !strings.Contains(src.Error, fmt.Sprintf("volume data: the destination differs from the frozen source, from offset %d on", lost)) {
		t.Errorf("the error is %q", src.Error)
	}
	r.runsOnce(w, record.Source)
	r.cleanDestination()
}

// Docker, when it is restarted, unmounts all in a container's own folder: the move ends
// before the dump, and nothing of it is left on the disk.
func TestADumpThatWouldGoOntoTheDiskEndsTheMove(t *testing.T) {
	r := newRig(t)
	w := r.startWriter()
	r.start()
	r.wait(r.src, record.UntilConverged)
	// runc has written a file of its own there before CRIU begins.
	if err := errors.Join(loop.Unmount(r.gate), os.WriteFile(filepath.Join(r.gate, "descriptors.json"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	src, dst := r.cutover()
	if src.State != record.Failed && src.State != record.Thawed || dst.State != record.Discarded || !strings.Contains(src.Error, "was unmounted") {
		t.Fatalf("source %s (%s), destination %s (%s)", src.State, src.Error, dst.State, dst.Error)
	}
	if exists(r.gate) {
		t.Error("the folder of the dump is still there")
	}
	r.runsOnce(w, record.Source)
	r.cleanDestination()
}

// An engine that was killed, and Docker's daemon with it, does not know of what its CRIU lets go
// on: nothing is let run, and the source has it still.
func TestARestoreThatDiesHeldRunsNothing(t *testing.T) {
	r := newRig(t)
	r.spec.dst.Policy.PauseAt = record.Released
	letGo := filepath.Join(r.control, "let-go")
	r.note("dies-held", letGo)
	t.Cleanup(func() { r.note("let-go", "") })
	w := r.startWriter()
	r.start()
	r.wait(r.src, record.UntilConverged)
	go func() { _, _ = recovery.Cutover(context.Background(), r.src) }()
	if err := await(filepath.Join(r.control, "died")); err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond) // its engine has ended by then
	if err := record.Continue(r.dst); err != nil {
		t.Fatal(err)
	}
	time.Sleep(500 * time.Millisecond)
	if src, err := record.Show(r.src); err != nil || src.State != record.Released {
		t.Errorf("with a CRIU that is there still, the source is %+v, %v", src, err)
	}
	r.note("let-go", "")
	src, dst := r.wait(r.src, record.UntilEnded), r.wait(r.dst, record.UntilEnded)
	if src.State != record.Thawed || dst.State != record.Discarded || !strings.Contains(src.Error, "its restore ended while it was held") {
		t.Fatalf("source %s (%s), destination %s (%s)", src.State, src.Error, dst.State, dst.Error)
	}
	r.runsOnce(w, record.Source)
	r.cleanDestination()
}

// Rule 1: until the release any failure thaws the source, and the destination
// discards.
func TestAFailureBeforeTheReleaseThaws(t *testing.T) {
	for _, c := range []struct {
		name  string
		plant func(r *rig)
		text  string
	}{
		{"the restore fails", func(r *rig) {
			_ = os.WriteFile(filepath.Join(r.control, "restore-fails"), []byte("CRIU says no"), 0o600)
		}, "CRIU says no"},
		{"the disk is full", func(r *rig) {
			// Room for the metadata and for little more.
			dir := filepath.Dir(r.dstImage)
			if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=1m", "full", dir).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			r.t.Cleanup(func() { _ = loop.Unmount(dir) })
		}, "no space left"},
		{"a database is open, and the volume's device is taken", func(r *rig) {
			r.spec.dst.Volumes[0].Device, r.spec.dst.Volumes[0].SameDevice = r.device, true // both sides are this host
		}, "is taken"},
		{"the source's connection breaks during the restore", func(r *rig) {
			_ = os.WriteFile(filepath.Join(r.control, "restore-takes"), []byte("1s"), 0o600)
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
				defer cancel()
				for !exists(filepath.Join(r.dst, record.StatusFile)) {
					time.Sleep(time.Millisecond)
				}
				_, _ = record.Wait(ctx, r.dst, []string{string(record.Flushed)})
				_ = await(filepath.Join(r.control, "restoring"))
				r.proxy.cut()
			}()
		}, "lost"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			c.plant(r)
			w := r.startWriter()
			for w.acknowledged() < 2000 {
				time.Sleep(time.Millisecond)
			}
			r.start()
			ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
			defer cancel()
			for !exists(filepath.Join(r.src, record.StatusFile)) {
				time.Sleep(time.Millisecond)
			}
			if _, err := record.Wait(ctx, r.src, []string{record.UntilConverged}); err == nil {
				_, _ = recovery.Cutover(ctx, r.src)
			}
			<-r.send
			<-r.receive
			src, err := record.Show(r.src)
			if err != nil {
				t.Fatal(err)
			}
			dst, err := record.Show(r.dst)
			if err != nil {
				t.Fatal(err)
			}
			if src.State != record.Thawed && src.State != record.Failed || dst.State != record.Discarded {
				t.Fatalf("source %s (%s), destination %s (%s)", src.State, src.Error, dst.State, dst.Error)
			}
			if !strings.Contains(src.Error, c.text) {
				t.Errorf("the source's error is %q, without %q", src.Error, c.text)
			}
			r.runsOnce(w, record.Source)
			r.cleanDestination()
		})
	}
}

// Rule 3: after the release the source stays frozen when it does not know.
func TestAnUnknownOutcomeStaysFrozen(t *testing.T) {
	r := newRig(t)
	_ = os.WriteFile(filepath.Join(r.control, "resume-takes"), []byte("1s"), 0o600)
	w := r.startWriter()
	r.start()
	r.wait(r.src, record.UntilConverged)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		_, _ = record.Wait(ctx, r.dst, []string{string(record.Released)})
		r.proxy.cut()
	}()
	src, dst := r.cutover()
	if src.State != record.InDoubt || dst.State != record.Settled {
		t.Fatalf("source %s (%s), destination %s (%s)", src.State, src.Error, dst.State, dst.Error)
	}
	r.runsOnce(w, record.Destination)
	if exists(filepath.Join(r.control, "killed")) {
		t.Error("the source's tasks were let go while the outcome was not known")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if _, err := recovery.Abort(ctx, r.src, r.srcRun); err == nil {
		t.Error("an abort in doubt was not refused")
	}
	if _, err := recovery.Resolve(ctx, r.src, r.srcRun, "perhaps"); err == nil {
		t.Error("a resolve without an outcome was not refused")
	}
	s, err := recovery.Resolve(ctx, r.src, r.srcRun, record.Resumed)
	if err != nil || s.State != record.Done {
		t.Fatalf("after resolving: %+v, %v", s, err)
	}
	<-r.send
	r.runsOnce(w, record.Destination)
}

// A sender that is killed in the freeze leaves the decision to CRIU's hook, and
// that reads the journal: not released, so it thaws, the file system too.
func TestAKilledSenderThaws(t *testing.T) {
	r := newRig(t)
	_ = os.WriteFile(filepath.Join(r.control, "restore-takes"), []byte("1s"), 0o600)
	w, s := r.killFlushed()
	if !strings.Contains(s.Error, "the session's process was gone") {
		t.Errorf("the error is %q", s.Error)
	}
	r.runsOnce(w, record.Source)
	r.cleanDestination()
}

// A sender that is killed after the release leaves everything frozen; resolving
// works without it.
func TestAKilledSenderAfterTheReleaseStaysFrozen(t *testing.T) {
	for _, outcome := range []record.State{record.Resumed, record.Refused} {
		t.Run(string(outcome), func(t *testing.T) {
			r := newRig(t)
			_ = os.WriteFile(filepath.Join(r.control, "resume-takes"), []byte("1s"), 0o600)
			w := r.startWriter()
			kill := r.startApart(record.Source)
			r.wait(r.src, record.UntilConverged)
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			go func() { _, _ = recovery.Cutover(ctx, r.src) }()
			r.wait(r.dst, string(record.Released)) // the token is there; earlier, the destination would refuse
			kill()
			<-r.receive
			r.runsOnce(w, record.Destination)
			if _, err := recovery.Abort(ctx, r.src, r.srcRun); err == nil || !strings.Contains(err.Error(), "the destination may run the workload") {
				t.Errorf("an abort after the release: %v", err)
			}
			if outcome == record.Refused { // as if it had refused: what ran there is gone
				if err := os.Remove(filepath.Join(r.control, "resumed")); err != nil {
					t.Fatal(err)
				}
			}
			s, err := recovery.Resolve(ctx, r.src, r.srcRun, outcome)
			if err != nil {
				t.Fatal(err)
			}
			want, side := record.Done, record.Destination
			if outcome == record.Refused {
				want, side = record.Thawed, record.Source
			}
			if s.State != want {
				t.Errorf("resolved as %s it is %s", outcome, s.State)
			}
			r.runsOnce(w, side)
		})
	}
}

// A receiver that is killed before the token came never lets CRIU resume.
func TestAKilledReceiverRefuses(t *testing.T) {
	r := newRig(t)
	_ = os.WriteFile(filepath.Join(r.control, "restore-takes"), []byte("500ms"), 0o600)
	w := r.startWriter()
	kill := r.startApart(record.Destination)
	r.wait(r.src, record.UntilConverged)
	go func() { _, _ = recovery.Cutover(context.Background(), r.src) }()
	r.wait(r.dst, string(record.Flushed))
	if err := await(filepath.Join(r.control, "restoring")); err != nil {
		t.Fatal(err)
	}
	kill()
	<-r.send
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for { // the restore that was under way comes to the hook, and is refused
		j, err := record.ReadJournal(r.dst, record.Destination)
		if err != nil {
			t.Fatal(err)
		}
		if j.State() == record.Refused {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("the destination is %s", j.State())
		}
		time.Sleep(10 * time.Millisecond)
	}
	r.runsOnce(w, record.Source)
	s, err := recovery.Abort(ctx, r.dst, r.dstRun)
	if err != nil || s.State != record.Discarded {
		t.Fatalf("after the abort: %+v, %v", s, err)
	}
	r.cleanDestination()
	if s, err = record.Show(r.src); err != nil || s.State != record.Thawed {
		t.Fatalf("the source is %+v, %v", s, err)
	}
}

func TestAbortInPresync(t *testing.T) {
	r := newRig(t)
	w := r.startWriter()
	r.start()
	r.wait(r.src, record.UntilConverged)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	s, err := recovery.Abort(ctx, r.src, r.srcRun)
	if err != nil || s.State != record.Failed {
		t.Fatalf("%+v, %v", s, err)
	}
	<-r.send
	<-r.receive
	r.runsOnce(w, record.Source)
	r.cleanDestination()
}

func TestOneSessionAWorkload(t *testing.T) {
	r := newRig(t)
	r.start()
	r.wait(r.src, record.UntilConverged)
	second := filepath.Join(r.top, "second")
	if err := os.Mkdir(second, 0o700); err != nil {
		t.Fatal(err)
	}
	spec := r.spec.src
	spec.ID = "another"
	r.write(second, spec)
	err := Send(context.Background(), second, r.srcRun, planted)
	if err == nil || !strings.Contains(err.Error(), "shop is being moved by session rig") {
		t.Errorf("a second session for the same workload: %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if _, err := recovery.Abort(ctx, r.src, r.srcRun); err != nil {
		t.Fatal(err)
	}
	<-r.send
	<-r.receive
}
