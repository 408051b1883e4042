package cgrouptest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Limitable makes a cgroup whose processor time can be limited, of whichever version the
// controller cpu has here, and returns the file in which that is said. The test is
// skipped where there is none.
func Limitable(t *testing.T) (dir, file string) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	if os.Getuid() != 0 {
		t.Skip("needs root: cgroups")
	}
	for line := range strings.Lines(string(mounts)) {
		f := strings.Fields(line)
		switch {
		case len(f) > 3 && f[2] == "cgroup" && slices.Contains(strings.Split(f[3], ","), "cpu"):
			file = "cpu.cfs_quota_us"
		case len(f) > 2 && f[2] == "cgroup2":
			file = "cpu.max"
		default:
			continue
		}
		if dir, err = os.MkdirTemp(f[1], "handover-test-"); err != nil {
			t.Fatal(err)
		}
		if file = filepath.Join(dir, file); exists(file) {
			t.Cleanup(func() { remove(t, dir) })
			return dir, file
		}
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
	}
	t.Skip("needs a cgroup hierarchy with the controller cpu: there is none, or it is not given to the groups below the root (cgroup.subtree_control)")
	return "", ""
}

// Enter starts a command in cgroups, and ends it with the test.
func Enter(t *testing.T, cmd *exec.Cmd, dirs ...string) {
	t.Helper()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for _, dir := range dirs {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0); err != nil {
			t.Fatal(err)
		}
	}
}

// remove waits for the last task to be gone.
func remove(t *testing.T, dir string) {
	for range 200 {
		if err := os.Remove(dir); err == nil || errors.Is(err, os.ErrNotExist) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%s cannot be removed", dir)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
