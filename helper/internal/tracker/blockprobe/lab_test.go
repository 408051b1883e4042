package blockprobe

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/blockmap"
	"github.com/livefleet/handover/helper/internal/tracker/blockdev"
)

// What the tests need of the machine: real block devices.

const sector = 512

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes block devices and loads BPF programs")
	}
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// sparse makes an empty file of size bytes and returns its name.
func sparse(t *testing.T, size int64) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "disk.img")
	f, err := os.Create(file)
	if err == nil {
		err = f.Truncate(size)
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// loop attaches a file to a loop device until the test ends.
func loop(t *testing.T, file string, options ...string) string {
	t.Helper()
	needRoot(t)
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		t.Skip("needs loop devices: ", err)
	}
	var out []byte
	var err error
	for range 10 { // another process may take the free one between the look and the grip
		out, err = exec.Command("losetup", append(options, "-f", "--show", file)...).CombinedOutput()
		if err == nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err != nil {
		t.Fatalf("losetup: %v\n%s", err, out)
	}
	dev := strings.TrimSpace(string(out))
	t.Cleanup(func() {
		if out, err := exec.Command("losetup", "-d", dev).CombinedOutput(); err != nil {
			t.Errorf("losetup -d %s: %v\n%s", dev, err, out)
		}
	})
	return dev
}

func loopOf(t *testing.T, size int64) string {
	t.Helper()
	return loop(t, sparse(t, size))
}

// zram makes a zram device for one test: a device without a request queue.
func zram(t *testing.T, size int64) string {
	t.Helper()
	needRoot(t)
	const control = "/sys/class/zram-control/"
	b, err := os.ReadFile(control + "hot_add")
	if err != nil {
		t.Skip("needs zram, the only kind of device without a request queue that can be had everywhere: ", err)
	}
	number := strings.TrimSpace(string(b))
	t.Cleanup(func() {
		var err error
		for range 100 { // udev may look at the device for a moment
			if err = os.WriteFile(control+"hot_remove", []byte(number), 0); err == nil {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
		t.Errorf("removing zram%s: %v", number, err)
	})
	if err := os.WriteFile("/sys/block/zram"+number+"/disksize", fmt.Appendf(nil, "%d", size), 0); err != nil {
		t.Fatal(err)
	}
	dev := "/dev/zram" + number
	if _, err := os.Stat(dev); err != nil {
		t.Skip("needs a node for the zram device: ", err)
	}
	return dev
}

// buffer gives memory that O_DIRECT takes.
func buffer(n int) []byte {
	b := make([]byte, n+4096)
	skip := 0
	if over := int(uintptr(unsafe.Pointer(&b[0])) % 4096); over != 0 {
		skip = 4096 - over
	}
	return b[skip : skip+n]
}

// open opens a device past the page cache.
func open(t *testing.T, dev string, flags int) *os.File {
	t.Helper()
	f, err := os.OpenFile(dev, flags, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// noise is made once: the race detector makes it slow.
var noise = sync.OnceValue(func() []byte {
	b := make([]byte, 2<<20)
	rand.NewChaCha8([32]byte{}).Read(b)
	return b
})

// fill fills b with what was hardly there before.
func fill(b []byte) {
	for len(b) > 0 {
		b = b[copy(b, noise()[rand.IntN(1<<20):]):]
	}
}

func write(t *testing.T, f *os.File, off, n int64) {
	t.Helper()
	b := buffer(int(n))
	fill(b)
	if _, err := f.WriteAt(b, off); err != nil {
		t.Fatal(err)
	}
}

// ioctlRange is BLKDISCARD, BLKZEROOUT and their kind.
func ioctlRange(t *testing.T, f *os.File, request uint, off, n int64) {
	t.Helper()
	r := [2]uint64{uint64(off), uint64(n)}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), uintptr(request), uintptr(unsafe.Pointer(&r))); errno != 0 {
		t.Fatalf("ioctl %#x at %d, length %d: %v", request, off, n, errno)
	}
}

func track(t *testing.T, cluster int, devs ...string) []*Tracker {
	t.Helper()
	needRoot(t)
	var list []*blockdev.Device
	for _, path := range devs {
		d, err := blockdev.FindTraceable(path, cluster)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, d)
	}
	trackers, err := Open(list)
	if err != nil {
		if errors.Is(err, unix.EPERM) || strings.Contains(err.Error(), "has no BTF") || strings.Contains(err.Error(), "(EPERM)") || strings.Contains(err.Error(), "(kernels before 6.3)") {
			t.Skip("needs a kernel that can, and a machine that lets us: ", err)
		}
		t.Fatal(err)
	}
	for _, tr := range trackers {
		t.Cleanup(func() {
			if err := tr.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	return trackers
}

// trackIdle tracks a device that nobody writes to when tracking begins. Where the
// kernel does not count writes under way, the tracker cannot know that, and would
// mark all of the device for a minute.
func trackIdle(t *testing.T, cluster int, dev string) *Tracker {
	t.Helper()
	e := track(t, cluster, dev)[0]
	e.settled = true
	return e
}

// aMinuteLater is when no write from before Open can be left.
func aMinuteLater(tr *Tracker) {
	tr.opened = tr.opened.Add(-settleAge)
}

func swap(t *testing.T, tr *Tracker) *blockmap.Map {
	t.Helper()
	m, err := tr.Swap()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// same compares what was marked with what should be, exactly: on a device that
// only the test writes to, the tracker marks nothing in excess either. A device
// that was named from outside may have more (a RAID's parity, for one).
func same(t *testing.T, got, want *blockmap.Map) {
	t.Helper()
	excess := strings.Contains(t.Name(), foreign)
	for c := range want.Clusters() {
		off := c * int64(want.Cluster())
		if got.Has(off) != want.Has(off) && !(excess && got.Has(off)) {
			t.Fatalf("cluster %d (offset %d): marked %v, should be %v (%d clusters marked, should be %d)",
				c, off, got.Has(off), want.Has(off), got.Count(), want.Count())
		}
	}
}

func read(t *testing.T, f *os.File, off, n int64) []byte {
	t.Helper()
	b := buffer(int(n))
	if _, err := f.ReadAt(b, off); err != nil {
		t.Fatal(err)
	}
	return b
}

// copyMarked copies the marked clusters from one file to another.
func copyMarked(t *testing.T, m *blockmap.Map, src, dst *os.File) {
	t.Helper()
	for off, n := range m.Runs(1 << 20) {
		if _, err := dst.WriteAt(read(t, src, off, n), off); err != nil {
			t.Fatal(err)
		}
	}
}

// firstDifference compares two files byte for byte; -1 means that they are equal.
func firstDifference(t *testing.T, a, b *os.File, size int64) int64 {
	t.Helper()
	const part = 1 << 20
	for off := int64(0); off < size; off += part {
		n := min(part, size-off)
		x, y := read(t, a, off, n), read(t, b, off, n)
		if !bytes.Equal(x, y) {
			for i := range x {
				if x[i] != y[i] {
					return off + int64(i)
				}
			}
		}
	}
	return -1
}

// partition makes a partition of a disk, in bytes, and a node for it. It tells
// the kernel directly: not every kernel reads partition tables.
func partition(t *testing.T, disk string, number int32, start, length int64) string {
	t.Helper()
	const (
		blkpg    = 0x1269 // linux/blkpg.h
		addPart  = 1
		nameSize = 64
	)
	type part struct {
		start, length int64
		number        int32
		_             [2 * nameSize]byte
		_             int32
	}
	type argument struct {
		op, flags, size int32
		data            *part
	}
	f := open(t, disk, os.O_RDONLY)
	p := part{start: start, length: length, number: number}
	arg := argument{op: addPart, size: int32(unsafe.Sizeof(p)), data: &p}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), blkpg, uintptr(unsafe.Pointer(&arg))); errno != 0 {
		t.Fatalf("adding partition %d to %s: %v", number, disk, errno)
	}
	name := fmt.Sprintf("%sp%d", filepath.Base(disk), number)
	b, err := os.ReadFile("/sys/class/block/" + name + "/dev")
	if err != nil {
		t.Fatal(err)
	}
	var major, minor uint32
	if _, err := fmt.Sscanf(string(b), "%d:%d", &major, &minor); err != nil {
		t.Fatal(err)
	}
	node := filepath.Join(t.TempDir(), name) // where no udev runs there is none in /dev
	if err := unix.Mknod(node, unix.S_IFBLK|0o600, int(unix.Mkdev(major, minor))); err != nil {
		t.Fatal(err)
	}
	return node
}

// foreign is in the name of tests on devices that were named from outside.
const foreign = "named:"

const direct = syscall.O_DIRECT
