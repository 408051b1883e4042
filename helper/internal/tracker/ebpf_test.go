package tracker

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/blockmap"
	"github.com/livefleet/handover/helper/internal/image"
)

const (
	MiB = 1 << 20
	GiB = 1 << 30
)

// eachKind runs a test on a device with a request queue and on one without, and
// on those named in HANDOVER_TEST_DEVICES (separated by commas, of at least 64
// MiB), whose content is destroyed: that is how to try md, device mapper, NVMe.
func eachKind(t *testing.T, size int64, test func(t *testing.T, dev string)) {
	t.Run("loop", func(t *testing.T) { test(t, loopOf(t, size)) })
	t.Run("zram", func(t *testing.T) { test(t, zram(t, size)) })
	for _, dev := range strings.FieldsFunc(os.Getenv("HANDOVER_TEST_DEVICES"), func(r rune) bool { return r == ',' }) {
		t.Run(foreign+filepath.Base(dev), func(t *testing.T) { needRoot(t); test(t, dev) })
	}
}

func TestDirectWritesAreMarkedExactly(t *testing.T) {
	const size = 32 * MiB
	eachKind(t, size, func(t *testing.T, dev string) {
		for _, cluster := range []int{4 << 10, 4 << 20} {
			tr := trackIdle(t, cluster, dev)
			f := open(t, dev, os.O_RDWR|direct)
			for range 10 {
				want := blockmap.New(size, cluster)
				for range 20 {
					n := (1 + rand.Int64N(64)) * 4096
					off := rand.Int64N((size-n)/4096) * 4096
					write(t, f, off, n)
					want.MarkRange(off, n)
				}
				same(t, swap(t, tr), want)
			}
			write(t, f, size-4096, 4096)
			write(t, f, 0, 4096)
			want := blockmap.New(size, cluster)
			want.MarkRange(size-4096, 4096)
			want.MarkRange(0, 4096)
			same(t, swap(t, tr), want)
			if m := swap(t, tr); !m.Empty() {
				t.Fatalf("nothing was written, and %d clusters are marked", m.Count())
			}
		}
	})
}

func TestReadsAreNoWrites(t *testing.T) {
	eachKind(t, 8*MiB, func(t *testing.T, dev string) {
		f := open(t, dev, os.O_RDWR|direct)
		write(t, f, 0, MiB)
		tr := trackIdle(t, 4096, dev)
		read(t, f, 0, 8*MiB)
		if err := f.Sync(); err != nil { // a flush without data
			t.Fatal(err)
		}
		if m := swap(t, tr); !m.Empty() {
			t.Fatalf("only reads and a flush, and %d clusters are marked", m.Count())
		}
	})
}

func TestBufferedWrites(t *testing.T) {
	const size, cluster = 64 * MiB, 64 << 10
	eachKind(t, size, func(t *testing.T, dev string) {
		tr := trackIdle(t, cluster, dev)
		f := open(t, dev, os.O_RDWR)
		want := blockmap.New(size, cluster)
		for range 200 {
			n := 1 + rand.Int64N(100_000)
			off := rand.Int64N(size - n)
			write(t, f, off, n)
			want.MarkRange(off, n)
		}
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
		same(t, swap(t, tr), want)
	})
}

// All levels of the map: from one cluster to more than a request can hold.
func TestDiscardsOfAllSizes(t *testing.T) {
	const size = 16 * GiB
	dev := loopOf(t, size)
	f := open(t, dev, os.O_RDWR)
	for _, cluster := range []int{4 << 10, 64 << 10} {
		tr := track(t, cluster, dev)[0]
		for i := range 24 {
			want := blockmap.New(size, cluster)
			n := min((1+rand.Int64N(2<<i))*4096, size/2)
			off := rand.Int64N((size-n)/4096) * 4096
			ioctlRange(t, f, unix.BLKDISCARD, off, n)
			want.MarkRange(off, n)
			m := swap(t, tr)
			if m.Count() != want.Count() {
				t.Fatalf("discard at %d, length %d: %d clusters of %d marked, should be %d", off, n, m.Count(), cluster, want.Count())
			}
			if err := want.Merge(m); err != nil {
				t.Fatal(err)
			}
			if m.Count() != want.Count() {
				t.Fatalf("discard at %d, length %d: other clusters are marked than were discarded", off, n)
			}
		}
	}
}

