package snapshot

import (
	"fmt"
	"strings"

	"github.com/livefleet/handover/helper/internal/hooks"
)

// noDatabase is an error where the workload, which stands still, has opened a database of
// SQLite's since it was looked at, and its files are others when the dump is restored.
func (d *dump) noDatabase() error {
	found, err := d.stays.Cgroup.FindDatabase(func(each *hooks.Database) bool {
		for _, folder := range d.Databases {
			if strings.HasPrefix(each.Path, strings.TrimSuffix(folder, "/")+"/") {
				return true
			}
		}
		return false
	})
	if err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	if found != nil {
		return fmt.Errorf("snapshot: it has opened %s, since it was looked at, and both may be others when its memory comes back: do it without the memory", found)
	}
	return nil
}
