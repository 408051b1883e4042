package session

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/session/recovery"
)

// An engine that cannot be started early is started when everything is there.
func TestARestoreThatCannotBeArmedBeginsAnew(t *testing.T) {
	r := newRig(t)
	_ = os.WriteFile(filepath.Join(r.control, "early-fails"), []byte("the engine wants its state at once"), 0o600)
	w := r.startWriter()
	r.start()
	r.wait(r.src, record.UntilConverged)
	r.cutover()
	r.moved(w)
	if text := r.warnings(r.dst); !strings.Contains(text, "the engine wants its state at once") {
		t.Errorf("the warnings are %q", text)
	}
}

// An engine that binds a folder of a volume looks for it before the volume is there.
func TestARestoreThatBindsAFolderOfAVolumeIsArmed(t *testing.T) {
	for name, folders := range map[string][]string{"named": {"tmp/of/it"}, "not named": nil} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			if err := os.MkdirAll(filepath.Join(r.mountpoint, "tmp/of/it"), 0o700); err != nil {
				t.Fatal(err)
			}
			_ = os.WriteFile(filepath.Join(r.control, "looks-for"), []byte("tmp/of/it"), 0o600)
			r.spec.dst.Volumes[0].Folders = folders
			w := r.startWriter()
			r.start()
			r.wait(r.src, record.UntilConverged)
			r.cutover()
			r.moved(w)
			if text, early := r.warnings(r.dst), folders != nil; early == strings.Contains(text, "tmp/of/it: no such file") {
				t.Errorf("the warnings are %q", text)
			}
		})
	}
}

// warnings are what a side has written into its events as such.
func (r *rig) warnings(dir string) string {
	r.t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, record.EventsFile))
	if err != nil {
		r.t.Fatal(err)
	}
	var all []string
	for line := range strings.Lines(string(b)) {
		var e struct{ Event, Text string }
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			r.t.Fatal(err)
		}
		if e.Event == "warning" {
			all = append(all, e.Text)
		}
	}
	return strings.Join(all, "\n")
}

// A restore that waits for its state is refused, and goes, when the source gives
// up.
func TestAnArmedRestoreGoesWithTheSession(t *testing.T) {
	r := newRig(t)
	goOn := r.holdDump()
	w := r.startWriter()
	kill := r.startApart(record.Source)
	r.wait(r.src, record.UntilConverged)
	go func() { _, _ = recovery.Cutover(context.Background(), r.src) }()
	r.wait(r.dst, string(record.Frozen))
	kill()
	goOn()
	<-r.receive
	r.wait(r.src, string(record.Thawed))
	r.runsOnce(w, record.Source)
	r.cleanDestination()
}

// Rule 2 for a restore that waits: a receiver that is killed leaves a gate that
// refuses, and what waits there never begins.
func TestAKilledReceiverRefusesWhatItArmed(t *testing.T) {
	r := newRig(t)
	goOn := r.holdDump()
	w := r.startWriter()
	kill := r.startApart(record.Destination)
	r.wait(r.src, record.UntilConverged)
	go func() { _, _ = recovery.Cutover(context.Background(), r.src) }()
	r.wait(r.dst, string(record.Frozen))
	kill()
	goOn()
	<-r.send
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if s, err := recovery.Abort(ctx, r.dst, r.dstRun); err != nil || s.State != record.Discarded {
		t.Fatalf("after the abort: %+v, %v", s, err)
	}
	if exists(filepath.Join(r.control, "restoring")) {
		t.Error("the restore that waited went on")
	}
	r.runsOnce(w, record.Source)
	r.cleanDestination()
	if s, err := record.Show(r.src); err != nil || s.State != record.Thawed {
		t.Fatalf("the source is %+v, %v", s, err)
	}
}

// What an engine has mounted it need not see change: a root that changes after
// the restore was armed has it begin anew.
func TestARootThatChangesHasTheRestoreBeginAnew(t *testing.T) {
	for name, late := range map[string]func(r *rig){
		"before the freeze": func(r *rig) {
			hold := filepath.Join(r.control, "early-takes")
			_ = os.WriteFile(hold, nil, 0o600)
			go func() {
				if err := await(filepath.Join(r.control, "early")); err != nil {
					r.t.Error(err)
				}
				_ = os.WriteFile(filepath.Join(r.layer, "late"), []byte("written when the restore was armed"), 0o600)
				_ = os.Remove(hold)
			}()
		},
		"by CRIU": func(r *rig) { _ = os.WriteFile(filepath.Join(r.control, "link-remap"), nil, 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			w := r.startWriter()
			r.start()
			r.wait(r.src, record.UntilConverged)
			late(r)
			src, dst := r.cutover()
			if src.State != record.Done || dst.State != record.Done {
				t.Fatalf("source %s %q, destination %s %q", src.State, src.Error, dst.State, dst.Error)
			}
			r.runsOnce(w, record.Destination)
			here, err := listing(os.DirFS(r.layer))
			if err != nil {
				t.Fatal(err)
			}
			if there, err := listing(os.DirFS(r.dstLayer)); err != nil || there != here {
				t.Errorf("the layer holds %q on the source and %q on the destination (%v)", here, there, err)
			}
			b, err := os.ReadFile(filepath.Join(r.dst, record.EventsFile))
			if err != nil || !strings.Contains(string(b), `"again":true`) {
				t.Errorf("the restore was not begun anew (%v)", err)
			}
		})
	}
}

// Only a session arms a restore. One that finds no gate belongs to a session that
// has ended, and must not begin; a checkpoint that somebody makes on his own is
// nobody's business.
func TestAnArmedRestoreWithoutAGateNeverBegins(t *testing.T) {
	run, images := t.TempDir(), t.TempDir()
	for action, want := range map[string]bool{hooks.StartUp: false, hooks.PreDump: true, hooks.PostDump: true, hooks.PreRestore: true, hooks.PostRestore: true} {
		if goOn, err := recovery.Hook(run, recovery.Call{Action: action, ImageDir: images}); err != nil || goOn != want {
			t.Errorf("%s: %v (%v), want %v", action, goOn, err, want)
		}
	}
}

// Where the destination's CRIU can be told so, it looks for no lock of the network to lift; the
// source's locks.
func TestARestoreLiftsNoLock(t *testing.T) {
	r := newRig(t)
	r.spec.dst.Hooks.Restore.Unlocked = true
	w := r.startWriter()
	r.start()
	r.wait(r.src, record.UntilConverged)
	o, err := recovery.Holder{RunDir: r.dstRun}.Options(r.spec.dst.Hooks.Restore.Gate, true)
	if err != nil || o == nil || !o.Unlocked {
		t.Errorf("%+v, %v", o, err)
	}
	if o, err := (recovery.Holder{RunDir: r.srcRun}).Options(r.spec.src.Hooks.Freeze.Gate, false); err != nil || o == nil || o.Unlocked {
		t.Errorf("%+v, %v", o, err)
	}
	r.cutover()
	r.moved(w)
}
