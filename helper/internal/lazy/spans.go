package lazy

import "slices"

// span is a range of addresses whose pages have not come. It may have been moved
// since the dump: from is where it begins on the source.
type span struct{ start, end, from uint64 }

func (s span) size() uint64 { return s.end - s.start }

// part is the part of it that lies within a range.
func (s span) part(start, end uint64) (span, bool) {
	start, end = max(s.start, start), min(s.end, end)
	return span{start, end, s.from + start - s.start}, start < end
}

// spans are in ascending order, and none overlaps another.
type spans []span

// at finds the span that has an address.
func (s spans) at(address uint64) (span, bool) {
	i := slices.IndexFunc(s, func(x span) bool { return address >= x.start && address < x.end })
	if i < 0 {
		return span{}, false
	}
	return s[i], true
}

// cut removes a range, and returns the spans that were in it.
func (s *spans) cut(start, end uint64) (cut spans) {
	kept := make(spans, 0, len(*s)+1)
	for _, x := range *s {
		mid, some := x.part(start, end)
		if !some {
			kept = append(kept, x)
			continue
		}
		cut = append(cut, mid)
		if before, some := x.part(x.start, mid.start); some {
			kept = append(kept, before)
		}
		if after, some := x.part(mid.end, x.end); some {
			kept = append(kept, after)
		}
	}
	*s = kept
	return cut
}

// add takes up spans where there are none.
func (s *spans) add(more ...span) {
	*s = append(*s, more...)
	slices.SortFunc(*s, func(a, b span) int {
		if a.start < b.start {
			return -1
		}
		return 1
	})
}

// move follows mremap: the spans in the target are gone.
func (s *spans) move(from, to, size uint64) {
	moved := s.cut(from, from+size)
	s.cut(to, to+size)
	for _, x := range moved {
		s.add(span{x.start - from + to, x.end - from + to, x.from})
	}
}

func (s spans) bytes() (n uint64) {
	for _, x := range s {
		n += x.size()
	}
	return n
}
