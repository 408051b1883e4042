package codec

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/zeebo/xxh3"
)

// Delta, added to a packing: the payload is not the range but its sectors that
// changed since it was sent last.
//
// The payload of a delta frame:
//
//	offset  size  field
//	     0     8  digest of the whole range as it is now (XXH3)
//	     8     4  length of the body before it was packed
//	    12        the body, packed as the other bits of the flags say
//
// The body is a bit for each sector of the range, sector s is bit s%8 of byte
// s/8, and then, in order, the sectors whose bits are set. A sector has 512
// bytes; the last one of a range may be short.
//
// Both sides have to agree on the earlier content. The receiver needs no cache for
// that: its image holds the data that were sent last. The sender keeps a History: not
// the data, but 64 bits for each sent sector, which reaches 64 times as far. If two
// contents of a sector ever had the same 64 bits, or if the image does not hold the
// sent data, the digest of the whole range tells, and the range is not taken.
const Delta Packing = 0x100

// DeltaName is its name between the two sides.
const DeltaName = "delta"

const (
	sector      = 512
	deltaHeader = 12
)

func sectors(n int) int { return (n + sector - 1) / sector }

// bitmapLen is how many bytes have a bit for each sector of n bytes.
func bitmapLen(n int) int { return (sectors(n) + 7) / 8 }

// worthDelta is the fraction of a cluster that may have changed for a delta to be
// made of it. A cluster that changed more goes whole.
const worthDelta = 3.0 / 8

// DefaultHistory is how many bytes a History takes, where it is not told another
// number: it reaches over 1 GiB.
const DefaultHistory = 16 << 20

// History is the sender's memory of the clusters of one volume that it has sent. It
// is about one connection: after another one has begun it has to begin too. It is
// bounded; when it is full it forgets clusters that were sent once rather than those
// that were sent again. Any number of goroutines may use it, each for other clusters.
type History struct {
	cluster int
	seed    uint64 // secret: two sectors of one hash cannot be made on purpose
	most    int

	mu    sync.Mutex
	slots []slot
	at    map[int64]int // offset of a cluster → its slot
	hand  int
}

// slot is the memory of one cluster.
type slot struct {
	off   int64
	again bool // it was sent more than once since it was last looked at
	sums  []uint64
}

// NewHistory makes a History for a volume with clusters of so many bytes, which
// takes about budget bytes of memory when it is full.
func NewHistory(cluster int, budget int64) (*History, error) {
	var seed [8]byte
	if _, err := rand.Read(seed[:]); err != nil {
		return nil, fmt.Errorf("codec: %w", err)
	}
	const overhead = 64 // of a slot and its place in the index
	most := budget / int64(8*sectors(cluster)+overhead)
	return &History{cluster: cluster, seed: binary.LittleEndian.Uint64(seed[:]), most: max(int(most), 1), at: map[int64]int{}}, nil
}

// forget is for a cluster whose last content is not remembered.
func (h *History) forget(off int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i, ok := h.at[off]; ok {
		delete(h.at, off)
		h.slots[i].off, h.slots[i].again = -1, false
	}
}

// skip is for clusters that are sent without being looked at.
func (h *History) skip(off int64, n int) {
	if h == nil {
		return
	}
	for end := off + int64(n); off < end; off += int64(h.cluster) {
		h.forget(off)
	}
}

