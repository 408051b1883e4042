package lazy

import (
	"encoding/binary"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// FuzzParsePagemap: whatever a dump says, what is taken from it are whole pages, in
// order, each run where the one before has ended or later.
func FuzzParsePagemap(f *testing.F) {
	head := binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, magicCommon), magicPagemap)
	entry := protowire.AppendVarint(protowire.AppendTag(nil, fieldAddress, protowire.VarintType), 0x7f0000000000)
	entry = protowire.AppendVarint(protowire.AppendTag(entry, fieldPages, protowire.VarintType), 3)
	entry = protowire.AppendVarint(protowire.AppendTag(entry, fieldFlags, protowire.VarintType), flagLazy)
	whole := append(binary.LittleEndian.AppendUint32(head, 0), binary.LittleEndian.AppendUint32(nil, uint32(len(entry)))...)
	f.Add(append(whole, entry...))
	f.Add(head)
	f.Fuzz(func(t *testing.T, b []byte) {
		found, err := parsePagemap(b)
		if err != nil {
			return
		}
		last := uint64(0)
		for _, x := range found {
			if x.start < last || x.end <= x.start || x.start%PageSize != 0 || x.end%PageSize != 0 || x.from != x.start {
				t.Fatalf("%#x after %#x", x, last)
			}
			last = x.end
		}
	})
}
