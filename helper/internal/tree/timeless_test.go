package tree

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/loop"
)

// mountTmpfs is a tmpfs, whose writes through a mapping leave no trace.
func mountTmpfs(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: a mount")
	}
	dir := t.TempDir()
	if err := loop.MountTmpfs(dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := loop.Unmount(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// passTo sends a pass of the follower's to a folder.
func passTo(t *testing.T, f *Follower, to string, last bool) {
	t.Helper()
	var b bytes.Buffer
	if _, _, err := f.Pass(&b, last); err != nil {
		t.Fatal(err)
	}
	if err := Unpack(to, &b); err != nil {
		t.Fatal(err)
	}
}

func mapShared(t *testing.T, path string) []byte {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	page, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	// The page is mapped by a read, and writable with that: no later write is a fault, which would set a time.
	if page[0] == 0xff {
		t.Fatal("it was read")
	}
	return page
}

func TestATmpfsHasNoTimesOfMappedWrites(t *testing.T) {
	for name, write := range map[string]func(t *testing.T, path string, page []byte) []byte{
		"mapped all the time": func(_ *testing.T, _ string, page []byte) []byte { copy(page, "again"); return page },
		"mapped in between": func(t *testing.T, path string, _ []byte) []byte {
			page := mapShared(t, path)
			copy(page, "again")
			if err := unix.Munmap(page); err != nil {
				t.Fatal(err)
			}
			return nil
		},
		"mapped since": func(t *testing.T, path string, _ []byte) []byte {
			page := mapShared(t, path)
			copy(page, "again")
			return page
		},
	} {
		t.Run(name, func(t *testing.T) {
			from, to := mountTmpfs(t), t.TempDir()
			path := filepath.Join(from, "file")
			if err := os.WriteFile(path, bytes.Repeat([]byte("first"), 2000), 0o600); err != nil {
				t.Fatal(err)
			}
			settle()
			var page []byte
			if name == "mapped all the time" {
				page = mapShared(t, path)
			}
			f, err := Follow(from)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			passTo(t, f, to, false)
			passTo(t, f, to, false)
			page = write(t, path, page)
			passTo(t, f, to, true)
			if page != nil {
				defer func() { _ = unix.Munmap(page) }()
			}
			if got, err := os.ReadFile(filepath.Join(to, "file")); err != nil || !bytes.HasPrefix(got, []byte("again")) {
				t.Errorf("the other side has %.10q (%v)", got, err)
			}
		})
	}
}

// settle waits until a change time is one that would be trusted.
func settle() { time.Sleep(2 * Settle) }

func TestLostEventsOfATmpfsSendEachFile(t *testing.T) {
	from, to := mountTmpfs(t), t.TempDir()
	path := filepath.Join(from, "file")
	if err := os.WriteFile(path, make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	settle()
	later := Changes{Since: never.AddDate(1000, 0, 0)} // the change counts as an old one
	if _, err := m.Everything(io.Discard, later); err != nil {
		t.Fatal(err)
	}
	page := mapShared(t, path)
	copy(page, "again")
	if err := unix.Munmap(page); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := m.Everything(&b, later); err != nil {
		t.Fatal(err)
	}
	if err := Unpack(to, &b); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(to, "file")); err != nil || !bytes.HasPrefix(got, []byte("again")) {
		t.Errorf("the other side has %.10q (%v)", got, err)
	}
}

func TestAFileMountedInATmpfsIsAnError(t *testing.T) {
	from := mountTmpfs(t)
	other := filepath.Join(t.TempDir(), "other")
	inside := filepath.Join(from, "inside")
	for _, path := range []string{other, inside} {
		if err := os.WriteFile(path, []byte(path), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mount(other, inside, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(inside, 0)
	m, err := Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if _, err := m.Everything(io.Discard, Changes{}); err == nil {
		t.Error("a file of another file system was sent")
	}
}
