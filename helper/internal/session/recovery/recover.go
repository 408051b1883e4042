package recovery

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/fsid"
	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/lazy"
	"github.com/livefleet/handover/helper/internal/loop"
	"github.com/livefleet/handover/helper/internal/session/engine"
	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/transport"
	"github.com/livefleet/handover/helper/internal/tree"
)

// Recover brings a side whose process is gone as far as it may go without asking the
// other side. systemd runs it when the process has ended, for any reason, and when
// the host has booted; it may be run at any time, and again.
//
//	source       before released     nothing is frozen any more: failed, thawed
//	             released            in_doubt: frozen until an operator resolves it
//	             refused, fenced     thawed
//	             settled             done
//	destination  before the token    refused where it has to be, discarded
//	             released, in_doubt  it runs, or may have: resumed, settled. An engine
//	                                 that may hold it still lets it run before.
//	                                 It never did: refused, discarded
//	             resumed             settled
//	             refused, fenced     discarded
//
// A unit that starts a source's process again after it was killed in presync says so
// (restarts): then the session stays in presync, for that process to continue.
//
// After a boot, memory and tasks are gone. A workload that a source had not released,
// or that a destination was done with, may start there again by any means. Every
// other is kept from starting (MayStart) until the other side has been asked; a
// destination's volumes are mounted in the meantime.
func Recover(ctx context.Context, dir, runDir string, restarts bool) (*record.Status, error) {
	err := recoverHere(ctx, dir, runDir, restarts)
	if err != nil && !errors.Is(err, record.ErrLocked) { // if it is locked, its process lives, and does all this itself
		return nil, err
	}
	return record.Show(dir)
}

func recoverHere(ctx context.Context, dir, runDir string, restarts bool) error {
	spec, j, closeBoth, err := takeOver(dir)
	if err != nil {
		return err
	}
	defer closeBoth()
	switch {
	case restarts && spec.Role == record.Source && spec.Mode != record.Trial && j.State() == record.Presync && !j.Restarted(record.Presync):
		return ForgetSource(ctx, dir, runDir, spec)
	case spec.Role == record.Destination:
		return recoverDestination(ctx, dir, runDir, spec, j)
	}
	return recoverSource(ctx, dir, runDir, spec, j)
}

// RecoverAll is Recover for every session below root; one that fails keeps no
// other from being recovered.
func RecoverAll(ctx context.Context, root, runDir string) ([]*record.Status, error) {
	entries, err := os.ReadDir(root)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("session: %w", err)
	}
	all := []*record.Status{}
	var failed error
	for _, e := range entries {
		dir := filepath.Join(root, e.Name())
		if _, err := os.Stat(filepath.Join(dir, record.SpecFile)); err != nil {
			continue
		}
		s, err := Recover(ctx, dir, runDir, false)
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		all = append(all, s)
	}
	return all, failed
}

const processGone = "the session's process ended before the workload was handed over"

func recoverSource(ctx context.Context, dir, runDir string, spec *record.Spec, j *record.Journal) error {
	switch j.State() {
	case record.Released:
		return errors.Join(j.Append(record.InDoubt, "the session's process ended before it knew what became of the run token"), engine.LetGo(spec))
	case record.InDoubt, record.Resumed:
		return engine.LetGo(spec)
	case record.Done, record.Thawed, record.Failed:
		// CRIU's hook recorded it, and could not wait for CRIU's end.
		left, err := leftGate(runDir, dir, spec)
		if err == nil {
			err = ForgetSource(ctx, dir, runDir, spec)
		}
		if err == nil && left && j.State() != record.Done {
			runBeside(ctx, dir, spec, spec.Hooks.Thaw)
		}
		return err
	case record.Refused, record.Fenced, record.Settled:
		return endSource(ctx, dir, runDir, spec, j)
	}
	return abandonSource(ctx, dir, runDir, spec, j, processGone)
}

