// Package blockmap keeps the set of clusters that still have to travel.
//
// A cluster is the unit of copying, a power of two between 4 KiB and 4 MiB. Writers
// mark clusters; one reader swaps the whole map for an empty one and walks the old
// one in ascending runs. A mark that lands during a swap is in the old map or in the
// new one, never in neither.
//
// The map is a plain bit set, one bit a cluster, in 64-bit words; cluster c is bit
// c%64 of word c/64. A map of 1 TiB in clusters of 64 KiB takes 2 MiB. All methods
// may be called from several goroutines at once; whether a walk sees marks set while
// it runs is not defined, which is why one walks the result of Swap and not the map
// that is being marked.
package blockmap

import (
	"fmt"
	"iter"
	"math/bits"
	"sync/atomic"
)

// The bounds of a cluster, in bytes.
const (
	MinCluster = 4 << 10
	MaxCluster = 4 << 20
)

// CheckCluster says why a cluster size cannot be used, or nil if it can.
func CheckCluster(cluster int) error {
	if cluster < MinCluster || cluster > MaxCluster || cluster&(cluster-1) != 0 {
		return fmt.Errorf("blockmap: a cluster of %d bytes cannot be used: choose a power of two from %d to %d", cluster, MinCluster, MaxCluster)
	}
	return nil
}

// Map is a set of clusters of one image. Make it with New.
type Map struct {
	size  int64
	shift uint
	words []uint64
}

// New makes an empty map for an image of size bytes. Sizes and clusters that
// come from outside are checked with CheckCluster first; here a bad one is a
// mistake of the caller, and New panics.
func New(size int64, cluster int) *Map {
	if err := CheckCluster(cluster); err != nil {
		panic(err)
	}
	if size < 0 {
		panic(fmt.Sprintf("blockmap: negative size %d", size))
	}
	m := &Map{size: size, shift: uint(bits.TrailingZeros(uint(cluster)))}
	m.words = make([]uint64, (m.Clusters()+63)/64)
	return m
}

// Size is the length of the image in bytes.
func (m *Map) Size() int64 { return m.size }

// Cluster is the size of a cluster in bytes.
func (m *Map) Cluster() int { return 1 << m.shift }

// Clusters is how many clusters the image has; the last may be short.
func (m *Map) Clusters() int64 {
	n := m.size >> m.shift
	if m.size&(1<<m.shift-1) != 0 {
		n++
	}
	return n
}

// MarkRange marks every cluster that the bytes from off to off+n touch. Bytes outside
// the image are left out.
func (m *Map) MarkRange(off, n int64) {
	if n <= 0 || off >= m.size {
		return
	}
	end := off + n
	if end > m.size || end < off { // end < off: the sum went over
		end = m.size
	}
	if off < 0 {
		off = 0
	}
	if end <= off {
		return
	}
	m.markClusters(off>>m.shift, (end-1)>>m.shift)
}

// MarkAll marks every cluster.
func (m *Map) MarkAll() {
	if n := m.Clusters(); n > 0 {
		m.markClusters(0, n-1)
	}
}

func (m *Map) markClusters(first, last int64) {
	fw, lw := first/64, last/64
	low := ^uint64(0) << (first % 64)
	high := ^uint64(0) >> (63 - last%64)
	if fw == lw {
		atomic.OrUint64(&m.words[fw], low&high)
		return
	}
	atomic.OrUint64(&m.words[fw], low)
	for w := fw + 1; w < lw; w++ {
		atomic.StoreUint64(&m.words[w], ^uint64(0))
	}
	atomic.OrUint64(&m.words[lw], high)
}

// OrWord marks the clusters of one word at once: bit b stands for cluster
// word*64+b. It is for a tracker whose own map has the same shape. Bits past
// the last cluster are left out; a word outside the map is ignored.
func (m *Map) OrWord(word int64, set uint64) {
	if word < 0 || word >= int64(len(m.words)) {
		return
	}
	if over := m.Clusters() % 64; over != 0 && word == int64(len(m.words))-1 {
		set &= 1<<over - 1
	}
	if set != 0 {
		atomic.OrUint64(&m.words[word], set)
	}
}

// Words are the marks as they are kept, in a slice of their own.
func (m *Map) Words() []uint64 {
	words := make([]uint64, len(m.words))
	for i := range m.words {
		words[i] = atomic.LoadUint64(&m.words[i])
	}
	return words
}

// Has reports whether the cluster that holds byte off is marked.
func (m *Map) Has(off int64) bool {
	if off < 0 || off >= m.size {
		return false
	}
	c := off >> m.shift
	return atomic.LoadUint64(&m.words[c/64])&(1<<(c%64)) != 0
}

