// Package precopy carries a workload's memory ahead: most of it goes to the
// destination while the workload runs, and only the dump's changes since then follow
// in the pause.
//
// It needs nothing of the kernel that tells which pages were written (soft-dirty is
// off in many), and nothing of CRIU: pages are identified by their content.
//
//   - While the workload runs, a Scan reads the pages of its tasks, and those with
//     new content are sent. The destination keeps them, one after the other, in its
//     Stock; the source notes in Known which content lies where in there.
//   - In the pause CRIU writes page files. They are sent while they grow, piece by
//     piece: of a page that is known only its place in the stock.
//   - A piece carries a digest of all that it stands for, with another seed than the
//     one by which pages are told apart. The destination checks the piece it has put
//     together against that digest: a page that was taken for another one ends the
//     session before anything is released.
//
// A page that changed is not overwritten in the stock, its new content is added; so
// Known never becomes wrong, however old it is, and a scan may run beside the
// workload without stopping it.
package precopy

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/zeebo/xxh3"
)

// PageSize is the unit in which content is identified.
const PageSize = 4 << 10

// PieceSize is the most that one piece stands for.
const PieceSize = 1 << 20

// Known is the content of the other side's stock.
type Known struct {
	seed uint64
	at   map[xxh3.Uint128]int64
	sums []xxh3.Uint128 // of the pages in the stock, in their order
	*versions
}

// NewKnown begins with an empty stock. The seed is a secret: a program that can
// choose the content of pages must not be able to make two of them look alike.
func NewKnown(seed uint64) *Known { return &Known{seed: seed, at: map[xxh3.Uint128]int64{}} }

// Size is how large the stock is.
func (k *Known) Size() int64 { return int64(len(k.sums)) * PageSize }

// find says where a page's content lies. Pages that are neighbours in a task are mostly
// neighbours in the stock, too, so next is looked at first: the place behind the last one.
// A content is in the stock once, so that both ways lead to the same place.
func (k *Known) find(sum xxh3.Uint128, next int64) (pos int64, ok bool) {
	if i := next / PageSize; i < int64(len(k.sums)) && k.sums[i] == sum {
		return next, true
	}
	pos, ok = k.at[sum]
	return pos, ok
}

// Has says whether a page's content is among them.
func (k *Known) Has(page []byte) bool {
	_, ok := k.at[xxh3.Hash128Seed(page, k.seed)]
	return ok
}

// Add notes a page that is about to be added to the stock. It says where it will lie
// there, and whether it is new: one that is not does not have to be sent.
func (k *Known) Add(page []byte) (pos int64, fresh bool) {
	sum := xxh3.Hash128Seed(page, k.seed)
	if pos, ok := k.at[sum]; ok {
		return pos, false
	}
	pos = k.Size()
	k.at[sum] = pos
	k.sums = append(k.sums, sum)
	k.versions.note(page, k.seed)
	return pos, true
}

// literal is the place of a page that the stock does not hold.
const literal = -1

// A piece, all numbers little endian:
//
//	offset  size  field
//	     0    16  digest of its content, and its place
//	    16     8  where it begins in the page file
//	    24     4  the number of runs
//	    28  12 n  runs: length (4), place in the stock, or -1, or see versions (8)
//	     …     …  the pages that are not in the stock, one after the other
const (
	pieceHead = 28
	runSize   = 12
)

// run is a part of a piece: pages that lie in the stock one after the other, or pages that are
// in the piece.
type run struct {
	length int
	at     int64
}

// join adds a run, as a part of the last one if it can.
func join(runs []run, next run) []run {
	if n := len(runs) - 1; n >= 0 {
		last := &runs[n]
		behind := last.at + int64(last.length)
		if last.at < literal {
			behind = last.at - int64(last.length)
		}
		if next.at == literal && last.at == literal || next.at != literal && last.at != literal && (next.at < 0) == (last.at < 0) && next.at == behind {
			last.length += next.length
			return runs
		}
	}
	return append(runs, next)
}

// Encode appends to b the piece for data, which lies at off of a page file. It tells
// how much of it is not in the stock.
func (k *Known) Encode(b, data []byte, off int64) (piece []byte, literals int) {
	var runs []run
	next := int64(0)
	for i := 0; i < len(data); i += PageSize {
		page := data[i:min(i+PageSize, len(data))]
		pos, ok := int64(literal), false
		if len(page) == PageSize {
			pos, ok = k.find(xxh3.Hash128Seed(page, k.seed), next)
		}
		if ok {
			next = pos + PageSize
		} else {
			pos = literal
			next += PageSize // one that has changed since
			literals += len(page)
		}
		runs = join(runs, run{len(page), pos})
	}
	b = head(b, data, off, runs)
	at := 0
	for _, r := range runs {
		if r.at == literal {
			b = append(b, data[at:at+r.length]...)
		}
		at += r.length
	}
	return b, literals
}

