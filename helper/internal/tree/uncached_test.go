package tree

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/loop"
	"github.com/livefleet/handover/helper/internal/pagecache"
)

// journaled is a file system that takes O_DIRECT and reads through its cache all the same, and the disk below it.
type journaled struct {
	t               *testing.T
	image, dev, mnt string
}

func newJournaled(t *testing.T) *journaled {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: loop devices and mounts")
	}
	j := &journaled{t: t, image: filepath.Join(t.TempDir(), "image")}
	j.mnt = filepath.Join(filepath.Dir(j.image), "mnt")
	must(t, os.WriteFile(j.image, nil, 0o600), os.Truncate(j.image, 64<<20))
	if out, err := exec.Command("mkfs.ext4", "-q", j.image).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.ext4: %v: %s", err, out)
	}
	dev, err := loop.Attach(j.image)
	must(t, err)
	j.dev = dev
	t.Cleanup(func() { must(t, loop.Unmount(j.mnt), loop.Detach(dev)) })
	must(t, loop.Mount(dev, j.mnt, "ext4", "data=journal"))
	return j
}

// again mounts it anew: nothing of it is in the cache, and nothing waits in the journal.
func (j *journaled) again() {
	j.t.Helper()
	must(j.t, loop.Unmount(j.mnt), loop.Mount(j.dev, j.mnt, "ext4", "data=journal"))
}

// write changes a block of a file on the disk, as the kernel does that has asked once where it lies.
func (j *journaled) write(path string, block int, letter byte) {
	j.t.Helper()
	f, err := os.Open(path)
	must(j.t, err)
	defer f.Close()
	const fibmap, figetbsz = 1, 2
	size, number := int32(0), int32(0)
	for request, answer := range map[uintptr]*int32{figetbsz: &size, fibmap: &number} {
		if request == fibmap {
			number = int32(block)
		}
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), request, uintptr(unsafe.Pointer(answer))); errno != 0 {
			j.t.Fatal(errno)
		}
	}
	below, err := os.OpenFile(j.image, os.O_WRONLY, 0)
	must(j.t, err)
	_, err = below.WriteAt(bytes.Repeat([]byte{letter}, int(size)), int64(number)*int64(size))
	must(j.t, err, below.Close())
}

func TestWritesPastAFileSystemWithoutDirectReads(t *testing.T) {
	j := newJournaled(t)
	src, dst := filepath.Join(j.mnt, "src"), filepath.Join(j.mnt, "dst")
	disk := filepath.Join(src, "disk")
	content := bytes.Repeat([]byte("a"), 1<<20)
	must(t, os.Mkdir(src, 0o755), os.Mkdir(dst, 0o700), os.WriteFile(disk, content, 0o600))
	j.again()
	if _, err := os.ReadFile(disk); err != nil { // all of it is in the cache
		t.Fatal(err)
	}
	f, pass := follow(t, src, dst)
	f.Unseen = func() ([]Unseen, error) { return []Unseen{{Name: "disk"}}, nil }
	pass(false)
	for round, letter := range []byte("bcd") {
		j.write(disk, 7*round, letter)
		if last := round == 2; !last {
			if n, err := f.Look(); err != nil || n != part {
				t.Fatalf("round %d: %d bytes differ and not %d: %v", round, n, part, err)
			}
			pass(false)
		} else {
			pass(true)
		}
		found, err := os.ReadFile(filepath.Join(dst, "disk"))
		must(t, err)
		if n := bytes.IndexByte(found, letter); n < 0 || bytes.Count(found, []byte{letter}) != len(found[n:])-len(bytes.TrimLeft(found[n:], string(letter))) {
			t.Fatalf("round %d: the other side does not have what the disk has", round)
		}
	}
}

// A page that cannot be dropped is not taken for the disk's content.
func TestPagesThatStayInTheCache(t *testing.T) {
	j := newJournaled(t)
	disk := filepath.Join(j.mnt, "disk")
	must(t, os.WriteFile(disk, bytes.Repeat([]byte("a"), 1<<20), 0o600))
	j.again()
	held, err := pagecache.Open(disk)
	must(t, err)
	must(t, held.Lock(t.Context(), held.Whole()))
	if err := forgetCached(disk, true); err == nil || !strings.Contains(err.Error(), "keeps 1048576 bytes of it in its cache") {
		t.Errorf("%v", err)
	}
	must(t, held.Close(), forgetCached(disk, true))
}

func TestPartsThatAreTooManyAreJoined(t *testing.T) {
	for _, c := range []struct {
		all  []int64
		most int
		want []int64
	}{
		{nil, 2, nil},
		{[]int64{3}, 1, []int64{3}},
		{[]int64{0, 1, 5}, 2, []int64{0, 1, 5}},
		{[]int64{0, 1, 5}, 1, []int64{0, 1, 2, 3, 4, 5}},
		{[]int64{0, 2, 5, 9}, 3, []int64{0, 1, 2, 5, 9}},
		{[]int64{0, 4, 6, 10, 14}, 3, []int64{0, 1, 2, 3, 4, 5, 6, 10, 14}},
		{[]int64{0, 3, 6, 9}, 2, []int64{0, 1, 2, 3, 4, 5, 6, 9}},
	} {
		given := slices.Clone(c.all)
		if got := fitting(c.all, c.most); !slices.Equal(got, c.want) {
			t.Errorf("%v in %d pieces: %v", c.all, c.most, got)
		} else if n := len(joined(got, 1<<40)); n > c.most {
			t.Errorf("%v are %d pieces", got, n)
		}
		if !slices.Equal(c.all, given) {
			t.Errorf("the parts given were changed: %v", c.all)
		}
	}
}

// More pieces than a table has do not end a move.
func TestAFileWrittenInManyPlaces(t *testing.T) {
	was := maxPieces
	maxPieces = 3
	t.Cleanup(func() { maxPieces = was })
	src, dst, _ := filesystem(t, "ext4")
	disk, copied := filepath.Join(src, "disk"), filepath.Join(dst, "disk")
	must(t, os.WriteFile(disk, nil, 0o600), os.Truncate(disk, 20*part))
	f, pass := follow(t, src, dst)
	f.Unseen = func() ([]Unseen, error) { return []Unseen{{Name: "disk", Begins: unmarked}}, nil }
	k := kernelOf(t, disk)
	for letter, last := range []bool{false, true} {
		for n := int64(0); n < 20; n += 2 {
			k.write(n*part, byte('a'+letter))
		}
		pass(last)
		sameDisks(t, disk, copied)
		for n := int64(1); n < 20; n += 4 {
			k.write(n*part, byte('c'+letter))
		}
	}
	if n, err := f.Look(); err != nil || n != 5*part {
		t.Errorf("%d bytes differ: %v", n, err)
	}
}
