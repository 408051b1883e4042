package precopy

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/zeebo/xxh3"
)

// A program mostly writes to a few places of a page. So a Known may remember which version of
// each page the stock holds, and digests of the blocks of that (WithVersions). Then of a page
// that has changed since only the blocks that differ travel (EncodeAt), and the other side
// puts them over the version that it has. As ever the piece's own digest tells whether the
// outcome is right.

const (
	// blockSize is the unit in which a page differs from its earlier version.
	blockSize = 256
	blocks    = PageSize / blockSize
	// mostBlocks may differ: more of them are no smaller than the page.
	mostBlocks = blocks - 2
	// maskSize is before the blocks of each page: one bit for each block of the page.
	maskSize = blocks / 8
)

// versions are the pages of which the stock has a version. None remember nothing.
type versions struct {
	sums [][blocks]uint64            // of the pages in the stock, in their order
	last map[string]map[uint64]int64 // by the task and the address: its last version's place
}

// WithVersions has it remember. It is called before anything is added.
func (k *Known) WithVersions() *Known {
	k.versions = &versions{last: map[string]map[uint64]int64{}}
	return k
}

// note takes up a page that is added to the stock.
func (v *versions) note(page []byte, seed uint64) {
	if v != nil {
		v.sums = append(v.sums, blockSums(page, seed))
	}
}

func blockSums(page []byte, seed uint64) (sums [blocks]uint64) {
	for i := range sums {
		sums[i] = xxh3.HashSeed(page[i*blockSize:(i+1)*blockSize], seed)
	}
	return sums
}

// AddAt is Add for a page of a task, which is known by any name.
func (k *Known) AddAt(task string, at uint64, page []byte) (fresh bool) {
	pos, fresh := k.Add(page)
	if k.versions != nil {
		own := k.last[task]
		if own == nil {
			own = map[uint64]int64{}
			k.last[task] = own
		}
		own[at] = pos
	}
	return fresh
}

// older is the place that a run of mended pages is about, and the other way round: numbers
// below that of a literal run.
func older(pos int64) int64 { return literal - 1 - pos }

// EncodeAt is Encode for a task's pages at an address. It tells how many bytes of them are in
// the piece.
func (k *Known) EncodeAt(task string, b, data []byte, at uint64) (piece []byte, literals int) {
	if k.versions == nil {
		return k.Encode(b, data, int64(at))
	}
	var runs []run
	var masks [PieceSize / PageSize]uint16 // of the mended pages
	own, next := k.last[task], int64(0)
	for i := 0; i < len(data); i += PageSize {
		page := data[i : i+PageSize]
		version, had := own[at+uint64(i)]
		if had {
			next = version
		}
		pos, same := k.find(xxh3.Hash128Seed(page, k.seed), next)
		switch {
		case same:
		case had:
			pos, masks[i/PageSize] = k.differs(page, version)
		default:
			pos = literal
		}
		if runs = join(runs, run{PageSize, pos}); pos > literal {
			next = pos
		}
		next += PageSize
	}
	b = head(b, data, int64(at), runs)
	begin := len(b)
	for i, n := 0, 0; n < len(runs); n++ {
		for end := i + runs[n].length; i < end; i += PageSize {
			if page := data[i : i+PageSize]; runs[n].at == literal {
				b = append(b, page...)
			} else if runs[n].at < literal {
				b = appendBlocks(b, page, masks[i/PageSize])
			}
		}
	}
	return b, len(b) - begin
}

// differs says which blocks of a page differ from its version in the stock, and how the page's
// run is told: as a literal if too many do.
func (k *Known) differs(page []byte, version int64) (at int64, mask uint16) {
	sums := &k.versions.sums[version/PageSize]
	for i := range sums {
		if xxh3.HashSeed(page[i*blockSize:(i+1)*blockSize], k.seed) != sums[i] {
			mask |= 1 << i
		}
	}
	if bits.OnesCount16(mask) > mostBlocks {
		return literal, 0
	}
	return older(version), mask
}

func appendBlocks(b, page []byte, mask uint16) []byte {
	b = binary.LittleEndian.AppendUint16(b, mask)
	for i := range blocks {
		if mask&(1<<i) != 0 {
			b = append(b, page[i*blockSize:(i+1)*blockSize]...)
		}
	}
	return b
}

// mend gives pages whose earlier version lies in the stock, each with its blocks put over that. It
// returns the rest of the piece. A page is valid until the next one.
func (s *Stock) mend(at, length int64, rest []byte, do func(content []byte, known bool)) ([]byte, error) {
	known, err := s.slice(at, length)
	if err != nil {
		return nil, err
	}
	if length%PageSize != 0 {
		return nil, fmt.Errorf("precopy: a piece mends %d bytes, which are no whole pages", length)
	}
	var page [PageSize]byte
	for ; len(known) > 0; known = known[PageSize:] {
		if len(rest) < maskSize {
			return nil, fmt.Errorf("precopy: a piece ends before the blocks of a page")
		}
		mask := binary.LittleEndian.Uint16(rest)
		if rest = rest[maskSize:]; len(rest) < bits.OnesCount16(mask)*blockSize {
			return nil, fmt.Errorf("precopy: a piece ends in the blocks of a page")
		}
		copy(page[:], known)
		for i := range blocks {
			if mask&(1<<i) != 0 {
				copy(page[i*blockSize:(i+1)*blockSize], rest)
				rest = rest[blockSize:]
			}
		}
		do(page[:], false)
	}
	return rest, nil
}
