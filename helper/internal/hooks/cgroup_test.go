package hooks

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/hooks/cgrouptest"
)

// The tests start this binary again: as what RunOn leaves behind, as what
// stands in for CRIU, and as CRIU.
func TestMain(m *testing.M) {
	acts := map[string]func(args []string) error{
		RunOnWord: func(args []string) error {
			_, err := Behind{Cgroup: Cgroup(args[0]), Images: args[1]}.RunOnWhenGone()
			return err
		},
		actHeld: standIn,
		actCRIU: func([]string) error { return beCRIU() },
	}
	if len(os.Args) > 1 && acts[os.Args[1]] != nil {
		if err := acts[os.Args[1]](os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func busy(t *testing.T) (Cgroup, func() bool) {
	dir, runs := cgrouptest.New(t)
	return Cgroup(dir), runs
}

func TestAFrozenCgroupStandsStillUntilItIsThawed(t *testing.T) {
	c, runs := busy(t)
	if !runs() {
		t.Fatal("it does not run")
	}
	if _, err := c.Freeze(context.Background()); err != nil {
		t.Fatal(err)
	}
	if runs() {
		t.Error("a task of a frozen cgroup runs")
	}
	for range 2 { // every way out may call it
		if err := c.Thaw(); err != nil {
			t.Fatal(err)
		}
	}
	if !runs() {
		t.Error("a task of a thawed cgroup does not run")
	}
}

func TestACgroupIsOneProcesssAtATime(t *testing.T) {
	dir, _ := cgrouptest.New(t)
	c := Cgroup(dir)
	own, err := c.Own(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := c.Own(short); err == nil || !strings.Contains(err.Error(), "a move or a snapshot has the cgroup") {
		t.Errorf("%v", err)
	}
	if err := own.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := c.Own(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}

func TestNoCgroup(t *testing.T) {
	if err := Cgroup("").Thaw(); err != nil {
		t.Error(err)
	}
	gone := Cgroup(filepath.Join(t.TempDir(), "gone"))
	if err := gone.Thaw(); err != nil { // its tasks went with it
		t.Error(err)
	}
	if _, err := gone.Freeze(context.Background()); err == nil {
		t.Error("a directory that is no cgroup was frozen")
	}
}

// The last task of a frozen cgroup that is killed may leave it unfrozen to the kernel.
func TestNothingOfAnEmptyCgroupIsWaitedFor(t *testing.T) {
	for _, c := range []struct{ events, text string }{
		{"populated 0\nfrozen 0\n", ""},
		{"populated 1\nfrozen 1\n", ""},
		{"populated 1\nfrozen 0\n", "do not stand still"},
	} {
		dir := t.TempDir() // its state is the case's, not the kernel's
		for name, text := range map[string]string{freezeFile: "1\n", eventsFile: c.events} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_, err := Cgroup(dir).RunOn("")
		if (err == nil) != (c.text == "") || err != nil && !strings.Contains(err.Error(), c.text) {
			t.Errorf("%q: %v", c.events, err)
		}
		if b, err := os.ReadFile(filepath.Join(dir, freezeFile)); err != nil || b[0] != '0' {
			t.Errorf("%q: it was not thawed: %s, %v", c.events, b, err)
		}
	}
}

func TestTasksRunOnAtTheEndOfTheProcess(t *testing.T) {
	c, runs := busy(t)
	criu := exec.Command("sleep", "60")
	if err := criu.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Freeze(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := (Behind{Cgroup: c}).RunOn(criu.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if runs() {
		t.Error("it was thawed before the process had ended")
	}
	_ = criu.Process.Kill()
	_ = criu.Wait()
	for range 100 {
		if runs() {
			return
		}
	}
	t.Error("nobody has thawed it")
}

// CRIU names what was opened by a name that is gone, if it has another.
func TestNeedsNames(t *testing.T) {
	c, _ := busy(t)
	dir := t.TempDir()
	// Another file system than that of /tmp, in which CRIU makes a folder.
	if err := unix.Mount("needs-names", dir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	at := func(name string) string { return filepath.Join(dir, name) }
	for name, line := range map[string]string{
		"":              `exec 9>"$0/file"`,
		"gone for good": `exec 9>"$0/temporary" && rm "$0/temporary"`,
		"two names":     `exec 9>"$0/one" && ln "$0/one" "$0/two"`,
		"was":           `exec 9>"$0/was" && ln "$0/was" "$0/is" && rm "$0/was"`,
		"replaced":      `exec 9>"$0/replaced" && ln "$0/replaced" "$0/kept" && touch "$0/new" && mv "$0/new" "$0/replaced"`,
	} {
		task := exec.Command("sh", "-c", line+` && touch "$1" && exec sleep 600`, dir, at("ready"))
		if err := task.Start(); err != nil {
			t.Fatal(err)
		}
		for range 1000 {
			if _, err := os.Stat(at("ready")); err == nil {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if err := os.Remove(at("ready")); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(string(c), "cgroup.procs"), []byte(strconv.Itoa(task.Process.Pid)), 0); err != nil {
			t.Fatal(err)
		}
		st, err := stat(dir, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Freeze(context.Background()); err != nil {
			t.Fatal(err)
		}
		found, err := c.NeedsNames(map[uint64]bool{st.device: true})
		if wants := name == "was" || name == "replaced"; err != nil || (found != "") != wants || wants && !strings.HasPrefix(found, at(name)) {
			t.Errorf("%q: it found %q (%v)", name, found, err)
		}
		if why := MustStayWritable([]string{"/proc", dir}, c); (why != "") != (found != "") || why != "" && why != "CRIU gives a name to "+found {
			t.Errorf("%q: the file system must stay writable, for %q", name, why)
		}
		if why := MustStayWritable([]string{"/proc", dir, "/tmp"}, c); found == "" && why != "CRIU makes a folder in /tmp" {
			t.Errorf("%q: /tmp must stay writable, for %q", name, why)
		}
		if found, err := c.NeedsNames(map[uint64]bool{st.device + 1: true}); err != nil || found != "" {
			t.Errorf("%q: on another device it found %q (%v)", name, found, err)
		}
		if err := c.Thaw(); err != nil {
			t.Fatal(err)
		}
		_ = task.Process.Kill()
		_ = task.Wait()
	}
}

func TestMustStayWritable(t *testing.T) {
	dir, own := t.TempDir(), Cgroup(t.TempDir())
	if err := os.WriteFile(filepath.Join(string(own), "cgroup.procs"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		mountpoints []string
		cgroups     []Cgroup
		want        string
	}{
		{[]string{dir}, []Cgroup{own}, ""},
		{nil, nil, ""},
		{[]string{dir}, []Cgroup{own, ""}, "the tasks are not in a cgroup that is known"},
		{[]string{filepath.Join(dir, "none")}, []Cgroup{own}, "none: no such file or directory"},
		{[]string{dir}, []Cgroup{own + "-none"}, "what the workload has open"},
	} {
		why := MustStayWritable(c.mountpoints, c.cgroups...)
		if (why == "") != (c.want == "") || !strings.Contains(why, c.want) {
			t.Errorf("%v in %v: %q and not %q", c.mountpoints, c.cgroups, why, c.want)
		}
	}
}
