package lazy

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/livefleet/handover/helper/internal/precopy"
)

// Plan is the memory of tasks that has arrived: which content belongs where. Content that
// went ahead stays where it lies in the stock, so the stock has to outlive the plan.
type Plan struct {
	stock *precopy.Stock
	tasks map[uint32][]segment
	bytes uint64
}

// segment is a range of a task's memory, and its content.
type segment struct {
	start uint64
	size  uint64
	data  []byte // nil: zeroes
}

func (s segment) end() uint64 { return s.start + s.size }

// part is the part of it that lies within a range.
func (s segment) part(start, end uint64) segment {
	start, end = max(s.start, start), min(s.end(), end)
	p := segment{start: start, size: end - start}
	if s.data != nil {
		p.data = s.data[start-s.start : end-s.start]
	}
	return p
}

// NewPlan begins with nothing, and a stock that does not grow any more.
func NewPlan(stock *precopy.Stock) *Plan { return &Plan{stock: stock, tasks: map[uint32][]segment{}} }

// zeroPage is what an empty page holds.
var zeroPage = make([]byte, PageSize)

// Add takes up a piece of a task's memory (precopy.Known.Encode), if its digest is right.
func (p *Plan) Add(pid uint32, b []byte) error {
	piece, err := precopy.ParsePiece(b)
	if err != nil {
		return err
	}
	at := uint64(piece.Off)
	if at%PageSize != 0 {
		return fmt.Errorf("lazy: memory of task %d has come for %#x, where no page begins", pid, at)
	}
	return p.stock.Look(piece, func(content []byte, known bool) {
		if !known {
			content = bytes.Clone(content)
		}
		p.put(pid, segment{start: at, size: uint64(len(content)), data: content})
		at += uint64(len(content))
	})
}

// put adds a segment. Empty pages are the only ones that come again and again, and each is
// then a run of its own: they are not copied, and neighbours are one.
func (p *Plan) put(pid uint32, s segment) {
	p.bytes += s.size
	all := p.tasks[pid]
	if s.size == PageSize && bytes.Equal(s.data, zeroPage) {
		s.data = nil
		if n := len(all); n > 0 && all[n-1].data == nil && all[n-1].end() == s.start {
			all[n-1].size += s.size
			return
		}
	}
	p.tasks[pid] = append(all, s)
}

// arrange puts the segments in order, and refuses what came twice.
func (p *Plan) arrange() error {
	for pid, all := range p.tasks {
		slices.SortFunc(all, func(a, b segment) int {
			if a.start < b.start {
				return -1
			}
			return 1
		})
		for i := 1; i < len(all); i++ {
			if all[i].start < all[i-1].end() {
				return fmt.Errorf("lazy: the page at %#x of task %d has come twice", all[i].start, pid)
			}
		}
		for _, s := range all {
			if s.size%PageSize != 0 {
				return fmt.Errorf("lazy: %d bytes have come for %#x of task %d, which are no whole pages", s.size, s.start, pid)
			}
		}
	}
	return nil
}

// jobSize is the most that is placed at once, so that all that place have something to do.
const jobSize = 2 << 20

// cover is the content of a task's missing pages, in jobs, in ascending order. A page
// without content is an error.
func (p *Plan) cover(pid uint32, missing spans) (jobs []segment, err error) {
	all := p.tasks[pid]
	for _, x := range missing {
		at := x.start
		i, _ := slices.BinarySearchFunc(all, at, func(s segment, at uint64) int {
			if s.end() <= at {
				return -1
			}
			return 1
		})
		for ; at < x.end && i < len(all) && all[i].start <= at; i++ {
			part := all[i].part(at, x.end)
			for at = part.end(); part.size > jobSize; part = part.part(part.start+jobSize, part.end()) {
				jobs = append(jobs, part.part(part.start, part.start+jobSize))
			}
			jobs = append(jobs, part)
		}
		if at < x.end {
			return nil, fmt.Errorf("lazy: the page at %#x of task %d is in the dump, and its content has not come", at, pid)
		}
	}
	return jobs, nil
}
