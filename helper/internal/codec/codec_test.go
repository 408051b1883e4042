package codec

import (
	"math/rand/v2"
	"testing"
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

func TestEncode(t *testing.T) {
	const cluster = 4096
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 1))
		run := make([]byte, r.IntN(40*cluster))
		var want []Kind // of each cluster
		for off := 0; off < len(run); off += cluster {
			c := run[off:min(off+cluster, len(run))]
			if r.IntN(2) == 0 {
				c[r.IntN(len(c))] = 1
				want = append(want, Raw)
			} else {
				want = append(want, Zero)
			}
		}
		end := 0
		last := Kind(255)
		for p := range Encode(run, cluster) {
			if p.Off != end || p.Len <= 0 {
				t.Fatalf("seed %d: piece %+v does not follow on %d", seed, p, end)
			}
			if p.Kind == last {
				t.Fatalf("seed %d: piece %+v and the one before are of one kind", seed, p)
			}
			for off := p.Off; off < p.Off+p.Len; off += cluster {
				if want[off/cluster] != p.Kind {
					t.Fatalf("seed %d: cluster %d is in %+v", seed, off/cluster, p)
				}
			}
			end, last = p.Off+p.Len, p.Kind
		}
		if end != len(run) {
			t.Fatalf("seed %d: the pieces end at %d of %d", seed, end, len(run))
		}
	}
	for range Encode(make([]byte, 3*cluster), cluster) {
		break // a walk may be left
	}
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
