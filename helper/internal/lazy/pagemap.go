package lazy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"google.golang.org/protobuf/encoding/protowire"
)

// Of CRIU's images: a page map begins with two magic numbers; then come messages,
// each behind its length: a head, and an entry for each run of pages.
const (
	magicCommon  = 0x54564319
	magicPagemap = 0x56084025

	// Of an entry (pagemap.proto), and of its flags.
	fieldAddress    protowire.Number = 1
	fieldPagesOld   protowire.Number = 2
	fieldFlags      protowire.Number = 4
	fieldPages      protowire.Number = 5
	flagLazy                         = 1 << 1
	mostPagesOfMaps                  = 1 << 40 / PageSize
)

// readPagemap reads from a dump which pages of a task it left where they were.
func readPagemap(dir string, pid uint32) (spans, error) {
	path := filepath.Join(dir, fmt.Sprintf("pagemap-%d.img", pid))
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("lazy: the dump: %w", err)
	}
	s, err := parsePagemap(b)
	if err != nil {
		return nil, fmt.Errorf("lazy: %s: %w", path, err)
	}
	return s, nil
}

func parsePagemap(b []byte) (found spans, err error) {
	if len(b) < 8 || binary.LittleEndian.Uint32(b) != magicCommon || binary.LittleEndian.Uint32(b[4:]) != magicPagemap {
		return nil, errors.New("it is no page map of CRIU's")
	}
	b = b[8:]
	for first := true; len(b) > 0; first = false {
		if len(b) < 4 || uint64(binary.LittleEndian.Uint32(b)) > uint64(len(b)-4) {
			return nil, errors.New("it ends in the middle of an entry")
		}
		n := binary.LittleEndian.Uint32(b)
		entry := b[4 : 4+n]
		if b = b[4+n:]; first {
			continue // the head
		}
		x, lazy, err := parseEntry(entry)
		if err != nil {
			return nil, err
		}
		if !lazy {
			continue
		}
		if len(found) > 0 && x.start < found[len(found)-1].end {
			return nil, fmt.Errorf("its entries are in no order at %#x", x.start)
		}
		found = append(found, x)
	}
	return found, nil
}

func parseEntry(b []byte) (x span, lazy bool, err error) {
	var pages uint64
	for len(b) > 0 {
		n, t, k := protowire.ConsumeTag(b)
		if k < 0 || t != protowire.VarintType {
			return x, false, errors.New("an entry is damaged")
		}
		v, l := protowire.ConsumeVarint(b[k:])
		if l < 0 {
			return x, false, errors.New("an entry is damaged")
		}
		b = b[k+l:]
		switch n {
		case fieldAddress:
			x.start = v
		case fieldPagesOld:
			if pages == 0 {
				pages = v
			}
		case fieldPages:
			pages = v
		case fieldFlags:
			lazy = v&flagLazy != 0
		}
	}
	if x.start%PageSize != 0 || pages > mostPagesOfMaps || x.start+pages*PageSize < x.start {
		return x, false, fmt.Errorf("an entry has %d pages at %#x", pages, x.start)
	}
	x.end, x.from = x.start+pages*PageSize, x.start
	return x, lazy && pages > 0, nil
}
