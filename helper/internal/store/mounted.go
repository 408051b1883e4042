package store

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Mounted fails where a folder is to be on a file system of its own, by /etc/fstab, that
// is not mounted. There is another folder under its mount point, on another disk: no store
// is there, and none is to be begun.
func Mounted(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	fstab, err := os.ReadFile("/etc/fstab")
	if err != nil {
		return nil //nolint:nilerr // without it no file system is promised
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	if missing := unmounted(withoutLinks(dir), string(fstab), string(mounts)); missing != "" {
		return fmt.Errorf("store: %s is on %s, which /etc/fstab has as a file system of its own and which is not mounted: mount it first (`mount %[2]s`)", dir, missing)
	}
	return nil
}

// withoutLinks follows the links of a path as far as it is there.
func withoutLinks(path string) string {
	for there := path; ; there = filepath.Dir(there) {
		if resolved, err := filepath.EvalSymlinks(there); err == nil {
			return filepath.Join(resolved, strings.TrimPrefix(path, there))
		} else if there == filepath.Dir(there) {
			return path
		}
	}
}

// unmounted is the nearest mount point of an fstab above a path, if nothing is mounted there. Both
// tables have it in the second column.
func unmounted(path, fstab, mounts string) string {
	nearest := ""
	for _, place := range secondColumn(fstab) {
		within := path == place || strings.HasPrefix(path, place+"/")
		if place != "/" && within && len(place) > len(nearest) {
			nearest = place
		}
	}
	for _, place := range secondColumn(mounts) {
		if place == nearest {
			return ""
		}
	}
	return nearest
}

// escapes are those of both tables.
var escapes = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

func secondColumn(table string) (places []string) {
	for line := range strings.Lines(table) {
		if f := strings.Fields(line); len(f) > 1 && !strings.HasPrefix(f[0], "#") && strings.HasPrefix(f[1], "/") {
			places = append(places, filepath.Clean(escapes.Replace(f[1])))
		}
	}
	return places
}