func TestDiscardOfATebibyte(t *testing.T) {
	dev := loopOf(t, 1<<40)
	tr := track(t, 64<<10, dev)[0]
	if n := len(tr.(*ebpfTracker).slot.shared.memory); n > 4*MiB {
		t.Errorf("a device of 1 TiB in clusters of 64 KiB takes %d bytes, and 4 MiB is the most it should", n)
	}
	ioctlRange(t, open(t, dev, os.O_RDWR), unix.BLKDISCARD, 0, 1<<40)
	if m := swap(t, tr); m.Count() != m.Clusters() {
		t.Fatalf("everything was discarded, and %d of %d clusters are marked", m.Count(), m.Clusters())
	}
}

func TestZeroOut(t *testing.T) {
	const size, cluster = 256 * MiB, 64 << 10
	dev := loopOf(t, size)
	tr := track(t, cluster, dev)[0]
	f := open(t, dev, os.O_RDWR)
	for range 50 {
		n := (1 + rand.Int64N(size/512/2)) * 512
		off := rand.Int64N((size-n)/512) * 512
		ioctlRange(t, f, unix.BLKZEROOUT, off, n)
		want := blockmap.New(size, cluster)
		want.MarkRange(off, n)
		same(t, swap(t, tr), want)
	}
}

func TestDiscardOnADeviceWithoutQueue(t *testing.T) {
	const size, cluster = 64 * MiB, 64 << 10
	dev := zram(t, size)
	tr := track(t, cluster, dev)[0]
	f := open(t, dev, os.O_RDWR)
	for range 50 {
		n := (1 + rand.Int64N(size/4096/2)) * 4096
		off := rand.Int64N((size-n)/4096) * 4096
		ioctlRange(t, f, unix.BLKDISCARD, off, n)
		want := blockmap.New(size, cluster)
		want.MarkRange(off, n)
		same(t, swap(t, tr), want)
	}
}

func TestPartitions(t *testing.T) {
	const cluster = 4096
	disk := loop(t, sparse(t, 64*MiB), "-P")
	starts := []int64{2048 * sector, 0, 34817 * sector} // in the middle of a cluster of the disk
	sizes := []int64{32768 * sector, 64 * MiB, 40000 * sector}
	p1 := partition(t, disk, 1, starts[0], sizes[0])
	p2 := partition(t, disk, 2, starts[2], sizes[2])
	trackers := track(t, cluster, p1, disk, p2)
	for i, dev := range []string{p1, disk, p2} {
		f := open(t, dev, os.O_RDWR|direct)
		for range 30 {
			var want [3]*blockmap.Map
			for k := range want {
				want[k] = blockmap.New(sizes[k], cluster)
			}
			n := (1 + rand.Int64N(1000)) * sector
			off := rand.Int64N((sizes[i]-n)/sector) * sector
			write(t, f, off, n)
			at := starts[i] + off // on the disk
			for k := range want {
				end := min(at+n, starts[k]+sizes[k])
				from := max(at, starts[k])
				want[k].MarkRange(from-starts[k], end-from)
			}
			for k, tr := range trackers {
				same(t, swap(t, tr), want[k])
			}
		}
		f.Close()
	}
}

func TestTwoTrackersOfOneDevice(t *testing.T) {
	const size, cluster = 8 * MiB, 64 << 10
	eachKind(t, size, func(t *testing.T, dev string) {
		a := trackIdle(t, cluster, dev)
		b := trackIdle(t, cluster, dev)
		f := open(t, dev, os.O_RDWR|direct)
		first, both := blockmap.New(size, cluster), blockmap.New(size, cluster)
		write(t, f, 0, cluster)
		first.MarkRange(0, cluster)
		both.MarkRange(0, cluster)
		same(t, swap(t, a), first)
		write(t, f, MiB, cluster)
		both.MarkRange(MiB, cluster)
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Swap(); err == nil || !strings.Contains(err.Error(), "the tracker is closed") {
			t.Errorf("Swap of a closed tracker: %v", err)
		}
		same(t, swap(t, b), both)
	})
}

