package session

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/hooks"
)

// noDatabase is an error where the workload, which stands still, has opened a database of
// SQLite's since the check: one whose inode, or whose device's number, the destination does
// not keep. On volumes with SameDevice it keeps both.
func (s *source) noDatabase() error {
	if s.Spec.Policy.IgnoreDatabases {
		return nil
	}
	kept := map[uint64]bool{}
	for _, v := range s.Spec.Volumes {
		if !v.SameDevice || v.Mountpoint == "" {
			continue
		}
		var st unix.Stat_t
		if err := unix.Stat(v.Mountpoint, &st); err != nil {
			return fmt.Errorf("session: volume %s: %w", v.Name, err)
		}
		kept[st.Dev] = true
	}
	for _, c := range s.Spec.Cgroups() {
		found, err := c.FindDatabase(func(d *hooks.Database) bool { return !kept[d.Device] })
		if err != nil {
			return fmt.Errorf("session: %w", err)
		}
		if found != nil {
			return fmt.Errorf("session: it has opened %s, after the check, and the destination would not keep both: move it again, and the check says the way", found)
		}
	}
	return nil
}
