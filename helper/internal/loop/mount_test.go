package loop

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// A device that was made for a mount goes with it, and with one that fails.
func TestAMountedImageGivesItsDeviceBack(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: loop devices and mounts")
	}
	dir := t.TempDir()
	image, mountpoint := filepath.Join(dir, "volume.img"), filepath.Join(dir, "mnt")
	t.Cleanup(func() {
		_ = Unmount(mountpoint)
		_ = DetachImage(image)
	})
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
