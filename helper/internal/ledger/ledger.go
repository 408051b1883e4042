// Package ledger remembers the content of each cluster of a volume when it was last
// sent, or last written: a digest, made on the way and not by reading anything again.
// A comparison of both sides' ledgers says in the end whether the sent data were all
// written, and if not, which cluster differs.
//
// The digest of a cluster is its XXH3, 64 bits; of one that is all zeroes, or was
// never noted, it is 0. It is there against damage, in memory, on the way or by a
// mistake of ours, and not against an enemy: the peer's identity is TLS's matter.
//
// The sum of a range is over the digests of its clusters and their places, and is
// kept up to date as digests are noted, so that the sum of the whole volume costs
// nothing at the moment when it is asked for, which is in the pause.
//
// A ledger takes memory only where a volume holds something, and never more than a
// fixed amount: the rest lies in a file that has no name any more.
package ledger

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/zeebo/xxh3"
)

const (
	// pageClusters is how many digests are kept together.
	pageClusters = 512
	pageBytes    = 8 * pageClusters
	// DefaultPages is how many pages are in memory at a time, where New is not
	// told another number: 8 MiB, the digests of 64 GiB in clusters of 64 KiB.
	DefaultPages = 2048
)

// Sum stands for the digests of a range. Equal sums, equal ranges.
type Sum struct{ Hi, Lo uint64 }

func (s Sum) String() string { return fmt.Sprintf("%016x%016x", s.Hi, s.Lo) }

func (s *Sum) add(o Sum) { s.Hi, s.Lo = s.Hi+o.Hi, s.Lo+o.Lo }
func (s *Sum) sub(o Sum) { s.Hi, s.Lo = s.Hi-o.Hi, s.Lo-o.Lo }

// term is one digest's part of a sum. A cluster of zeroes adds nothing.
func term(cluster int64, digest uint64) Sum {
	if digest == 0 {
		return Sum{}
	}
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:], uint64(cluster))
	binary.LittleEndian.PutUint64(b[8:], digest)
	h := xxh3.Hash128(b[:])
	return Sum{h.Hi, h.Lo}
}

// Digest is a cluster's digest, if it is not all zeroes.
func Digest(data []byte) uint64 {
	// 0 is taken. That one digest in 2^64 stands for two contents is no worse
	// than the digest itself.
	return max(xxh3.Hash(data), 1)
}

// page is the digests of pageClusters clusters that follow each other.
type page struct {
	digests [pageClusters]uint64
	number  int64
	dirty   bool // differs from the file's content
	used    bool // since the search for one to put away last came by
}

// Ledger is the digests of one volume. Any number of goroutines may use it.
type Ledger struct {
	size    int64
	cluster int
	most    int
	dir     string

	mu    sync.Mutex
	total Sum
	pages map[int64]*page
	ring  []*page // the same, for the search for one to put away
	hand  int
	file  *os.File // made when the first page has to be put away
	holds map[int64]bool
}

// New makes an empty ledger for a volume of size bytes. At most pages of it are
// in memory (DefaultPages if it is 0); the rest goes into a file in dir.
func New(size int64, cluster int, dir string, pages int) *Ledger {
	if pages <= 0 {
		pages = DefaultPages
	}
	return &Ledger{size: size, cluster: cluster, most: pages, dir: dir, pages: map[int64]*page{}, holds: map[int64]bool{}}
}

// Clusters is how many clusters the volume has.
func (l *Ledger) Clusters() int64 { return (l.size + int64(l.cluster) - 1) / int64(l.cluster) }

// Offset is where a cluster begins.
func (l *Ledger) Offset(cluster int64) int64 { return cluster * int64(l.cluster) }

// span says which clusters a range is, which has to be whole ones.
func (l *Ledger) span(off, n int64) (first, end int64, err error) {
	c := int64(l.cluster)
	if off < 0 || n < 0 || off > l.size || n > l.size-off || off%c != 0 || n%c != 0 && off+n != l.size {
		return 0, 0, fmt.Errorf("ledger: the range at %d, length %d, is not of whole clusters (%d bytes, the volume has %d)", off, n, l.cluster, l.size)
	}
	return off / c, (off + n + c - 1) / c, nil
}

// Note notes the new content of the clusters from off on.
func (l *Ledger) Note(off int64, data []byte) error {
	first, end, err := l.span(off, int64(len(data)))
	if err != nil {
		return err
	}
	var few [16]uint64
	digests := few[:0]
	for len(data) > 0 {
		n := min(l.cluster, len(data))
		digests = append(digests, Digest(data[:n]))
		data = data[n:]
	}
	return l.set(first, end, digests)
}

// NoteZero notes that the clusters in a range hold zeroes now.
func (l *Ledger) NoteZero(off, n int64) error {
	first, end, err := l.span(off, n)
	if err != nil {
		return err
	}
	return l.set(first, end, nil)
}

