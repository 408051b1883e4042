package hooks

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/livefleet/handover/helper/internal/criuimage"
)

// files makes folders with files in them, in the place of a hierarchy of the kernel's.
func files(t *testing.T, root string, texts map[string]string) {
	t.Helper()
	for path, text := range texts {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLimitsTravelAndTheFreezeDoesNot(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	files(t, from, map[string]string{
		"cgroup.subtree_control": "memory pids\n", "memory.max": "1000\n", "cgroup.freeze": "1\n",
		"a.slice/pids.max": "7\n", "a.slice/cgroup.freeze": "0\n", "a.slice/memory.pressure": "some\n", "a.slice/cgroup.procs": "1\n", "a.slice/b/pids.max": "max\n",
	})
	all, err := Cgroup(from).ReadCgroups()
	if err != nil || len(all) != 3 || !Cgroup(from).Divided() {
		t.Fatal(all, err)
	}
	want := map[string][]criuimage.Value{".": {{Name: "cgroup.subtree_control", Text: "memory pids"}}, "a.slice": {{Name: "pids.max", Text: "7"}}, "a.slice/b": {{Name: "pids.max", Text: "max"}}}
	got := map[string][]criuimage.Value{}
	for _, c := range all {
		got[c.Path] = c.Values
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v", got)
	}

	files(t, to, map[string]string{"cgroup.subtree_control": "", "memory.max": "max", "a.slice/pids.max": "max", "a.slice/b/pids.max": "max"})
	if err := Cgroup(to).MakeCgroups(all); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"a.slice/pids.max": "7", "a.slice/b/pids.max": "max", "memory.max": "max"} {
		if b, err := os.ReadFile(filepath.Join(to, path)); err != nil || string(b)[:len(want)] != want {
			t.Errorf("%s: %q, %v", path, b, err)
		}
	}
	// The kernel takes one after the other; a file keeps the end of the longer one.
	if b, _ := os.ReadFile(filepath.Join(to, "cgroup.subtree_control")); string(b) != "+pidsry" {
		t.Errorf("the controllers are not handed down: %q", b)
	}
}

// A limit that this host cannot set is no reason to run without it.
func TestALimitThatIsNotTaken(t *testing.T) {
	err := Cgroup(t.TempDir()).MakeCgroups([]criuimage.Cgroup{{Path: "a", Mode: 0o755, User: uint32(os.Getuid()), Group: uint32(os.Getgid()), Values: []criuimage.Value{{Name: "pids.max", Text: "7"}}}})
	if err == nil {
		t.Error("it was left out")
	}
}

func TestParseWatch(t *testing.T) {
	for line, want := range map[string]inode{
		"inotify wd:1 ino:13c221 sdev:ef mask:800 ignored_mask:0 fhandle-bytes:20 fhandle-type:f8 f_handle:00": {0xef, 0x13c221},
		"fanotify ino:5 sdev:700001 mflags:0 mask:1 ignored_mask:0":                                            {7<<8 | 1, 5},
	} {
		if w, ok := parseWatch(line); !ok || w != want {
			t.Errorf("%q: %v, %t", line, w, ok)
		}
	}
	for _, line := range []string{"pos:\t0", "fanotify flags:0 event-flags:0", "inotify wd:1 ino:zz sdev:1", ""} {
		if w, ok := parseWatch(line); ok {
			t.Errorf("%q: %v", line, w)
		}
	}
}

func TestWaysToWatchedFiles(t *testing.T) {
	root := t.TempDir()
	files(t, root, map[string]string{"etc/ssh/config": "", "usr/lib/deep/er/file": ""})
	if err := os.Symlink("/etc", filepath.Join(root, "link")); err != nil {
		t.Fatal(err)
	}
	wanted, device := map[inode]bool{}, uint64(0)
	for _, path := range []string{".", "etc/ssh", "usr/lib/deep/er/file"} {
		st, err := stat(filepath.Join(root, path), 0)
		if err != nil {
			t.Fatal(err)
		}
		device = st.device
		wanted[inode{st.device, st.inode}] = true
	}
	wanted[inode{device, 1 << 60}] = true // its name is gone
	found, err := waysTo(root, device, wanted)
	got := []string{}
	for _, w := range found {
		got = append(got, w.Path)
	}
	if err != nil || !reflect.DeepEqual(got, []string{"/.", "/etc/ssh", "/usr/lib/deep/er/file"}) {
		t.Errorf("%v, %v", got, err)
	}
}
