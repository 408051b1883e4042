package blockprobe

import (
	"math/rand/v2"
	"os"
	"testing"

	"github.com/livefleet/handover/helper/internal/blockmap"
)

// A bio that completes unseen stays remembered until another one takes its place
// in memory; what it wrote is marked then.
func TestAReusedBioMarksWhatItWas(t *testing.T) {
	const size, cluster = 8 * MiB, 64 << 10
	dev := zram(t, size)
	tr := trackIdle(t, cluster, dev)
	for i := range copies { // the copies on the completion were attached first
		if err := tr.coll.links[i].Close(); err != nil {
			t.Fatal(err)
		}
	}
	f := open(t, dev, os.O_RDWR|direct)
	var off int64
	for range 1000 {
		write(t, f, off, 4096)
		known, err := tr.coll.underWay(tr.dev.DiskKey())
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
					if err := tr.coll.links[i].Close(); err != nil {
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
	before, err := tr.dev.SectorsWritten()
	if err != nil {
		t.Fatal(err)
	}
	for i := range int64(100) {
		write(t, f, i*4096, 4096)
	}
	after, err := tr.dev.SectorsWritten()
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
	tr := track(t, 64<<10, loopOf(t, 8*MiB))[0]
	tr.coll.preemptible = true
	swap(t, tr) // asks the kernel for its counts
}
