package codec

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"testing"
)

func history(t testing.TB, cluster int, budget int64) *History {
	t.Helper()
	h, err := NewHistory(cluster, budget)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// image is a destination: what the pieces make of it.
type image []byte

func (m image) take(t *testing.T, off int, pieces []Piece) {
	t.Helper()
	for _, p := range pieces {
		at := m[off+p.Off : off+p.Off+p.Len]
		switch {
		case p.Zero:
			clear(at)
		case p.Packing&Delta != 0:
			before := bytes.Clone(at)
			changed, _, err := Patch(at, p.Payload, p.Packing, nil)
			if err != nil {
				t.Fatal(err)
			}
			// Exactly what is in the ranges has changed.
			for _, r := range changed {
				copy(before[r.Off:], at[r.Off:r.Off+r.Len])
			}
			if !bytes.Equal(before, at) {
				t.Fatal("something changed outside the ranges")
			}
		default:
			if err := Unpack(at, p.Payload, p.Packing); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// However a volume is written to and however little of it is remembered, the
// destination has the same content after each pass.
func TestDeltasKeepBothSidesAlike(t *testing.T) {
	deltas := 0
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 2))
		cluster := 4096 << r.IntN(3)
		volume := make([]byte, cluster+r.IntN(60*cluster))
		there := make(image, len(volume))
		earlier := make([]byte, len(volume)) // content that comes back
		noise(r, earlier)
		h := history(t, cluster, r.Int64N(64<<10))
		e, err := NewEncoder(packingNames[r.IntN(len(packingNames))])
		if err != nil {
			t.Fatal(err)
		}
		for pass := range 20 {
			for range r.IntN(40) {
				at := r.IntN(len(volume))
				part := volume[at:min(at+1+r.IntN(2*cluster), len(volume))]
				switch r.IntN(5) {
				case 2:
					copy(part, earlier[at:])
				case 0:
					clear(part)
				case 1:
					text(r, part)
				default:
					noise(r, part[:1+r.IntN(len(part))])
				}
			}
			longest := (1 + r.IntN(8)) * cluster
			for off := 0; off < len(volume); {
				n := min(longest, len(volume)-off)
				if n == longest && r.IntN(4) == 0 { // not every cluster is in every pass
					off += cluster
					continue
				}
				pieces := e.Encode(volume[off:off+n], int64(off), cluster, make([]byte, Room(n)), h)
				there.take(t, off, pieces)
				if !bytes.Equal(there[off:off+n], volume[off:off+n]) {
					t.Fatalf("seed %d, pass %d: the range at %d, length %d, is not the same", seed, pass, off, n)
				}
				for _, p := range pieces {
					if p.Packing&Delta != 0 {
						deltas++
					}
				}
				off += n
			}
			if len(h.slots) > h.most {
				t.Fatalf("%d clusters are remembered, %d are allowed", len(h.slots), h.most)
			}
		}
	}
	if deltas < 200 {
		t.Errorf("only %d deltas in all", deltas)
	}
}

// Eight bytes in a cluster of 64 KiB cost one sector.
func TestDeltaIsSmall(t *testing.T) {
	const cluster = 64 << 10
	r := rand.New(rand.NewPCG(1, 2))
	run := make([]byte, 8*cluster)
	noise(r, run)
	h := history(t, cluster, DefaultHistory)
	var e Encoder
	room := make([]byte, Room(len(run)))
	e.Encode(run, 0, cluster, room, h)
	for off := 0; off < len(run); off += cluster {
		run[off+r.IntN(cluster-8)]++
	}
	pieces := e.Encode(run, 0, cluster, room, h)
	if len(pieces) != 1 || len(pieces[0].Payload) > len(run)/100 {
		t.Errorf("%d pieces, the first of %d bytes", len(pieces), len(pieces[0].Payload))
	}
}

// What was sent without being looked at is not taken for what is there.
func TestSkippedIsForgotten(t *testing.T) {
	const cluster = 4096
	r := rand.New(rand.NewPCG(1, 3))
	run := make([]byte, 4*cluster)
	noise(r, run)
	h := history(t, cluster, DefaultHistory)
	there := make(image, len(run))
	var e Encoder
	there.take(t, 0, e.Encode(run, 0, cluster, make([]byte, Room(len(run))), h))
	run[5]++
	there.take(t, 0, e.Encode(run, 0, cluster, nil, h)) // no room: it goes whole
	run[9]++
	pieces := e.Encode(run, 0, cluster, make([]byte, Room(len(run))), h)
	for _, p := range pieces {
		if p.Packing&Delta != 0 {
			t.Errorf("a delta of what was sent without being remembered")
		}
	}
	there.take(t, 0, pieces)
}

// Clusters that are sent again stay when others are sent once.
func TestHistoryKeepsWhatIsSentAgain(t *testing.T) {
	const cluster = 4096
	h := history(t, cluster, 10*(8*8+64))
	c := make([]byte, cluster)
	bits := make([]byte, bitmapLen(cluster))
	h.changes(0, c, bits)
	for i := range int64(100) {
		if _, known := h.changes(0, c, bits); !known {
			t.Fatalf("forgotten after %d others", i*5)
		}
		for k := range int64(5) {
			h.changes((1+i*5+k)*cluster, c, bits)
		}
	}
}

// A delta that does not fit what is there is refused, and so is one that lies.
func TestPatchRefuses(t *testing.T) {
	const n = 4*sector + 100
	r := rand.New(rand.NewPCG(1, 4))
	before, now := make([]byte, n), make([]byte, n)
	noise(r, before)
	copy(now, before)
	now[sector+7]++
	now[n-1]++
	good := appendDelta(nil, now, []byte{1<<1 | 1<<4})
	change := func(how func([]byte)) []byte {
		b := bytes.Clone(good)
		how(b)
		return b
	}
	for _, c := range []struct {
		name    string
		payload []byte
		there   []byte
		text    string // empty: good
	}{
		{"good", good, before, ""},
		{"empty", nil, before, "has no header"},
		{"short", good[:11], before, "has no header"},
		{"another base", good, change(func(b []byte) {})[:0], "says that it has"},
		{"one byte of the base is another", good, append([]byte{before[0] ^ 1}, before[1:]...), "does not fit what is there"},
		{"one byte of the delta is another", change(func(b []byte) { b[len(b)-1]++ }), before, "does not fit what is there"},
		{"a bit too many", change(func(b []byte) { b[deltaHeader] |= 1 << 2 }), before, "ends at sector 2"},
		{"a bit too few", change(func(b []byte) { b[deltaHeader] = 1 << 1 }), before, "has 100 bytes too many"},
		{"cut", good[:len(good)-1], before, "holds 612 bytes and should hold 613"},
		{"a huge body", change(func(b []byte) { binary.LittleEndian.PutUint32(b[8:], 1<<31) }), before, "says that it has 2147483648"},
		{"no body", change(func(b []byte) { binary.LittleEndian.PutUint32(b[8:], 0) }), before, "says that it has 0"},
	} {
		there := bytes.Clone(c.there)
		_, _, err := Patch(there, c.payload, Delta, nil)
		switch {
		case c.text == "" && (err != nil || !bytes.Equal(there, now)):
			t.Errorf("%s: %v", c.name, err)
		case c.text != "" && (err == nil || !strings.Contains(err.Error(), c.text)):
			t.Errorf("%s: %v; should say %q", c.name, err, c.text)
		}
	}
}

func FuzzPatch(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 5))
	data := make([]byte, 3000)
	noise(r, data)
	f.Add(data, appendDelta(nil, data, []byte{0b100101}), uint16(0))
	f.Add(data, appendDelta(nil, data, []byte{0}), uint16(1))
	f.Fuzz(func(t *testing.T, data, payload []byte, p uint16) {
		if len(data) > 1<<16 {
			return
		}
		changed, _, err := Patch(data, payload, Packing(p)|Delta, nil)
		end := 0
		for _, c := range changed {
			if err != nil || c.Off < end || c.Len <= 0 || c.Off+c.Len > len(data) {
				t.Errorf("%+v in %d bytes, %v", changed, len(data), err)
			}
			end = c.Off + c.Len
		}
	})
}

func BenchmarkChanges(b *testing.B) {
	const cluster = 64 << 10
	h := history(b, cluster, DefaultHistory)
	c := make([]byte, cluster)
	bits := make([]byte, bitmapLen(cluster))
	b.SetBytes(cluster)
	for b.Loop() {
		h.changes(0, c, bits)
	}
}
