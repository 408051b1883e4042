package codec

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/livefleet/handover/helper/internal/wire"
)

func TestIsZero(t *testing.T) {
	for n := range 200 {
		b := make([]byte, n)
		if !IsZero(b) {
			t.Fatalf("%d zeroes are not zero", n)
		}
		for i := range b { // each single byte counts
			b[i] = 0x80
			if IsZero(b) {
				t.Fatalf("byte %d of %d is not zero, and was not seen", i, n)
			}
			b[i] = 0
		}
	}
	b := make([]byte, 1<<16)
	for _, i := range []int{0, 7, 8, 9, 4095, 4096, 65528, 65535} {
		b[i] = 1
		if IsZero(b) {
			t.Errorf("byte %d was not seen", i)
		}
		b[i] = 0
	}
	// The same word over and over is equal to itself one word on.
	for i := range b {
		b[i] = byte(i%8) * 3
	}
	if IsZero(b) {
		t.Error("a repeated word is taken for zeroes")
	}
}

// noise cannot be packed, text can.
func noise(r *rand.Rand, b []byte) {
	var seed [32]byte
	seed[0], seed[1] = byte(r.Uint32()), byte(r.Uint32())
	rand.NewChaCha8(seed).Read(b)
}

func text(r *rand.Rand, b []byte) {
	for i := 0; i < len(b); {
		i += copy(b[i:], fmt.Sprintf("%d commits, %d acknowledged; ", r.IntN(1000), r.IntN(1000)))
	}
}

// The pieces are the run, in order, each of one kind; and what they hold is what
// the run held.
func TestEncode(t *testing.T) {
	const cluster = 4096
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 1))
		run := make([]byte, r.IntN(40*cluster))
		var zero []bool // each cluster
		for off := 0; off < len(run); off += cluster {
			c := run[off:min(off+cluster, len(run))]
			switch r.IntN(4) {
			case 0:
				noise(r, c)
				c[0] |= 1
			case 1:
				text(r, c)
			case 2:
				c[r.IntN(len(c))] = 1
			}
			zero = append(zero, IsZero(c))
		}
		packing := Packing(r.IntN(len(packingNames)))
		room := make([]byte, Room(len(run)))
		if r.IntN(8) == 0 {
			room = nil
		}
		before := bytes.Clone(run)
		var got []byte
		e, err := NewEncoder(packing.String())
		if err != nil {
			t.Fatal(err)
		}
		for i, p := range e.Encode(run, 0, cluster, room, nil) {
			if p.Off != len(got) || p.Len <= 0 {
				t.Fatalf("seed %d: piece at %d, length %d does not follow on %d", seed, p.Off, p.Len, len(got))
			}
			if i > 0 && p.Zero == zero[p.Off/cluster-1] {
				t.Fatalf("seed %d: the piece at %d and the one before are of one kind", seed, p.Off)
			}
			for off := p.Off; off < p.Off+p.Len; off += cluster {
				if zero[off/cluster] != p.Zero {
					t.Fatalf("seed %d: cluster %d is in the wrong piece", seed, off/cluster)
				}
			}
			out := make([]byte, p.Len)
			if !p.Zero {
				if p.Packing != Plain && (p.Packing != packing || room == nil) {
					t.Fatalf("seed %d: packed by %s where %s was asked for", seed, p.Packing, packing)
				}
				if err := Unpack(out, p.Payload, p.Packing); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
			got = append(got, out...)
		}
		if !bytes.Equal(got, run) || !bytes.Equal(run, before) {
			t.Fatalf("seed %d: what comes out is not what went in", seed)
		}
	}
}

// Packing never loses: what it does not make a good deal smaller goes as it is.
func TestPackNeverLoses(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, p := range []Packing{LZ4, Zstd} {
		for _, n := range []int{0, 1, 15, 16, 17, 4096, 1 << 20} {
			src, room := make([]byte, n), make([]byte, Room(n))
			noise(r, src)
			if out, got := Pack(room, src, p); got != Plain || len(out) != n || n > 0 && &out[0] != &src[0] {
				t.Errorf("%s: %d bytes of noise became %d bytes of %s", p, n, len(out), got)
			}
			text(r, src)
			out, got := Pack(room, src, p)
			if len(out) > n-n/gain && got != Plain || n >= 4096 && (got != p || len(out) > n/2) {
				t.Errorf("%s: %d bytes of text became %d bytes of %s", p, n, len(out), got)
			}
		}
	}
}

