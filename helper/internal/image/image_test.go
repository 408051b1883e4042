package image

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const MiB = 1 << 20

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes block devices and mounts")
	}
}

func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// loop makes a loop device of size bytes until the test ends.
func loop(t *testing.T, size int64, options ...string) string {
	t.Helper()
	needRoot(t)
	file := filepath.Join(t.TempDir(), "disk.img")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, size); err != nil {
		t.Fatal(err)
	}
	var out []byte
	err := errors.New("not tried")
	for range 10 { // another process may take the free one between the look and the grip
		if out, err = exec.Command("losetup", append(options, "-f", "--show", file)...).CombinedOutput(); err == nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err != nil {
		t.Skipf("needs loop devices: losetup: %v: %s", err, out)
	}
	dev := strings.TrimSpace(string(out))
	t.Cleanup(func() { command(t, "losetup", "-d", dev) })
	return dev
}

// mounted makes an ext4 of size bytes and mounts it until the test ends.
func mounted(t *testing.T, size int64) (dev, mnt string) {
	t.Helper()
	if _, err := exec.LookPath("mkfs.ext4"); err != nil {
		t.Skip("needs mkfs.ext4")
	}
	dev = loop(t, size)
	command(t, "mkfs.ext4", "-q", "-m0", dev)
	mnt = t.TempDir()
	command(t, "mount", dev, mnt)
	t.Cleanup(func() { command(t, "umount", mnt) })
	return dev, mnt
}

func noise(n int64) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{1}).Read(b)
	return b
}

