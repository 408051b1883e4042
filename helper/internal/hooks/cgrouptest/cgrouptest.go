// Package cgrouptest gives tests a real cgroup with a task in it that counts.
package cgrouptest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// New makes the cgroup and starts its task; runs tells whether the task does.
// The test is skipped where cgroups cannot be made.
func New(t *testing.T) (dir string, runs func() bool) {
	t.Helper()
	root := mountpoint(t)
	if root == "" || os.Getuid() != 0 {
		t.Skip("needs root and a cgroup v2 hierarchy")
	}
	dir, err := os.MkdirTemp(root, "handover-test-")
	if err != nil {
		t.Fatal(err)
	}
	count := filepath.Join(t.TempDir(), "count")
	// One process that starts no other: one that waits for its child to begin cannot be held.
	p := exec.Command("python3", "-c", "import time\nwith open('"+count+"', 'ab', 0) as to:\n while True: to.write(b'x'); time.sleep(0.002)")
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = os.WriteFile(filepath.Join(dir, "cgroup.freeze"), []byte("0"), 0)
		_ = p.Process.Kill()
		_ = p.Wait()
		remove(t, dir)
	})
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(p.Process.Pid)), 0); err != nil {
		t.Fatal(err)
	}
	for until := time.Now().Add(time.Minute); size(count) == 0 && time.Now().Before(until); { // it takes long to begin on a busy machine
		time.Sleep(time.Millisecond)
	}
	return dir, func() bool {
		before := size(count)
		for range 150 { // a busy machine may hold it up
			time.Sleep(10 * time.Millisecond)
			if size(count) > before {
				return true
			}
		}
		return false
	}
}

func mountpoint(t *testing.T) (found string) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 2 && f[2] == "cgroup2" {
			found = f[1]
		}
	}
	return found
}

func size(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}