// Devices of all kinds share one load of the programs, and each has its own marks.
func TestSeveralDevicesShareALoad(t *testing.T) {
	const size, cluster = 8 * MiB, 64 << 10
	disk := loop(t, sparse(t, 3*size), "-P")
	devs := []string{loopOf(t, size), disk, partition(t, disk, 1, 0, size), zram(t, size), loopOf(t, size), partition(t, disk, 2, size, size), zram(t, size)}
	ts := track(t, cluster, devs...)
	for i, tr := range ts {
		e := tr.(*ebpfTracker)
		e.settled = true // as trackIdle has it
		if e.load != ts[0].(*ebpfTracker).load {
			t.Errorf("%s has a load of its own", devs[i])
		}
	}
	starts := map[int]int64{2: 0, 5: size}
	gone := map[int]bool{}
	for len(gone) < len(devs)-1 {
		want := make([]*blockmap.Map, len(devs))
		for i, tr := range ts {
			want[i] = blockmap.New(tr.(*ebpfTracker).dev.size(), cluster)
		}
		for i, d := range devs {
			off := rand.Int64N(size/cluster) * cluster
			write(t, open(t, d, os.O_RDWR|direct), off, cluster)
			want[i].MarkRange(off, cluster)
			if start, ok := starts[i]; ok {
				want[1].MarkRange(start+off, cluster)
			} else if i == 1 {
				for p, start := range starts {
					if off >= start && off < start+size {
						want[p].MarkRange(off-start, cluster)
					}
				}
			}
		}
		for i, tr := range ts {
			if !gone[i] {
				same(t, swap(t, tr), want[i])
			}
		}
		i := rand.IntN(len(devs)) // the others go on
		if err := ts[i].Close(); err != nil {
			t.Fatal(err)
		}
		gone[i] = true
	}
}

// Trackers of one disk come and go beside one that stays: whatever is written
// meanwhile is in its maps.
func TestNeighboursComeAndGo(t *testing.T) {
	const size, cluster = 64 * MiB, 64 << 10
	disk := loop(t, sparse(t, size), "-P")
	k, err := lookKernel()
	if err != nil {
		t.Skip(err)
	}
	parts := []string{disk}
	for i := range 4 {
		parts = append(parts, partition(t, disk, int32(i+1), int64(i)*size/4, size/4))
	}
	track(t, cluster, disk) // skips where nobody may
	l, err := newLoad(k)
	if err != nil {
		t.Fatal(err)
	}
	join := func(path string) *ebpfTracker {
		d, err := lookDevice(Device{Path: path, Cluster: cluster})
		if err != nil {
			t.Fatal(err)
		}
		tr, err := l.track(d, nil)
		if err != nil {
			t.Fatal(err)
		}
		return tr
	}
	neighbours := []*ebpfTracker{join(parts[1]), join(parts[2])}
	stays := join(disk) // the last number, which moves when others go
	defer func() {
		for _, n := range append(neighbours, stays) {
			if err := n.Close(); err != nil {
				t.Error(err)
			}
		}
	}()

	f := open(t, disk, os.O_RDWR|direct)
	done, want := make(chan struct{}), blockmap.New(size, cluster)
	go func() {
		defer close(done)
		b := buffer(4096)
		for c := range int64(size / cluster) {
			if _, err := f.WriteAt(b, c*cluster); err != nil {
				t.Error(err)
				return
			}
			want.MarkRange(c*cluster, 1)
			time.Sleep(200 * time.Microsecond)
		}
	}()
	got := blockmap.New(size, cluster)
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		if i := rand.IntN(5); i < len(neighbours) {
			if err := neighbours[i].Close(); err != nil {
				t.Fatal(err)
			}
			neighbours = slices.Delete(neighbours, i, i+1)
		} else if len(neighbours) < 5 {
			neighbours = append(neighbours, join(parts[rand.IntN(len(parts))]))
		}
		if err := got.Merge(swap(t, stays)); err != nil {
			t.Fatal(err)
		}
	}
	same(t, got, want)
}

// A bio that completes unseen stays remembered until another one takes its place
// in memory; what it wrote is marked then.
func TestAReusedBioMarksWhatItWas(t *testing.T) {
	const size, cluster = 8 * MiB, 64 << 10
	dev := zram(t, size)
	tr := trackIdle(t, cluster, dev)
	for i := range copies { // the copies on the completion were attached first
		if err := tr.load.links[i].Close(); err != nil {
			t.Fatal(err)
		}
	}
	f := open(t, dev, os.O_RDWR|direct)
	var off int64
	for range 1000 {
		write(t, f, off, 4096)
		known, err := tr.load.underWay(tr.dev.key())
		if err != nil {
			t.Fatal(err)
		}
		m := swap(t, tr)
		if m.Empty() {
			off = (off + cluster) % size
			continue
		}
		if len(known) == 0 || m.Has(off) || m.Count() != 1 {
			t.Fatalf("after the write at %d: marked %d clusters, remembered %v", off, m.Count(), known)
		}
		return
	}
	t.Fatal("a thousand writes, and no bio had the place of an earlier one")
}

