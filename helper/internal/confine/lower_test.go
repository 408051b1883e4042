package confine

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/cap"
)

// A process that was lowered has what is named, on all threads, and what it starts has
// what it had before.
func TestLowered(t *testing.T) {
	if os.Getenv("LOWER_TEST") != "" {
		lowered(t)
		return
	}
	if os.Getuid() != 0 {
		t.Skip("needs root: gives up its privileges")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^TestLowered$", "-test.v")
	cmd.Env = append(os.Environ(), "LOWER_TEST=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// privileges are the lines of a status that tell them.
func privileges(status []byte) (lines []string) {
	for line := range strings.Lines(string(status)) {
		if strings.HasPrefix(line, "Cap") || strings.HasPrefix(line, "NoNewPrivs") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

func lowered(t *testing.T) {
	for range 4 { // threads that are there already
		go func() { runtime.LockOSThread(); select {} }()
	}
	child := func() []string {
		out, err := exec.Command("cat", "/proc/self/status").Output()
		if err != nil {
			t.Fatal(err)
		}
		return privileges(out)
	}
	before := child()
	dir := t.TempDir()
	if err := Lower(cap.CHOWN, cap.NET_RAW); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, 1, 1); err != nil {
		t.Errorf("what was kept: %v", err)
	}
	if err := unix.Mount("none", dir, "tmpfs", 0, ""); !errors.Is(err, unix.EPERM) {
		t.Errorf("a mount: %v", err)
	}
	threads, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil || len(threads) < 5 {
		t.Fatalf("%d threads, %v", len(threads), err)
	}
	for _, thread := range threads {
		text, err := os.ReadFile(thread)
		if err != nil {
			continue // it has ended
		}
		said := strings.Join(privileges(text), "\n")
		for _, line := range []string{"CapInh:\t0000000000000000", "CapPrm:\t0000000000002001", "CapEff:\t0000000000002001", "CapAmb:\t0000000000000000"} {
			if !strings.Contains(said, line) {
				t.Errorf("%s does not say %q", thread, line)
			}
		}
	}
	if after := child(); strings.Join(after, "\n") != strings.Join(before, "\n") {
		t.Errorf("what is started has %v, and had %v", after, before)
	}
}