// set sets the digests of clusters; nil is zeroes.
func (l *Ledger) set(first, end int64, digests []uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := first; c < end; {
		next := min((c/pageClusters+1)*pageClusters, end)
		p, err := l.page(c/pageClusters, digests != nil)
		if err != nil {
			return err
		}
		for ; p != nil && c < next; c++ {
			var d uint64
			if digests != nil {
				d = digests[c-first]
			}
			if at := &p.digests[c%pageClusters]; *at != d {
				l.total.sub(term(c, *at))
				l.total.add(term(c, d))
				*at, p.dirty = d, true
			}
		}
		c = next
	}
	return nil
}

// page brings a page into memory. One that holds nothing is made only if it is to
// be, and is nil otherwise.
func (l *Ledger) page(number int64, make bool) (*page, error) {
	if p := l.pages[number]; p != nil {
		p.used = true
		return p, nil
	}
	if !make && !l.holds[number] {
		return nil, nil
	}
	p := &page{}
	if len(l.ring) < l.most {
		l.ring = append(l.ring, p)
	} else {
		var err error
		if p, err = l.putAway(); err != nil {
			return nil, err
		}
	}
	*p = page{number: number, used: true}
	if l.holds[number] {
		if err := l.load(p); err != nil {
			return nil, err
		}
	}
	l.pages[number] = p
	return p, nil
}

// putAway writes a page that was not used lately into the file, and returns its
// memory.
func (l *Ledger) putAway() (*page, error) {
	for {
		p := l.ring[l.hand]
		if p.used {
			p.used = false
			l.hand = (l.hand + 1) % len(l.ring)
			continue
		}
		if p.dirty {
			if err := l.store(p); err != nil {
				return nil, err
			}
			l.holds[p.number] = true
		}
		l.hand = (l.hand + 1) % len(l.ring)
		delete(l.pages, p.number)
		return p, nil
	}
}

func (l *Ledger) store(p *page) error {
	if l.file == nil {
		f, err := os.CreateTemp(l.dir, "ledger")
		if err != nil {
			return fmt.Errorf("ledger: %w", err)
		}
		if err := os.Remove(f.Name()); err != nil {
			f.Close()
			return fmt.Errorf("ledger: %w", err)
		}
		l.file = f
	}
	var b [pageBytes]byte
	for i, d := range p.digests {
		binary.LittleEndian.PutUint64(b[8*i:], d)
	}
	if _, err := l.file.WriteAt(b[:], p.number*pageBytes); err != nil {
		return fmt.Errorf("ledger: in %s: %w", l.dir, err)
	}
	return nil
}

func (l *Ledger) load(p *page) error {
	var b [pageBytes]byte
	if _, err := l.file.ReadAt(b[:], p.number*pageBytes); err != nil {
		return fmt.Errorf("ledger: in %s: %w", l.dir, err)
	}
	for i := range p.digests {
		p.digests[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	return nil
}

// Holds reports whether the cluster at an offset has this digest; 0 is that of
// zeroes.
func (l *Ledger) Holds(off int64, digest uint64) (bool, error) {
	c := off / int64(l.cluster)
	if off < 0 || off%int64(l.cluster) != 0 || c >= l.Clusters() {
		return false, fmt.Errorf("ledger: no cluster of a volume of %d begins at %d", l.Clusters(), off)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	p, err := l.page(c/pageClusters, false)
	if err != nil {
		return false, err
	}
	var d uint64
	if p != nil {
		d = p.digests[c%pageClusters]
	}
	return d == digest, nil
}

// Total is the sum of the whole volume.
func (l *Ledger) Total() Sum {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total
}

// Sum is the sum of the clusters from first up to, and without, end.
func (l *Ledger) Sum(first, end int64) (Sum, error) {
	var s Sum
	if first < 0 || first > end || end > l.Clusters() {
		return s, fmt.Errorf("ledger: there are no clusters %d to %d in a volume of %d", first, end, l.Clusters())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := first; c < end; {
		next := min((c/pageClusters+1)*pageClusters, end)
		p, err := l.page(c/pageClusters, false)
		if err != nil {
			return s, err
		}
		for ; p != nil && c < next; c++ {
			s.add(term(c, p.digests[c%pageClusters]))
		}
		c = next
	}
	return s, nil
}

// Check reads the volume and returns the offset of the first cluster that differs
// from its note, and whether there is one.
func (l *Ledger) Check(r io.ReaderAt) (off int64, differs bool, err error) {
	buf, zero := make([]byte, l.cluster), make([]byte, l.cluster)
	for c := range l.Clusters() {
		off := l.Offset(c)
		b := buf[:min(int64(l.cluster), l.size-off)]
		if n, err := r.ReadAt(b, off); n < len(b) {
			return 0, false, fmt.Errorf("ledger: reading at offset %d: %w", off, err)
		}
		var want Sum
		if string(b) != string(zero[:len(b)]) {
			want = term(c, Digest(b))
		}
		if got, err := l.Sum(c, c+1); err != nil || got != want {
			return off, err == nil, err
		}
	}
	return 0, false, nil
}

// Close lets the file go. The ledger cannot be used afterwards.
func (l *Ledger) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}
