package pressure

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWhatAProcessHasWritten(t *testing.T) {
	const file = "/sys/fs/cgroup/system.slice/a.service/memory.pressure"
	told := "A=b\x00MEMORY_PRESSURE_WATCH=" + file + "\x00MEMORY_PRESSURE_WRITE=c29tZSAxNTAwMDAgMjAwMDAwMAA=\x00"
	for name, c := range map[string]struct{ environ, exe, want string }{
		"as systemd told it":         {told, "/usr/sbin/server", "some 150000 2000000\x00"},
		"systemd itself":             {"", "/usr/lib/systemd/systemd", byDefault},
		"a daemon of systemd's":      {"", "/usr/lib/systemd/systemd-journald", byDefault},
		"told of another file":       {strings.Replace(told, "a.service", "b.service", 1), "/usr/sbin/server", ""},
		"nothing tells":              {"", "/usr/sbin/server", ""},
		"what is told is no base 64": {strings.Replace(told, "c29t", "%%%%", 1), "/usr/sbin/server", ""},
	} {
		proc := t.TempDir()
		if err := os.WriteFile(filepath.Join(proc, "environ"), []byte(c.environ), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(c.exe, filepath.Join(proc, "exe")); err != nil {
			t.Fatal(err)
		}
		got, err := trigger(proc, file)
		if got != c.want && c.want != "" || (err == nil) != (c.want != "") {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}