// endSource ends a source whose outcome is recorded: refused and fenced thaw, and
// settled lets go.
func endSource(ctx context.Context, dir, runDir string, spec *record.Spec, j *record.Journal) error {
	if err := thawFileSystems(spec, j); err != nil { // tasks that die may have to write to them
		return err
	}
	if j.State() == record.Settled {
		if err := ForgetSource(ctx, dir, runDir, spec); err != nil {
			return err
		}
		silenceMembers(ctx, dir, spec)
		// CRIU has ended its tasks, and where it was killed they are frozen still. As
		// long as one is left this is not done, and a later recovery tries again.
		if err := errors.Join(killCgroups(ctx, spec), engine.Gone(dir, spec)); err != nil {
			return err
		}
		if err := engine.Reclaim(ctx, spec); err != nil {
			return err
		}
		return j.Append(record.Done, "")
	}
	// Thawing tasks that CRIU still holds lets nothing run.
	if err := errors.Join(engine.TakeBack(spec, j), runOn(dir, spec)); err != nil {
		return err
	}
	if spec.ByCommands() {
		if err := engine.StartAgain(ctx, dir, spec); err != nil {
			return err
		}
	}
	if err := ForgetSource(ctx, dir, runDir, spec); err != nil {
		return err
	}
	if err := j.Append(record.Thawed, ""); err != nil {
		return err
	}
	runBeside(ctx, dir, spec, spec.Hooks.Thaw)
	return nil
}

// leftGate says whether the gate of a source's dead process is there still: the first
// recovery after it removes it.
func leftGate(runDir, dir string, spec *record.Spec) (bool, error) {
	for _, part := range spec.Parts() {
		f := part.Freeze
		if !f.Given() || f.Gate == "" {
			continue
		}
		gate, err := filepath.EvalSymlinks(f.Gate)
		if errors.Is(err, os.ErrNotExist) {
			continue
		} else if err != nil {
			return false, fmt.Errorf("session: %w", err)
		}
		if reg, err := hooks.Lookup(runDir, gate); err != nil || reg != nil && reg.Session == dir {
			return err == nil, err
		}
	}
	return false, nil
}

func recoverDestination(ctx context.Context, dir, runDir string, spec *record.Spec, j *record.Journal) error {
	switch j.State() {
	case record.Released, record.InDoubt:
		ran, err := ranHere(ctx, runDir, spec, j)
		if err != nil {
			return err
		}
		if !ran {
			return errors.Join(j.Append(record.InDoubt, "it was told to resume, and never ran"), refuseAndDiscard(ctx, dir, runDir, spec, j))
		}
		if err := letRun(ctx, dir, spec, j); err != nil {
			return err
		}
		if err := j.Append(record.Resumed, ""); err != nil {
			return err
		}
		fallthrough
	case record.Resumed:
		if record.Lost(dir, spec) {
			return endLost(ctx, dir, runDir, spec)
		}
		return settleOrphan(ctx, dir, runDir, spec, j)
	case record.Settled, record.Done:
		return attachOrphan(spec, j)
	case record.Discarded:
		return nil
	case record.Refused, record.Fenced:
		return discardOrphan(ctx, dir, runDir, spec, j, "")
	}
	return abandonDestination(ctx, dir, runDir, spec, j, processGone)
}

// letRun makes sure that a workload which counts as running here is not held. The note of its start is older than the
// command, which a death or a failure may have kept from its end. A boot has ended what was held.
func letRun(ctx context.Context, dir string, spec *record.Spec, j *record.Journal) error {
	if spec.Mode != record.Live || !spec.ByCommands() || j.Restarted(record.Released) {
		return nil
	}
	return engine.ResumeAgain(ctx, dir, spec)
}

func refuseAndDiscard(ctx context.Context, dir, runDir string, spec *record.Spec, j *record.Journal) error {
	// The source takes the addresses back when it hears of that.
	if err := engine.Withdraw(dir, spec, j); err != nil {
		return err
	}
	if err := j.Append(record.Refused, ""); err != nil {
		return err
	}
	return discardOrphan(ctx, dir, runDir, spec, j, "")
}

