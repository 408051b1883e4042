package hooks

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/livefleet/handover/helper/internal/hooks/cgrouptest"
	"github.com/livefleet/handover/helper/internal/loop"
)

// What waits for a CRIU that is gone is ended, and nobody else.
func TestWhatACRIUThatWasKilledLeft(t *testing.T) {
	left, _ := cgrouptest.New(t)
	another, runs := cgrouptest.New(t)
	if _, err := Cgroup(left).Freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time there is nothing
		if err := KillLeft(t.Context(), filepath.Base(left)); err != nil {
			t.Fatal(err)
		}
	}
	if tasks, err := os.ReadFile(filepath.Join(left, "cgroup.procs")); err != nil || len(tasks) > 0 {
		t.Errorf("left: %q, %v", tasks, err)
	}
	if !runs() {
		t.Errorf("what is in %s was ended, too", another)
	}
	for _, none := range []string{"", "0123456789ab"} {
		if err := KillLeft(t.Context(), none); err != nil {
			t.Errorf("%q: %v", none, err)
		}
	}
}

func TestTheEntryOfAKilledRuntimeGoes(t *testing.T) {
	root, bin := t.TempDir(), t.TempDir()
	t.Setenv("PATH", bin+string(filepath.ListSeparator)+os.Getenv("PATH"))
	const id = "0123456789abcdef-no-such-container"
	for _, c := range []struct {
		name, script string
		entry, fails bool
	}{
		{"there is none", "exit 1", false, false},
		{"it is removed", `test "$3 $4" = "delete --force" && rm -r "$2/$5"`, true, false},
		{"the runtime fails", "exit 1", true, true},
		{"the runtime does nothing", "exit 0", true, true},
	} {
		if err := os.WriteFile(filepath.Join(bin, "fake-runc"), []byte("#!/bin/sh\n"+c.script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		if c.entry {
			if err := os.MkdirAll(filepath.Join(root, id), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if err := killLeft(t.Context(), id, map[string]string{root: "fake-runc"}); (err != nil) != c.fails {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// A runc that was killed while it restored has its root mounted in the entry still.
func TestAnEntryWithARootThatIsMountedGoes(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: mounts")
	}
	root, bin, id := t.TempDir(), t.TempDir(), strings.Repeat("ab", 32)
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	if err := os.WriteFile(filepath.Join(bin, "fake-runc"), []byte("#!/bin/sh\nrmdir \"$2/$5/criu-root\" && rmdir \"$2/$5\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	mounted := filepath.Join(root, id, "criu-root")
	if err := loop.MountTmpfs(mounted); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = loop.Unmount(mounted) })
	if err := killLeft(t.Context(), id, map[string]string{root: "fake-runc"}); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(filepath.Join(root, id)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the entry is still there (%v)", err)
	}
}

// An engine that removes the container takes the folder of the images along, and the gate
// before it must not stay: it would be of a session that is over.
func TestAGateBeforeAFolderThatIsGoneGoes(t *testing.T) {
	run, ours, theirs := t.TempDir(), filepath.Join(t.TempDir(), "ours"), filepath.Join(t.TempDir(), "theirs")
	for dir, session := range map[string]string{ours: "/sessions/shop-1", theirs: "/sessions/shop-2"} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenGate(run, dir, session); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // the second time there is nothing
		if err := Forget(t.Context(), run, ours, "/sessions/shop-1"); err != nil {
			t.Fatal(err)
		}
	}
	if reg, err := Lookup(run, ours); err != nil || reg != nil {
		t.Errorf("it is there still: %v, %v", reg, err)
	}
	if reg, err := Lookup(run, theirs); err != nil || reg == nil {
		t.Errorf("another session's gate is gone: %v", err)
	}
}
