package tree

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/image"
	"github.com/livefleet/handover/helper/internal/loop"
)

const mark = "in use"

// unmarked takes the mark out of the beginning.
func unmarked(first []byte) {
	if bytes.HasPrefix(first, []byte(mark)) {
		clear(first[:len(mark)])
	}
}

// kernel is a writer past the files of a folder: a loop device over one of them, written to directly. Like that of a
// ploop image it tells no watcher.
type kernel struct {
	t   *testing.T
	dev string
	f   *os.File

	file *os.File // the one that it writes to
}

func kernelOf(t *testing.T, path string) *kernel {
	t.Helper()
	dev, err := loop.Attach(path)
	must(t, err)
	f, err := os.OpenFile(dev, os.O_WRONLY|unix.O_DIRECT, 0)
	must(t, err)
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	must(t, err)
	k := &kernel{t, dev, f, file}
	t.Cleanup(k.end)
	return k
}

func (k *kernel) end() {
	if k.f != nil {
		must(k.t, k.f.Close(), k.file.Close(), loop.Detach(k.dev))
		k.f = nil
	}
}

// write fills a block with a letter, or begins it with the mark.
func (k *kernel) write(off int64, letter byte) {
	k.t.Helper()
	b := image.Buffer(4096)
	for i := range b {
		b[i] = letter
	}
	if off == 0 {
		copy(b, mark)
	}
	_, err := k.f.WriteAt(b, off)
	must(k.t, err)
}

// sameDisks compares the contents, but for the mark of use.
func sameDisks(t *testing.T, src, dst string) {
	t.Helper()
	a, err := os.ReadFile(src)
	must(t, err)
	b, err := os.ReadFile(dst)
	must(t, err)
	unmarked(a)
	if !bytes.Equal(a, b) {
		t.Fatalf("%s differs from %s: %d and %d bytes", dst, src, len(b), len(a))
	}
	one, err := os.Stat(src)
	must(t, err)
	other, err := os.Stat(dst)
	must(t, err)
	if !one.ModTime().Equal(other.ModTime()) || one.Mode() != other.Mode() {
		t.Errorf("%s has %v, %v and not %v, %v", dst, other.Mode(), other.ModTime(), one.Mode(), one.ModTime())
	}
}

