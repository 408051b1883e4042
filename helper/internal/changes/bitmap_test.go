package changes

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/livefleet/handover/helper/internal/blockmap"
)

func sample(size int64, cluster int) *Bitmap {
	b := &Bitmap{Map: blockmap.New(size, cluster)}
	for range 20 {
		b.Map.MarkRange(rand.Int64N(size), 1)
	}
	b.Header = Header{
		ID: "00112233445566778899aabbccddeeff", Boot: "12345678-1234-1234-1234-123456789abc", Size: size, Cluster: cluster,
		From: 3, To: 5, Open: true, Taken: time.Unix(1234, 5678).UTC(), Marked: b.Map.Bytes(),
	}
	return b
}

func TestBitmapThereAndBack(t *testing.T) {
	for _, size := range []int64{1, 4096, 64 << 20, 64<<20 + 1} {
		b := sample(size, 4096)
		path := filepath.Join(t.TempDir(), "bitmap")
		if err := WriteBitmap(path, b); err != nil {
			t.Fatal(err)
		}
		got, err := ReadBitmap(path)
		if err != nil {
			t.Fatal(err)
		}
		if got.Header != b.Header {
			t.Errorf("%+v, and it was %+v", got.Header, b.Header)
		}
		for off := int64(0); off < size; off += 4096 {
			if got.Map.Has(off) != b.Map.Has(off) {
				t.Fatalf("the cluster at %d", off)
			}
		}
	}
}

// mend makes the checksums of a changed file right.
func mend(b []byte) []byte {
	le := binary.LittleEndian
	le.PutUint32(b[124:], crc32.Checksum(b[:124], castagnoli))
	le.PutUint32(b[len(b)-4:], crc32.Checksum(b[:len(b)-4], castagnoli))
	return b
}

func TestBadBitmaps(t *testing.T) {
	good, err := sample(1<<20, 4096).Bytes()
	if err != nil {
		t.Fatal(err)
	}
	put := func(at int, v uint64, n int) func([]byte) []byte {
		return func(b []byte) []byte {
			for i := range n {
				b[at+i] = byte(v >> (8 * i))
			}
			return mend(b)
		}
	}
	for text, change := range map[string]func([]byte) []byte{
		"no bitmap of pcopy":     func(b []byte) []byte { return append([]byte("x"), b[1:]...) },
		"is damaged or cut":      func(b []byte) []byte { return b[:len(b)-8] },
		"the header is damaged":  func(b []byte) []byte { b[20]++; return b },
		"the bitmap is damaged":  func(b []byte) []byte { b[130]++; return b },
		"version 2":              put(8, 2, 4),
		"choose a power of two":  put(24, 5000, 4),
		"which is not what":      put(16, 1<<40, 8),
		"speaks of -1 bytes":     put(16, 1<<64-1, 8),
		"does not know":          put(28, 2, 4),
		"clusters behind the":    func(b []byte) []byte { b[16], b[17], b[18] = 0, 0xF0, 0x0F; b[len(b)-5] = 0x80; return mend(b) },
		"that this version does": put(100, 1, 1),
	} {
		b, err := ParseBitmap(change(bytes.Clone(good)))
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%+v, %v; should say %q", b, err, text)
		}
	}
}

func FuzzBitmap(f *testing.F) {
	good, err := sample(1<<20, 4096).Bytes()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:len(good)-9])
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) >= headerSize+4 { // what the fuzzer finds behind a wrong checksum is of no use
			data = mend(bytes.Clone(data))
		}
		b, err := ParseBitmap(data)
		if err != nil {
			return
		}
		again, err := b.Bytes()
		if err != nil || !bytes.Equal(again, data) {
			t.Fatalf("read and written again it is another file: %v", err)
		}
	})
}
