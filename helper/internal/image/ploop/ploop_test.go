package ploop

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// readAll reads an image twice: whole, and by what NextData says; both must agree.
func readAll(t *testing.T, img *Image) []byte {
	t.Helper()
	whole := make([]byte, img.Size())
	if n, err := img.ReadAt(whole, 0); n != len(whole) || err != nil {
		t.Fatal(n, err)
	}
	sparse := make([]byte, img.Size())
	last := int64(0)
	for off := int64(0); ; {
		start, end, err := img.NextData(off)
		if err == io.EOF {
			break
		}
		if err != nil || start < last || end <= start || end > img.Size() {
			t.Fatalf("data from %d to %d after %d: %v", start, end, last, err)
		}
		if _, err := img.ReadAt(sparse[start:end], start); err != nil {
			t.Fatal(err)
		}
		off, last = end, end
	}
	if !bytes.Equal(whole, sparse) {
		t.Fatal("there is data where NextData has none")
	}
	return whole
}

func TestChainsAgainstAModel(t *testing.T) {
	seeds := 300
	if testing.Short() {
		seeds = 30
	}
	for seed := range seeds {
		rnd := rand.New(rand.NewPCG(uint64(seed), 1))
		n, plainBase := 1+rnd.IntN(4), rnd.IntN(3) == 0
		version := 1 + rnd.IntN(2)
		sectors := []int64{1, 8, 63, 64, 504}[rnd.IntN(5)]
		size := (1 + rnd.Int64N(1500)) * 512
		if n == 1 {
			plainBase = false
		}
		l := chain(t, rnd, n, plainBase, version, sectors, size)
		what := fmt.Sprintf("seed %d: %d layers of version %d, clusters of %d sectors, %d bytes, plain base %v", seed, n, version, sectors, size, plainBase)

		img, info, err := Open(l.dir, "")
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if info.Size != size || len(info.Layers) != n || info.InUse {
			t.Errorf("%s: %+v", what, info)
		}
		if got := readAll(t, img); !bytes.Equal(got, l.disk) {
			t.Errorf("%s: the disk is not what was written to it", what)
		}
		for range 20 { // somewhere, not aligned to anything
			off := rnd.Int64N(size)
			b := make([]byte, 1+rnd.IntN(5000))
			m, err := img.ReadAt(b, off)
			if m != int(min(int64(len(b)), size-off)) || (m < len(b)) != (err == io.EOF) || !bytes.Equal(b[:m], l.disk[off:off+int64(m)]) {
				t.Errorf("%s: %d bytes at %d: %d, %v", what, len(b), off, m, err)
			}
		}
		img.Close()

		chained, _, err := OpenChain(l.files, plainBase)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if got := readAll(t, chained); !bytes.Equal(got, l.disk) {
			t.Errorf("%s: named one by one, the layers are another disk", what)
		}
		chained.Close()
	}
}

// A snapshot shows what the disk was when the layer above it was begun.
func TestSnapshots(t *testing.T) {
	l := chain(t, rand.New(rand.NewPCG(3, 3)), 3, false, 2, 8, 100*512)
	// All layers as long as the disk, so that each can be the top one.
	for i, f := range l.files {
		m := &made{version: 2, sectors: 8, size: 100 * 512}
		below := make([]byte, 100*512)
		if i > 0 {
			copy(below, l.under[i-1])
		}
		m.fill(rand.New(rand.NewPCG(4, uint64(i))), 0.3, below)
		m.write(t, f)
		l.under[i] = below
	}
	for i := range l.files {
		img, _, err := Open(filepath.Join(l.dir, descriptorName), "{"+strings.ToUpper(guids[i])+"}")
		if err != nil {
			t.Fatal(err)
		}
		if got := readAll(t, img); !bytes.Equal(got, l.under[i]) {
			t.Errorf("snapshot %d is not what the disk was", i)
		}
		img.Close()
	}
	_, _, err := Open(l.dir, "aaaaaaaa-0000-4000-8000-00000000ffff")
	says(t, err, "the snapshot aaaaaaaa-0000-4000-8000-00000000ffff has no image")
}

