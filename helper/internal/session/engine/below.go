package engine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/livefleet/handover/helper/internal/criuimage"
	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/pressure"
	"github.com/livefleet/handover/helper/internal/report"
)

// CanSystem is the word of a destination that restores all that an init of a whole system has
// beside its processes: cgroups of its own, triggers, and attributes on a tmpfs.
const CanSystem = "system"

// nameWatched tells CRIU, which waits at its pre-dump, the ways to the files of the layer that
// the workload watches. CRIU looks for them where it writes its log.
func (d *criuDump) nameWatched() error {
	if d.h.Freeze.Log == "" {
		return nil
	}
	found, err := d.h.Freeze.Cgroup.FindWatched()
	if err != nil || len(found) == 0 {
		return err
	}
	return criuimage.WriteWatched(filepath.Dir(d.h.Freeze.Log), found)
}

// forgetWatched removes that list.
func forgetWatched(freeze *hooks.Command) error {
	if freeze.Log == "" {
		return nil
	}
	err := os.Remove(filepath.Join(filepath.Dir(freeze.Log), criuimage.WatchedFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// WriteCgroups has the dump in dir know the workload's cgroup and all below it: the restore puts
// the tasks there, and makes their cgroup namespace with it.
func WriteCgroups(log *report.Log, f *hooks.Command, dir string) error {
	if !f.Given() || f.Cgroup == "" {
		return nil
	}
	began := time.Now()
	all, err := f.Cgroup.ReadCgroups()
	if err == nil {
		err = criuimage.WriteCgroups(dir, all)
	}
	if err != nil {
		return fmt.Errorf("session: %w", err)
	}
	if len(all) == 1 {
		return nil
	}
	log.Emit("cgroups", map[string]any{"cgroups": len(all), "took": map[string]float64{"cgroups": report.MS(time.Since(began))}})
	return nil
}

// startWhole starts a restore whose state is here: by the stand-in for CRIU only where it has
// cgroups to make, or a tmpfs to fill.
func (r *criuRestore) startWhole() (*hooks.Process, error) {
	all, err := criuimage.ReadCgroups(r.h.Restore.Gate)
	if err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	// Some engines have the stand-in come up in any case.
	r.gate.Again(hooks.StartUp)
	r.gate.Answer(hooks.StartUp, true)
	if len(all) == 0 && len(r.Spec.TmpfsOf(r.part)) == 0 {
		return r.h.Restore.Start()
	}
	return r.h.Restore.StartEarly()
}

// hasOwnCgroups is an error where the workload had a cgroup namespace of its own and has this
// host's here: it would see the cgroups of all others.
func (r *criuRestore) hasOwnCgroups() error {
	own, err := criuimage.OwnCgroups(r.h.Restore.Gate)
	if err != nil || !own || r.gate.Root() == "" {
		return err
	}
	theirs, err := os.Stat(filepath.Join("/proc", r.gate.Root(), "ns/cgroup"))
	if err != nil {
		return fmt.Errorf("session: the workload's cgroup namespace: %w", err)
	}
	ours, err := os.Stat("/proc/self/ns/cgroup")
	if err != nil {
		return fmt.Errorf("session: this host's cgroup namespace: %w", err)
	}
	if os.SameFile(theirs, ours) {
		return errors.New("session: the workload has a cgroup namespace of its own on the source and this host's here: CRIU has made none")
	}
	return nil
}

// armTriggers sets the triggers of the restored tasks, which have not run yet.
func (r *criuRestore) armTriggers() error {
	if r.gate.Root() == "" { // no process was told
		return nil
	}
	armed, err := pressure.Arm(r.gate.Root())
	if err != nil {
		return fmt.Errorf("session: %w", err)
	}
	if armed > 0 {
		r.Log.Emit("triggers", map[string]any{"armed": armed})
	}
	return nil
}
