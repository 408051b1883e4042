package loop

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestMountUnit(t *testing.T) {
	for path, want := range map[string]string{
		"/var/lib/handover/mnt/shop":  "var-lib-handover-mnt-shop.mount",
		"/srv/shop-data/":             `srv-shop\x2ddata.mount`,
		"/.hidden/a.b":                `\x2ehidden-a.b.mount`,
		"/":                           "-.mount",
		"/srv/with space/ü":           `srv-with\x20space-\xc3\xbc.mount`,
		"/var/lib//handover/../x_y:z": "var-lib-x_y:z.mount",
	} {
		if got := MountUnit(path); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
		if !strings.Contains(path, "..") {
			if out, err := exec.Command("systemd-escape", "--path", "--suffix=mount", path).Output(); err == nil && strings.TrimSpace(string(out)) != want {
				t.Errorf("systemd-escape makes %s of %s", out, path)
			}
		}
	}
}

func TestImageVolumesAreFoundByTheirUnits(t *testing.T) {
	dir, there := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{
		"ours.mount":   unitHeader + "; changes made here are lost.\n[Mount]\nWhat=/a.img\nWhere=" + there + "\n",
		"gone.mount":   unitHeader + "\n[Mount]\nWhere=/nothing/there\n",
		"theirs.mount": "[Mount]\nWhere=" + there + "\n",
		"a.service":    unitHeader + "\nWhere=" + there + "\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := imageVolumes(dir); err != nil || !slices.Equal(got, []string{there}) {
		t.Errorf("%q, %v", got, err)
	}
}
