package ledger

import (
	"bytes"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
)

const cluster = 512 // small, so that a volume of many pages is a small one

func fill(r *rand.Rand, b []byte) {
	var seed [32]byte
	seed[0], seed[1], seed[2] = byte(r.Uint32()), byte(r.Uint32()), byte(r.Uint32())
	rand.NewChaCha8(seed).Read(b)
}

// write changes clusters of a volume and notes them; some become zeroes.
func write(t *testing.T, r *rand.Rand, volume []byte, ledgers ...*Ledger) {
	t.Helper()
	size := int64(len(volume))
	off := r.Int64N((size + cluster - 1) / cluster)
	end := min(off+1+r.Int64N(40), (size+cluster-1)/cluster)
	if r.IntN(10) == 0 {
		off, end = 0, (size+cluster-1)/cluster
	}
	off, end = off*cluster, min(end*cluster, size)
	zero := r.IntN(3) == 0
	if zero {
		clear(volume[off:end])
	} else {
		fill(r, volume[off:end])
	}
	for _, l := range ledgers {
		var err error
		if zero {
			err = l.NoteZero(off, end-off)
		} else {
			err = l.Note(off, volume[off:end])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Whatever way two ledgers took to the same content, and however little of them
// was in memory, their sums are the same; and where one cluster is not the same,
// neither is the sum of any range that it is in.
func TestSums(t *testing.T) {
	for seed := range uint64(12) {
		r := rand.New(rand.NewPCG(seed, 1))
		volume := make([]byte, 1+r.IntN(5*pageClusters*cluster))
		size := int64(len(volume))
		small, large := New(size, cluster, t.TempDir(), 1+r.IntN(3)), New(size, cluster, t.TempDir(), 0)
		for range 100 {
			write(t, r, volume, small, large)
		}
		whole := New(size, cluster, t.TempDir(), 2)
		for off := int64(0); off < size; off += cluster {
			c := volume[off:min(off+cluster, size)]
			if bytes.Equal(c, make([]byte, len(c))) {
				continue
			}
			if err := whole.Note(off, c); err != nil {
				t.Fatal(err)
			}
		}
		if small.Total() != large.Total() || whole.Total() != large.Total() {
			t.Fatalf("seed %d: %s, %s and %s for one content", seed, small.Total(), large.Total(), whole.Total())
		}
		if off, differs, err := small.Check(bytes.NewReader(volume)); err != nil || differs {
			t.Fatalf("seed %d: cluster at %d differs, %v", seed, off, err)
		}

		// One byte.
		at := r.Int64N(size)
		volume[at] ^= 1
		if off, differs, err := small.Check(bytes.NewReader(volume)); err != nil || !differs || off != at/cluster*cluster {
			t.Fatalf("seed %d: byte %d was changed: %v at %d, %v", seed, at, differs, off, err)
		}
		off := at / cluster * cluster
		if err := large.Note(off, volume[off:min(off+cluster, size)]); err != nil {
			t.Fatal(err)
		}
		for range 50 {
			first := r.Int64N(large.Clusters())
			end := first + 1 + r.Int64N(large.Clusters()-first)
			a, err := small.Sum(first, end)
			if err != nil {
				t.Fatal(err)
			}
			b, err := large.Sum(first, end)
			if err != nil {
				t.Fatal(err)
			}
			if within := first <= at/cluster && at/cluster < end; within == (a == b) {
				t.Fatalf("seed %d: clusters %d to %d, cluster %d differs: sums equal: %v", seed, first, end, at/cluster, a == b)
			}
		}
		if all, err := large.Sum(0, large.Clusters()); err != nil || all != large.Total() {
			t.Fatalf("seed %d: the sum of all is %s, the total %s, %v", seed, all, large.Total(), err)
		}
		for _, l := range []*Ledger{small, large, whole} {
			if len(l.ring) > l.most {
				t.Fatalf("%d pages in memory, %d are allowed", len(l.ring), l.most)
			}
			if left, err := os.ReadDir(l.dir); err != nil || len(left) != 0 {
				t.Fatalf("left behind: %v, %v", left, err)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Two clusters that change places are seen.
func TestPlacesCount(t *testing.T) {
	a, b := New(2*cluster, cluster, t.TempDir(), 0), New(2*cluster, cluster, t.TempDir(), 0)
	one, two := bytes.Repeat([]byte{1}, cluster), bytes.Repeat([]byte{2}, cluster)
	for _, err := range []error{a.Note(0, one), a.Note(cluster, two), b.Note(0, two), b.Note(cluster, one)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if a.Total() == b.Total() {
		t.Error("they have one sum")
	}
}

// Memory goes with what a volume holds, and not with its size.
func TestSparse(t *testing.T) {
	const tebi = 1 << 40
	l := New(tebi, 64<<10, t.TempDir(), 0)
	if err := l.NoteZero(0, tebi); err != nil {
		t.Fatal(err)
	}
	if err := l.Note(tebi-64<<10, bytes.Repeat([]byte{1}, 64<<10)); err != nil {
		t.Fatal(err)
	}
	if len(l.pages) != 1 {
		t.Errorf("%d pages for one cluster", len(l.pages))
	}
	if first, err := l.Sum(0, l.Clusters()-1); err != nil || first != (Sum{}) {
		t.Error(first, err)
	}
}

func TestRefuses(t *testing.T) {
	l := New(10*cluster+7, cluster, t.TempDir(), 0)
	for _, c := range []struct{ off, n int64 }{
		{1, cluster}, {-cluster, cluster}, {0, cluster + 1}, {0, -cluster}, {10 * cluster, cluster}, {0, 11 * cluster}, {9 * cluster, cluster + 6}, {1 << 62, 1 << 62},
	} {
		if err := l.NoteZero(c.off, c.n); err == nil || !strings.Contains(err.Error(), "is not of whole clusters") {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if err := l.NoteZero(9*cluster, cluster+7); err != nil {
		t.Error(err)
	}
	if _, err := l.Sum(3, 12); err == nil {
		t.Error("a sum over what is not there")
	}
	lost := New(10*pageClusters*cluster, cluster, "/nonexistent", 1)
	if err := lost.Note(0, bytes.Repeat([]byte{1}, pageClusters*cluster)); err != nil {
		t.Fatal(err)
	}
	if err := lost.Note(pageClusters*cluster, bytes.Repeat([]byte{1}, cluster)); err == nil || !strings.Contains(err.Error(), "/nonexistent") {
		t.Errorf("a page that could not be put away: %v", err)
	}
}

func BenchmarkNote(b *testing.B) {
	l := New(1<<40, 64<<10, b.TempDir(), 0)
	data := make([]byte, 512<<10)
	fill(rand.New(rand.NewPCG(1, 1)), data)
	b.SetBytes(int64(len(data)))
	off := int64(0)
	for b.Loop() {
		if err := l.Note(off, data); err != nil {
			b.Fatal(err)
		}
		off = (off + int64(len(data))) % (1 << 40)
	}
}