// What QEMU writes is read as QEMU reads it, and the other way round.
func TestAgainstQEMU(t *testing.T) {
	dir := t.TempDir()
	hds, raw := filepath.Join(dir, "disk.hds"), filepath.Join(dir, "disk.raw")
	qemu(t, "qemu-img", "create", "-q", "-f", "parallels", hds, "20M")
	qemu(t, "qemu-io", "-f", "parallels", "-c", "write -q -P 0x11 0 64k", "-c", "write -q -P 0x22 17M 1M", "-c", "write -q -P 0x33 5M 1500k", "-c", "write -q -P 0x44 19M 1M", hds)
	qemu(t, "qemu-img", "convert", "-f", "parallels", "-O", "raw", hds, raw)
	compare(t, hds, raw, 2)

	for _, m := range []made{
		{version: 1, sectors: 2048, size: 9 << 20, gap: 1983},
		{version: 1, sectors: 63, size: 3 << 20},
		{version: 1, sectors: 504, size: 3<<20 + 512, gap: 3},
		{version: 2, sectors: 2048, size: 9 << 20, shuffle: true},
		{version: 2, sectors: 64, size: 1 << 20},
		{version: 1, sectors: 32768, size: 40 << 20}, // the largest clusters, and half of one
		{version: 2, sectors: 32768, size: 40 << 20},
	} {
		disk := make([]byte, m.size)
		m.fill(rand.New(rand.NewPCG(5, 5)), 0.5, disk)
		m.write(t, hds)
		qemu(t, "qemu-img", "convert", "-f", "parallels", "-O", "raw", hds, raw)
		compare(t, hds, raw, m.version)
	}
}

func compare(t *testing.T, hds, raw string, version int) {
	t.Helper()
	img, info, err := Open(hds, "")
	if err != nil {
		t.Fatal(err)
	}
	defer img.Close()
	want, err := os.ReadFile(raw)
	if err != nil {
		t.Fatal(err)
	}
	if got := readAll(t, img); !bytes.Equal(got, want) {
		t.Error("QEMU sees another disk in the image")
	}
	if format := fmt.Sprintf("ploop%d", version); info.Layers[0].Format != format || info.Layers[0].Allocated == 0 {
		t.Errorf("%+v", info.Layers[0])
	}
	if _, found := Check(hds, ""); slices.ContainsFunc(found, func(f Finding) bool { return f.Level == Error }) {
		t.Errorf("%+v", found)
	}
}

// What the real tools write and this package does not need is left alone: a flag, half
// a number, an extension that a later program did not know.
func TestWhatMeansNothing(t *testing.T) {
	for name, c := range map[string]struct {
		version int
		poke    poke
	}{
		"the flag empty":            {2, poke{52, 1, 4}},
		"the flag empty, 1":         {1, poke{52, 1, 4}},
		"the upper half":            {1, poke{40, 0xdeadbeef, 4}},
		"an extension, old mark":    {2, poke{56, 1 << 62, 8}},
		"an extension on a layer":   {2, poke{56, 16, 8}},
		"the same while it is used": {2, poke{56, 9, 8}},
	} {
		b := sound(c.version)
		var n [8]byte
		binary.LittleEndian.PutUint64(n[:], c.poke.value)
		copy(b[c.poke.at:], n[:c.poke.bytes])
		if strings.Contains(name, "used") {
			binary.LittleEndian.PutUint32(b[inUseOffset:], inUse)
		}
		path := filepath.Join(t.TempDir(), "root.hds")
		write(t, path, string(b))
		img, _, err := Open(path, "")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := readAll(t, img); len(got) != 10*4096 || got[4096] != 'b' {
			t.Errorf("%s: other bytes", name)
		}
		img.Close()
	}
}

