package blockmap

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
)

// model is the plainest set there is.
type model struct {
	size    int64
	cluster int64
	marked  []bool
}

func newModel(size int64, cluster int) *model {
	return &model{size, int64(cluster), make([]bool, (size+int64(cluster)-1)/int64(cluster))}
}

func (m *model) mark(off, n int64) {
	for c := range m.marked {
		start := int64(c) * m.cluster
		if n > 0 && start < min(off+n, m.size) && start+m.cluster > off {
			m.marked[c] = true
		}
	}
}

func (m *model) runs(limit int64) [][2]int64 {
	var runs [][2]int64
	for c := 0; c < len(m.marked); {
		if !m.marked[c] {
			c++
			continue
		}
		first := c
		for c < len(m.marked) && m.marked[c] && (c == first || limit <= 0 || int64(c+1-first)*m.cluster <= limit) {
			c++
		}
		off := int64(first) * m.cluster
		runs = append(runs, [2]int64{off, min(int64(c)*m.cluster, m.size) - off})
	}
	return runs
}

func collect(m *Map, limit int64) [][2]int64 {
	var runs [][2]int64
	for off, n := range m.Runs(limit) {
		runs = append(runs, [2]int64{off, n})
	}
	return runs
}

func TestAgainstModel(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 0))
		cluster := MinCluster << r.IntN(3)
		size := r.Int64N(400 * MinCluster)
		m, want := New(size, cluster), newModel(size, cluster)
		for range r.IntN(12) {
			off, n := r.Int64N(size+1)-1, r.Int64N(size/4+2)
			m.MarkRange(off, n)
			want.mark(off, n)
		}
		for _, limit := range []int64{0, 1, int64(cluster), 3 * int64(cluster), 64 * int64(cluster), 1 << 20} {
			if got, want := collect(m, limit), want.runs(limit); !slices.Equal(got, want) {
				t.Fatalf("seed %d: runs(%d) of %d bytes in clusters of %d:\n%v, should be\n%v", seed, limit, size, cluster, got, want)
			}
		}
		var count, bytes int64
		for _, run := range want.runs(0) {
			bytes += run[1]
		}
		for c, marked := range want.marked {
			if marked {
				count++
			}
			if got := m.Has(int64(c) * int64(cluster)); got != marked {
				t.Fatalf("seed %d: cluster %d: %v", seed, c, got)
			}
		}
		if m.Count() != count || m.Bytes() != bytes || m.Empty() != (count == 0) {
			t.Fatalf("seed %d: count %d, bytes %d, empty %v; should be %d, %d", seed, m.Count(), m.Bytes(), m.Empty(), count, bytes)
		}
		old := m.Swap()
		if !m.Empty() || !slices.Equal(collect(old, 0), want.runs(0)) {
			t.Fatalf("seed %d: swap took %v and left %v", seed, collect(old, 0), collect(m, 0))
		}
	}
}

func TestEdges(t *testing.T) {
	const cluster = 4096
	m := New(100*cluster+1, cluster)
	if m.Clusters() != 101 || m.Size() != 100*cluster+1 || m.Cluster() != cluster {
		t.Fatal(m.Clusters(), m.Size(), m.Cluster())
	}
	m.MarkRange(-10, 5)
	m.MarkRange(m.Size(), 1)
	m.MarkRange(7, 0)
	m.MarkRange(7, -1)
	if !m.Empty() {
		t.Error("ranges outside and empty ranges mark something")
	}
	m.MarkRange(m.Size()-1, math.MaxInt64) // the sum goes over
	if got := collect(m, 0); !slices.Equal(got, [][2]int64{{100 * cluster, 1}}) {
		t.Error(got)
	}
	m.MarkAll()
	if m.Count() != 101 || m.Bytes() != m.Size() {
		t.Error(m.Count(), m.Bytes())
	}
	m.Clear(100 * cluster)
	m.Clear(-1)
	m.Clear(m.Size())
	if m.Count() != 100 || m.Bytes() != 100*cluster || m.Has(-1) || m.Has(m.Size()) {
		t.Error(m.Count(), m.Bytes())
	}
	empty := New(0, cluster)
	empty.MarkAll()
	if empty.Clusters() != 0 || !empty.Empty() || !empty.Swap().Empty() || len(collect(empty, 0)) != 0 {
		t.Error("a map of nothing has something in it")
	}
}

