package ploop

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// damaged is an image that was sound, and is damaged in place.
type damaged struct {
	b    []byte
	rnd  *rand.Rand
	data int // where the clusters begin
	unit uint32
}

const damagedClusters = 12

func (d *damaged) u32(at int, v uint32) { binary.LittleEndian.PutUint32(d.b[at:], v) }
func (d *damaged) u64(at int, v uint64) { binary.LittleEndian.PutUint64(d.b[at:], v) }
func (d *damaged) entry() int           { return 64 + 4*d.rnd.IntN(damagedClusters) }
func (d *damaged) at(at int) uint32     { return binary.LittleEndian.Uint32(d.b[at:]) }
func (d *damaged) cut(n int)            { d.b = d.b[:max(0, n)] }

// damages are what a crash, a bad disk or a bad copy does to an image.
var damages = map[string]func(d *damaged){
	"one bit of the file":              func(d *damaged) { d.b[d.rnd.IntN(len(d.b))] ^= 1 << d.rnd.IntN(8) },
	"one bit of the header":            func(d *damaged) { d.b[d.rnd.IntN(64)] ^= 1 << d.rnd.IntN(8) },
	"one bit of the table":             func(d *damaged) { d.b[64+d.rnd.IntN(4*damagedClusters)] ^= 1 << d.rnd.IntN(8) },
	"the header is noise":              func(d *damaged) { fillNoise(d, 0, 64) },
	"the header behind the magic":      func(d *damaged) { fillNoise(d, 16, 64) },
	"the table is noise":               func(d *damaged) { fillNoise(d, 64, 64+4*damagedClusters) },
	"the header is zeroes":             func(d *damaged) { clear(d.b[:64]) },
	"the table is zeroes":              func(d *damaged) { clear(d.b[64 : 64+4*damagedClusters]) },
	"half the table is zeroes":         func(d *damaged) { clear(d.b[64 : 64+2*damagedClusters]) },
	"a sector of the header is lost":   func(d *damaged) { clear(d.b[:min(512, d.data)]) },
	"the magic of the other version":   func(d *damaged) { otherMagic(d) },
	"another version number":           func(d *damaged) { d.u32(16, uint32(d.rnd.IntN(5))) },
	"other heads and cylinders":        func(d *damaged) { d.u64(20, d.rnd.Uint64()) },
	"clusters of nothing":              func(d *damaged) { d.u32(28, 0) },
	"clusters of half the size":        func(d *damaged) { d.u32(28, d.at(28)/2) },
	"clusters of twice the size":       func(d *damaged) { d.u32(28, d.at(28)*2) },
	"clusters of an odd size":          func(d *damaged) { d.u32(28, d.at(28)+1) },
	"a table of nothing":               func(d *damaged) { d.u32(32, 0) },
	"a shorter table":                  func(d *damaged) { d.u32(32, damagedClusters-1) },
	"a longer table":                   func(d *damaged) { d.u32(32, damagedClusters+uint32(d.rnd.IntN(8))) },
	"a table beyond all":               func(d *damaged) { d.u32(32, d.rnd.Uint32()) },
	"a smaller disk":                   func(d *damaged) { d.u64(36, uint64(1+d.rnd.IntN(damagedClusters*64))) },
	"a larger disk":                    func(d *damaged) { d.u64(36, uint64(damagedClusters*64+1+d.rnd.IntN(64))) },
	"a disk beyond all":                func(d *damaged) { d.u64(36, d.rnd.Uint64()) },
	"the upper half of the size":       func(d *damaged) { d.u32(40, d.rnd.Uint32()) },
	"it is in use":                     func(d *damaged) { d.u32(44, inUse) },
	"it was closed by a newer program": func(d *damaged) { d.u32(44, closedNew) },
	"some mark of use":                 func(d *damaged) { d.u32(44, d.rnd.Uint32()) },
	"clusters begin at nothing":        func(d *damaged) { d.u32(48, 0) },
	"clusters begin in the table":      func(d *damaged) { d.u32(48, 1) },
	"clusters begin askew":             func(d *damaged) { d.u32(48, uint32(d.data/512)+1) },
	"clusters begin a cluster later":   func(d *damaged) { d.u32(48, uint32(d.data/512)+64) },
	"other flags":                      func(d *damaged) { d.u32(52, d.rnd.Uint32()) },
	"a stale extension":                func(d *damaged) { d.u64(56, d.rnd.Uint64()) },
	"an extension in a cluster":        func(d *damaged) { d.u32(44, closedNew); d.u64(56, uint64(d.data/512)) },
	"an extension at the end":          func(d *damaged) { d.u32(44, closedNew); d.u64(56, uint64(len(d.b)/512)) },
	"an entry beyond the file":         func(d *damaged) { d.u32(d.entry(), uint32(len(d.b)/512)+uint32(d.rnd.IntN(100))) },
	"an entry beyond all":              func(d *damaged) { d.u32(d.entry(), ^uint32(d.rnd.IntN(1000))) },
	"an entry in the header":           func(d *damaged) { d.u32(d.entry(), uint32(1+d.rnd.IntN(2))) },
	"an entry askew":                   func(d *damaged) { d.u32(d.entry(), d.at(64)+1) },
	"two entries alike":                func(d *damaged) { d.u32(64, d.at(d.entry())) },
	"two entries exchanged":            func(d *damaged) { a, b := d.at(64), d.at(72); d.u32(64, b); d.u32(72, a) },
	"an entry is lost":                 func(d *damaged) { d.u32(d.entry(), 0) },
	"every entry is one higher":        func(d *damaged) { shiftTable(d, d.unit) },
	"every entry is one lower":         func(d *damaged) { shiftTable(d, -d.unit) },
	"cut in the header":                func(d *damaged) { d.cut(d.rnd.IntN(64)) },
	"cut in the table":                 func(d *damaged) { d.cut(64 + d.rnd.IntN(4*damagedClusters)) },
	"cut behind the table":             func(d *damaged) { d.cut(64 + 4*damagedClusters + d.rnd.IntN(400)) },
	"cut in the clusters":              func(d *damaged) { d.cut(d.data + d.rnd.IntN(len(d.b)-d.data)) },
	"the last sector is cut off":       func(d *damaged) { d.cut(len(d.b) - 512) },
	"the last byte is cut off":         func(d *damaged) { d.cut(len(d.b) - 1) },
	"something behind the end":         func(d *damaged) { d.b = append(d.b, make([]byte, 1+d.rnd.IntN(100_000))...) },
	"a sector is missing in between":   func(d *damaged) { d.b = append(d.b[:d.data+512], d.b[d.data+1024:]...) },
	"big endian":                       func(d *damaged) { bigEndian(d) },
}

