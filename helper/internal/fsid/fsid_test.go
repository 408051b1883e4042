package fsid

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func TestSame(t *testing.T) {
	image := Identity{UUID: "1", Image: "/a.img", Device: "/dev/loop1"}
	for name, c := range map[string]struct {
		other Identity
		want  bool
	}{
		"after a restart, on another loop device": {Identity{UUID: "1", Image: "/a.img", Device: "/dev/loop9"}, true},
		"a copy of it":                 {Identity{UUID: "1", Image: "/b.img", Device: "/dev/loop1"}, false},
		"made again in the same image": {Identity{UUID: "2", Image: "/a.img", Device: "/dev/loop1"}, false},
		"of the image alone":           {Identity{Image: "/a.img"}, true},
		"a tmpfs":                      {Identity{}, false},
		"a file system not known here": {Identity{Device: "/dev/loop1"}, true},
		"another device":               {Identity{Device: "/dev/sdb"}, false},
	} {
		if got := image.Same(c.other); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
		if got := c.other.Same(image); got != c.want {
			t.Errorf("%s, the other way round: %v", name, got)
		}
	}
}

func TestUUIDsAreReadFromSuperblocks(t *testing.T) {
	for _, s := range superblocks {
		b := make([]byte, 1<<17)
		copy(b[s.at:], s.magic)
		for i := range int64(16) {
			b[s.uuid+i] = byte(0xa0 + i)
		}
		got, err := uuidOf(bytes.NewReader(b))
		if want := "a0a1a2a3a4a5a6a7a8a9aaabacadaeaf"; err != nil || got != want {
			t.Errorf("%q: %q, %v", s.magic, got, err)
		}
	}
	if got, err := uuidOf(bytes.NewReader(make([]byte, 512))); err != nil || got != "" {
		t.Errorf("of nothing: %q, %v", got, err)
	}
}

func TestTheTopmostMountCounts(t *testing.T) {
	table := `22 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw
30 22 7:1 / /mnt/a\040b rw,relatime shared:9 - ext4 /dev/loop1 rw
31 30 0:77 / /mnt/a\040b rw - tmpfs handover rw
`
	for dir, want := range map[string]string{"/": "/dev/sda1", "/mnt/a b": "handover"} {
		if got, ok := mountedOn(table, dir); !ok || got != want {
			t.Errorf("%s: %q, %v", dir, got, ok)
		}
	}
	if _, ok := mountedOn(table, "/mnt"); ok {
		t.Error("something is mounted on /mnt")
	}
}

// mounted makes a file system in an image and mounts it.
func mounted(t *testing.T) (image, device, dir string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: mounts")
	}
	top := t.TempDir()
	image, dir = filepath.Join(top, "a.img"), filepath.Join(top, "mnt")
	for _, argv := range [][]string{{"truncate", "-s", "16M", image}, {"mkfs.ext4", "-q", image}, {"mkdir", dir}, {"mount", "-o", "loop", image, dir}} {
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", argv, err, out)
		}
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	device, _ = mountedOn(string(table), dir)
	return image, device, dir
}

func TestWhatIsMountedIsTheFileSystemOfItsDevice(t *testing.T) {
	image, device, dir := mounted(t)
	of, err := Of(device)
	if err != nil || of.Image != image || len(of.UUID) != 32 {
		t.Fatalf("%+v, %v", of, err)
	}
	if on, err := Mounted(dir); err != nil || on != of {
		t.Errorf("%+v, %v", on, err)
	}
	if err := unix.Unmount(dir, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := Mounted(dir); !errors.Is(err, ErrNotMounted) {
		t.Errorf("unmounted: %v", err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	if on, err := Mounted(dir); err != nil || of.Same(on) {
		t.Errorf("a tmpfs is taken for it: %+v, %v", on, err)
	}
}

func TestAGuardIsUnderTheMountAndShowsWithoutIt(t *testing.T) {
	_, _, dir := mounted(t)
	for _, want := range []bool{true, false} {
		changed, err := Guard(dir)
		if errors.Is(err, ErrNoMarks) {
			t.Skip(err)
		}
		if err != nil || changed != want {
			t.Fatalf("changed %v, %v", changed, err)
		}
	}
	if bare, err := Unmounted(dir); err != nil || bare {
		t.Errorf("mounted: %v, %v", bare, err)
	}
	if err := unix.Unmount(dir, 0); err != nil {
		t.Fatal(err)
	}
	if bare, err := Unmounted(dir); err != nil || !bare {
		t.Errorf("unmounted: %v, %v", bare, err)
	}
	for range 2 {
		if err := Unguard(dir); err != nil {
			t.Error(err)
		}
	}
	if bare, err := Unmounted(dir); err != nil || bare {
		t.Errorf("without its mark: %v, %v", bare, err)
	}
	if _, err := Guard(dir); err != nil {
		t.Error(err)
	}
	if err := os.Remove(dir); err != nil {
		t.Errorf("it cannot be removed: %v", err)
	}
	if err := Unguard(dir); err != nil {
		t.Error(err)
	}
	if bare, err := Unmounted(dir); err != nil || bare {
		t.Errorf("gone: %v, %v", bare, err)
	}
}

// What a runtime has made in the folder under a root goes, and nothing else.
func TestAFolderIsTidied(t *testing.T) {
	dir := t.TempDir()
	names := func() (found []string) {
		_ = fs.WalkDir(os.DirFS(dir), ".", func(path string, _ fs.DirEntry, _ error) error { found = append(found, path); return nil })
		return found
	}
	for _, made := range []string{"etc", "dev/shm", "proc"} {
		if err := os.MkdirAll(filepath.Join(dir, made), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	err := errors.Join(
		os.Symlink("/proc/mounts", filepath.Join(dir, "etc/mtab")), os.WriteFile(filepath.Join(dir, "etc/hostname"), nil, 0o600),
		os.MkdirAll(filepath.Join(dir, "srv/data"), 0o755), os.WriteFile(filepath.Join(dir, "srv/data/kept"), []byte("x"), 0o600),
		os.Symlink("/etc", filepath.Join(dir, "srv/link")),
	)
	if err != nil {
		t.Fatal(err)
	}
	before := names()
	if err := Tidy(dir); err != nil || !slices.Equal(names(), before) {
		t.Errorf("without a mark: %v, %q", err, names())
	}
	if _, err := Guard(dir); errors.Is(err, ErrNoMarks) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	if err := Tidy(dir); err != nil || !slices.Equal(names(), []string{".", "srv", "srv/data", "srv/data/kept", "srv/link"}) {
		t.Errorf("%v, %q", err, names())
	}
	if err := Tidy(filepath.Join(dir, "none")); err == nil {
		t.Error("a folder that is not there was tidied")
	}
}