func TestStoppingAWalk(t *testing.T) {
	m := New(1000*4096, 4096)
	m.MarkAll()
	n := 0
	for range m.Runs(4096) {
		if n++; n == 3 {
			break
		}
	}
	if n != 3 {
		t.Error(n)
	}
}

func TestOrWord(t *testing.T) {
	m := New(70*4096, 4096)
	m.OrWord(1, ^uint64(0)) // 6 clusters are there
	m.OrWord(2, ^uint64(0))
	m.OrWord(-1, 1)
	m.OrWord(0, 5)
	if got := collect(m, 0); !slices.Equal(got, [][2]int64{{0, 4096}, {2 * 4096, 4096}, {64 * 4096, 6 * 4096}}) {
		t.Error(got)
	}
	if m.Count() != 8 {
		t.Error("bits past the end are counted:", m.Count())
	}
}

func TestMerge(t *testing.T) {
	a, b := New(100*4096, 4096), New(100*4096, 4096)
	a.MarkRange(0, 4096)
	b.MarkRange(4096, 4096)
	if err := a.Merge(b); err != nil || a.Count() != 2 || b.Count() != 1 {
		t.Error(err, a.Count(), b.Count())
	}
	err := a.Merge(New(100*4096, 8192))
	if err == nil || !strings.Contains(err.Error(), "a map of 409600 bytes in clusters of 4096 cannot take in one of 409600 bytes in clusters of 8192") {
		t.Error(err)
	}
}

func TestCheckCluster(t *testing.T) {
	for cluster, ok := range map[int]bool{4096: true, 65536: true, 4 << 20: true, 0: false, -4096: false, 2048: false, 8 << 20: false, 65535: false} {
		if err := CheckCluster(cluster); (err == nil) != ok {
			t.Errorf("%d: %v", cluster, err)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("New took a cluster of 5")
		}
	}()
	New(1, 5)
}

// A mark that lands during a swap is in the old map or in the new one, never in
// neither.
func TestNoMarkIsLostInASwap(t *testing.T) {
	const clusters, writers = 1 << 12, 4
	m := New(clusters*4096, 4096)
	done := make(chan struct{})
	var wg sync.WaitGroup
	for w := range writers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for c := w; c < clusters; c += writers { // neighbours share words
				m.MarkRange(int64(c)*4096, 1)
			}
		}()
	}
	go func() { wg.Wait(); close(done) }()
	seen := New(clusters*4096, 4096)
	var marks int64
	for more := true; more; {
		select {
		case <-done:
			more = false
		default:
		}
		old := m.Swap()
		marks += old.Count()
		if err := seen.Merge(old); err != nil {
			t.Fatal(err)
		}
	}
	if seen.Count() != clusters || marks != clusters {
		t.Errorf("%d clusters were marked once each; %d came out, %d different ones", clusters, marks, seen.Count())
	}
}

// MarkWithin marks no cluster of which a byte lies outside, and Subtract takes back
// just what the other has.
func TestMarkWithinAndSubtract(t *testing.T) {
	const size, cluster = 100*4096 + 700, 4096
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		off, n := rnd.Int64N(size+9000)-100, rnd.Int64N(60*cluster)-10
		m, o := New(size, cluster), New(size, cluster)
		m.MarkWithin(off, n)
		o.MarkRange(rnd.Int64N(size), rnd.Int64N(size))
		left := New(size, cluster)
		if err := left.Merge(m); err != nil {
			t.Fatal(err)
		}
		if err := left.Subtract(o); err != nil {
			t.Fatal(err)
		}
		for at := int64(0); at < size; at += cluster {
			want := off >= 0 && n > 0 && at >= off && min(at+cluster, size) <= off+n
			if m.Has(at) != want {
				t.Fatalf("%d bytes at %d: the cluster at %d is marked: %v", n, off, at, m.Has(at))
			}
			if left.Has(at) != (want && !o.Has(at)) {
				t.Fatalf("%d bytes at %d: the cluster at %d is left: %v", n, off, at, left.Has(at))
			}
		}
	}
	if New(size, cluster).Subtract(New(size, 2*cluster)) == nil {
		t.Error("maps of different shape were subtracted")
	}
}
