package codec

import (
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"github.com/livefleet/handover/helper/internal/wire"
)

// Packing says how a payload was made.
type Packing uint16

// The ways to pack.
const (
	Plain Packing = iota // as it is
	LZ4                  // one LZ4 block
	Zstd                 // Zstandard
)

// packingNames are the names of the methods, in specs and between the two sides.
var packingNames = [...]string{Plain: "none", LZ4: "lz4", Zstd: "zstd"}

func (p Packing) String() string {
	switch {
	case p&Delta != 0:
		return DeltaName + ", " + (p &^ Delta).String()
	case int(p) < len(packingNames):
		return packingNames[p]
	}
	return fmt.Sprintf("packing %d", uint16(p))
}

// Understood lists the methods that this side understands, for the other one.
func Understood() []string { return append(slices.Clone(packingNames[:]), DeltaName) }

// gain is how much packing has to make of a piece, at least, as a part of its
// length: less is not worth the other side's work.
const gain = 16

// Room is the memory that packing n bytes may want: data that cannot be packed become
// a little longer before that is seen.
func Room(n int) int { return n + 1<<10 }

// zstdEncoder makes blocks at the quickest of zstd's levels: the next one packs a
// few percent better and takes half as long again.
var zstdEncoder = sync.OnceValue(func() *zstd.Encoder {
	e, err := zstd.NewWriter(nil,
		zstd.WithEncoderLevel(zstd.SpeedFastest),
		zstd.WithEncoderConcurrency(runtime.GOMAXPROCS(0)),
		zstd.WithWindowSize(1<<20),
		zstd.WithLowerEncoderMem(true),
		zstd.WithEncoderCRC(false)) // frames have a sum of their own
	if err != nil {
		panic(err) // an option that is never right
	}
	return e
})

var zstdDecoder = sync.OnceValue(func() *zstd.Decoder {
	d, err := zstd.NewReader(nil,
		zstd.WithDecoderConcurrency(runtime.GOMAXPROCS(0)),
		zstd.WithDecodeAllCapLimit(true), // never more than we have room for
		zstd.WithDecoderMaxMemory(wire.MaxPayload),
		zstd.WithDecoderMaxWindow(wire.MaxPayload))
	if err != nil {
		panic(err)
	}
	return d
})

// Pack packs src into room and returns the result and its method: src itself if that
// is best, or if room has less than Room(len(src)) bytes.
func Pack(room, src []byte, p Packing) ([]byte, Packing) {
	worth := len(src) - len(src)/gain
	if p == Plain || len(room) < Room(len(src)) || worth >= len(src) {
		return src, Plain
	}
	switch p {
	case LZ4:
		// It gives up if the room does not suffice.
		if n, err := lz4.CompressBlock(src, room[:worth], nil); err == nil && n > 0 {
			return room[:n], LZ4
		}
	case Zstd:
		if out := zstdEncoder().EncodeAll(src, room[:0]); len(out) <= worth {
			return out, Zstd
		}
	}
	return src, Plain
}

// Unpack fills dst with the data that src was made from. Anything but exactly
// len(dst) bytes is an error.
func Unpack(dst, src []byte, p Packing) error {
	n := 0
	var err error
	switch p {
	case Plain:
		if n = len(src); n == len(dst) {
			copy(dst, src)
		}
	case LZ4:
		n, err = lz4.UncompressBlock(src, dst)
	case Zstd:
		var out []byte
		out, err = zstdDecoder().DecodeAll(src, dst[:0:len(dst)])
		n = len(out)
	default:
		return fmt.Errorf("codec: the other side packs in a way that this side does not know (%d): install the same pcopy on both hosts", uint16(p))
	}
	if err != nil {
		return fmt.Errorf("codec: a payload of %d bytes, packed by %s, cannot be unpacked: %w", len(src), p, err)
	}
	if n != len(dst) {
		return fmt.Errorf("codec: a payload of %d bytes, packed by %s, holds %d bytes and should hold %d", len(src), p, n, len(dst))
	}
	return nil
}
