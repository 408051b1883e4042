package confine

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A process that was confined can do what it was left, and nothing else: on no thread.
func TestConfined(t *testing.T) {
	top := os.Getenv("CONFINE_TEST")
	if top != "" {
		confined(t, top)
		return
	}
	if os.Getuid() != 0 {
		t.Skip("needs root: gives up its privileges")
	}
	top = t.TempDir()
	for _, dir := range []string{"write", "remove", "other"} {
		if err := os.Mkdir(filepath.Join(top, dir), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(top, dir, "file"), []byte("content"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^TestConfined$", "-test.v")
	cmd.Env = append(os.Environ(), "CONFINE_TEST="+top)
	out, err := cmd.CombinedOutput()
	if strings.Contains(string(out), ErrNoLandlock.Error()) {
		t.Skip(ErrNoLandlock)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if _, err := os.Stat(filepath.Join(top, "other", "file")); err != nil {
		t.Error(err)
	}
}

func confined(t *testing.T, top string) {
	at := func(name string) string { return filepath.Join(top, name) }
	open, err := os.OpenFile(at("other/file"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	for range 4 { // threads that are there already
		go func() { runtime.LockOSThread(); select {} }()
	}
	if err := To(Rules{Write: []string{at("write")}, Remove: []string{at("remove")}}); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"write below":        os.WriteFile(at("write/new"), []byte("new"), 0o600),
		"rename below":       os.Rename(at("write/new"), at("write/newer")),
		"remove":             os.Remove(at("remove/file")),
		"read all":           second(os.ReadFile(at("other/file"))),
		"write what is open": second(open.WriteAt([]byte("more"), 0)),
		"cut what is open":   open.Truncate(2),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, err := range map[string]error{
		"write elsewhere":  os.WriteFile(at("other/file"), nil, 0o600),
		"make elsewhere":   os.WriteFile(at("remove/new"), nil, 0o600),
		"remove elsewhere": os.Remove(at("other/file")),
		"start a program":  exec.Command("/bin/true").Run(),
		"mount":            unix.Mount("none", at("other"), "tmpfs", 0, ""),
		"a raw socket":     second(unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP)),
		"connect":          second(net.Dial("tcp", listener.Addr().String())),
	} {
		if !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.EPERM) {
			t.Errorf("%s: %v", what, err)
		}
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
		for _, line := range []string{"NoNewPrivs:\t1", "CapInh:\t0000000000000000", "CapPrm:\t0000000000000002", "CapEff:\t0000000000000002", "CapBnd:\t0000000000000000", "CapAmb:\t0000000000000000"} {
			if !strings.Contains(string(text), line) {
				t.Errorf("%s does not say %q", thread, line)
			}
		}
	}
	fmt.Println("confined")
}

func second[T any](_ T, err error) error { return err }
