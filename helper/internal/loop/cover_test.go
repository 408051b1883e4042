package loop

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"golang.org/x/sys/unix"
)

func TestBindsAreReadAsTheKernelWritesThem(t *testing.T) {
	table := `22 1 0:20 / / rw shared:1 - ext4 /dev/vda rw
30 22 0:77 / /mnt/data rw,relatime shared:9 - tmpfs handover rw
31 22 0:77 / /var/lib/volumes/a\040b/_data ro,nosuid,nodev shared:9 - tmpfs handover rw
32 22 0:77 /sub\134dir /srv rw,noatime - tmpfs handover rw
33 22 0:78 / /mnt/other rw - tmpfs handover rw
`
	want := []Bind{
		{Path: "/var/lib/volumes/a b/_data", Root: "/", Flags: unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV},
		{Path: "/srv", Root: `/sub\dir`, Flags: unix.MS_NOATIME},
	}
	if got := bindsOf(table, "0:77", "/mnt/data"); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
}

// A cover is taken away, and what was bound to it shows what came in its place.
func TestACoverIsReplacedByWhatItStoodFor(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: mounts")
	}
	top := t.TempDir()
	dir, bound := filepath.Join(top, "volume"), filepath.Join(top, "bound to it")
	for _, d := range []string{dir, bound} {
		if err := os.Mkdir(d, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for range 3 {
			_ = Unmount(bound)
			_ = Unmount(dir)
		}
	})
	if err := Cover(dir, "nodev,discard"); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(dir, bound, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", bound, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID, ""); err != nil {
		t.Fatal(err)
	}
	binds, err := Binds(dir)
	if err != nil || len(binds) != 1 || binds[0].Path != bound || binds[0].Root != "/" || binds[0].Flags&unix.MS_NOEXEC != 0 {
		t.Fatalf("%+v, %v", binds, err)
	}
	for _, d := range []string{bound, dir} {
		if err := Unmount(d); err != nil {
			t.Fatal(err)
		}
	}
	if err := MountTmpfs(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "arrived"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := BindTo(dir, binds[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(bound, "arrived")); err != nil {
		t.Errorf("what arrived is not shown: %v", err)
	}
	if err := os.WriteFile(filepath.Join(bound, "written"), nil, 0o600); err == nil {
		t.Error("a bind that was read-only can be written to")
	}
	var st unix.Statfs_t
	if err := unix.Statfs(bound, &st); err != nil || st.Flags&unix.ST_NOSUID == 0 {
		t.Errorf("the bind has lost its flags: %x, %v", st.Flags, err)
	}
}
