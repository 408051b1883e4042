package hooks

import (
	"os"
	"path/filepath"
	"testing"
)

func TestAProcessGoesIntoAUnitsCgroup(t *testing.T) {
	cgroup := t.TempDir()
	procs := filepath.Join(cgroup, "cgroup.procs")
	if err := os.WriteFile(procs, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := join(cgroup); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(procs); err != nil || string(b) != "0" {
		t.Errorf("%s holds %q: %v", procs, b, err)
	}
}

func TestACommandIsNotRunOutsideOfTheUnit(t *testing.T) {
	if err := Within(filepath.Join(t.TempDir(), "gone"), []string{"/bin/true"}); err == nil {
		t.Error("a cgroup that is not there takes a process")
	}
}
