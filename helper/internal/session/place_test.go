package session

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/livefleet/handover/helper/internal/lazy/lazytest"
	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/session/recovery"
)

// withPlacing has the workload's memory placed.
func (r *rig) withPlacing() (runs func() bool) {
	r.t.Helper()
	runs = r.withTask()
	r.note(toBePlaced, "")
	r.spec.src.Policy.PlaceMemory, r.spec.dst.Policy.PlaceMemory = true, true
	return runs
}

// kinds are the events of a side, in their order.
func (r *rig) kinds(dir string) (kinds []string) {
	r.t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, record.EventsFile))
	if err != nil {
		r.t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		var e struct{ Event string }
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			r.t.Fatal(err)
		}
		kinds = append(kinds, e.Event)
	}
	return kinds
}

// All memory is in its place before the destination says that it is prepared, and so
// before the release; most of it has gone ahead.
func TestMemoryIsPlacedBeforeTheRelease(t *testing.T) {
	r := newRig(t)
	r.withPlacing()
	w := r.startWriter()
	r.start()
	r.wait(r.src, record.UntilConverged)
	r.cutover()
	r.moved(w)
	r.sees("all is there")
	said, left := r.events(r.dst, "placed"), r.events(r.src, "places")
	if len(said) != 1 || len(left) != 1 || said[0]["bytes"] != left[0]["bytes"] || said[0]["bytes"].(float64) == 0 {
		t.Fatalf("%v of %v", said, left)
	}
	if sent := left[0]["sent"].(float64); sent > lazytest.Size/2 {
		t.Errorf("%v bytes travelled in the pause, and they had gone ahead", sent)
	}
	kinds := r.kinds(r.dst)
	if placed, prepared := slices.Index(kinds, "placed"), slices.Index(kinds, "prepared"); placed < 0 || prepared < placed {
		t.Errorf("%v", kinds)
	}
}

// Whatever is wrong before the release, the workload runs on where it was, with its memory,
// and what was restored goes.
func TestAPlacedMoveThatFailsThaws(t *testing.T) {
	for name, spoil := range map[string]func(r *rig){
		"restore fails": func(r *rig) { r.note("restore-fails", "CRIU says no") },
		"a page that the task does not have": func(r *rig) {
			r.note(frozenTask, "1") // the dump is of another task, and says that it has memory
		},
		"a restore that hands over another task": func(r *rig) { r.note(handsOver, "4711") },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			runs := r.withPlacing()
			spoil(r)
			r.spec.dst.Hooks.Restore.Timeout = 3
			w := r.startWriter()
			r.start()
			r.wait(r.src, record.UntilConverged)
			src, dst := r.cutover()
			if src.State != record.Thawed || dst.State != record.Discarded {
				t.Errorf("%s (%s) and %s (%s)", src.State, src.Error, dst.State, dst.Error)
			}
			if r.saw() != "" {
				t.Errorf("it ran on the destination: %s", r.saw())
			}
			r.runsOnce(w, record.Source)
			comesBack(t, runs)
		})
	}
}

// A process that is killed at any step leaves the workload with one host, and with all its
// memory there.
func TestAPlacedMoveWhoseProcessIsKilled(t *testing.T) {
	for _, side := range []record.Role{record.Source, record.Destination} {
		for _, at := range []record.State{record.Flushed, record.Prepared} {
			t.Run(string(side)+" "+string(at), func(t *testing.T) {
				r := newRig(t)
				runs := r.withPlacing()
				if side == record.Source {
					r.spec.src.Policy.PauseAt = at
				} else {
					r.spec.dst.Policy.PauseAt = at
				}
				w := r.startWriter()
				kill := r.startApart(side)
				r.wait(r.src, record.UntilConverged)
				go func() { _, _ = recovery.Cutover(brief(t), r.src) }()
				dir, run := r.src, r.srcRun
				if side == record.Destination {
					dir, run = r.dst, r.dstRun
				}
				r.wait(dir, string(at))
				kill()
				if _, err := recovery.Recover(brief(t), dir, run, true); err != nil {
					t.Fatal(err)
				}
				if side == record.Source {
					<-r.receive
				} else {
					<-r.send
				}
				if r.saw() != "" {
					t.Errorf("it ran on the destination: %s", r.saw())
				}
				r.runsOnce(w, record.Source)
				comesBack(t, runs)
			})
		}
	}
}

// Where placing does not pay or cannot be, CRIU carries the memory, and a sentence says why.
func TestCRIUsOwnWayIsTheFallback(t *testing.T) {
	many, few := mostOpen, func() (int64, error) { return 32, nil }
	defer func() { mostOpen = many }()
	for name, c := range map[string]struct {
		play func(r *rig)
		says string
	}{
		"the destination was not told to":     {func(r *rig) { r.spec.dst.Policy.PlaceMemory = false }, "or was not told to"},
		"the workload is hardly of any size":  {func(*rig) {}, "none of it has gone ahead"},
		"CRIU would have too many files open": {func(r *rig) { r.holdMemory(2 * worthwhile); mostOpen = few }, "one program may have 32 (fs.nr_open)"},
		"only the destination was told to do": {func(r *rig) { r.spec.src.Policy.PlaceMemory = false }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			mostOpen = many
			r := newRig(t)
			r.withCgroup()
			r.spec.src.Hooks.Freeze.Hold = filepath.Join(r.control, "hold")
			r.spec.dst.Hooks.Restore.Log = filepath.Join(r.control, "restore.log")
			r.spec.dst.Hooks.Restore.Container = "0123456789ab"
			r.spec.src.Policy.PlaceMemory, r.spec.dst.Policy.PlaceMemory = true, true
			c.play(r)
			w := r.startWriter()
			r.start()
			r.wait(r.src, record.UntilConverged)
			r.cutover()
			r.moved(w)
			text := ""
			for _, e := range r.events(r.src, "placing") {
				text, _ = e["text"].(string)
			}
			if !strings.Contains(text, c.says) || (text == "") != (c.says == "") {
				t.Errorf("%q", text)
			}
			for _, dir := range []string{r.src, r.dst} {
				if exists(filepath.Join(dir, record.PlacingFile)) {
					t.Errorf("%s says that CRIU leaves the memory alone", dir)
				}
			}
		})
	}
}

// The mark decides, and not the policy: a stand-in for CRIU would else have one side dump
// without the memory and the other restore with it.
func TestTheMarkOfPlacing(t *testing.T) {
	dir := t.TempDir()
	b := &record.Session{Dir: dir, Spec: &record.Spec{}}
	b.Spec.Policy.PlaceMemory = true
	for _, placing := range []bool{false, true, true, false, false} {
		if err := markPlacing(b, placing); err != nil || record.CRIULeavesMemory(dir, b.Spec) != placing {
			t.Errorf("%t: %v", placing, err)
		}
	}
	b.Spec.Policy.PlaceMemory = false
	if err := markPlacing(b, true); err != nil || record.CRIULeavesMemory(dir, b.Spec) {
		t.Error("it was not asked for", err)
	}
	b.Dir = filepath.Join(dir, "gone")
	if err := markPlacing(b, true); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