func file(t *testing.T, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func source(t *testing.T, path string) *Source {
	t.Helper()
	s, err := OpenSource(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// says asserts an error by the text that the operator reads.
func says(t *testing.T, err error, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("%v; should say %q", err, text)
	}
}

func TestBuffer(t *testing.T) {
	for _, n := range []int{1, 100, 4095, 4096, 4097, 1 << 20} {
		b := Buffer(n)
		if len(b) != n || !aligned(b) || cap(b) != roundUp(n) {
			t.Errorf("%d: length %d, capacity %d, aligned %v", n, len(b), cap(b), aligned(b))
		}
	}
}

// Reads of any place and length, aligned or not, and over the end.
func TestSourceReads(t *testing.T) {
	const odd = 3*MiB + 4096 + 123
	content := noise(odd)
	dev := func(t *testing.T) string { // a size that is no multiple of a page
		d := loop(t, 3*MiB+512)
		if err := os.WriteFile(d, content[:3*MiB+512], 0); err != nil {
			t.Fatal(err)
		}
		return d
	}
	for name, open := range map[string]func(*testing.T) (string, int64){
		"file":   func(t *testing.T) (string, int64) { return file(t, content), odd },
		"device": func(t *testing.T) (string, int64) { return dev(t), 3*MiB + 512 },
		"tmpfs": func(t *testing.T) (string, int64) { // takes O_DIRECT on new kernels only
			f, err := os.CreateTemp("/dev/shm", "image-test")
			if err != nil {
				t.Skip("needs /dev/shm")
			}
			t.Cleanup(func() { os.Remove(f.Name()) })
			defer f.Close()
			if _, err := f.Write(content); err != nil {
				t.Fatal(err)
			}
			return f.Name(), odd
		},
	} {
		t.Run(name, func(t *testing.T) {
			path, size := open(t)
			s := source(t, path)
			if s.Size() != size || s.Path() != path || s.IsBlock() != (name == "device") {
				t.Fatal(s.Size(), s.Path(), s.IsBlock())
			}
			if name != "tmpfs" && !s.Direct() {
				t.Error("not read with O_DIRECT")
			}
			check := func(p []byte, off int64) {
				t.Helper()
				n, err := s.ReadAt(p, off)
				want := content[min(off, size):min(off+int64(len(p)), size)]
				if n != len(want) || !bytes.Equal(p[:n], want) || (err == io.EOF) != (n < len(p) || n == 0) || err != nil && err != io.EOF {
					t.Fatalf("%d bytes at %d: got %d, %v; should be %d", len(p), off, n, err, len(want))
				}
			}
			for range 200 {
				off := rand.Int64N(size)
				check(make([]byte, 1+rand.IntN(70_000)), off)
				check(Buffer(1+rand.IntN(70_000)), off/Align*Align)
			}
			check(Buffer(2*MiB), 2*MiB) // over the end
			check(make([]byte, 2*MiB+17), 1)
			check(Buffer(4096), size)
			check(Buffer(4096), size/Align*Align)
			if n, err := s.ReadAt(nil, 0); n != 0 || err != nil {
				t.Error(n, err)
			}
			_, err := s.ReadAt(make([]byte, 1), -1)
			says(t, err, "reading at the negative offset -1")
		})
	}
}

func TestSourceThatShrinks(t *testing.T) {
	path := file(t, noise(MiB))
	s := source(t, path)
	if err := os.Truncate(path, MiB/2); err != nil {
		t.Fatal(err)
	}
	_, err := s.ReadAt(Buffer(MiB), 0)
	says(t, err, path+": reading at offset 524288: the image became shorter while it was read")
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for path, text := range map[string]string{
		dir:                          dir + ": this is a directory, and an image is a regular file or a block device",
		fifo:                         "this is a FIFO",
		"/dev/null":                  "this is a character device",
		filepath.Join(dir, "socket"): "this is a socket",
		filepath.Join(dir, "none"):   "none: no such file or directory",
	} {
		_, err := OpenSource(path)
		says(t, err, text)
		_, err = OpenTarget(path, 4096)
		says(t, err, text)
	}
}

// A device that a mounted file system writes to: what is on it is read, and not
// what is in its cache.
func TestSourceSeesWhatAFileSystemWrites(t *testing.T) {
	dev, mnt := mounted(t, 16*MiB)
	s := source(t, dev)
	where := func(content []byte) bool {
		b := Buffer(16 * MiB)
		if _, err := s.ReadAt(b, 0); err != nil {
			t.Fatal(err)
		}
		return bytes.Contains(b, content)
	}
	first, second := noise(8192), bytes.Repeat([]byte("second--"), 1024)
	for _, content := range [][]byte{first, second} {
		if where(content) {
			t.Fatal("the test's text is on a fresh file system")
		}
		f, err := os.OpenFile(filepath.Join(mnt, "f"), os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(content, 0); err != nil { // in place, the second time
			t.Fatal(err)
		}
		f.Close()
		if err := Syncfs(mnt); err != nil {
			t.Fatal(err)
		}
		if !where(content) {
			t.Fatal("what the file system wrote is not seen")
		}
	}
}

func TestNextData(t *testing.T) {
	const size = 10*MiB + 5
	path := filepath.Join(t.TempDir(), "sparse")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	s := source(t, path)
	if start, end, err := s.NextData(0); err != io.EOF || start != size || end != size {
		t.Errorf("an empty file: %d, %d, %v", start, end, err)
	}
	for _, off := range []int64{1 * MiB, 5 * MiB, 10 * MiB} {
		if _, err := f.WriteAt([]byte("data"), off); err != nil {
			t.Fatal(err)
		}
	}
	var stretches [][2]int64
	for off := int64(0); ; {
		start, end, err := s.NextData(off)
		if err == io.EOF {
			break
		}
		if err != nil || start < off || end <= start || end > size {
			t.Fatalf("from %d: %d, %d, %v", off, start, end, err)
		}
		stretches = append(stretches, [2]int64{start, end})
		off = end
	}
	for _, off := range []int64{1 * MiB, 5 * MiB, 10 * MiB} {
		found := false
		for _, st := range stretches {
			found = found || st[0] <= off && off+4 <= st[1]
		}
		if !found {
			t.Errorf("the data at %d are in none of %v", off, stretches)
		}
	}
	if len(stretches) != 3 {
		t.Errorf("%v", stretches)
	}
	if _, _, err := s.NextData(size); err != io.EOF {
		t.Error(err)
	}
	if _, _, err := s.NextData(-1); err != io.EOF {
		t.Error(err)
	}
	d := source(t, loop(t, MiB))
	d.below.f.Close()
	d.below = nil // as of any device but a loop device
	if start, end, err := d.NextData(4096); start != 4096 || end != MiB || err != nil {
		t.Errorf("a device: %d, %d, %v", start, end, err)
	}
}

func TestCreateTarget(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new")
	tg, err := CreateTarget(path, 1<<40)
	if err != nil {
		t.Fatal(err)
	}
	defer tg.Close()
	info, err := os.Stat(path)
	if err != nil || info.Size() != 1<<40 || info.Mode() != 0o600 || !tg.Empty() || tg.Size() != 1<<40 || tg.Path() != path {
		t.Error(info, err, tg.Empty(), tg.Size())
	}
	if blocks(t, path) != 0 {
		t.Error("a new target is not sparse")
	}
	_, err = CreateTarget(path, 4096)
	says(t, err, path+": exists already, and a new image never replaces a file: remove it or choose another name")
	_, err = CreateTarget(filepath.Join(path, "deeper"), 4096)
	says(t, err, "not a directory")
	other := filepath.Join(t.TempDir(), "negative")
	_, err = CreateTarget(other, -1)
	says(t, err, "an image cannot have -1 bytes")
	_, err = CreateTarget(other, math.MaxInt64)
	says(t, err, "the file system cannot hold a file of 9223372036854775807 bytes")
	if _, err := os.Stat(other); !os.IsNotExist(err) {
		t.Error("a target that could not be made was left behind")
	}
}

func blocks(t *testing.T, path string) int64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks
}

func TestOpenTarget(t *testing.T) {
	path := file(t, noise(MiB))
	_, err := OpenTarget(path, MiB+1)
	says(t, err, path+": has 1048576 bytes, and the image to be written has 1048577")
	tg, err := OpenTarget(path, MiB)
	if err != nil {
		t.Fatal(err)
	}
	defer tg.Close()
	if tg.Empty() {
		t.Error("a file that was there is taken for empty")
	}
	dev, _ := mounted(t, 8*MiB)
	_, err = OpenTarget(dev, 8*MiB)
	says(t, err, dev+": the device is in use (mounted, or part of another device)")
}

// Any mix of writes, zeroes and discards on a file and a device, against a model
// in memory.
func TestTargetAgainstModel(t *testing.T) {
	const size = 4*MiB + 512
	for name, open := range map[string]func(*testing.T) string{
		"file":   func(t *testing.T) string { return file(t, noise(size)) },
		"device": func(t *testing.T) string { return loop(t, size) },
	} {
		t.Run(name, func(t *testing.T) {
			path := open(t)
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			tg, err := OpenTarget(path, size)
			if err != nil {
				t.Fatal(err)
			}
			// Long and aligned, as the copying has it, a write goes past the page cache.
			content := Buffer(300_000)
			copy(content, noise(300_000))
			for range 300 {
				off := rand.Int64N(size)
				if rand.IntN(2) == 0 {
					off -= off % Align
				}
				n := rand.Int64N(min(int64(len(content)), size-off) + 1)
				switch op := rand.IntN(4); op {
				case 0:
					err = tg.Zero(off, n)
					clear(want[off : off+n])
				case 1:
					if name == "device" { // afterwards it may hold anything, but only there
						err = tg.Discard(off, n)
						if err == nil {
							_, err = tg.WriteAt(content[:n], off)
						}
						copy(want[off:], content[:n])
					} else {
						err = tg.Discard(off, n)
						clear(want[off : off+n])
					}
				default:
					var m int
					m, err = tg.WriteAt(content[:n], off)
					copy(want[off:], content[:n])
					if err == nil && int64(m) != n {
						t.Fatalf("%d of %d bytes", m, n)
					}
				}
				if err != nil {
					t.Fatal(err)
				}
				if got := make([]byte, n); n > 0 {
					if _, err := tg.ReadAt(got, off); err != nil || !bytes.Equal(got, want[off:off+n]) {
						t.Fatalf("at %d, length %d, something else is read than was written (%v)", off, n, err)
					}
				}
			}
			if err := tg.Datasync(); err != nil {
				t.Fatal(err)
			}
			if err := tg.Close(); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, size)
			if _, err := source(t, path).ReadAt(got, 0); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Error("the target is not what was written to it")
			}
		})
	}
}

