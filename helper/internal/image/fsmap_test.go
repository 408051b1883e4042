package image

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// What is free is what was never written, or was removed; and what a file holds is
// not.
func TestFreeSpace(t *testing.T) {
	dev, mnt := mounted(t, 32*MiB)
	ask := func() (free int64, ranges [][2]int64) {
		t.Helper()
		last := int64(0)
		if err := FreeSpace(mnt, dev, func(off, n int64) {
			if off < last || n <= 0 || off+n > 32*MiB {
				t.Errorf("%d bytes at %d after %d", n, off, last)
			}
			last = off + n
			free += n
			ranges = append(ranges, [2]int64{off, off + n})
		}); err != nil {
			t.Fatal(err)
		}
		return free, ranges
	}
	before, _ := ask()
	path := filepath.Join(mnt, "file")
	content := bytes.Repeat([]byte("looked for "), 8*MiB/11)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Syncfs(mnt); err != nil {
		t.Fatal(err)
	}
	full, ranges := ask()
	if full > before-7*MiB {
		t.Errorf("%d bytes were free, and %d with 8 MiB written", before, full)
	}
	src := source(t, dev)
	for _, r := range ranges {
		b := make([]byte, r[1]-r[0])
		if _, err := src.ReadAt(b, r[0]); err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(b, []byte("looked for looked for ")) {
			t.Errorf("the file is in what is said to be free, from %d on", r[0])
		}
	}
	if err := Freeze(mnt); err != nil {
		t.Fatal(err)
	}
	frozen, _ := ask()
	if err := Thaw(mnt); err != nil {
		t.Fatal(err)
	}
	if frozen > full || frozen < full-MiB {
		t.Errorf("%d bytes are free when it is frozen, and %d before", frozen, full)
	}
}

func TestFreeSpaceRefuses(t *testing.T) {
	dev, mnt := mounted(t, 8*MiB)
	other := loop(t, MiB)
	nothing := func(off, n int64) { t.Errorf("%d bytes at %d are free", n, off) }
	says(t, FreeSpace(mnt, other, nothing), "the file system there is not on "+other)
	says(t, FreeSpace(mnt, file(t, nil), nothing), "the file system there is not on ")
	says(t, FreeSpace(t.TempDir(), dev, nothing), "no file system is mounted here")
	tmpfs := t.TempDir()
	command(t, "mount", "-t", "tmpfs", "none", tmpfs)
	defer command(t, "umount", tmpfs)
	says(t, FreeSpace(tmpfs, dev, nothing), "the file system there is not on ")
}

// A loop device has the holes of its file, also where it begins somewhere in it.
func TestHolesOfALoopDevice(t *testing.T) {
	for _, offset := range []int64{0, MiB} {
		dev := loop(t, 8*MiB+offset, "-o", map[int64]string{0: "0", MiB: "1048576"}[offset])
		tg, err := OpenTarget(dev, 8*MiB)
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range []int64{MiB, 5 * MiB} {
			if _, err := tg.WriteAt(noise(MiB), at); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(tg.Datasync(), tg.Close()); err != nil {
			t.Fatal(err)
		}
		s := source(t, dev)
		var data [][2]int64
		for off := int64(0); ; {
			start, end, err := s.NextData(off)
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			data = append(data, [2]int64{start, end})
			off = end
		}
		if len(data) != 2 || data[0] != [2]int64{MiB, 2 * MiB} || data[1] != [2]int64{5 * MiB, 6 * MiB} {
			t.Errorf("begun at %d: data at %v", offset, data)
		}
	}
}
