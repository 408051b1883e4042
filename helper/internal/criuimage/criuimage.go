// Package criuimage reads and mends CRIU's images.
//
// An image is two magic numbers of 32 bits, the common one and that of its kind, and
// then entries: the length in 32 bits, and a message in protobuf. All numbers are
// little-endian. Sources: CRIU's include/magic.h and images/*.proto, as of 4.2.
package criuimage

import (
	"encoding/binary"
	"errors"
	"maps"
	"os"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

const (
	commonMagic = 0x54564319
	filesMagic  = 0x56303138
)

// entries splits an image of a kind into its messages.
func entries(b []byte, magic uint32) (found [][]byte, err error) {
	if len(b) < 8 || binary.LittleEndian.Uint32(b) != commonMagic || binary.LittleEndian.Uint32(b[4:]) != magic {
		return nil, errors.New("it does not begin as such an image does")
	}
	for b = b[8:]; len(b) > 0; {
		if len(b) < 4 {
			return nil, errors.New("it ends within a length")
		}
		n := uint64(binary.LittleEndian.Uint32(b))
		if n > uint64(len(b)-4) {
			return nil, errors.New("it ends within an entry")
		}
		found = append(found, b[4:4+n])
		b = b[4+n:]
	}
	return found, nil
}

// image puts messages together again.
func image(messages [][]byte, magic uint32) []byte {
	b := binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, commonMagic), magic)
	for _, m := range messages {
		b = append(binary.LittleEndian.AppendUint32(b, uint32(len(m))), m...)
	}
	return b
}

// replaceFile writes an image in the place of one that is there, with its mode.
func replaceFile(path string, b []byte) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	mended := path + ".mended"
	if err := os.WriteFile(mended, b, info.Mode().Perm()); err != nil {
		return err
	}
	return os.Rename(mended, path)
}

// rewrite gives each field that is bytes, as messages are, to into, and keeps the rest.
func rewrite(b []byte, into func(protowire.Number, []byte) ([]byte, error)) (out []byte, err error) {
	for len(b) > 0 {
		n, t, tag := protowire.ConsumeTag(b)
		if tag < 0 {
			return nil, protowire.ParseError(tag)
		}
		length := protowire.ConsumeFieldValue(n, t, b[tag:])
		if length < 0 {
			return nil, protowire.ParseError(length)
		}
		if t != protowire.BytesType {
			out = append(out, b[:tag+length]...)
		} else {
			value, _ := protowire.ConsumeBytes(b[tag:])
			if value, err = into(n, value); err != nil {
				return nil, err
			}
			out = protowire.AppendBytes(protowire.AppendTag(out, n, t), value)
		}
		b = b[tag+length:]
	}
	return out, nil
}

// varints are the numbers of a message, by field.
func varints(b []byte) (map[protowire.Number]uint64, error) {
	found := map[protowire.Number]uint64{}
	for len(b) > 0 {
		n, t, tag := protowire.ConsumeTag(b)
		if tag < 0 {
			return nil, protowire.ParseError(tag)
		}
		length := protowire.ConsumeFieldValue(n, t, b[tag:])
		if length < 0 {
			return nil, protowire.ParseError(length)
		}
		if t == protowire.VarintType {
			found[n], _ = protowire.ConsumeVarint(b[tag:])
		}
		b = b[tag+length:]
	}
	return found, nil
}

// setVarints is a message with other numbers in some of its fields; those that it lacks
// are added.
func setVarints(b []byte, numbers map[protowire.Number]uint64) (out []byte, err error) {
	found := map[protowire.Number]bool{}
	for len(b) > 0 {
		n, t, tag := protowire.ConsumeTag(b)
		if tag < 0 {
			return nil, protowire.ParseError(tag)
		}
		length := protowire.ConsumeFieldValue(n, t, b[tag:])
		if length < 0 {
			return nil, protowire.ParseError(length)
		}
		if number, ok := numbers[n]; ok && t == protowire.VarintType {
			out = protowire.AppendVarint(protowire.AppendTag(out, n, t), number)
			found[n] = true
		} else {
			out = append(out, b[:tag+length]...)
		}
		b = b[tag+length:]
	}
	for _, n := range slices.Sorted(maps.Keys(numbers)) {
		if !found[n] {
			out = protowire.AppendVarint(protowire.AppendTag(out, n, protowire.VarintType), numbers[n])
		}
	}
	return out, nil
}
