package loop

import (
	"fmt"
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