// Once the base is raw, the tools give every layer of the descriptor the type Plain.
func TestDeltasThatAreCalledPlain(t *testing.T) {
	l := chain(t, rand.New(rand.NewPCG(7, 7)), 3, true, 2, 8, 100*512)
	path := filepath.Join(l.dir, descriptorName)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, strings.ReplaceAll(string(text), typeDelta, typePlain))
	img, _, err := Open(l.dir, "")
	if err != nil {
		t.Fatal(err)
	}
	defer img.Close()
	if got := readAll(t, img); !bytes.Equal(got, l.disk) {
		t.Error("the disk is not what was written to it")
	}
}

// The lowest layer is plain, and the disk was grown above it: as a snapshot it has its own
// size. One that is the current state and grown without the descriptor's knowing has its
// own, too; cut off, it is refused (badDescriptors).
func TestPlainLayersAndGrowth(t *testing.T) {
	dir := t.TempDir()
	raw := strings.Repeat("r", 40*512)
	write(t, filepath.Join(dir, "raw"), raw)
	write(t, filepath.Join(dir, "a.hds"), string(sound(2)))
	layers := image(guids[0], typePlain, "raw") + image(guids[1], typePlain, "a.hds")
	write(t, filepath.Join(dir, descriptorName), descriptorText(80, 8, guids[1], layers, shot(guids[0], nobody)+shot(guids[1], guids[0])))
	img, info, err := Open(dir, "{"+guids[0]+"}")
	if err != nil {
		t.Fatal(err)
	}
	if got := readAll(t, img); string(got) != raw || info.Size != 40*512 {
		t.Errorf("%d bytes, %+v", len(got), info)
	}
	img.Close()
	write(t, filepath.Join(dir, descriptorName), descriptorText(32, 8, guids[0], image(guids[0], typePlain, "raw"), shot(guids[0], nobody)))
	if img, _, err = Open(dir, ""); err != nil {
		t.Fatal(err)
	}
	if got := readAll(t, img); string(got) != raw {
		t.Errorf("%d bytes of a plain disk that was grown", len(got))
	}
	img.Close()
}

func TestInUse(t *testing.T) {
	m := &made{version: 2, sectors: 8, size: 80 * 512, use: 0x746F6E59}
	m.fill(rand.New(rand.NewPCG(1, 1)), 0.5, make([]byte, m.size))
	path := filepath.Join(t.TempDir(), "root.hds")
	m.write(t, path)
	img, info, err := Open(path, "")
	if err != nil {
		t.Fatal(err)
	}
	img.Close()
	if !info.InUse || !info.Layers[0].InUse {
		t.Errorf("%+v", info)
	}
	b := m.bytes()
	first := b[:512]
	if !ClearInUse(first) || ClearInUse(first) {
		t.Error("the mark is taken out once")
	}
	if !bytes.Equal(first[:44], m.bytes()[:44]) || !bytes.Equal(first[48:], m.bytes()[48:512]) || !bytes.Equal(first[44:48], make([]byte, 4)) {
		t.Error("something else was changed")
	}
	for _, other := range [][]byte{make([]byte, 512), []byte("WithouFreSpacExt"), nil, bytes.Repeat([]byte{0xff}, 512)} {
		was := bytes.Clone(other)
		if ClearInUse(other) || !bytes.Equal(other, was) {
			t.Errorf("%.20q was changed", was)
		}
	}
}

func TestLeaks(t *testing.T) {
	m := &made{version: 2, sectors: 8, size: 80 * 512}
	m.fill(rand.New(rand.NewPCG(1, 1)), 0.5, make([]byte, m.size))
	path := filepath.Join(t.TempDir(), "root.hds")
	if err := os.WriteFile(path, append(m.bytes(), make([]byte, 3*m.cluster())...), 0o600); err != nil {
		t.Fatal(err)
	}
	_, found := Check(path, "")
	if len(found) != 1 || found[0].Level != Leak || !strings.HasSuffix(found[0].Text, "3 clusters of the file (12288 bytes) belong to nothing") {
		t.Errorf("%+v", found)
	}
	img, _, err := Open(path, "")
	if err != nil {
		t.Fatal("a leak is no reason not to read:", err)
	}
	img.Close()
}

func says(t *testing.T, err error, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("%v\n  should say %q", err, text)
	}
}
