package ploop

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzDelta: whatever a file holds, it is refused or it is a disk, all of which
// can be read, twice the same, and no two clusters of which share a byte.
func FuzzDelta(f *testing.F) {
	for _, version := range []int{1, 2} {
		small := made{version: version, sectors: 1, size: 4 * 512, data: map[int64][]byte{}}
		f.Add(small.bytes())
		small.data[2] = bytes.Repeat([]byte("z"), 512)
		small.data[0] = small.data[2]
		f.Add(small.bytes())
		f.Add(small.bytes()[:1500])
	}
	f.Add([]byte("WithoutFreeSpace"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var found findings
		d := inspect(bytes.NewReader(b), int64(len(b)), "fuzz", &found)
		if found.err() != nil {
			return
		}
		used := map[int64]bool{}
		for c := range d.table {
			place := d.place(int64(c))
			if place == 0 {
				continue
			}
			if place < 64+d.head.entries*4 || place+d.head.cluster > int64(len(b)) {
				t.Fatalf("cluster %d at %d is not in the file of %d bytes", c, place, len(b))
			}
			for s := place; s < place+d.head.cluster; s += sector {
				if used[s] {
					t.Fatalf("cluster %d at %d shares a sector with another one", c, place)
				}
				used[s] = true
			}
		}
		if d.head.size > 1<<20 {
			return // sound, and too long to read here
		}
		img := &Image{path: "fuzz", size: d.head.size, layers: []layer{d}}
		readAll(t, img)
	})
}

// FuzzDescriptor: whatever a descriptor holds, every layer that it makes us open
// is in its own folder, and there are not many.
func FuzzDescriptor(f *testing.F) {
	f.Add(good())
	for _, bad := range badDescriptors {
		if len(bad.text) < 4096 {
			f.Add(bad.text)
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := parseDescriptor(strings.NewReader(text))
		if err != nil {
			return
		}
		if d.size <= 0 || d.cluster <= 0 || d.size%sector != 0 {
			t.Fatalf("a disk of %d bytes in clusters of %d", d.size, d.cluster)
		}
		for g := range d.images {
			links, err := d.chain(g)
			if err != nil {
				continue
			}
			if len(links) == 0 || len(links) > maxLayers || len(links) > len(d.images) || links[len(links)-1].GUID != g {
				t.Fatalf("%s: %d layers", g, len(links))
			}
			for _, l := range links {
				if file, err := within("/some/where", l.File); err == nil && !filepath.IsLocal(file) {
					t.Fatalf("%q is let through as %q", l.File, file)
				}
			}
		}
	})
}

// FuzzFirstSector: clearing the mark of use changes four bytes or none.
func FuzzFirstSector(f *testing.F) {
	f.Add(sound(1)[:512])
	f.Add(sound(2)[:512])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		was := bytes.Clone(b)
		cleared := ClearInUse(b)
		if cleared == bytes.Equal(b, was) {
			t.Fatalf("cleared: %v, and the bytes say otherwise", cleared)
		}
		if cleared {
			copy(b[inUseOffset:], was[inUseOffset:inUseOffset+4])
		}
		if !bytes.Equal(b, was) {
			t.Fatal("something else was changed")
		}
	})
}