func TestWritesThatNobodyTellsOfAreFound(t *testing.T) {
	src, dst, _ := filesystem(t, "ext4")
	disk, copied := filepath.Join(src, "root.hdd", "root.hds"), filepath.Join(dst, "root.hdd", "root.hds")
	const size = 8<<20 + 4096
	must(t, os.Mkdir(filepath.Dir(disk), 0o750), os.WriteFile(disk, nil, 0o600), os.Truncate(disk, size), os.WriteFile(filepath.Join(src, "ve.conf"), []byte("A=1"), 0o644))
	k := kernelOf(t, disk)
	k.write(0, 'a')
	k.write(size-4096, 'z')
	f, pass := follow(t, src, dst)
	f.Unseen = func() ([]Unseen, error) { return []Unseen{{Name: "root.hdd/root.hds", Begins: unmarked}}, nil }
	if n, err := f.UnseenBytes(); err != nil || n == 0 || n > 1<<20 {
		t.Errorf("a look reads %d bytes: %v", n, err)
	}
	pass(false)
	sameDisks(t, disk, copied)
	look := func(want int64) {
		t.Helper()
		if n, err := f.Look(); err != nil || n != want*part {
			t.Fatalf("%d bytes differ and not %d: %v", n, want*part, err)
		}
	}
	look(0)
	k.write(5<<20, 'b')
	if n, _, err := f.Collect(); err != nil || n > 0 {
		t.Fatalf("the kernel tells of %d entries, and this test is of writes that nobody tells of: %v", n, err)
	}
	look(1)
	if s, why := pass(false); s.Bytes != part || why != "" {
		t.Errorf("%d bytes were sent, %q", s.Bytes, why)
	}
	sameDisks(t, disk, copied)
	// Written, sent, and written as before: not as it was sent.
	k.write(5<<20, 0)
	look(1)
	// A hole where data were sent is found, too.
	must(t, unix.Fallocate(int(k.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 8<<20, 4096))
	look(2)
	// In the pause a pass looks by itself.
	k.write(3<<20, 'c')
	if s, _ := pass(true); s.Bytes != 2*part+4096 {
		t.Errorf("%d bytes were sent in the pause", s.Bytes)
	}
	sameDisks(t, disk, copied)
	if s, _ := pass(true); s.Bytes != 0 {
		t.Errorf("%d bytes were sent once more", s.Bytes)
	}
	mine, _, err := Digest(context.Background(), src, Unseen{Name: "root.hdd/root.hds", Begins: unmarked})
	must(t, err)
	if theirs, _, err := Digest(context.Background(), dst); err != nil || theirs != mine {
		t.Errorf("the digests are not the same: %v", err)
	}
}

// A snapshot makes another file the top layer. The one before has writes that are younger than the last look at it.
func TestAnotherFileIsWrittenToUnseen(t *testing.T) {
	src, dst, _ := filesystem(t, "ext4")
	one, two := filepath.Join(src, "one"), filepath.Join(src, "two")
	must(t, os.WriteFile(one, nil, 0o600), os.Truncate(one, 1<<20))
	k := kernelOf(t, one)
	f, pass := follow(t, src, dst)
	top := "one"
	f.Unseen = func() ([]Unseen, error) { return []Unseen{{Name: top}}, nil }
	pass(false)
	k.write(4096, 'y')
	must(t, os.WriteFile(two, bytes.Repeat([]byte("2"), 4096), 0o600), os.Truncate(two, 1<<20))
	top = "two"
	k2 := kernelOf(t, two)
	if n, err := f.Look(); err != nil || n == 0 {
		t.Errorf("%d bytes, %v", n, err)
	}
	pass(false)
	sameDisks(t, one, filepath.Join(dst, "one"))
	k2.write(8192, 'x')
	pass(true)
	sameDisks(t, one, filepath.Join(dst, "one"))
	sameDisks(t, two, filepath.Join(dst, "two"))
}

// Any writes, and growing and shrinking, in any order with passes.
func TestUnseenWritesAgainstAModel(t *testing.T) {
	src, dst, _ := filesystem(t, "ext4")
	disk, copied := filepath.Join(src, "disk"), filepath.Join(dst, "disk")
	rnd := rand.New(rand.NewPCG(1, 2))
	must(t, os.WriteFile(disk, nil, 0o600), os.Truncate(disk, 2<<20))
	f, pass := follow(t, src, dst)
	f.Unseen = func() ([]Unseen, error) { return []Unseen{{Name: "disk", Begins: unmarked}}, nil }
	pass(false)
	for n := range 40 {
		if rnd.IntN(4) == 0 {
			must(t, os.Truncate(disk, 4096*(1+rnd.Int64N(600))))
		}
		info, err := os.Stat(disk)
		must(t, err)
		k := kernelOf(t, disk)
		for range rnd.IntN(4) {
			k.write(4096*rnd.Int64N(info.Size()/4096), byte(rnd.IntN(3)))
		}
		k.end()
		last := rnd.IntN(2) == 0
		if !last {
			_, err := f.Look()
			must(t, err)
		}
		pass(last)
		sameDisks(t, disk, copied)
		if t.Failed() {
			t.Fatalf("in round %d", n)
		}
	}
}

func TestAPatchIsForAFileThatIsThere(t *testing.T) {
	top := t.TempDir()
	must(t, os.WriteFile(filepath.Join(top, "outside"), []byte("kept"), 0o600), os.Mkdir(filepath.Join(top, "in"), 0o700), os.Symlink("../outside", filepath.Join(top, "in", "link")))
	must(t, os.WriteFile(filepath.Join(top, "in", "twice"), []byte("kept"), 0o600), os.Link(filepath.Join(top, "in", "twice"), filepath.Join(top, "again")))
	for name, says := range map[string]string{"none": "the file that a patch is for", "link": "the file that a patch is for", "twice": "of one name", ".": "something else than a folder"} {
		err := Unpack(filepath.Join(top, "in"), strings.NewReader(string(patchOf(name, "x"))))
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"outside", "again"} {
		if b, err := os.ReadFile(filepath.Join(top, name)); err != nil || string(b) != "kept" {
			t.Errorf("%s holds %q: %v", name, b, err)
		}
	}
}

func TestPartsOfAFileWithHoles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	f, err := os.Create(path)
	must(t, err)
	defer f.Close()
	must(t, f.Truncate(5*part+1))
	for _, off := range []int64{part + 5, part + 9000, 2*part - 1, 5 * part} {
		_, err := f.WriteAt([]byte("x"), off)
		must(t, err)
	}
	src, err := image.OpenSource(path)
	must(t, err)
	defer src.Close()
	found, err := parts(src, src.Size())
	if err != nil || !slices.Equal(found, []int64{1, 5}) {
		t.Errorf("%v, %v", found, err)
	}
	if got := fmt.Sprint(joined([]int64{1, 2, 5}, 5*part+1)); got != fmt.Sprint([]piece{{part, 2 * part}, {5 * part, 1}}) {
		t.Error(got)
	}
}

func patchOf(name, content string) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	h := &tar.Header{Typeflag: typePatch, Name: name, Format: tar.FormatPAX}
	table := layTable(h, int64(len(content)), []piece{{0, int64(len(content))}})
	for _, err := range []error{w.WriteHeader(h), second(w.Write(table)), second(w.Write([]byte(content))), w.Close()} {
		if err != nil {
			panic(err)
		}
	}
	return b.Bytes()
}

func second(_ int, err error) error { return err }