// passes copies a device while a writer writes to it, the way a session does:
// everything, then what was written meanwhile, again and again, until the writer
// is stopped and nothing is left. It returns the copy. spoil may take marks away.
func passes(t *testing.T, dev string, size int64, cluster int, tr Tracker, quiet func(), spoil func(*blockmap.Map)) *os.File {
	t.Helper()
	src := open(t, dev, os.O_RDONLY|direct)
	dst := open(t, sparse(t, size), os.O_RDWR)
	all := blockmap.New(size, cluster)
	all.MarkAll()
	copyMarked(t, all, src, dst)
	for range 5 {
		m := swap(t, tr)
		spoil(m)
		copyMarked(t, m, src, dst)
	}
	quiet()
	aMinuteLater(tr)
	for {
		n, err := tr.InFlight()
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	m := swap(t, tr)
	spoil(m)
	copyMarked(t, m, src, dst)
	if m := swap(t, tr); !m.Empty() {
		t.Fatalf("nobody writes any more, and %d clusters are marked", m.Count())
	}
	return dst
}

// writers write at random to a device until the returned function is called:
// buffered to the first third of it and direct to the rest (both to one place is
// an error to the kernel), small and large, with discards in between.
func writers(t *testing.T, dev string, size int64) (stop func()) {
	t.Helper()
	done := make(chan struct{})
	var wg sync.WaitGroup
	for i := range 3 {
		flags, from, room := os.O_RDWR, int64(0), size/3/4096*4096
		if i > 0 {
			flags, from, room = flags|direct, room, size-room
		}
		f := open(t, dev, flags)
		wg.Add(1)
		go func() {
			defer wg.Done()
			b := buffer(256 << 10)
			for k := 0; ; k++ {
				select {
				case <-done:
					if err := f.Sync(); err != nil {
						t.Error(err)
					}
					return
				default:
				}
				fill(b)
				n := (1 + rand.Int64N(int64(len(b))/4096)) * 4096
				off := from + rand.Int64N((room-n)/4096)*4096
				switch {
				case k%16 == 15 && flags&direct != 0:
					r := [2]uint64{uint64(off), uint64(n)}
					if err := discard(f, &r); err != nil && err != unix.EOPNOTSUPP { // RAID 5 cannot
						t.Error(err)
						return
					}
				default:
					if _, err := f.WriteAt(b[:n], off); err != nil {
						t.Error(err)
						return
					}
				}
				if k%32 == 31 && flags&direct == 0 {
					if err := f.Sync(); err != nil {
						t.Error(err)
						return
					}
				}
			}
		}()
	}
	var once sync.Once
	stop = func() {
		once.Do(func() { close(done) })
		wg.Wait()
	}
	t.Cleanup(stop)
	return stop
}

func discard(f *os.File, r *[2]uint64) error {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), unix.BLKDISCARD, uintptr(unsafe.Pointer(r)))
	if errno != 0 {
		return errno
	}
	return nil
}

// The promise of the whole thing: whatever is written and whenever, the copy is
// the source in the end.
func TestCopyUnderWritersIsEqual(t *testing.T) {
	const size, cluster = 24 * MiB, 64 << 10
	eachKind(t, size, func(t *testing.T, dev string) {
		stop := writers(t, dev, size) // before the tracker: some writes are under way when it comes
		time.Sleep(20 * time.Millisecond)
		tr := track(t, cluster, dev)[0]
		dst := passes(t, dev, size, cluster, tr, stop, func(*blockmap.Map) {})
		if at := firstDifference(t, open(t, dev, os.O_RDONLY|direct), dst, size); at >= 0 {
			t.Fatalf("the copy differs from the source at byte %d", at)
		}
	})
}

