package blockprobe

import (
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/livefleet/handover/helper/internal/blockmap"
	"github.com/livefleet/handover/helper/internal/tracker/blockdev"
)

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
		e := tr
		e.settled = true // as trackIdle has it
		if e.coll != ts[0].coll {
			t.Errorf("%s has a load of its own", devs[i])
		}
	}
	starts := map[int]int64{2: 0, 5: size}
	gone := map[int]bool{}
	for len(gone) < len(devs)-1 {
		want := make([]*blockmap.Map, len(devs))
		for i, tr := range ts {
			want[i] = blockmap.New(tr.dev.Size(), cluster)
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
	l, err := newCollection(k)
	if err != nil {
		t.Fatal(err)
	}
	join := func(path string) *Tracker {
		d, err := blockdev.FindTraceable(path, cluster)
		if err != nil {
			t.Fatal(err)
		}
		tr, err := l.track(d, nil)
		if err != nil {
			t.Fatal(err)
		}
		return tr
	}
	neighbours := []*Tracker{join(parts[1]), join(parts[2])}
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