// settleOrphan puts everything on the disk, as a living process would have, and
// removes the things that only the move needed.
func settleOrphan(ctx context.Context, dir, runDir string, spec *record.Spec, j *record.Journal) error {
	for _, v := range spec.Volumes {
		if err := datasync(v.Image); err != nil {
			return err
		}
	}
	for _, path := range folders(spec) {
		// Files on a tmpfs went with the boot.
		if _, err := tree.WriteBack(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	if err := forgetDestination(ctx, dir, runDir, spec); err != nil {
		return err
	}
	// After a boot the source may have gone on: then they come with the workload's start.
	if !j.Restarted(record.Released) {
		if err := engine.ComeUp(spec); err != nil {
			return err
		}
	}
	if err := j.Append(record.Settled, ""); err != nil {
		return err
	}
	if spec.Mode == record.Live && !spec.ByCommands() {
		runBeside(ctx, dir, spec, spec.Hooks.Resume)
	}
	err := attachOrphan(spec, j)
	for _, v := range spec.Volumes { // a process that died may have left them so, see warm.go
		err = errors.Join(err, loop.TurnDirect(v.Image))
	}
	return err
}

func folders(spec *record.Spec) (paths []string) {
	for _, t := range spec.Trees {
		paths = append(paths, t.Path)
	}
	for _, v := range spec.Directories {
		paths = append(paths, v.Folder())
	}
	return paths
}

func datasync(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_CLOEXEC, 0)
	if err == nil {
		err = errors.Join(unix.Fdatasync(int(f.Fd())), f.Close())
	}
	if err != nil {
		return fmt.Errorf("session: syncing %s: %w", path, err)
	}
	return nil
}

// attachOrphan mounts the volumes of a workload that was handed over to this host
// and lost them in a boot. Those that have a mount unit are systemd's.
func attachOrphan(spec *record.Spec, j *record.Journal) error {
	if spec.Mode == record.Copy || !j.Restarted(record.Released) {
		return nil
	}
	for _, v := range spec.Volumes {
		if v.Mountpoint == "" || hasMountUnit(v.Mountpoint) {
			continue
		}
		if mounted, err := loop.Mounted(v.Mountpoint); err != nil || mounted {
			if err != nil {
				return err
			}
			continue
		}
		if err := loop.MountImage(v.Image, v.Mountpoint, v.Fstype, v.Options); err != nil {
			return err
		}
	}
	return nil
}

// unitDirs are where an administrator's units are, and those of the collection.
var unitDirs = []string{"/etc/systemd/system", "/run/systemd/system"}

func hasMountUnit(mountpoint string) bool {
	for _, d := range unitDirs {
		if _, err := os.Lstat(filepath.Join(d, loop.MountUnit(mountpoint))); err == nil {
			return true
		}
	}
	return false
}

// forgetDestination removes the gate of a destination's dead process when CRIU is
// done, and the tmpfs that the dump and the workload's own tmpfs came to.
func forgetDestination(ctx context.Context, dir, runDir string, spec *record.Spec) error {
	for _, part := range spec.Parts() {
		r := part.Restore
		if !r.Given() || r.Gate == "" {
			continue
		}
		if err := hooks.Forget(ctx, runDir, r.Gate, dir); err != nil {
			return err
		}
		hooks.RemoveAside(r.Container)
		if spec.Policy.LazyPages || spec.Policy.PlaceMemory {
			if err := lazy.RemoveSocket(filepath.Dir(r.Log)); err != nil {
				return err
			}
		}
		if err := loop.RemoveTmpfs(r.Gate); err != nil {
			return err
		}
	}
	return loop.RemoveTmpfs(filepath.Join(dir, record.TmpfsFolder))
}

// resolveOrphan is Resolve for a side whose process is gone. CRIU's hook, which
// holds a source's tasks, reads the outcome from the journal.
func resolveOrphan(ctx context.Context, dir, runDir string, outcome record.State) error {
	spec, j, closeBoth, err := takeOver(dir)
	if err != nil {
		return err
	}
	defer closeBoth()
	if spec.Role == record.Destination {
		return resolveDestination(ctx, dir, runDir, spec, j, outcome)
	}
	return ResolveSource(ctx, dir, runDir, spec, j, outcome)
}

func ResolveSource(ctx context.Context, dir, runDir string, spec *record.Spec, j *record.Journal, outcome record.State) error {
	if j.State() == record.Released { // as the process would have, had it lived
		if err := j.Append(record.InDoubt, "the session's process ended before it knew what became of the run token"); err != nil {
			return err
		}
	}
	// An outcome that is there already is brought to its end.
	if st := j.State(); !st.Ended() && st != record.Settled {
		if err := j.Append(outcome, "resolved after the session's process had ended"); err != nil {
			return err
		}
	}
	if j.State() == record.Resumed {
		if err := j.Append(record.Settled, ""); err != nil {
			return err
		}
	}
	if j.State().Ended() {
		return nil
	}
	return endSource(ctx, dir, runDir, spec, j)
}

// resolveDestination ends a destination that runs the workload, or may: resumed
// says that the source has let go and can never thaw again, fenced that the source
// was ordered to go on without this host.
func resolveDestination(ctx context.Context, dir, runDir string, spec *record.Spec, j *record.Journal, outcome record.State) error {
	switch outcome {
	case record.Resumed:
		if j.State() == record.InDoubt {
			if err := letRun(ctx, dir, spec, j); err != nil {
				return err
			}
			if err := j.Append(record.Resumed, "resolved: the source has let go"); err != nil {
				return err
			}
		}
		if j.State() == record.Resumed {
			if err := settleOrphan(ctx, dir, runDir, spec, j); err != nil {
				return err
			}
		}
		return j.Append(record.Done, "")
	case record.Refused:
		if err := j.Append(record.Refused, "resolved: it does not run here"); err != nil {
			return err
		}
	case record.Fenced:
		if j.State() == record.Released {
			if err := j.Append(record.InDoubt, ""); err != nil {
				return err
			}
		}
		if err := j.Append(record.Fenced, "the source was ordered to go on without this host"); err != nil {
			return err
		}
	}
	return discardOrphan(ctx, dir, runDir, spec, j, "")
}

// discardOrphan removes the received data, and everything made for them.
func discardOrphan(ctx context.Context, dir, runDir string, spec *record.Spec, j *record.Journal, why string) error {
	// The gate goes last: a restore that was begun and has not come to CRIU yet ends
	// before the engine removes the container, and if it comes there in that time it
	// has to find a gate that refuses.
	if err := engine.DiscardWorkload(ctx, spec); err != nil {
		return err
	}
	for _, part := range spec.Parts() {
		r := part.Restore
		if !r.Given() || r.Gate == "" {
			continue
		}
		if err := hooks.Forget(ctx, runDir, r.Gate, dir); err != nil {
			return err
		}
		if err := hooks.KillLeft(ctx, r.Container); err != nil {
			return err
		}
	}
	if err := engine.Withdraw(dir, spec, j); err != nil {
		return err
	}
	made, err := record.ReadMade(dir)
	for _, v := range spec.Volumes {
		if v.Mountpoint != "" && made[v.Image] {
			err = errors.Join(err, unmountEverywhere(v.Mountpoint), fsid.Unguard(v.Mountpoint))
		}
		if made[v.Image] {
			err = errors.Join(err, loop.DetachImage(v.Image))
		}
	}
	for _, v := range spec.Volumes {
		if made[v.Image] {
			err = errors.Join(err, record.DiscardImage(v))
			delete(made, v.Image)
		}
	}
	for path := range made {
		if e := os.Remove(path); e != nil && !errors.Is(e, os.ErrNotExist) {
			err = errors.Join(err, fmt.Errorf("session: %w", e))
		}
	}
	if at, e := transport.ParseAddress(spec.Listen); e == nil {
		transport.RemoveStale(at)
	}
	if j.Reached(record.Presync) { // from then on it is known that they were empty
		for _, v := range spec.Directories {
			err = errors.Join(err, v.Clear())
		}
	}
	for _, part := range spec.Parts() {
		if r := part.Restore; r.Given() && r.Gate != "" {
			err = errors.Join(err, loop.RemoveTmpfs(r.Gate))
		}
	}
	err = errors.Join(err, loop.RemoveTmpfs(filepath.Join(dir, record.TmpfsFolder)))
	if err != nil {
		return err
	}
	return j.Append(record.Discarded, why)
}
