package blockprobe

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/tracker/blockdev"
)

// What someone without the right to load programs reads. The test runs itself as
// nobody.
func TestWithoutPermission(t *testing.T) {
	if dev := os.Getenv("TRACKER_TEST_DEVICE"); dev != "" {
		d, err := blockdev.FindTraceable(dev, 65536)
		if err == nil {
			_, err = Open([]*blockdev.Device{d})
		}
		fmt.Println(err)
		return
	}
	needRoot(t)
	dev := loopOf(t, 1<<20)
	track(t, 65536, dev) // skips where nobody at all may
	exe := filepath.Join(os.TempDir(), fmt.Sprintf("tracker-test-%d", os.Getpid()))
	t.Cleanup(func() { os.Remove(exe) })
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(self) // go test builds it where nobody cannot go
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(exe, b, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "-test.run=^TestWithoutPermission$")
	cmd.Dir = "/"
	cmd.Env = []string{"TRACKER_TEST_DEVICE=" + dev}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want := "tracker: " + dev + ": the kernel refused the block tracepoints (EPERM): run as root, or give CAP_BPF and CAP_PERFMON, or pass --tracker=hash\n"
	if !bytes.HasPrefix(out, []byte(want)) {
		t.Errorf("got  %swant %s", out, want)
	}
}

func TestLockedDown(t *testing.T) {
	for levels, text := range map[string]string{
		"[none] integrity confidentiality\n": "",
		"none [integrity] confidentiality\n": "",
		"none integrity [confidentiality]\n": "boot it with lockdown=integrity",
	} {
		if err := lockedDown(levels); (err == nil) != (text == "") || err != nil && !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", levels, err)
		}
	}
}

func TestExplain(t *testing.T) {
	devs := []*blockdev.Device{{Path: "/dev/a"}, {Path: "/dev/b"}}
	for _, c := range []struct {
		err  error
		text string
	}{
		{fmt.Errorf("load: %w", unix.EPERM), "tracker: /dev/a, /dev/b: the kernel refused the block tracepoints (EPERM): run as root"},
		{fmt.Errorf("load: %w", unix.EACCES), "(EACCES)"},
		{fmt.Errorf("load: %w", unix.ENOENT), "this kernel has no block tracepoints"},
		{fmt.Errorf("load: %w", unix.EINVAL), "the kernel did not take the programs: load: invalid argument: pass --tracker=hash"},
	} {
		if got := explain(devs, c.err).Error(); !strings.Contains(got, c.text) {
			t.Errorf("%q; should say %q", got, c.text)
		}
	}
}

func TestProbe(t *testing.T) {
	found := Probe()
	if len(found) == 0 || found[0].Name != "kernel" || !found[0].OK || !strings.HasPrefix(found[0].Text, "Linux ") {
		t.Fatalf("%+v", found)
	}
	for _, f := range found {
		if f.Text == "" {
			t.Errorf("%s: no word about it", f.Name)
		}
	}
	if _, err := json.Marshal(found); err != nil {
		t.Error(err)
	}
	needRoot(t)
	track(t, 65536, loopOf(t, 1<<20))
	for _, f := range found {
		if !f.OK {
			t.Errorf("%s: %s", f.Name, f.Text)
		}
	}
}

// fakeTypes is a kernel made of the running one's types, less some.
type fakeTypes struct {
	types
	without string
}

func (f fakeTypes) TypeByName(name string, typ any) error {
	if name == f.without {
		return btf.ErrNotFound
	}
	return f.types.TypeByName(name, typ)
}

// A kernel that lacks something is refused by the name of what it lacks.
func TestKernelThatLacksSomething(t *testing.T) {
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		t.Skip("needs a kernel with BTF: ", err)
	}
	if _, err := readLayout(spec); err != nil {
		t.Skip("needs a kernel that is known: ", err)
	}
	for without, text := range map[string]string{
		"request":                     "it lacks struct request",
		"gendisk":                     "it lacks struct gendisk",
		"btf_trace_block_rq_complete": "it lacks the tracepoint block_rq_complete",
		"btf_trace_block_bio_queue":   "it lacks the tracepoint block_bio_queue",
	} {
		_, err := readLayout(fakeTypes{spec, without})
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("without %s: %v", without, err)
		}
	}
	l := &layout{types: spec}
	l.member("request", "no_such_field")
	l.member("request", "q", "deeper")
	l.member("gendisk", "disk_name")
	l.argument("block_rq_complete", 0, "gendisk")
	l.argument("block_rq_complete", 9, "request")
	for i, text := range []string{
		"it lacks the field no_such_field of struct request",
		"it lacks a struct in the field q of struct request",
		"it lacks a plain number in the field disk_name of struct gendisk",
		`it lacks an argument of type "gendisk" in the place 1 of the tracepoint block_rq_complete`,
		`it lacks an argument of type "request" in the place 10 of the tracepoint block_rq_complete`,
	} {
		if i >= len(l.missing) || l.missing[i].Error() != text {
			t.Errorf("missing %d: %v; should be %q", i, l.missing, text)
		}
	}
}