func TestZeroGivesTheSpaceBack(t *testing.T) {
	path := file(t, noise(4*MiB))
	tg, err := OpenTarget(path, 4*MiB)
	if err != nil {
		t.Fatal(err)
	}
	defer tg.Close()
	if err := tg.Datasync(); err != nil {
		t.Fatal(err)
	}
	before := blocks(t, path)
	if err := tg.Zero(MiB, 2*MiB); err != nil {
		t.Fatal(err)
	}
	if after := blocks(t, path); after > before-2*MiB/512 {
		t.Errorf("%d blocks before, %d after 2 MiB were made zero", before, after)
	}
	if info, err := os.Stat(path); err != nil || info.Size() != 4*MiB {
		t.Error(info.Size(), err)
	}
	tg.noPunch.Store(true) // as on a file system that cannot
	if _, err := tg.WriteAt(noise(MiB), MiB); err != nil {
		t.Fatal(err)
	}
	if err := tg.Zero(MiB+1, MiB-2); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, MiB)
	if _, err := source(t, path).ReadAt(b, MiB); err != nil {
		t.Fatal(err)
	}
	if want := noise(MiB); b[0] != want[0] || b[MiB-1] != want[MiB-1] || len(bytes.Trim(b[1:MiB-1], "\x00")) != 0 {
		t.Error("zeroes that were written are not what was asked for")
	}
}