// changes remembers the cluster at off, and says which of its sectors have
// changed since it was sent last. If it was not, or that is forgotten, known is
// false.
func (h *History) changes(off int64, data []byte, bitmap []byte) (changed int, known bool) {
	var few [128]uint64
	sums := few[:0]
	for i := 0; i < len(data); i += sector {
		sums = append(sums, xxh3.HashSeed(data[i:min(i+sector, len(data))], h.seed))
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	i, known := h.at[off]
	if !known {
		i = h.place()
		h.slots[i].off = off
		h.at[off] = i
	}
	s := &h.slots[i]
	if known {
		s.again = true
		for n, sum := range sums {
			if s.sums[n] != sum {
				changed += min(sector, len(data)-n*sector)
				bitmap[n/8] |= 1 << (n % 8)
			}
		}
	}
	s.sums = append(s.sums[:0], sums...)
	return changed, known
}

// place finds a slot: a new one, or that of a cluster that is forgotten for it.
func (h *History) place() int {
	if len(h.slots) < h.most {
		h.slots = append(h.slots, slot{sums: make([]uint64, 0, sectors(h.cluster))})
		return len(h.slots) - 1
	}
	for {
		i := h.hand
		s := &h.slots[i]
		h.hand = (h.hand + 1) % len(h.slots)
		if s.again {
			s.again = false
			continue
		}
		delete(h.at, s.off)
		return i
	}
}

// appendDelta makes a delta's header and body of a range and its bitmap.
func appendDelta(out, data, bitmap []byte) []byte {
	out = binary.LittleEndian.AppendUint64(out, xxh3.Hash(data))
	length := len(out)
	out = append(out, 0, 0, 0, 0)
	body := len(out)
	out = append(out, bitmap...)
	for s := range sectors(len(data)) {
		if bitmap[s/8]&(1<<(s%8)) != 0 {
			out = append(out, data[s*sector:min((s+1)*sector, len(data))]...)
		}
	}
	binary.LittleEndian.PutUint32(out[length:], uint32(len(out)-body))
	return out
}

// packDelta packs a delta's body, and leaves the header as it is.
func packDelta(room, delta []byte, p Packing) ([]byte, Packing) {
	if len(room) < deltaHeader {
		return delta, Plain | Delta
	}
	body, how := Pack(room[deltaHeader:], delta[deltaHeader:], p)
	if how == Plain {
		return delta, Plain | Delta
	}
	copy(room, delta[:deltaHeader])
	return room[:deltaHeader+len(body)], how | Delta
}

// Range is a part of an image, from its beginning.
type Range struct{ Off, Len int }

// Patch changes data, the earlier content, into the new content by the delta, and
// returns the changed parts, in order. room is memory for the body; it is made larger
// where it does not do, and returned.
func Patch(data, payload []byte, p Packing, room []byte) (changed []Range, _ []byte, err error) {
	if p&Delta == 0 || len(payload) < deltaHeader {
		return nil, room, fmt.Errorf("codec: a delta of %d bytes has no header", len(payload))
	}
	digest, length := binary.LittleEndian.Uint64(payload), int(binary.LittleEndian.Uint32(payload[8:]))
	bits := bitmapLen(len(data))
	// No memory is taken on its word: a body is never longer than the range and its bits.
	if length < bits || length > bits+len(data) {
		return nil, room, fmt.Errorf("codec: a delta for %d bytes says that it has %d", len(data), length)
	}
	if len(room) < length {
		room = make([]byte, length)
	}
	body := room[:length]
	if err := Unpack(body, payload[deltaHeader:], p&^Delta); err != nil {
		return nil, room, err
	}
	bitmap, rest := body[:bits], body[bits:]
	for s := range sectors(len(data)) {
		if bitmap[s/8]&(1<<(s%8)) == 0 {
			continue
		}
		at := s * sector
		n := min(sector, len(data)-at)
		if len(rest) < n {
			return nil, room, fmt.Errorf("codec: a delta for %d bytes ends at sector %d", len(data), s)
		}
		copy(data[at:], rest[:n])
		rest = rest[n:]
		if k := len(changed); k > 0 && changed[k-1].Off+changed[k-1].Len == at {
			changed[k-1].Len += n
		} else {
			changed = append(changed, Range{at, n})
		}
	}
	if len(rest) > 0 {
		return nil, room, fmt.Errorf("codec: a delta for %d bytes has %d bytes too many", len(data), len(rest))
	}
	if xxh3.Hash(data) != digest {
		return nil, room, fmt.Errorf("codec: a delta does not fit what is there: it is not what was sent before")
	}
	return changed, room, nil
}