// And it is the marks that make it so: take one away, and the copy is wrong.
func TestALostMarkIsSeen(t *testing.T) {
	const size, cluster = 16 * MiB, 64 << 10
	dev := loopOf(t, size)
	tr := track(t, cluster, dev)[0]
	f := open(t, dev, os.O_RDWR|direct)
	const victim = 5 * MiB
	var wrote atomic.Bool
	lost := 0
	dst := passes(t, dev, size, cluster, tr, func() {}, func(m *blockmap.Map) {
		if m.Has(victim) {
			m.Clear(victim)
			lost++
		}
		if !wrote.Swap(true) {
			write(t, f, victim, cluster)
			write(t, f, victim+MiB, cluster)
		}
	})
	if lost != 1 {
		t.Fatalf("%d marks were taken away, and one was to be", lost)
	}
	at := firstDifference(t, open(t, dev, os.O_RDONLY|direct), dst, size)
	if at < victim || at >= victim+cluster {
		t.Fatalf("the mark of the cluster at %d was lost, and the first difference is at %d", victim, at)
	}
}

// A mounted ext4, frozen at the end as a session does it.
func TestFileSystemUnderLoad(t *testing.T) {
	const size, cluster = 64 * MiB, 64 << 10
	if _, err := exec.LookPath("mkfs.ext4"); err != nil {
		t.Skip("needs mkfs.ext4")
	}
	dev := loopOf(t, size)
	run(t, "mkfs.ext4", "-q", dev)
	mnt := t.TempDir()
	run(t, "mount", "-o", "discard", dev, mnt)
	t.Cleanup(func() { run(t, "umount", mnt) })
	tr := track(t, cluster, dev)[0]

	var stopped atomic.Bool
	var wg sync.WaitGroup
	for i := range 2 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for k := 0; !stopped.Load(); k++ {
				name := filepath.Join(mnt, string(rune('a'+i))+string(rune('0'+k%8)))
				b := make([]byte, rand.IntN(MiB))
				fill(b)
				if err := os.WriteFile(name, b, 0o600); err != nil {
					t.Error(err)
					return
				}
				if k%3 == 2 {
					os.Remove(name)
				}
				if k%5 == 4 {
					if err := image.Syncfs(mnt); err != nil {
						t.Error(err)
						return
					}
				}
			}
		}()
	}
	defer wg.Wait()
	defer stopped.Store(true)
	dst := passes(t, dev, size, cluster, tr, func() {
		if err := image.Freeze(mnt); err != nil { // the writers go on, and wait
			t.Fatal(err)
		}
	}, func(*blockmap.Map) {})
	defer func() {
		if err := image.Thaw(mnt); err != nil {
			t.Error(err)
		}
	}()
	if at := firstDifference(t, open(t, dev, os.O_RDONLY|direct), dst, size); at >= 0 {
		t.Fatalf("the copy differs from the frozen source at byte %d", at)
	}
	copied := loop(t, dst.Name(), "-r")
	run(t, "e2fsck", "-fn", "-E", "journal_only", copied)
}

// A write that is under way is in a map that is taken after it has completed,
// however often maps were taken before: the device's own backing file is made to
// hold it up.
//
// Also where no program sees the completion: then the mark of the submission
// comes again, as soon as the kernel counts more than was seen.
func TestAWriteUnderWay(t *testing.T) {
	t.Run("seen", func(t *testing.T) { aWriteUnderWay(t, false) })
	t.Run("its completion is not seen", func(t *testing.T) { aWriteUnderWay(t, true) })
}

