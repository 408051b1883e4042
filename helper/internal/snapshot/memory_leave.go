package snapshot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/hooks"
)

// A workload that is to run on with other files, such as those of a volume that becomes another,
// is dumped as for a snapshot, and ends with that: CRIU keeps its connections for the restore.
//
// Until CRIU has its answer all is as with a snapshot, and the workload runs on where it stood,
// whatever fails. From then on its dump is all that is left of it, and stays.

// Leave dumps the workload. CRIU ends it when last has returned without an error, and nothing of it runs
// while last does. It returns since when it stood still.
//
// The engine's process beside it, which acts when it ends, is stopped before, and ended afterwards.
func (m *Memory) Leave(ctx context.Context, runDir string, limit time.Duration, pass, last func(context.Context) error) (began time.Time, err error) {
	if !m.Ends {
		return began, errors.New("snapshot: the memory is of a workload that runs on (ends)")
	}
	d, err := m.begin(runDir, limit)
	if d == nil {
		return began, err
	}
	if err == nil {
		err = d.arm(ctx)
	}
	if err == nil {
		err = pass(ctx)
	}
	if err == nil {
		err = d.behindDoor(ctx, func() (err error) {
			began, err = d.leave(ctx, last)
			return err
		})
	}
	err = errors.Join(err, d.end(err == nil))
	err = errors.Join(err, d.watcherAfter())
	if err == nil {
		err = d.mend()
	}
	return began, errors.Join(err, d.clear())
}

// leave returns when the workload has ended.
func (d *dump) leave(ctx context.Context, last func(context.Context) error) (time.Time, error) {
	began, dumps, err := d.freeze(ctx)
	if err != nil {
		return began, err
	}
	renewed := d.stays.Renew(d.Dump.Limit()) // the script's limit is for the last pass
	err = d.timed("dump", dumps, d.dumped(ctx))
	if err = errors.Join(err, renewed()); err != nil {
		return began, err
	}
	lasts := time.Now()
	if err := errors.Join(last(ctx), d.stays.Cgroup.Held()); err != nil {
		return began, d.late(lasts, err)
	}
	d.answered = true
	if err := d.stopWatcher(); err != nil {
		return began, err
	}
	ends := d.stage("last_pass", lasts)
	d.gate.Answer(hooks.PostDump, true)
	return began, d.timed("end", ends, d.untilItHasEnded(ctx))
}

// untilItHasEnded waits for CRIU's caller, which puts away the rest of the workload.
func (d *dump) untilItHasEnded(ctx context.Context) error {
	limit := d.Dump.Limit()
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), limit, fmt.Errorf("`%s` has not ended within %s", d.Dump.Argv[0], limit))
	defer cancel()
	select {
	case <-d.process.Done():
	case <-ctx.Done():
		return fmt.Errorf("snapshot: %w", context.Cause(ctx))
	}
	if err := d.process.Err(); err != nil {
		return err
	}
	runs, err := d.stillRuns()
	if err == nil && runs {
		err = fmt.Errorf("snapshot: something still runs in %s when it has been dumped", d.Dump.Cgroup)
	}
	return err
}

// dyingLimit is how long tasks may take to go that CRIU has killed.
const dyingLimit = 2 * time.Second

func (d *dump) stillRuns() (bool, error) {
	for until := time.Now().Add(dyingLimit); ; time.Sleep(time.Millisecond) {
		runs, err := d.Dump.Cgroup.Populated()
		if err != nil || !runs || time.Now().After(until) {
			return runs, err
		}
	}
}

// watcherAfter has the process beside the workload act again, or end, as there is nothing left for it. The dump of a
// workload that has ended stays.
func (d *dump) watcherAfter() (err error) {
	if !d.answered {
		return nil
	}
	if d.watcher != nil {
		defer func() { err = errors.Join(err, d.dismissWatcher()) }()
	}
	runs, err := d.stillRuns()
	if err != nil || runs {
		return errors.Join(err, d.signalWatcher(unix.SIGCONT))
	}
	_, e := os.Stat(d.Dump.Gate)
	d.ended = e == nil
	return d.signalWatcher(unix.SIGKILL)
}

// stopWatcher stops the process beside the workload. Its number was read before the disks were copied, and may be
// another's by now.
func (d *dump) stopWatcher() error {
	if d.Watcher == 0 {
		return nil
	}
	fd, err := unix.PidfdOpen(d.Watcher, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("snapshot: the process beside the workload (%d): %w", d.Watcher, err)
	}
	d.watcher = os.NewFile(uintptr(fd), "pidfd")
	words, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", d.Watcher)) // of the pidfd's process, or that has ended
	if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("snapshot: the process beside the workload: %w", err)
	}
	if d.Watches == "" || !slices.Contains(strings.Split(string(words), "\x00"), d.Watches) {
		return d.dismissWatcher()
	}
	return d.signalWatcher(unix.SIGSTOP)
}

func (d *dump) signalWatcher(signal unix.Signal) error {
	if d.watcher == nil {
		return nil
	}
	if err := unix.PidfdSendSignal(int(d.watcher.Fd()), signal, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("snapshot: the process beside the workload (%d): %w", d.Watcher, err)
	}
	return nil
}

func (d *dump) dismissWatcher() error {
	w := d.watcher
	d.watcher = nil
	return w.Close()
}
