// Package recovery acts for a session that no process serves: CRIU's action script decides by the journal, the OCI hook says
// whether a container may start, and Recover, Abort and Resolve bring a side to its end. It needs the session's folder alone.
package recovery

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/image"
	"github.com/livefleet/handover/helper/internal/loop"
	"github.com/livefleet/handover/helper/internal/network"
	"github.com/livefleet/handover/helper/internal/report"
	"github.com/livefleet/handover/helper/internal/session/engine"
	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/throttle"
)

// Call is one call of CRIU's action script.
type Call struct {
	Action   string
	ImageDir string
	CRIU     int    // CRIU's process ID
	Root     string // the ID of the workload's first process; empty if CRIU has none yet
}

// Hook is CRIU's action script. It asks the process that serves the session, and
// if there is none it decides by the journal, as that process would have. It
// returns whether CRIU may go on.
//
// It blocks for as long as the outcome is not known: CRIU keeps the tasks where they
// are in that time, and that is its purpose. An error says no, and at all points but
// one that is safe: the dump has not begun, or the restored tasks are killed. At
// post-dump a no lets the tasks run on, and the source may have been released. There
// an error is an outcome that is not known: it is said, and then it blocks like any
// other, until it is gone.
func Hook(runDir string, c Call) (goOn bool, err error) {
	// The reader of our messages may be gone; that must not end us.
	signal.Ignore(unix.SIGPIPE)
	var reg *hooks.Registration
	var guard *network.Guard
	defer func() { guard.Close() }()
	said := ""
	for {
		if reg == nil {
			reg, err = hooks.Lookup(runDir, c.ImageDir)
			if err == nil && reg == nil {
				// Not ours: an operator's own checkpoint. But only a session arms a
				// restore, and one whose gate is gone must not begin any more.
				err = speak(c)
				return err == nil && c.Action != hooks.StartUp, err
			}
			if reg != nil && reg.Stays != nil { // no session's: the workload runs on here in any case
				return reg.Stay(c.Action, c.Root, c.CRIU)
			}
		}
		decided := false
		if reg != nil {
			goOn, decided, err = decide(reg, c)
		}
		if err != nil && c.Action != hooks.PostDump {
			goOn, decided = false, true
		}
		if decided {
			if !goOn && reg != nil {
				err = errors.Join(err, runOnLater(reg.Session, c))
			}
			return goOn, err
		}
		if err != nil && err.Error() != said {
			said = err.Error()
			sayHeld(reg, said)
		}
		// The process took its guard along, and the workload may run elsewhere.
		if guard == nil && reg != nil {
			guard = standIn(reg.Session)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// decide asks the process, or else the journal.
func decide(reg *hooks.Registration, c Call) (goOn, decided bool, err error) {
	goOn, err = reg.Ask(c.Action, c.Root)
	if !errors.Is(err, hooks.ErrNobody) {
		return goOn, err == nil, err
	}
	return orphan(reg.Session, c)
}

// sayHeld tells why a workload stays frozen, where an operator may look for it: in
// the output of CRIU's caller, and in the session's events.
func sayHeld(reg *hooks.Registration, why string) {
	dir := "the session's folder"
	if reg != nil {
		dir = reg.Session
	}
	text := fmt.Sprintf("the workload stays frozen: cannot tell whether the source was released: %s. It continues automatically once that is fixed; if it cannot be, ask both hosts which of them runs it, and then `pcopy session resolve %s --journal-lost`", why, dir)
	fmt.Fprintln(os.Stderr, "pcopy: criu-hook:", text)
	if reg == nil {
		return
	}
	f, err := os.OpenFile(filepath.Join(dir, record.EventsFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return
	}
	defer f.Close()
	report.NewWriter(f).Emit("held", map[string]any{"text": text})
}

// standIn keeps the source's network silent in the place of a process that is
// gone; nil if that cannot be done, or not yet: it is no reason to let CRIU thaw.
func standIn(dir string) *network.Guard {
	spec, err := record.LoadSpec(dir)
	if err != nil || spec.Network.Namespace == "" {
		return nil
	}
	g, err := network.NewGuard(spec.Network.Namespace)
	if err == nil {
		err = g.Silence()
	}
	if err != nil {
		g.Close()
		return nil
	}
	return g
}

// orphan decides in the place of a process that is gone.
func orphan(dir string, c Call) (goOn, decided bool, err error) {
	action := c.Action
	spec, err := record.LoadSpec(dir)
	if err != nil {
		return false, false, err
	}
	j, err := record.OpenBegunJournal(dir, spec.Role)
	if err != nil {
		return false, false, err
	}
	defer j.Close()
	gone := fmt.Sprintf("the session's process was gone when CRIU came to %s", action)
	if spec.Role == record.Destination {
		if action != hooks.StartUp && action != hooks.PreRestore && action != hooks.PostRestore {
			return true, true, nil
		}
		switch j.State() {
		case record.Released, record.Resumed, record.Settled, record.Done:
			// The token came, and was recorded.
			err = engine.ComeUp(spec)
			if err == nil && spec.Network.Silent {
				err = network.Open(engine.NamespaceOf(c.Root))
			}
			return err == nil, true, err
		case record.Refused, record.Discarded:
			return false, true, nil
		case record.Flushed, record.Prepared:
			if err := j.Append(record.Refused, gone); err != nil {
				return false, false, err
			}
		}
		return false, true, nil
	}
	if action != hooks.PostDump && action != hooks.PreDump {
		return true, true, nil
	}
	switch j.State() {
	case record.Settled, record.Done:
		// The destination runs it. Our file systems may be frozen still, and
		// tasks that die have to write to them.
		return true, true, thawFileSystems(spec, j)
	case record.Released, record.InDoubt, record.Resumed:
		return false, false, nil // frozen until an operator resolves it
	}
	if err := errors.Join(thawFileSystems(spec, j), engine.TakeBack(spec, j)); err != nil {
		return false, false, err
	}
	if st := j.State(); !st.Ended() {
		// The record after the fact would be lost if we were killed now; before it,
		// it is a promise that no other process can break: only we let CRIU continue.
		to := record.Thawed
		if st == record.Prepare || st == record.Presync {
			to = record.Failed
		}
		if err := j.Append(to, gone); err != nil {
			return false, false, err
		}
	}
	return false, true, nil
}

// thawFileSystems thaws the file systems that a session may have frozen. After a boot
// nothing is, and a volume that is not mounted then keeps no session from its end.
func thawFileSystems(spec *record.Spec, j *record.Journal) (err error) {
	for _, v := range spec.Volumes {
		if v.Mountpoint == "" {
			continue
		}
		if mounted, e := loop.Mounted(v.Mountpoint); e == nil && !mounted && j.OfAnEarlierBoot() {
			continue
		}
		err = errors.Join(err, image.Thaw(v.Mountpoint))
	}
	return err
}

func killCgroups(ctx context.Context, spec *record.Spec) (err error) {
	for _, part := range spec.Parts() {
		if part.Freeze != nil {
			err = errors.Join(err, part.Freeze.Cgroup.Kill(ctx))
		}
	}
	return err
}

// silenceLimit is for a hook of CRIU's that is about to end, and has the namespace until then.
const silenceLimit = time.Second

// silenceMembers keeps the network that the members have in common silent until it is gone: it outlives them, and
// would answer the peers of connections that the destination has. Where that fails the members are ended all the same.
func silenceMembers(ctx context.Context, dir string, spec *record.Spec) {
	if len(spec.Members) == 0 || spec.Network.Namespace == "" {
		return
	}
	for end := time.Now().Add(silenceLimit); ; time.Sleep(20 * time.Millisecond) {
		err := network.Silence(spec.Network.Namespace)
		if err == nil || errors.Is(err, os.ErrNotExist) {
			return
		}
		if time.Now().After(end) || ctx.Err() != nil {
			withEvents(dir, func(log *report.Log) { log.Emit("warning", map[string]any{"text": err.Error()}) })
			return
		}
	}
}

// takeOver takes the place of a session's process that died: its lock and its
// journal.
func takeOver(dir string) (spec *record.Spec, j *record.Journal, closeBoth func(), err error) {
	if spec, err = record.LoadSpec(dir); err != nil {
		return nil, nil, nil, err
	}
	own, err := record.Lock(filepath.Join(dir, record.LockFile))
	if err != nil {
		return nil, nil, nil, fmt.Errorf("session: %s: %w", spec.ID, err)
	}
	if j, err = record.OpenJournal(dir, spec.Role); err != nil {
		own.Close()
		return nil, nil, nil, err
	}
	return spec, j, func() { j.Close(); own.Close() }, nil
}

// abandon cleans up behind a process that died before the release.
func abandon(ctx context.Context, dir, runDir string) error {
	spec, j, closeBoth, err := takeOver(dir)
	if err != nil {
		return err
	}
	defer closeBoth()
	const why = "aborted after the session's process had died"
	if spec.Role == record.Source {
		return abandonSource(ctx, dir, runDir, spec, j, why)
	}
	return abandonDestination(ctx, dir, runDir, spec, j, why)
}

func abandonSource(ctx context.Context, dir, runDir string, spec *record.Spec, j *record.Journal, why string) error {
	st := j.State()
	switch st {
	case record.Released, record.InDoubt, record.Resumed, record.Settled, record.Fenced:
		return fmt.Errorf("session: %s is %s: the destination may run the workload: ask it, then `pcopy session resolve`", spec.ID, st)
	}
	stopped := spec.ByCommands() && st != record.Prepare && st != record.Presync
	if stopped {
		if err := record.InPlace(dir, spec); err != nil { // after a boot, before the volumes are mounted
			return err
		}
	}
	if err := errors.Join(throttle.Lift(filepath.Join(dir, record.ThrottleFile)), thawFileSystems(spec, j), engine.TakeBack(spec, j), runOn(dir, spec)); err != nil {
		return err
	}
	if stopped {
		if err := engine.StartAgain(ctx, dir, spec); err != nil {
			return err
		}
	}
	to := record.Failed
	if st == record.Barrier || st == record.Frozen || st == record.Flushed || st == record.Prepared || st == record.Refused {
		to = record.Thawed
	}
	// The record first: a dump that is still under way reads it in its hook, and
	// lets the workload go.
	if err := j.Append(to, why); err != nil {
		return err
	}
	if err := ForgetSource(ctx, dir, runDir, spec); err != nil {
		return err
	}
	if st != record.Prepare && st != record.Presync {
		runBeside(ctx, dir, spec, spec.Hooks.Thaw)
	}
	return nil
}

// ForgetSource removes the leftovers of a source's dead process, when CRIU is done.
// It may be called at any time, and again: a later session of the same workload is
// left alone.
func ForgetSource(ctx context.Context, dir, runDir string, spec *record.Spec) (err error) {
	if err := throttle.Lift(filepath.Join(dir, record.ThrottleFile)); err != nil {
		return err
	}
	for _, part := range spec.Parts() {
		if f := part.Freeze; f.Given() && f.Gate != "" {
			err = errors.Join(err, hooks.Forget(ctx, runDir, f.Gate, dir))
		}
	}
	if err != nil {
		return err
	}
	unlock, last, err := lastToServe(runDir, spec)
	if err != nil || !last {
		return err
	}
	defer unlock()
	for _, t := range spec.Trees {
		if t.Stage == record.StageDump {
			err = errors.Join(err, loop.RemoveTmpfs(t.Path))
		}
	}
	return err
}

// lastToServe says whether no process has served the workload since that of this
// session, in this boot, and keeps any from beginning until it is unlocked.
func lastToServe(runDir string, spec *record.Spec) (unlock func(), last bool, err error) {
	if spec.Workload == "" {
		return nil, false, nil
	}
	path := filepath.Join(runDir, record.WorkloadLock, spec.Workload)
	f, err := record.Lock(path)
	if errors.Is(err, record.ErrLocked) || errors.Is(err, os.ErrNotExist) {
		return nil, false, nil
	} else if err != nil {
		return nil, false, err
	}
	holder, err := os.ReadFile(path)
	if err != nil || string(holder) != spec.ID {
		f.Close()
		return nil, false, err
	}
	return func() { f.Close() }, true, nil
}

func abandonDestination(ctx context.Context, dir, runDir string, spec *record.Spec, j *record.Journal, why string) error {
	st := j.State()
	switch st {
	case record.Released, record.Resumed, record.InDoubt, record.Settled:
		return fmt.Errorf("session: %s is %s: the workload was handed over to this host: look whether it runs", spec.ID, st)
	case record.Flushed, record.Prepared:
		if spec.Mode != record.Copy {
			if err := j.Append(record.Refused, why); err != nil {
				return err
			}
		}
	}
	return discardOrphan(ctx, dir, runDir, spec, j, why)
}

// unmountEverywhere unmounts the file system on dir, a volume or its cover, there and
// wherever else it is shown.
func unmountEverywhere(dir string) error {
	mounted, err := loop.Mounted(dir)
	if err != nil || !mounted {
		return err
	}
	binds, err := loop.Binds(dir)
	for _, b := range slices.Backward(binds) {
		err = errors.Join(err, loop.Unmount(b.Path))
	}
	return errors.Join(err, loop.Unmount(dir))
}