func TestOutside(t *testing.T) {
	tg, err := OpenTarget(file(t, noise(MiB)), MiB)
	if err != nil {
		t.Fatal(err)
	}
	defer tg.Close()
	for _, r := range [][2]int64{{MiB, 1}, {MiB - 1, 2}, {-1, 1}, {0, MiB + 1}, {math.MaxInt64, 1}, {1, math.MaxInt64}, {0, -1}} {
		text := fmt.Sprintf("the range at %d, length %d, is outside the image of 1048576 bytes", r[0], r[1])
		says(t, tg.Zero(r[0], r[1]), text)
		says(t, tg.Discard(r[0], r[1]), text)
		if r[1] == 1 || r[1] == 2 {
			_, err := tg.WriteAt(make([]byte, r[1]), r[0])
			says(t, err, text)
		}
	}
	if _, err := tg.WriteAt(nil, MiB); err != nil {
		t.Error("nothing at the end is inside:", err)
	}
}

func TestNoSpace(t *testing.T) {
	t.Run("through the cache", func(t *testing.T) { noSpace(t, noise(MiB)[:100<<10]) })
	t.Run("past the cache", func(t *testing.T) {
		content := Buffer(MiB)
		copy(content, noise(MiB))
		noSpace(t, content)
	})
}

func noSpace(t *testing.T, content []byte) {
	_, mnt := mounted(t, 8*MiB)
	path := filepath.Join(mnt, "volume.img")
	tg, err := CreateTarget(path, 64*MiB)
	if err != nil {
		t.Fatal(err)
	}
	defer tg.Close()
	free, err := tg.Free()
	if err != nil || free <= 0 || free > 8*MiB {
		t.Error(free, err)
	}
	for off := int64(0); off < 64*MiB; off += int64(len(content)) {
		if _, err = tg.WriteAt(content, off); err != nil {
			break
		}
		if err = tg.Datasync(); err != nil { // with delayed allocation it may come only here
			break
		}
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("%v is not ENOSPC", err)
	}
	says(t, err, "image: the file system that holds "+path+" is full (")
	says(t, err, " MiB on the destination, or choose another destination: ")
	says(t, err, ": no space left on device")
	says(t, err, " MiB are free there)")
	var need int64
	if _, err := fmt.Sscanf(err.Error()[strings.Index(err.Error(), ": free "):], ": free %d MiB", &need); err != nil || need < 50 || need > 64 {
		t.Errorf("asks for %d MiB: %v", need, err)
	}
}

