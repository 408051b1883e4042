package treedisk

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/livefleet/handover/helper/internal/loop"
)

func held(t *testing.T, root, folder string) *Disk {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: loop devices and mounts")
	}
	d, err := Hold(root, folder)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// A disk is kept while the folder fits, and made again when it was left half written, or
// has become too small. Its file system goes with the process that has it mounted.
func TestADiskIsWholeOrMadeAgain(t *testing.T) {
	root, folder := t.TempDir(), t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	d := held(t, root, folder)
	write := func(text string) {
		t.Helper()
		must(d.Mount(false))
		must(os.WriteFile(filepath.Join(d.Folder(), "file"), []byte(text), 0o600))
	}
	reads := func() string {
		t.Helper()
		must(d.Mount(true))
		b, err := os.ReadFile(filepath.Join(d.Folder(), "file"))
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		must(d.Unmount())
		return string(b)
	}
	ctx := context.Background()
	must(d.Fit(ctx, 1<<20, 10))
	write("kept")
	must(d.Unmount())
	if dev, err := loop.DeviceOf(d.Image()); err != nil || dev != "" {
		t.Errorf("%q %v", dev, err)
	}
	must(d.Fit(ctx, 2<<20, 10))
	if reads() != "kept" {
		t.Error("a disk in which the folder fits was made again")
	}
	if _, err := Hold(root, folder); err == nil || !strings.Contains(err.Error(), "another process works on the copy of "+folder) {
		t.Errorf("%v", err)
	}
	write("half") // and the process dies
	must(d.Close())
	d = held(t, root, folder)
	must(d.Fit(ctx, 1<<20, 10))
	if got := reads(); got != "" {
		t.Errorf("a disk that was left half written has %q", got)
	}
	must(d.Fit(ctx, 300<<20, 10))
	if size, _, err := d.whole(); err != nil || size != 1<<30 {
		t.Errorf("%d %v", size, err)
	}
	if err := d.Fit(ctx, 1<<60, 10); err == nil || !strings.Contains(err.Error(), "the copy of the folder "+folder+" takes up to") {
		t.Errorf("%v", err)
	}
	must(d.Close())
}

// The disk of a folder that is gone goes, unless a rollback has it away.
func TestDisksOfFoldersThatAreGoneGo(t *testing.T) {
	root, folders := t.TempDir(), t.TempDir()
	for _, name := range []string{"gone", "away" + Away, "there"} {
		if err := os.Mkdir(filepath.Join(folders, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"away", "there", "gone"} {
		if err := held(t, root, filepath.Join(folders, name)).Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(filepath.Join(folders, "gone")); err != nil {
		t.Fatal(err)
	}
	if err := held(t, root, filepath.Join(folders, "new")).Close(); err != nil {
		t.Fatal(err)
	}
	links, err := filepath.Glob(filepath.Join(root, "*", folderLink))
	if err != nil || len(links) != 3 {
		t.Errorf("%v %v", links, err)
	}
	for _, link := range links {
		if of, err := os.Readlink(link); err != nil || strings.HasSuffix(of, "gone") {
			t.Errorf("%s %v", of, err)
		}
	}
}