func aWriteUnderWay(t *testing.T, blind bool) {
	const size, cluster = 8 * MiB, 64 << 10
	dev, stuck := stuckDevice(t, size)
	tr := trackIdle(t, cluster, dev)
	if blind {
		for i := range copies { // the copies on the completion were attached first
			if err := tr.load.links[i].Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	inFlight(t, tr, 0)
	finish := stuck(tr, open(t, dev, os.O_RDWR|direct), 2*MiB, cluster)
	for range 3 { // as often as it is taken, it will be there again
		swap(t, tr)
	}
	finish()
	want := blockmap.New(size, cluster)
	want.MarkRange(2*MiB, cluster)
	same(t, swap(t, tr), want)
	inFlight(t, tr, 0) // a moment after the write is complete
}

// A write bio that was never seen when it was queued marks everything.
func TestAnUnknownBioMarksAll(t *testing.T) {
	const size, cluster = 8 * MiB, 64 << 10
	dev := zram(t, size)
	tr := track(t, cluster, dev)[0].(*ebpfTracker)
	// Take away the program that sees bios come; it was attached last.
	last := len(tr.load.links) - 1
	if err := tr.load.links[last].Close(); err != nil {
		t.Fatal(err)
	}
	tr.load.links = tr.load.links[:last]
	write(t, open(t, dev, os.O_RDWR|direct), MiB, 4096)
	if m := swap(t, tr); m.Count() != m.Clusters() {
		t.Fatalf("%d of %d clusters are marked", m.Count(), m.Clusters())
	}
	if m := swap(t, tr); !m.Empty() {
		t.Fatalf("nothing was written since, and %d clusters are marked", m.Count())
	}
}

// As long as a write from before Open may be under way unseen, all is marked, and
// once more after that.
func TestUnsettled(t *testing.T) {
	full := func(tr Tracker) bool { m := swap(t, tr); return m.Count() == m.Clusters() }
	t.Run("the kernel counts", func(t *testing.T) {
		tr := track(t, 64<<10, loopOf(t, 8*MiB))[0].(*ebpfTracker)
		tr.settled, tr.untold = false, true
		if first, second := full(tr), full(tr); !first || second {
			t.Errorf("an idle device: all marked at first %v, and then %v", first, second)
		}
	})
	t.Run("the kernel does not count", func(t *testing.T) {
		tr := track(t, 64<<10, zram(t, 8*MiB))[0].(*ebpfTracker)
		tr.settled, tr.untold = false, true
		for range 2 {
			if !full(tr) {
				t.Error("nobody knows, and not all is marked")
			}
		}
		aMinuteLater(tr)
		if first, second := full(tr), full(tr); !first || second {
			t.Errorf("a minute later: all marked at first %v, and then %v", first, second)
		}
	})
}

func TestBiosAreForgotten(t *testing.T) {
	const size = 8 * MiB
	eachKind(t, size, func(t *testing.T, dev string) {
		tr := trackIdle(t, 4096, dev)
		f := open(t, dev, os.O_RDWR|direct)
		for range 300 {
			n := (1 + rand.Int64N(100)) * 4096
			write(t, f, rand.Int64N((size-n)/4096)*4096, n)
		}
		f.Close()
		// A RAID may still have something of its own to write.
		for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
			n, err := tr.InFlight()
			if err != nil {
				t.Fatal(err)
			}
			known, err := tr.load.underWay(tr.dev.key())
			if err != nil {
				t.Fatal(err)
			}
			if n == 0 && len(known) == 0 {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("in flight: %d, bios still remembered: %v", n, known)
			}
		}
	})
}

func TestGrownDevice(t *testing.T) {
	const size = 8 * MiB
	file := sparse(t, size)
	dev := loop(t, file)
	tr := track(t, 64<<10, dev)[0]
	if err := os.Truncate(file, 2*size); err != nil {
		t.Fatal(err)
	}
	run(t, "losetup", "-c", dev)
	fails(t, tr, "the device was resized or moved while it was tracked")
}

func TestWriteOutside(t *testing.T) {
	const size = 8 * MiB
	file := sparse(t, size)
	dev := loop(t, file)
	tr := track(t, 64<<10, dev)[0]
	if err := os.Truncate(file, 2*size); err != nil {
		t.Fatal(err)
	}
	run(t, "losetup", "-c", dev)
	write(t, open(t, dev, os.O_RDWR|direct), size, 4096)
	if err := os.Truncate(file, size); err != nil {
		t.Fatal(err)
	}
	run(t, "losetup", "-c", dev) // as if nothing had been
	fails(t, tr, "a write was completed outside the 8388608 bytes")
}

func TestAnotherMedium(t *testing.T) {
	needRoot(t)
	const size = 8 * MiB
	file := sparse(t, size)
	dev := loop(t, file)
	if _, err := os.Stat("/sys/class/block/" + filepath.Base(dev) + "/diskseq"); err != nil {
		t.Skip("needs a kernel that numbers media (5.15)")
	}
	tr := track(t, 64<<10, dev)[0]
	run(t, "losetup", "-d", dev)
	for range 50 { // a detach is done when the last user is gone, which may be udev
		if out, err := exec.Command("losetup", dev, file).CombinedOutput(); err == nil {
			break
		} else if !strings.Contains(string(out), "busy") {
			t.Fatalf("losetup: %s", out)
		}
		time.Sleep(20 * time.Millisecond)
	}
	fails(t, tr, "another medium is in the device than when tracking began")
}

// fails asserts that Swap fails with a text, now and ever after.
func fails(t *testing.T, tr Tracker, text string) {
	t.Helper()
	for range 2 {
		if _, err := tr.Swap(); err == nil || !strings.Contains(err.Error(), text) {
			t.Fatalf("Swap: %v; should say %q", err, text)
		}
	}
}

func TestWhatTheKernelReportsLost(t *testing.T) {
	dev := loopOf(t, 8*MiB)
	for _, c := range []struct {
		own, shared uint64
		text        string
	}{
		{own: statusOutside, text: "was completed outside the 8388608 bytes"},
		{shared: statusFull, text: "more than 65536 were under way at once"},
		{shared: statusDeep, text: "went through more than 2 of the tracked devices"},
		{shared: statusInternal, text: "fell outside the tracker's map"},
	} {
		tr := track(t, 64<<10, dev)[0].(*ebpfTracker)
		atomic.OrUint64(&tr.slot.shared.words[slotStatus], c.own)
		atomic.OrUint64(&tr.load.lost.words[lostStatus], c.shared)
		fails(t, tr, c.text)
	}
	tr := track(t, 64<<10, dev)[0].(*ebpfTracker)
	atomic.OrUint64(&tr.slot.shared.words[slotStatus], statusAll)
	if m := swap(t, tr); m.Count() != m.Clusters() {
		t.Errorf("the kernel marked all, and %d of %d clusters are", m.Count(), m.Clusters())
	}
	if m := swap(t, tr); !m.Empty() {
		t.Errorf("%d clusters are still marked", m.Count())
	}
}

// Each copy of the marking program does all of the work: it is enough that one of
// them is not skipped.
func TestAnyCopyIsEnough(t *testing.T) {
	const size, cluster = 8 * MiB, 64 << 10
	eachKind(t, size, func(t *testing.T, dev string) {
		f := open(t, dev, os.O_RDWR|direct)
		for keep := range copies {
			tr := trackIdle(t, cluster, dev)
			for i := range copies { // the copies on the completion were attached first
				if i != keep {
					if err := tr.load.links[i].Close(); err != nil {
						t.Fatal(err)
					}
				}
			}
			want := blockmap.New(size, cluster)
			for range 20 {
				n := (1 + rand.Int64N(64)) * 4096
				off := rand.Int64N((size-n)/4096) * 4096
				write(t, f, off, n)
				want.MarkRange(off, n)
			}
			same(t, swap(t, tr), want)
		}
	})
}

// What one copy has dealt with is not counted by the others. (Less than all may
// have been seen; see the package comment.)
func TestACompletionIsCountedOnce(t *testing.T) {
	dev := loopOf(t, 8*MiB)
	tr := trackIdle(t, 64<<10, dev)
	f := open(t, dev, os.O_RDWR|direct)
	before, err := tr.dev.written()
	if err != nil {
		t.Fatal(err)
	}
	for i := range int64(100) {
		write(t, f, i*4096, 4096)
	}
	after, err := tr.dev.written()
	if err != nil {
		t.Fatal(err)
	}
	if seen := tr.seen(); after-before != 800 || seen > 800 || seen < 400 {
		t.Errorf("100 writes of 8 sectors: the kernel counts %d sectors, and %d were seen", after-before, seen)
	}
}

// Every copy must have been skipped for an event to be lost, and only since the
// last time.
func TestSkippedByAll(t *testing.T) {
	for _, c := range []struct {
		before, now [][]uint64
		want        bool
	}{
		{[][]uint64{{0, 0, 0}}, [][]uint64{{0, 0, 0}}, false},
		{[][]uint64{{1, 2, 3}}, [][]uint64{{1, 2, 3}}, false},
		{[][]uint64{{0, 0, 0}}, [][]uint64{{1, 0, 4}}, false},
		{[][]uint64{{0, 0, 0}}, [][]uint64{{1, 1, 1}}, true},
		{[][]uint64{{5, 5, 5}, {0, 0, 0}}, [][]uint64{{6, 6, 5}, {0, 9, 9}}, false},
		{[][]uint64{{5, 5, 5}, {0, 0, 0}}, [][]uint64{{6, 6, 5}, {1, 9, 9}}, true},
	} {
		if got := skippedByAll(c.before, c.now); got != c.want {
			t.Errorf("from %v to %v: %v", c.before, c.now, got)
		}
	}
	tr := track(t, 64<<10, loopOf(t, 8*MiB))[0].(*ebpfTracker)
	tr.load.preemptible = true
	swap(t, tr) // asks the kernel for its counts
}
