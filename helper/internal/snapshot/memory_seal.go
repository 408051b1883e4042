package snapshot

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// The kernel waits some tens of milliseconds before a file system is frozen. As in a move
// (package session, seal.go) that is done beside the dump, unless CRIU has to write there: it
// gives a name to a file that has lost its own.

// sealLimit is for a dump that stands still, perhaps for a frozen file system.
const sealLimit = 2 * time.Second

// stillPass brings the disks up to date beside the dump, and freezes their file systems where
// that can do no harm. They are frozen when it returns, or not at all after an error.
func (j *job) stillPass(ctx context.Context, g *guard, dumped <-chan struct{}) error {
	if err := j.pass(ctx); err != nil || !j.mayFreezeEarly() {
		return err
	}
	j.sealed = time.Now()
	if err := g.begin(); err != nil {
		return err
	}
	if err := j.copy.Freeze(); err != nil {
		return err
	}
	select {
	case <-dumped:
		return nil
	case <-ctx.Done():
		return errors.Join(context.Cause(ctx), j.copy.Thaw())
	case <-time.After(min(sealLimit, j.FreezeLimit/2)):
		return j.copy.Thaw()
	}
}

// sealedStill thaws what was frozen early for so long that the guard may have thawed it.
func (j *job) sealedStill() error {
	if j.sealed.IsZero() || time.Since(j.sealed) < j.FreezeLimit/2 {
		return nil
	}
	return j.copy.Thaw()
}

// mayFreezeEarly says that CRIU writes to none of the disks. The tasks stand still, so their
// open files do not change.
func (j *job) mayFreezeEarly() bool {
	devices := map[uint64]bool{}
	for _, v := range j.volumes {
		if v.mountpoint == "" {
			continue
		}
		var st unix.Stat_t
		if unix.Stat(v.mountpoint, &st) != nil {
			return false
		}
		devices[st.Dev] = true
	}
	file, err := j.Memory.Dump.Cgroup.NeedsNames(devices)
	return err == nil && file == "" && len(devices) > 0
}