// With its space reserved an image has it from the beginning, and keeps it.
func TestReservedSpaceIsKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "image")
	tg, err := CreateTarget(path, 8*MiB)
	if err != nil {
		t.Fatal(err)
	}
	defer tg.Close()
	if err := tg.Reserve(); errors.Is(err, unix.EOPNOTSUPP) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	taken := func() int64 {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			t.Fatal(err)
		}
		return st.Blocks * 512
	}
	if n := taken(); n < 8*MiB || !tg.Empty() {
		t.Errorf("it takes %d bytes", n)
	}
	content := bytes.Repeat([]byte{7}, MiB)
	if _, err := tg.WriteAt(content, 3*MiB); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(tg.Zero(0, 8*MiB), tg.Datasync()); err != nil {
		t.Fatal(err)
	}
	if _, err := tg.ReadAt(content, 3*MiB); err != nil || !bytes.Equal(content, make([]byte, MiB)) {
		t.Errorf("it does not read as zeroes: %v", err)
	}
	if n := taken(); n < 8*MiB {
		t.Errorf("zeroes gave back its space: it takes %d bytes", n)
	}
}

func TestADiskWithoutRoomIsFoundBeforeAnythingIsWritten(t *testing.T) {
	_, mnt := mounted(t, 8*MiB)
	path := filepath.Join(mnt, "image")
	tg, err := CreateTarget(path, 64*MiB)
	if err != nil {
		t.Fatal(err)
	}
	defer tg.Close()
	err = tg.Reserve()
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	says(t, err, "image: the file system that holds "+path+" is full (")
	says(t, err, ": reserving its space: no space left on device")
}

func TestDatasync(t *testing.T) {
	path := file(t, noise(MiB))
	for _, p := range []string{path, filepath.Dir(path)} {
		for _, dontneed := range []bool{false, true} {
			if err := Datasync(p, dontneed); err != nil {
				t.Error(err)
			}
		}
	}
	says(t, Datasync(path+"x", false), path+"x: no such file or directory")
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	says(t, Datasync(fifo, false), fifo+": this is a FIFO, which has nothing that could be synced")
	if err := Datasync(loop(t, MiB), true); err != nil {
		t.Error(err)
	}
}

