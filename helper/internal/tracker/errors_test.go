package tracker

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
)

func openFails(t *testing.T, kind string, dev Device, text string) {
	t.Helper()
	trackers, err := Open(kind, []Device{dev})
	for _, tr := range trackers {
		tr.Close()
	}
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("Open(%q, %+v): %v; should say %q", kind, dev, err, text)
	}
}

func TestOpenRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	openFails(t, "guess", Device{Path: file, Cluster: 65536}, `there is no tracker of the kind "guess": choose one of auto, ebpf, hash, ploop`)
	openFails(t, "auto", Device{Path: file, Cluster: 65536}, file+": this is no block device")
	openFails(t, "auto", Device{Path: "/dev/null", Cluster: 65536}, "/dev/null: this is no block device")
	openFails(t, "hash", Device{Path: file, Cluster: 65536}, file+": this is no block device")
	openFails(t, "auto", Device{Path: file + "x", Cluster: 65536}, file+"x: no such file or directory")
	openFails(t, "auto", Device{Path: file, Cluster: 65535}, "a cluster of 65535 bytes cannot be used: choose a power of two")
	if trackers, err := Open("auto", nil); len(trackers) != 0 || err != nil {
		t.Errorf("no devices: %v, %v", trackers, err)
	}
}

func TestOpenRefusesADeviceWithoutMedium(t *testing.T) {
	needRoot(t)
	nodes, _ := filepath.Glob("/dev/loop[0-9]*")
	for _, node := range nodes {
		b, err := os.ReadFile("/sys/class/block/" + filepath.Base(node) + "/size")
		if err == nil && strings.TrimSpace(string(b)) == "0" {
			openFails(t, "auto", Device{Path: node, Cluster: 65536}, node+": the device has no medium")
			return
		}
	}
	t.Skip("needs a loop device without a file")
}

// What someone without the right to load programs reads. The test runs itself as
// nobody.
func TestWithoutPermission(t *testing.T) {
	if dev := os.Getenv("TRACKER_TEST_DEVICE"); dev != "" {
		_, err := Open("auto", []Device{{Path: dev, Cluster: 65536}})
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

func errorSays(err error, text string) bool { return err != nil && strings.Contains(err.Error(), text) }

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
	devs := []*device{{path: "/dev/a"}, {path: "/dev/b"}}
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
	l.field("request", "no_such_field")
	l.field("request", "q", "deeper")
	l.field("gendisk", "disk_name")
	l.argument("block_rq_complete", "gendisk")
	for i, text := range []string{
		"it lacks the field no_such_field of struct request",
		"it lacks a struct in the field q of struct request",
		"it lacks a plain number in the field disk_name of struct gendisk",
		`it lacks an argument of type "gendisk" in the tracepoint block_rq_complete`,
	} {
		if i >= len(l.missing) || l.missing[i].Error() != text {
			t.Errorf("missing %d: %v; should be %q", i, l.missing, text)
		}
	}
}

func TestWhoHandsBiosOn(t *testing.T) {
	for name, want := range map[string]bool{"dm-0": false, "zram0": false, "ram3": false, "md127": true, "nvme0n1": true} {
		if got := (&device{name: name, bio: true}).handsOn(); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if (&device{name: "nvme0n1"}).handsOn() {
		t.Error("a device with a request queue hands on no bios")
	}
}