func fillNoise(d *damaged, from, to int) {
	for i := from; i < to; i++ {
		d.b[i] = byte(d.rnd.Uint32())
	}
}

func otherMagic(d *damaged) {
	if string(d.b[:16]) == magic1 {
		copy(d.b, magic2)
	} else {
		copy(d.b, magic1)
	}
}

func shiftTable(d *damaged, by uint32) {
	for at := 64; at < 64+4*damagedClusters; at += 4 {
		if n := d.at(at); n != 0 {
			d.u32(at, n+by)
		}
	}
}

func bigEndian(d *damaged) {
	for at := 16; at < 64+4*damagedClusters; at += 4 {
		binary.BigEndian.PutUint32(d.b[at:], d.at(at))
	}
}

// Whatever has happened to an image, it never gives other bytes than QEMU reads: it is
// refused by one of the two, or both read the same.
func TestDamageAgainstQEMU(t *testing.T) {
	rounds := 4
	if testing.Short() {
		rounds = 1
	}
	dir := t.TempDir()
	hds, raw := filepath.Join(dir, "disk.hds"), filepath.Join(dir, "disk.raw")
	verdicts := map[string]int{}
	for name, damage := range damages {
		for n := range 2 * rounds {
			rnd := rand.New(rand.NewPCG(uint64(n), 8))
			m := made{version: 1 + n%2, sectors: 64, size: damagedClusters*64*512 - int64(n/2)*512, shuffle: true}
			m.fill(rnd, 0.7, make([]byte, m.size))
			d := &damaged{b: m.bytes(), rnd: rnd, data: 64 * 512, unit: 1}
			if m.version == 1 {
				d.data, d.unit = 512, 64
			}
			damage(d)
			write(t, hds, string(d.b))
			what := fmt.Sprintf("%s, version %d, round %d", name, m.version, n/2)
			img, _, err := Open(hds, "")
			if err != nil {
				verdicts["refused"]++
				continue
			}
			if img.Size() > 1<<30 {
				verdicts["too long"]++
				img.Close()
				continue
			}
			got := readAll(t, img)
			img.Close()
			os.Remove(raw)
			if !reads(t, "qemu-img", "convert", "-f", "parallels", "-O", "raw", hds, raw) {
				verdicts["read here alone"]++
				continue
			}
			verdicts["read by both"]++
			want, err := os.ReadFile(raw)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("%s: it is read as %d bytes, and QEMU reads %d others", what, len(got), len(want))
			}
		}
	}
	t.Logf("%d kinds of damage: %v", len(damages), verdicts)
	if len(damages) < 40 || verdicts["refused"] < 2*len(damages)/3 || verdicts["read by both"] < len(damages)/4 {
		t.Errorf("%d kinds of damage, and this proves little: %v", len(damages), verdicts)
	}
}
