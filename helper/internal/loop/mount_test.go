package loop

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// places are where an image and its mount may be, and are not afterwards.
func places(t *testing.T) (image, mountpoint string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: loop devices and mounts")
	}
	dir := t.TempDir()
	image, mountpoint = filepath.Join(dir, "volume.img"), filepath.Join(dir, "mnt")
	t.Cleanup(func() {
		_ = Unmount(mountpoint)
		_ = DetachImage(image)
	})
	return image, mountpoint
}

// A device that was made for a mount goes with it, and with one that fails.
func TestAMountedImageGivesItsDeviceBack(t *testing.T) {
	image, mountpoint := places(t)
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 16<<20); err != nil {
		t.Fatal(err)
	}
	if err := MountImage(image, mountpoint, "ext4", ""); err == nil {
		t.Fatal("an image without a file system was mounted")
	}
	if dev, err := DeviceOf(image); err != nil || dev != "" {
		t.Errorf("after a mount that failed it has %s (%v)", dev, err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", image).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := MountImage(image, mountpoint, "ext4", "noatime"); err != nil {
		t.Fatal(err)
	}
	if dev, err := DeviceOf(image); err != nil || dev == "" {
		t.Errorf("mounted, it has %q (%v)", dev, err)
	}
	if err := Unmount(mountpoint); err != nil {
		t.Fatal(err)
	}
	if dev, err := DeviceOf(image); err != nil || dev != "" {
		t.Errorf("unmounted, it has %s (%v)", dev, err)
	}
}

// A database in it is known by the device's number.
func TestAnImageGetsTheDeviceThatItHad(t *testing.T) {
	image, mountpoint := places(t)
	other := image + ".other"
	t.Cleanup(func() {
		_ = DetachImage(other)
		if ctl, err := os.Open("/dev/loop-control"); err == nil {
			_ = unix.IoctlSetInt(int(ctl.Fd()), unix.LOOP_CTL_REMOVE, 4711)
			_ = ctl.Close()
		}
	})
	for _, path := range []string{image, other} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, 16<<20); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("mkfs.ext4", "-q", image).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	const free = "/dev/loop4711"
	at := Image{Path: image, Mountpoint: mountpoint, Fstype: "ext4", Device: free, Same: true}
	mounted := func() string {
		t.Helper()
		dev, err := DeviceOf(image)
		if err != nil || dev == "" {
			t.Fatalf("it has no device (%v)", err)
		}
		if err := Unmount(mountpoint); err != nil {
			t.Fatal(err)
		}
		return dev
	}
	if err := at.Mount(); err != nil {
		t.Fatal(err)
	}
	if dev := mounted(); dev != free {
		t.Errorf("it has %s", dev)
	}
	d, err := attachAs(other, os.O_RDWR, 0, free, true)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := at.Mount(); err == nil || !strings.Contains(err.Error(), free+" is taken") {
		t.Errorf("%v", err)
	}
	at.Same = false
	if err := at.Mount(); err != nil {
		t.Fatal(err)
	}
	if dev := mounted(); dev == free {
		t.Error("it has the device of another image")
	}
	at.Device, at.Same = "/dev/sda", true
	if err := at.Mount(); err == nil || !strings.Contains(err.Error(), "no loop device") {
		t.Errorf("%v", err)
	}
}

// An image that is mounted for what the page cache has of it loses nothing when its
// device turns to direct I/O.
func TestACachedMountTurnsDirect(t *testing.T) {
	image, mountpoint := places(t)
	if err := TurnDirect(image); err != nil {
		t.Errorf("an image that is not there: %v", err)
	}
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 16<<20); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", image).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := TurnDirect(image); err != nil {
		t.Errorf("an image without a device: %v", err)
	}
	if err := MountImage(image, mountpoint, "ext4", ""); err != nil {
		t.Fatal(err)
	}
	possible := direct(t, image)
	if err := Unmount(mountpoint); err != nil {
		t.Fatal(err)
	}

	if err := (Image{Path: image, Mountpoint: mountpoint, Fstype: "ext4", Cached: true}).Mount(); err != nil {
		t.Fatal(err)
	}
	if direct(t, image) {
		t.Error("it does direct I/O, and nothing in the page cache is used")
	}
	// Written before and after, partly over one another, and nobody syncs it.
	want := bytes.Repeat([]byte("before"), 100_000)
	file := filepath.Join(mountpoint, "file")
	if err := os.WriteFile(file, want, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := TurnDirect(image); err != nil {
		t.Fatal(err)
	}
	if direct(t, image) != possible {
		t.Errorf("it was turned, and does direct I/O: %t", !possible)
	}
	if err := TurnDirect(image); err != nil {
		t.Errorf("a second time: %v", err)
	}
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	want = append(want[:300_000], bytes.Repeat([]byte("after."), 90_000)...)
	if _, err := f.WriteAt(want[300_000:], 300_000); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := Unmount(mountpoint); err != nil {
		t.Fatal(err)
	}
	if err := MountImage(image, mountpoint, "ext4", ""); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes of %d, and other ones than were written (%v)", len(got), len(want), err)
	}
}

// direct asks the kernel whether the image's device does direct I/O.
func direct(t *testing.T, image string) bool {
	t.Helper()
	dev, err := DeviceOf(image)
	if err != nil || dev == "" {
		t.Fatalf("it has no device (%v)", err)
	}
	said, err := os.ReadFile(filepath.Join("/sys/block", filepath.Base(dev), "loop/dio"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(said)) == "1"
}

// A mount that is in use for a moment is unmounted all the same, and one that stays in
// use is an error.
func TestAMountInUseIsGivenAMoment(t *testing.T) {
	_, mountpoint := places(t)
	for stays, wanted := range map[bool]string{false: "", true: "busy"} {
		if err := MountTmpfs(mountpoint); err != nil {
			t.Fatal(err)
		}
		held, err := os.Open(mountpoint)
		if err != nil {
			t.Fatal(err)
		}
		if !stays {
			time.AfterFunc(50*time.Millisecond, func() { held.Close() })
		}
		err = Unmount(mountpoint)
		if wanted == "" && err != nil || wanted != "" && (err == nil || !strings.Contains(err.Error(), wanted)) {
			t.Errorf("in use for good: %v; %v", stays, err)
		}
		if mounted, err := Mounted(mountpoint); err != nil || mounted != stays {
			t.Errorf("in use for good: %v; mounted afterwards: %v (%v)", stays, mounted, err)
		}
		held.Close()
		if err := Unmount(mountpoint); err != nil { // the next one is not to lie over it
			t.Fatal(err)
		}
	}
}

// With its file system a folder goes that is empty, and no other. It can be taken away again.
func TestATmpfsGoesWithItsFolder(t *testing.T) {
	_, mountpoint := places(t)
	for _, kept := range []bool{false, true} {
		dir := filepath.Join(mountpoint, "dump")
		if err := MountTmpfs(dir); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "pages"), nil, 0o600); err != nil {
			t.Error(err)
		}
		if kept {
			if err := errors.Join(Unmount(dir), os.WriteFile(filepath.Join(dir, "another's"), nil, 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			if err := RemoveTmpfs(dir); err != nil {
				t.Error(err)
			}
		}
		if mounted, err := Mounted(dir); err != nil || mounted {
			t.Errorf("it is still mounted: %v (%v)", mounted, err)
		}
		if _, err := os.Lstat(dir); errors.Is(err, os.ErrNotExist) == kept {
			t.Errorf("a folder with a file in it: %v; the folder: %v", kept, err)
		}
	}
}
