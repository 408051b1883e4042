package blockprobe

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/blockmap"
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
	if n := len(tr.slot.shared.memory); n > 4*MiB {
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
			if err := tr.coll.links[i].Close(); err != nil {
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
			known, err := tr.coll.underWay(tr.dev.DiskKey())
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
