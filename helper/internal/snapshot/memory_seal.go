package snapshot

import (
	"context"
	"errors"
	"time"

	"github.com/livefleet/handover/helper/internal/hooks"
)

// The kernel waits some tens of milliseconds before a file system is frozen. As in a move
// (package session, seal.go) that is done beside the dump, unless CRIU has to write there: it
// gives a name to a file that has lost its own.

// sealLimit is for a dump that stands still, perhaps for a frozen file system.
const sealLimit = 2 * time.Second

// seal is a freeze of the file systems beside the dump.
type seal struct {
	*job
	guard *guard
	begun time.Time // zero: it comes when the dump is complete
}

// pass brings the disks up to date, and freezes their file systems where that can do no harm.
// They are frozen when it returns, or not at all after an error.
func (s *seal) pass(ctx context.Context, dumped <-chan struct{}) error {
	if err := s.job.pass(ctx); err != nil || !s.harmless() {
		return err
	}
	s.begun = time.Now()
	if err := s.guard.begin(); err != nil {
		return err
	}
	if err := s.copy.Freeze(); err != nil {
		return errors.Join(err, s.copy.Thaw())
	}
	select {
	case <-dumped:
		return nil
	case <-ctx.Done():
		return errors.Join(context.Cause(ctx), s.copy.Thaw())
	case <-time.After(min(sealLimit, s.FreezeLimit/2)):
		return s.copy.Thaw()
	}
}

// expire thaws them if they are frozen for so long that the guard may have done it.
func (s *seal) expire() error {
	if s == nil || s.begun.IsZero() || time.Since(s.begun) < s.FreezeLimit/2 {
		return nil
	}
	return s.copy.Thaw()
}

// harmless says that there is a file system to freeze, and that CRIU writes to none of them.
// The tasks stand still, so their open files do not change.
func (s *seal) harmless() bool {
	var mountpoints []string
	for _, v := range s.volumes {
		if v.mountpoint != "" {
			mountpoints = append(mountpoints, v.mountpoint)
		}
	}
	return len(mountpoints) > 0 && hooks.MustStayWritable(mountpoints, s.Memory.Dump.Cgroup) == ""
}