// A payload that does not hold what its frame says is an error, also one that
// holds a thousand times as much, and no memory is taken for it.
func TestUnpackRefuses(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 1))
	whole := make([]byte, 1<<16)
	text(r, whole)
	bomb, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	packed := map[Packing][]byte{}
	for _, p := range []Packing{LZ4, Zstd} {
		out, got := Pack(make([]byte, Room(len(whole))), whole, p)
		if got != p {
			t.Fatal(p)
		}
		packed[p] = out
	}
	for _, c := range []struct {
		name    string
		payload []byte
		p       Packing
		length  int
		text    string
	}{
		{"unknown", whole, 77, len(whole), "packs in a way that this side does not know (77): install the same pcopy on both hosts"},
		{"plain, short", whole[1:], Plain, len(whole), "holds 65535 bytes and should hold 65536"},
		{"plain, long", whole, Plain, len(whole) - 1, "holds 65536 bytes and should hold 65535"},
		{"lz4, too much", packed[LZ4], LZ4, len(whole) - 1, "packed by lz4, cannot be unpacked"},
		{"lz4, too little", packed[LZ4], LZ4, len(whole) + 1, "holds 65536 bytes and should hold 65537"},
		{"lz4, cut", packed[LZ4][:len(packed[LZ4])/2], LZ4, len(whole), "lz4"},
		{"lz4, nothing", nil, LZ4, len(whole), "lz4"},
		{"zstd, too much", packed[Zstd], Zstd, len(whole) - 1, "packed by zstd, cannot be unpacked"},
		{"zstd, too little", packed[Zstd], Zstd, len(whole) + 1, "holds 65536 bytes and should hold 65537"},
		{"zstd, cut", packed[Zstd][:len(packed[Zstd])/2], Zstd, len(whole), "cannot be unpacked"},
		{"zstd, nothing", nil, Zstd, len(whole), "holds 0 bytes"},
		{"zstd, noise", whole, Zstd, len(whole), "cannot be unpacked"},
		{"a bomb", bomb.EncodeAll(make([]byte, 64<<20), nil), Zstd, 4096, "cannot be unpacked"},
		{"a bomb for the most there is", bomb.EncodeAll(make([]byte, 64<<20), nil), Zstd, wire.MaxPayload, "cannot be unpacked"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dst := make([]byte, c.length)
			if err := Unpack(dst, c.payload, c.p); err == nil || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%v; should say %q", err, c.text)
			}
			if taken := testing.AllocsPerRun(3, func() { _ = Unpack(dst, c.payload, c.p) }); taken > 20 {
				t.Errorf("%v allocations", taken)
			}
		})
	}
}

func FuzzUnpack(f *testing.F) {
	r := rand.New(rand.NewPCG(3, 1))
	whole := make([]byte, 4096)
	text(r, whole)
	for p := range packingNames {
		out, got := Pack(make([]byte, Room(len(whole))), whole, Packing(p))
		f.Add(out, uint16(got), len(whole))
		f.Add(out[:len(out)/2], uint16(got), len(whole))
		f.Add(out, uint16(got), 17)
	}
	f.Fuzz(func(t *testing.T, payload []byte, p uint16, length int) {
		if length < 0 || length > 1<<16 {
			return
		}
		// Memory behind what may be filled must stay as it is.
		dst := bytes.Repeat([]byte{0xa5}, length+64)
		_ = Unpack(dst[:length], payload, Packing(p))
		if !bytes.Equal(dst[length:], bytes.Repeat([]byte{0xa5}, 64)) {
			t.Error("written past the end")
		}
	})
}

func BenchmarkIsZero(b *testing.B) {
	buf := make([]byte, 64<<10)
	b.SetBytes(int64(len(buf)))
	for b.Loop() {
		if !IsZero(buf) {
			b.Fatal("not zero")
		}
	}
}