// Clear takes back the mark of the cluster that holds byte off. The copying
// never needs it; a test that plants a lost mark does.
func (m *Map) Clear(off int64) {
	if off < 0 || off >= m.size {
		return
	}
	c := off >> m.shift
	atomic.AndUint64(&m.words[c/64], ^(uint64(1) << (c % 64)))
}

// Count is how many clusters are marked.
func (m *Map) Count() int64 {
	var n int64
	for i := range m.words {
		n += int64(bits.OnesCount64(atomic.LoadUint64(&m.words[i])))
	}
	return n
}

// Bytes is how many bytes of the image the marked clusters hold.
func (m *Map) Bytes() int64 {
	n := m.Count() << m.shift
	if tail := m.size & (1<<m.shift - 1); tail != 0 && m.Has(m.size-1) {
		n -= 1<<m.shift - tail
	}
	return n
}

// Empty reports whether nothing is marked.
func (m *Map) Empty() bool {
	for i := range m.words {
		if atomic.LoadUint64(&m.words[i]) != 0 {
			return false
		}
	}
	return true
}

// Swap takes the marks, as a map of its own, and clears them here.
func (m *Map) Swap() *Map {
	old := &Map{size: m.size, shift: m.shift, words: make([]uint64, len(m.words))}
	for i := range m.words {
		// Most words are zero most of the time, and a plain load does not take
		// the cache line away from a writer.
		if atomic.LoadUint64(&m.words[i]) != 0 {
			old.words[i] = atomic.SwapUint64(&m.words[i], 0)
		}
	}
	return old
}

// Merge adds the marks of o, which must be of the same shape.
func (m *Map) Merge(o *Map) error {
	if m.size != o.size || m.shift != o.shift {
		return fmt.Errorf("blockmap: a map of %d bytes in clusters of %d cannot take in one of %d bytes in clusters of %d",
			m.size, m.Cluster(), o.size, o.Cluster())
	}
	for i := range o.words {
		if set := atomic.LoadUint64(&o.words[i]); set != 0 {
			atomic.OrUint64(&m.words[i], set)
		}
	}
	return nil
}

// MarkWithin marks every cluster that lies whole within the bytes from off to
// off+n. The last cluster of the image is whole where the image ends.
func (m *Map) MarkWithin(off, n int64) {
	if off < 0 || n <= 0 || off >= m.size {
		return
	}
	end := off + n
	if end >= m.size || end < off {
		end = m.Clusters() << m.shift
	}
	first, last := (off+1<<m.shift-1)>>m.shift, end>>m.shift-1
	if first <= last {
		m.markClusters(first, last)
	}
}

// Subtract takes back here every mark that o has, which must be of the same shape.
func (m *Map) Subtract(o *Map) error {
	if m.size != o.size || m.shift != o.shift {
		return fmt.Errorf("blockmap: one of %d bytes in clusters of %d cannot be taken from a map of %d bytes in clusters of %d",
			o.size, o.Cluster(), m.size, m.Cluster())
	}
	for i := range o.words {
		if set := atomic.LoadUint64(&o.words[i]); set != 0 {
			atomic.AndUint64(&m.words[i], ^set)
		}
	}
	return nil
}

// Runs walks the marked clusters as (offset, length) in bytes, in ascending
// order. Adjacent clusters are joined as long as a run has at most limit bytes;
// a limit below one cluster means one cluster a run, and a limit of zero or
// less means no limit. The last run is cut at the end of the image.
func (m *Map) Runs(limit int64) iter.Seq2[int64, int64] {
	longest := limit >> m.shift
	switch {
	case limit <= 0:
		longest = m.Clusters()
	case longest == 0:
		longest = 1
	}
	return func(yield func(off, n int64) bool) {
		start, length := int64(0), int64(0) // the open run, in clusters
		emit := func() bool {
			off, end := start<<m.shift, (start+length)<<m.shift
			return yield(off, min(end, m.size)-off)
		}
		for w := range m.words {
			set := atomic.LoadUint64(&m.words[w])
			for set != 0 {
				// The next stretch of ones in this word.
				first := bits.TrailingZeros64(set)
				n := bits.TrailingZeros64(^(set >> first))
				if n == 64-first {
					set = 0
				} else {
					set &= ^uint64(0) << (first + n)
				}
				c, left := int64(w)*64+int64(first), int64(n)
				if length > 0 && start+length != c {
					if !emit() {
						return
					}
					length = 0
				}
				for left > 0 {
					if length == 0 {
						start = c
					}
					take := min(left, longest-length)
					length, c, left = length+take, c+take, left-take
					if length == longest {
						if !emit() {
							return
						}
						length = 0
					}
				}
			}
		}
		if length > 0 {
			emit()
		}
	}
}