// head appends a piece but for the pages in it.
func head(b, data []byte, off int64, runs []run) []byte {
	sum := digest(data, off)
	b = append(b, sum[:]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(off))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(runs)))
	for _, r := range runs {
		b = binary.LittleEndian.AppendUint32(b, uint32(r.length))
		b = binary.LittleEndian.AppendUint64(b, uint64(r.at))
	}
	return b
}

// digest is of a piece's content, and of its place.
func digest(data []byte, off int64) [16]byte { return xxh3.Hash128Seed(data, uint64(off)).Bytes() }

// Piece is one that has come, taken apart.
type Piece struct {
	Off      int64 // where it begins: in the page file, or in a task's memory
	sum      [16]byte
	runs     []byte
	literals []byte
}

// ParsePiece takes a piece apart. Its parts lie in b.
func ParsePiece(b []byte) (p Piece, err error) {
	if len(b) < pieceHead {
		return p, fmt.Errorf("precopy: a piece of %d bytes, which is no piece", len(b))
	}
	p.Off = int64(binary.LittleEndian.Uint64(b[16:]))
	n := int(binary.LittleEndian.Uint32(b[24:]))
	if p.Off < 0 || n > PieceSize/PageSize || len(b)-pieceHead < n*runSize {
		return p, fmt.Errorf("precopy: a piece of %d bytes that says to have %d runs, at %d", len(b), n, p.Off)
	}
	p.sum, p.runs, p.literals = [16]byte(b), b[pieceHead:pieceHead+n*runSize], b[pieceHead+n*runSize:]
	return p, nil
}

// each gives the content of a piece's runs, in their order: known ones lie in the stock,
// the others in the piece.
func (s *Stock) each(p Piece, do func(content []byte, known bool)) error {
	var size int64
	literals := p.literals
	for runs := p.runs; len(runs) > 0; runs = runs[runSize:] {
		length, at := int64(binary.LittleEndian.Uint32(runs)), int64(binary.LittleEndian.Uint64(runs[4:]))
		if size += length; size > PieceSize {
			return fmt.Errorf("precopy: a piece that stands for more than %d bytes", PieceSize)
		}
		switch {
		case at > literal:
			known, err := s.slice(at, length)
			if err != nil {
				return err
			}
			do(known, true)
		case at < literal:
			var err error
			if literals, err = s.mend(older(at), length, literals, do); err != nil {
				return err
			}
		case length > int64(len(literals)):
			return errors.New("precopy: a piece ends before what it says to carry")
		default:
			do(literals[:length], false)
			literals = literals[length:]
		}
	}
	if len(literals) > 0 {
		return fmt.Errorf("precopy: a piece with %d bytes behind its end", len(literals))
	}
	return nil
}

// wrong is the error about a piece whose content is not the source's.
func (p Piece) wrong(of string, length int) error {
	return fmt.Errorf("precopy: %d bytes of the %s at offset %d are not what the source has: a page was taken for another one", length, of, p.Off)
}

// Decode puts together a piece's content, in room if that is large enough, and
// returns its place in the page file.
func (s *Stock) Decode(room, piece []byte) (data []byte, off int64, err error) {
	p, err := ParsePiece(piece)
	if err != nil {
		return nil, 0, err
	}
	data = room[:0]
	if err := s.each(p, func(content []byte, _ bool) { data = append(data, content...) }); err != nil {
		return nil, 0, err
	}
	if digest(data, p.Off) != p.sum {
		return nil, 0, p.wrong("dump", len(data))
	}
	return data, p.Off, nil
}

// Look checks a piece where its content lies, and gives that, in its order, without
// putting it together. Known content stays valid until the stock grows or is closed, and
// the rest as long as the piece.
func (s *Stock) Look(p Piece, give func(content []byte, known bool)) error {
	h, size := xxh3.NewSeed128(uint64(p.Off)), 0
	err := s.each(p, func(content []byte, _ bool) {
		size += len(content)
		_, _ = h.Write(content) // it never fails
	})
	if err != nil {
		return err
	}
	if h.Sum128().Bytes() != p.sum {
		return p.wrong("memory", size)
	}
	return s.each(p, give)
}
