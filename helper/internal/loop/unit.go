package loop

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// MountUnit is the name of the systemd unit that mounts something on a path, as
// systemd-escape(1) makes it.
func MountUnit(mountpoint string) string {
	path := strings.Trim(filepath.Clean(mountpoint), "/")
	if path == "" {
		return "-.mount"
	}
	var b strings.Builder
	for i := range len(path) {
		switch c := path[i]; {
		case c == '/':
			b.WriteByte('-')
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == ':', c == '_', c == '.' && i > 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, `\x%02x`, c)
		}
	}
	return b.String() + ".mount"
}

// unitsOf is where the units of image volumes are, and unitHeader how each begins.
// Both are of the module image_volume (plugins/module_utils/_podman/volume_units.py).
const (
	unitsOf    = "/etc/systemd/system"
	unitHeader = "# Written by livefleet.handover.image_volume"
)

// ImageVolumes returns the mount points of this host's image volumes, as their mount
// units name them, and only those that are there.
func ImageVolumes() ([]string, error) { return imageVolumes(unitsOf) }

func imageVolumes(dir string) (mountpoints []string, err error) {
	units, err := filepath.Glob(filepath.Join(dir, "*.mount"))
	if err != nil {
		return nil, err
	}
	for _, unit := range units {
		text, err := os.ReadFile(unit)
		if err != nil {
			return nil, fmt.Errorf("loop: %w", err)
		}
		if !strings.HasPrefix(string(text), unitHeader) {
			continue
		}
		for line := range strings.Lines(string(text)) {
			where, ok := strings.CutPrefix(strings.TrimSpace(line), "Where=")
			if !ok {
				continue
			}
			if _, err := os.Stat(where); err == nil {
				mountpoints = append(mountpoints, where)
			}
		}
	}
	return mountpoints, nil
}
