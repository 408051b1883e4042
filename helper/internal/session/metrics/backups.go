package metrics

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// backupsDir has a file for each container that this host backs up, with how the last
// backup went. The collection writes it: plugins/module_utils/_podman/backup_log.py.
func backupsDir(root string) string {
	return filepath.Join(filepath.Dir(filepath.Clean(root)), "backups", "last")
}

// backup is how a container's last backup went.
type backup struct {
	Workload string  `json:"workload"`
	Taken    float64 `json:"taken"` // seconds since 1970; 0: never
	PauseMS  float64 `json:"pause_ms"`
	Stored   float64 `json:"stored"`
	Failed   float64 `json:"failed"` // when one failed since then; 0: none
}

// listBackups reads them all. One that cannot be read hides no other.
func listBackups(dir string) (all []backup, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	for _, file := range files {
		b, rerr := os.ReadFile(file)
		if errors.Is(rerr, os.ErrNotExist) {
			continue // meanwhile
		}
		var one backup
		if rerr == nil {
			rerr = json.Unmarshal(b, &one)
		}
		if rerr != nil {
			err = errors.Join(err, fmt.Errorf("metrics: %s: %w: the next backup writes it again", file, rerr))
			continue
		}
		all = append(all, one)
	}
	return all, err
}

// writeBackups tells of the last backup of each container.
func (p *page) writeBackups(all []backup) {
	each := []struct {
		name, help string
		of         func(backup) bool
		value      func(backup) float64
	}{
		{"handover_backup_failed", "1 if the container's last backup on this host failed.", func(backup) bool { return true }, func(b backup) float64 { return yes(b.Failed > 0) }},
		{"handover_backup_timestamp_seconds", "When this host has taken its last backup of the container.", taken, func(b backup) float64 { return seconds(time.UnixMilli(int64(b.Taken * 1000))) }},
		{"handover_backup_pause_seconds", "For how long the file systems stood still for it.", taken, func(b backup) float64 { return b.PauseMS / 1000 }},
		{"handover_backup_stored_bytes", "Bytes that it has stored.", taken, func(b backup) float64 { return b.Stored }},
	}
	for _, m := range each {
		p.family(m.name, "gauge", m.help)
		for _, b := range all {
			if m.of(b) {
				p.series(m.name, m.value(b), label{"workload", b.Workload})
			}
		}
	}
}

func taken(b backup) bool { return b.Taken > 0 }
