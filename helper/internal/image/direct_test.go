package image

import (
	"bytes"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// Long writes leave nothing in the page cache but what does not fill a page, and
// several of them are under way at once on one sparse file.
func TestLongWritesGoPastTheCache(t *testing.T) {
	const size, piece = 8*MiB + 512, 512 << 10
	_, mnt := mounted(t, 32*MiB)
	path := filepath.Join(mnt, "volume.img")
	tg, err := CreateTarget(path, size)
	if err != nil {
		t.Fatal(err)
	}
	if tg.direct == nil {
		t.Fatal("ext4 has O_DIRECT, and it is not used")
	}
	want := noise(size)
	var all sync.WaitGroup
	for off := 0; off < size; off += piece {
		all.Add(1)
		go func() {
			defer all.Done()
			part := want[off:min(off+piece, size)]
			p := Buffer(len(part))
			copy(p, part)
			if n, err := tg.WriteAt(p, int64(off)); n != len(p) || err != nil {
				t.Error(n, err)
			}
		}()
	}
	all.Wait()
	if tg.noDirect.Load() {
		t.Error("the file system refused a write past its cache")
	}
	if n := resident(t, path); n > 1 {
		t.Errorf("%d pages are in the cache", n)
	}
	if err := tg.Datasync(); err != nil {
		t.Fatal(err)
	}
	if err := tg.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the target is not what was written to it (%v)", err)
	}
}

// What is in the cache and not yet written out never comes over what was written
// past it later.
func TestLongWriteOverAShortOne(t *testing.T) {
	_, mnt := mounted(t, 32*MiB)
	path := filepath.Join(mnt, "volume.img")
	tg, err := CreateTarget(path, MiB)
	if err != nil {
		t.Fatal(err)
	}
	defer tg.Close()
	long := Buffer(MiB)
	for range 20 {
		copy(long, noise(MiB))
		for _, off := range []int64{1, 5000, MiB - 700} {
			if _, err := tg.WriteAt([]byte("in the cache"), off); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := tg.WriteAt(long, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := tg.WriteAt([]byte("afterwards"), 9000); err != nil {
			t.Fatal(err)
		}
		want := append(append(bytes.Clone(long[:9000]), "afterwards"...), long[9010:]...)
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("the target is not what was written to it (%v)", err)
		}
		if err := Datasync(path, true); err != nil { // and the disk has the same
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("the disk has not what was written to it (%v)", err)
		}
	}
}

// Where a file system has no direct writes, they go through its cache.
func TestWithoutDirect(t *testing.T) {
	path := file(t, make([]byte, MiB))
	tg, err := OpenTarget(path, MiB)
	if err != nil {
		t.Fatal(err)
	}
	defer tg.Close()
	if err := tg.direct.close(); err != nil {
		t.Fatal(err)
	}
	tg.direct = nil
	p := Buffer(MiB)
	copy(p, noise(MiB))
	if n, err := tg.WriteAt(p, 0); n != MiB || err != nil {
		t.Fatal(n, err)
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, p) {
		t.Errorf("the target is not what was written to it (%v)", err)
	}
}