// With dontneed the pages are gone afterwards, as they were not before.
// resident is how many pages of a file are in memory.
func resident(t *testing.T, path string) int {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	m, err := unix.Mmap(int(f.Fd()), 0, roundUp(int(info.Size())), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(m)
	return mincore(t, m)
}

func TestDatasyncDropsPages(t *testing.T) {
	_, mnt := mounted(t, 16*MiB)
	path := filepath.Join(mnt, "f")
	if err := os.WriteFile(path, noise(MiB), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Datasync(path, false); err != nil {
		t.Fatal(err)
	}
	if resident(t, path) == 0 {
		t.Skip("this file system keeps nothing in the cache")
	}
	if err := Datasync(path, true); err != nil {
		t.Fatal(err)
	}
	if n := resident(t, path); n != 0 {
		t.Errorf("%d pages are still there", n)
	}
}

func TestFreeze(t *testing.T) {
	_, mnt := mounted(t, 16*MiB)
	if err := Thaw(mnt); err != nil {
		t.Error("thawing what is not frozen:", err)
	}
	if err := Freeze(mnt); err != nil {
		t.Fatal(err)
	}
	says(t, Freeze(mnt), mnt+": the file system is frozen already, by someone else: thaw it first (fsfreeze -u "+mnt+")")
	written := make(chan error, 1)
	go func() { written <- os.WriteFile(filepath.Join(mnt, "f"), []byte("x"), 0o600) }()
	select {
	case err := <-written:
		t.Error("a write got through a frozen file system:", err)
	case <-time.After(50 * time.Millisecond): // only ever too short to see a fault, never a false alarm
	}
	if err := Syncfs(mnt); err != nil {
		t.Error("syncing a frozen file system:", err)
	}
	for range 2 {
		if err := Thaw(mnt); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-written; err != nil {
		t.Error(err)
	}
}

func TestFreezeRefuses(t *testing.T) {
	_, mnt := mounted(t, 16*MiB)
	dir := filepath.Join(mnt, "dir")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, f := range []func(string) error{Freeze, Thaw, Syncfs} {
		says(t, f(dir), dir+": no file system is mounted here: name its mount point")
		says(t, f("/"), "/: this is the host's own root file system, which is never frozen")
		says(t, f(mnt+"/none"), "no such file or directory")
	}
	says(t, Freeze("/proc"), "/proc: this file system cannot be frozen: use ext4 or xfs")
}

func TestDigest(t *testing.T) {
	const size, cluster = 5*MiB + 100, 64 << 10
	content := noise(size)
	clear(content[MiB : 3*MiB])
	ctx := context.Background()
	digest := func(r io.ReaderAt) *Digests {
		t.Helper()
		d, err := Digest(ctx, r, size, cluster)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	memory := digest(bytes.NewReader(content))
	onDisk := digest(source(t, file(t, content)))
	// The same with a hole, which is not read.
	path := file(t, content)
	tg, err := OpenTarget(path, size)
	if err != nil {
		t.Fatal(err)
	}
	defer tg.Close()
	if err := tg.Zero(MiB, 2*MiB); err != nil {
		t.Fatal(err)
	}
	sparse := digest(source(t, path))
	for _, d := range []*Digests{onDisk, sparse} {
		if off, differ, err := memory.FirstDifference(d); differ || err != nil {
			t.Errorf("equal images differ at %d: %v", off, err)
		}
		if err := memory.Root().Equal(d.Root()); err != nil {
			t.Error(err)
		}
	}
	for _, off := range []int64{0, cluster - 1, cluster, 2 * MiB, size - 1} {
		content[off]++
		changed := digest(bytes.NewReader(content))
		content[off]--
		at, differ, err := memory.FirstDifference(changed)
		if err != nil || !differ || at != off/cluster*cluster {
			t.Errorf("byte %d was changed: difference %v at %d, %v", off, differ, at, err)
		}
		says(t, memory.Root().Equal(changed.Root()), "they differ: digest ")
	}

	b, err := json.Marshal(memory.Root())
	if err != nil {
		t.Fatal(err)
	}
	var back Root
	if err := json.Unmarshal(b, &back); err != nil || back != memory.Root() {
		t.Error(err, string(b))
	}
	short, err := Digest(ctx, bytes.NewReader(content), size-1, cluster)
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = memory.FirstDifference(short)
	says(t, err, "cannot be compared")
	says(t, memory.Root().Equal(short.Root()), "they have 5242980 and 5242979 bytes")
	other, err := Digest(ctx, bytes.NewReader(content), size, 2*cluster)
	if err != nil {
		t.Fatal(err)
	}
	says(t, memory.Root().Equal(other.Root()), "cannot be compared")

	_, err = Digest(ctx, bytes.NewReader(content[:MiB+5]), size, cluster)
	says(t, err, "image: digest at offset")
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := Digest(gone, bytes.NewReader(content), size, cluster); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := Digest(ctx, bytes.NewReader(nil), -1, cluster); err == nil {
		t.Error("a negative size was taken")
	}
	if d, err := Digest(ctx, bytes.NewReader(nil), 0, cluster); err != nil || d.Root().Root == "" {
		t.Error(d, err)
	}
}

// The root of a known image, so that it stays what other versions compute.
func TestRootIsStable(t *testing.T) {
	d, err := Digest(context.Background(), bytes.NewReader(bytes.Repeat([]byte("handover"), 2000)), 16000, 4096)
	if err != nil {
		t.Fatal(err)
	}
	want := Root{"sha256-clusters-16", 16000, 4096, "187d367ec1ceb86ea14e8f8b618be5f2f179ecb5300ec7222075ea8a601d46ee"}
	if got := d.Root(); got != want {
		t.Errorf("%+v", got)
	}
}
