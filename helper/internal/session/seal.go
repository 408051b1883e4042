package session

import (
	"context"
	"fmt"
	"time"

	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/session/record"
)

// When the tasks are frozen, their file systems are flushed and the result is sent,
// beside the dump. Then the file systems are frozen: that takes some tens of
// milliseconds, most of them waits in the kernel, so it is done beside the dump too,
// where that can do no harm. The harm would be a CRIU that wants to write to a frozen
// file system: it would be blocked forever, with the workload frozen. It writes there
// only to give a name to a file that has lost its own, and whether there is such a
// file can be seen once the tasks are frozen.
//
// Safety does not depend on that alone. If the dump is not complete soon after, the
// file systems are thawed again and frozen when it is. And the last send, and the
// look at the trackers, come after the dump in any case.

// lastPass flushes and freezes the file systems and sends the result.
func (s *source) lastPass(ctx context.Context, dumped <-chan struct{}) error {
	began := time.Now()
	if err := s.copy.Sync(); err != nil {
		return err
	}
	if err := s.sendPass(ctx); err != nil {
		return err
	}
	s.stage("last_pass", began, time.Now())
	defer s.digestEarly(ctx)()
	if why := mustStayWritable(s.Spec); why != "" {
		s.Log.Emit("seal", map[string]any{"early": false, "why": why})
		return nil
	}
	began = time.Now()
	if err := s.copy.Freeze(); err != nil {
		return err
	}
	s.stage("freeze_fs", began, time.Now())
	t := time.NewTimer(s.options.dumpAfter)
	defer t.Stop()
	select {
	case <-dumped:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
	}
	s.Log.Emit("seal", map[string]any{"early": false, "why": fmt.Sprintf("the dump was not complete %s after the file systems were frozen", s.options.dumpAfter)})
	return s.copy.Thaw()
}

// mustStayWritable asks it of the volumes and the tasks of a move.
func mustStayWritable(spec *record.Spec) string {
	var mountpoints []string
	for _, v := range spec.Volumes {
		if v.Mountpoint != "" {
			mountpoints = append(mountpoints, v.Mountpoint)
		}
	}
	var cgroups []hooks.Cgroup
	for _, part := range spec.Parts() {
		c := hooks.Cgroup("")
		if part.Freeze != nil {
			c = part.Freeze.Cgroup
		}
		cgroups = append(cgroups, c)
	}
	return hooks.MustStayWritable(mountpoints, cgroups...)
}

// sealVolumes freezes the file systems that are not frozen yet, sends the last of
// the last, and then demands that the trackers stay empty.
func (s *source) sealVolumes(ctx context.Context) error {
	began := time.Now()
	if err := s.copy.Freeze(); err != nil {
		return err
	}
	if err := s.sendPass(ctx); err != nil {
		return err
	}
	if err := s.copy.Silent(); err != nil {
		return fmt.Errorf("session: %w", err)
	}
	if err := s.undisturbed(); err != nil {
		return err
	}
	s.stage("seal", began, time.Now())
	return nil
}
