package bluefs

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestOfEachFileOnlyWhatIsInUseCounts(t *testing.T) {
	d, err := parse(read(t, "pacific.txt"))
	if err != nil {
		t.Fatal(err)
	}
	l, err := d.layout(map[string]string{"/dev/loop17": "/dev/dm-1", "/dev/loop18": "/dev/dm-2"})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]Extent{
		// Of 35.sst, whose last extent is half empty, and of 37.sst.
		"/dev/dm-1": {{0x4de000, 0x300000 - 0x190000}, {0x18492000, 0x35c2853}},
		// 35.sst; CURRENT; the log in use with its runway, and not the one that was removed.
		"/dev/dm-2": {{0x12000, 0x190000}, {0x1c0e2000, 0x10}, {0x40000000, 0x2123 + runway}},
	}
	if !reflect.DeepEqual(l.Devices, want) {
		t.Errorf("extents %#x, want %#x", l.Devices, want)
	}
	if l.WAL != 0x2123 || l.Tables != 0x300000+0x35c2853+0x10 || l.Log != 0x10000+0x10000+0x400000 {
		t.Errorf("WAL %#x, tables %#x, log %#x", l.WAL, l.Tables, l.Log)
	}
	if l.Files != 5 {
		t.Errorf("%d files", l.Files)
	}
}

func TestADeviceThatTheToolDidNotNameIsAnError(t *testing.T) {
	d, err := parse(read(t, "pacific.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.layout(map[string]string{"/dev/loop17": "/dev/dm-1"}); err == nil || !strings.Contains(err.Error(), "speaks of device 1, which") {
		t.Errorf("layout says %v", err)
	}
}

func TestWhatIsNoDumpIsAnError(t *testing.T) {
	for _, text := range []string{"", "bluefs-log-dump: unrecognised option\nusage: …", " slot 1 a -> b\n"} {
		if _, err := parse(text); err == nil || !strings.HasPrefix(err.Error(), "bluefs: ceph-bluestore-tool did not print a log of BlueFS: ") {
			t.Errorf("parse of %q says %v", text, err)
		}
	}
}

// tool stands for ceph-bluestore-tool: it shows what it was given.
const tool = `#!/bin/sh
echo "inferring bluefs devices from bluestore path"
echo " slot 1 $3/block -> $(readlink "$3/block")"
echo " log_fnode file(ino 1 size 0x0 mtime m allocated 10000 alloc_commit 10000 extents [1:0x1000~1000])"
echo " 0x0:  op_file_update  file(ino 4 size 0x2000 mtime m allocated 2000 alloc_commit 2000 extents [1:0x3000~2000])"
echo " 0x0:  op_dir_link  db/CURRENT to 4"
cp "$3/type" "$3/../seen"
blockdev --getro "$3/block" >"$3/../readonly"
`

func TestTheToolReadsReadOnlyViewsWhileTheDeviceIsInUse(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, for loop devices")
	}
	dir := t.TempDir()
	home := filepath.Join(dir, "osd")
	image := filepath.Join(dir, "block.img")
	for _, err := range []error{
		os.Mkdir(home, 0o700),
		os.WriteFile(filepath.Join(home, "type"), []byte("bluestore\n"), 0o600),
		os.WriteFile(image, make([]byte, 1<<20), 0o600),
		os.WriteFile(filepath.Join(dir, "tool"), []byte(tool), 0o700),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.Command("losetup", "--find", "--show", image).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	device := strings.TrimSpace(string(out))
	defer exec.Command("losetup", "--detach", device).Run()
	if err := os.Symlink(device, filepath.Join(home, "block")); err != nil {
		t.Fatal(err)
	}
	// As an OSD has it.
	f, err := os.OpenFile(device, os.O_RDWR|os.O_EXCL, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()

	l, err := Read(context.Background(), home, dir, dir, []string{filepath.Join(dir, "tool")})
	if err != nil {
		t.Fatal(err)
	}
	if want := map[string][]Extent{device: {{0x3000, 0x2000}}}; !reflect.DeepEqual(l.Devices, want) {
		t.Errorf("extents %v, want %v", l.Devices, want)
	}
	if got, _ := os.ReadFile(filepath.Join(dir, "seen")); string(got) != "bluestore\n" {
		t.Errorf("the tool saw the type %q", got)
	}
	if got, _ := os.ReadFile(filepath.Join(dir, "readonly")); string(got) != "1\n" {
		t.Errorf("the tool's view is not read-only: %q", got)
	}
	if left, _ := exec.Command("losetup", "--noheadings", "--associated", device).Output(); len(left) != 0 {
		t.Errorf("left behind: %s", left)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "bluefs-*")); len(left) != 0 {
		t.Errorf("left behind: %s", left)
	}
}

func TestAFullWorkFolderIsAnErrorThatSaysSo(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to mount")
	}
	home, work := t.TempDir(), t.TempDir()
	for _, name := range []string{"block", "type"} {
		if err := os.WriteFile(filepath.Join(home, name), []byte("bluestore\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=64k", "full", work).CombinedOutput(); err != nil {
		t.Fatalf("no tmpfs: %s", out)
	}
	defer exec.Command("umount", work).Run()
	if err := os.WriteFile(filepath.Join(work, "filler"), make([]byte, 64<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Read(context.Background(), home, work, "", []string{"true"})
	if err == nil || !strings.HasPrefix(err.Error(), "bluefs: write "+work) || !strings.Contains(err.Error(), "no space left on device; make room there") {
		t.Errorf("Read says %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(work, "bluefs-*")); len(left) != 0 {
		t.Errorf("left behind: %s", left)
	}
}

func TestAFolderOfNoOSDIsAnError(t *testing.T) {
	if _, err := Read(context.Background(), t.TempDir(), t.TempDir(), "", []string{"true"}); err == nil || !strings.Contains(err.Error(), "is not the folder of an OSD") {
		t.Errorf("Read says %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(" slot 1 a -> b\n log_fnode file(ino 1 size 0x0 extents [1:0x0~1])\n 0x0:  op_file_update  file(ino 4 size 0x2000 extents [9:0x3000~fffffffffffffffff])\n")
	f.Fuzz(func(t *testing.T, text string) {
		d, err := parse(text)
		if err != nil {
			return
		}
		l, err := d.layout(map[string]string{"b": "device"})
		if err != nil {
			return
		}
		for _, extents := range l.Devices {
			for _, e := range extents {
				if e[0] < 0 || e[1] < 0 {
					t.Errorf("extent %v", e)
				}
			}
		}
	})
}
