package ploop

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// poke writes a number over a sound image.
type poke struct {
	at    int64
	value uint64
	bytes int
}

// used is the mark of use with which the format extension counts.
var used = poke{inUseOffset, closedNew, 4}

// A delta that lies: what it says, and in which words it is refused.
var badDeltas = []struct {
	name    string
	version int
	pokes   []poke
	length  int64 // of the file, 0 as it is
	says    string
}{
	{name: "nothing", version: 2, length: -1, says: "the file is cut off: it has 0 bytes, and a header alone has 64"},
	{name: "half a header", version: 2, length: 40, says: "the file is cut off: it has 40 bytes"},
	{name: "half a table", version: 2, length: 90, says: "the file is cut off: its table ends at 104, and the file at 90"},
	{name: "no clusters", version: 2, length: 2000, says: "the file is cut off: its clusters begin at 4096, and the file ends at 2000"},
	{name: "half a cluster", version: 2, length: 7*4096 + 100, says: "and ends behind the end of the file, which has 28772 bytes: it is cut off"},
	{name: "half a cluster", version: 1, length: 9 * 4096, says: "ends behind the end of the file"},
	{name: "wrong magic", version: 2, pokes: []poke{{0, 0x1234, 2}}, says: `this is no ploop image: it begins with "4\x12thouFreSpacExt"`},
	{name: "another version", version: 1, pokes: []poke{{16, 3, 4}}, says: "the header says version 3, and ploop images say 2"},
	{name: "clusters of nothing", version: 2, pokes: []poke{{28, 0, 4}}, says: "clusters of 0 bytes"},
	{name: "clusters too large", version: 2, pokes: []poke{{28, 0xffffffff, 4}}, says: "clusters of 2199023255040 bytes: they have at least one sector and at most 16777216"},
	{name: "no disk", version: 2, pokes: []poke{{36, 0, 8}}, says: "the header says that the disk has no bytes"},
	{name: "a negative size", version: 2, pokes: []poke{{36, 1 << 63, 8}}, says: "the header says 9223372036854775808 sectors"},
	{name: "a size that goes over", version: 2, pokes: []poke{{36, 1<<55 + 8, 8}}, says: "the header says 36028797018963976 sectors in 10 clusters of 4096 bytes, more than"},
	{name: "a larger disk", version: 2, pokes: []poke{{36, 88, 8}}, says: "the table has 10 entries, and a disk of 45056 bytes has 11 clusters"},
	{name: "a table of billions", version: 2, pokes: []poke{{32, 0xffffffff, 4}}, says: "more than the 33554432 clusters that are read here"},
	{name: "a longer table", version: 2, pokes: []poke{{32, 1 << 20, 4}}, says: "the file is cut off: its table ends at 4194368"},
	{name: "some mark", version: 2, pokes: []poke{{44, 0xdeadbeef, 4}}, says: "the mark of use is 0xdeadbeef, which means nothing"},
	{name: "clusters in the table", version: 1, pokes: []poke{{48, 0, 4}, {32, 200, 4}}, says: "before the first cluster"},
	{name: "clusters in the header", version: 2, pokes: []poke{{48, 0, 4}}, says: "the clusters begin at 0, in the table, which ends at 104"},
	{name: "clusters askew", version: 2, pokes: []poke{{48, 9, 4}}, says: "the clusters begin at 4608, which is not a multiple of a cluster (4096)"},
	{name: "clusters behind the end", version: 2, pokes: []poke{{48, 8 << 20, 4}}, says: "the file is cut off: its clusters begin at 4294967296"},
	{name: "an extension behind the end", version: 2, pokes: []poke{{56, 1 << 62, 8}, used}, says: "the format extension is at sector 4611686018427387904, behind the end of the file"},
	{name: "an extension askew", version: 2, pokes: []poke{{56, 9, 8}, used}, says: "the format extension is at 4608, between two clusters"},
	{name: "an extension where a cluster is", version: 2, pokes: []poke{{56, 16, 8}, used}, says: "cluster 1 is at 8192, where another one is: two extents overlap"},
	{name: "a cluster behind the end", version: 2, pokes: []poke{{64, 11, 4}}, says: "cluster 0 is at 45056 and ends behind the end of the file, which has 45056 bytes"},
	{name: "a cluster far away", version: 2, pokes: []poke{{68, 0xffffffff, 4}}, says: "cluster 1 is at 17592186040320 and ends behind the end of the file"},
	{name: "a cluster far away", version: 1, pokes: []poke{{68, 0xffffffff, 4}}, says: "cluster 1 is at 2199023255040"},
	{name: "two clusters in one place", version: 2, pokes: []poke{{72, 1, 4}}, says: "cluster 2 is at 4096, where another one is: two extents overlap"},
	{name: "two clusters in one place", version: 1, pokes: []poke{{72, 1, 4}}, says: "cluster 2 is at 512, where another one is: two extents overlap"},
	{name: "half in one place", version: 1, pokes: []poke{{72, 3, 4}}, says: "cluster 2 is at 1536, between two clusters (they begin at 512 and have 4096 bytes)"},
	{name: "a cluster in the header", version: 1, pokes: []poke{{48, 17, 4}}, says: "cluster 0 is at 512, before the first cluster, which is at 8704"},
}

// sound is a delta of ten clusters, all of them there.
func sound(version int) []byte {
	m := &made{version: version, sectors: 8, size: 10 * 4096, data: map[int64][]byte{}}
	for c := range int64(10) {
		m.data[c] = []byte(strings.Repeat(string(rune('a'+c)), 4096))
	}
	return m.bytes()
}

func TestBadDeltas(t *testing.T) {
	for _, bad := range badDeltas {
		t.Run(fmt.Sprintf("%s, version %d", bad.name, bad.version), func(t *testing.T) {
			b := sound(bad.version)
			for _, p := range bad.pokes {
				var n [8]byte
				binary.LittleEndian.PutUint64(n[:], p.value)
				copy(b[p.at:], n[:p.bytes])
			}
			if bad.length != 0 {
				b = b[:max(0, bad.length)]
			}
			path := filepath.Join(t.TempDir(), "root.hds")
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
			_, _, err := Open(path, "")
			says(t, err, "ploop: "+path+": ")
			says(t, err, bad.says)
			_, found := Check(path, "")
			if !slices.ContainsFunc(found, func(f Finding) bool { return f.Level == Error && strings.Contains(f.Text, bad.says) }) {
				t.Errorf("check does not find it: %+v", found)
			}
		})
	}
	for _, version := range []int{1, 2} { // or the table proves nothing
		path := filepath.Join(t.TempDir(), "root.hds")
		if err := os.WriteFile(path, sound(version), 0o600); err != nil {
			t.Fatal(err)
		}
		img, _, err := Open(path, "")
		if err != nil {
			t.Fatal(err)
		}
		img.Close()
	}
}

// A table of rubbish is told in a few sentences.
func TestFindingsAreBounded(t *testing.T) {
	m := &made{version: 2, sectors: 1, size: 5000 * 512, data: map[int64][]byte{}}
	b := m.bytes()
	for c := range 5000 {
		binary.LittleEndian.PutUint32(b[64+4*c:], uint32(1<<30+c))
	}
	path := filepath.Join(t.TempDir(), "root.hds")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	_, found := Check(path, "")
	if len(found) != findingsKept+1 || found[findingsKept].Text != "and 4980 more of this kind" {
		t.Errorf("%d findings, the last: %+v", len(found), found[len(found)-1])
	}
}

func image(guid, kind, file string) string {
	return fmt.Sprintf("<Image><GUID>{%s}</GUID><Type>%s</Type><File>%s</File></Image>", guid, kind, file)
}

func shot(guid, parent string) string {
	return fmt.Sprintf("<Shot><GUID>{%s}</GUID><ParentGUID>{%s}</ParentGUID></Shot>", guid, parent)
}

// A descriptor that lies. a.hds and b.hds are sound deltas of 80 sectors, version
// 2; raw is a plain file of 80 sectors.
var badDescriptors = []struct{ name, text, says string }{
	{"no XML", "<Parallels_disk_image", "it cannot be read as a disk descriptor: "},
	{"other XML", "<domain/>", "it has 0 storages where one is expected"},
	{"an unknown encoding", `<?xml version="1.0" encoding="klingon"?>` + strings.SplitN(good(), "\n", 2)[1], `the encoding "klingon" is not understood`},
	{"images without a chain", descriptorText(80, 8, guids[1], image(guids[0], typeDelta, "a.hds")+image(guids[1], typeDelta, "b.hds"), ""), "it has 2 images and no snapshot that says which of them is above which"},
	{"no end", "<Parallels_disk_image>" + strings.Repeat("<a>", 100), "it cannot be read as a disk descriptor: "},
	{"too long", "<Parallels_disk_image>" + strings.Repeat(" ", maxXML), "it has more than 1048576 bytes, and no descriptor is so long"},
	{"too deep", "<Parallels_disk_image>" + strings.Repeat("<a>", 200_000), "it cannot be read as a disk descriptor: "},
	{"no storage", "<Parallels_disk_image/>", "it has 0 storages where one is expected"},
	{"a size of words", strings.Replace(good(), "<Disk_size>80", "<Disk_size>many", 1), "it cannot be read as a disk descriptor: "},
	{"a negative size", descriptorText(-80, 8, guids[0], image(guids[0], typeDelta, "a.hds"), shot(guids[0], nobody)), "it says that the disk has -80 sectors"},
	{"a size that goes over", descriptorText(1<<62, 8, guids[0], image(guids[0], typeDelta, "a.hds"), shot(guids[0], nobody)), "it says that the disk has 4611686018427387904 sectors"},
	{"two sizes", strings.Replace(good(), "<End>80", "<End>79", 1), "it says that the disk has 80 sectors, and that its storage goes from 0 to 79"},
	{"a late start", strings.Replace(good(), "<Start>0", "<Start>8", 1), "goes from 8 to 80"},
	{"another size than the file", descriptorText(88, 8, guids[0], image(guids[0], typePlain, "raw"), shot(guids[0], nobody)), "its descriptor says that the disk has 45056 bytes, and the plain layer has 40960: it is cut off"},
	{"no clusters", descriptorText(80, 0, guids[0], image(guids[0], typeDelta, "a.hds"), shot(guids[0], nobody)), "it says that a cluster has 0 sectors"},
	{"other clusters than the image", descriptorText(80, 16, guids[0], image(guids[0], typeDelta, "a.hds"), shot(guids[0], nobody)), "clusters of 4096 bytes, where the rest of the image has 8192"},
	{"encrypted", strings.Replace(good(), "<Engine>{00000000", "<Engine>{00000001", 1), "the image is encrypted"},
	{"encrypted since 7.x", strings.Replace(good(), "<Engine>", "<KeyId>6f6c64</KeyId><Engine>", 1), "the image is encrypted"},
	{"a volume on another", strings.Replace(good(), "<Storage>", "<Volume><Parent>../base</Parent></Volume><Storage>", 1), `its layers stand on those of another folder, "../base"`},
	{"several images, no snapshot", descriptorText(80, 8, guids[0], image(guids[0], typeDelta, "a.hds")+image(guids[1], typeDelta, "b.hds"), ""), "it has 2 images and no snapshot that says which of them is above which"},
	{"padded", strings.Replace(good(), "<Padding>0", "<Padding>1", 1), "it asks for a padding of 1"},
	{"split", strings.Replace(good(), "</Storage>", "</Storage><Storage></Storage>", 1), "it has 2 storages where one is expected: split images are not understood"},
	{"a circle", descriptorText(80, 8, guids[1], image(guids[0], typeDelta, "a.hds")+image(guids[1], typeDelta, "b.hds"), shot(guids[0], guids[1])+shot(guids[1], guids[0])), "the chain goes in a circle: snapshot " + guids[1] + " is above itself"},
	{"its own parent", descriptorText(80, 8, guids[0], image(guids[0], typeDelta, "a.hds"), shot(guids[0], guids[0])), "the chain goes in a circle"},
	{"no such top", descriptorText(80, 8, guids[2], image(guids[0], typeDelta, "a.hds"), shot(guids[0], nobody)), "the snapshot " + guids[2] + " has no image"},
	{"no such parent", descriptorText(80, 8, guids[1], image(guids[1], typeDelta, "a.hds"), shot(guids[1], guids[0])), "the snapshot " + guids[0] + " has no image"},
	{"nothing is said of the parent", descriptorText(80, 8, guids[1], image(guids[0], typeDelta, "a.hds")+image(guids[1], typeDelta, "b.hds"), shot(guids[0], nobody)), "nothing says what is below the snapshot " + guids[1]},
	{"one image twice", descriptorText(80, 8, guids[0], image(guids[0], typeDelta, "a.hds")+image(guids[0], typeDelta, "b.hds"), shot(guids[0], nobody)), `the image "` + guids[0] + `" (b.hds) is there twice`},
	{"one snapshot twice", descriptorText(80, 8, guids[0], image(guids[0], typeDelta, "a.hds"), shot(guids[0], nobody)+shot(guids[0], nobody)), `the snapshot "` + guids[0] + `" is there twice`},
	{"no file", descriptorText(80, 8, guids[0], image(guids[0], typeDelta, " "), shot(guids[0], nobody)), "image " + guids[0] + " has no file"},
	{"a kind of its own", descriptorText(80, 8, guids[0], image(guids[0], "Zipped", "a.hds"), shot(guids[0], nobody)), `is of the type "Zipped"`},
	{"a plain layer on top", descriptorText(80, 8, guids[1], image(guids[0], typeDelta, "a.hds")+image(guids[1], typePlain, "raw"), shot(guids[0], nobody)+shot(guids[1], guids[0])), "raw: this is no ploop image"},
	{"a delta that is plain", descriptorText(80, 8, guids[0], image(guids[0], typeDelta, "raw"), shot(guids[0], nobody)), "this is no ploop image"},
	{"a missing layer", descriptorText(80, 8, guids[0], image(guids[0], typeDelta, "gone.hds"), shot(guids[0], nobody)), "gone.hds: no such file or directory"},
	{"a folder as a layer", descriptorText(80, 8, guids[0], image(guids[0], typeDelta, "folder"), shot(guids[0], nobody)), "folder: this is no regular file"},
	{"a FIFO as a layer", descriptorText(80, 8, guids[0], image(guids[0], typeDelta, "fifo"), shot(guids[0], nobody)), "fifo: this is no regular file"},
	{"a layer elsewhere", descriptorText(80, 8, guids[0], image(guids[0], typePlain, "/etc/shadow"), shot(guids[0], nobody)), "is not in the descriptor's own folder"},
	{"a layer above", descriptorText(80, 8, guids[0], image(guids[0], typePlain, "../secret"), shot(guids[0], nobody)), `the layer "../secret" is not in the descriptor's own folder`},
	{"a link that leads out", descriptorText(80, 8, guids[0], image(guids[0], typePlain, "link"), shot(guids[0], nobody)), "link: path escapes from parent"},
}

func good() string {
	return descriptorText(80, 8, guids[0], image(guids[0], typeDelta, "a.hds"), shot(guids[0], nobody))
}

func TestBadDescriptors(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "private")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"private/a.hds": string(sound(2)), "private/b.hds": string(sound(2)), "private/raw": strings.Repeat("x", 80*512), "secret": strings.Repeat("s", 80*512),
	} {
		write(t, filepath.Join(top, name), content)
	}
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../secret", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, descriptorName)
	for _, bad := range badDescriptors {
		t.Run(bad.name, func(t *testing.T) {
			write(t, path, bad.text)
			_, _, err := Open(dir, "")
			says(t, err, bad.says)
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one line: %v", err)
			}
			if _, found := Check(path, ""); !slices.ContainsFunc(found, func(f Finding) bool { return f.Level == Error && strings.Contains(f.Text, bad.says) }) {
				t.Errorf("check does not find it: %+v", found)
			}
		})
	}
	for name, text := range map[string]string{
		"as it should be": good(),
		"absolute":        descriptorText(80, 8, guids[0], image(guids[0], typeDelta, filepath.Join(dir, "a.hds")), shot(guids[0], nobody)),
		"no top":          strings.Replace(good(), "<TopGUID>{"+guids[0]+"}</TopGUID>", "", 1),
		"no shots":        descriptorText(80, 8, guids[2], image(guids[2], typeDelta, "a.hds"), ""),
		"of 2020":         strings.ReplaceAll(good(), "Parallels_disk_image", "Virtuozzo_disk_image"),
		"in Latin-1":      strings.Replace(strings.Replace(good(), "UTF-8", "ISO-8859-1", 1), "<Padding>", "<Name>B\xfcro</Name><Padding>", 1),
		"before a growth": descriptorText(72, 8, guids[0], image(guids[0], typeDelta, "a.hds"), shot(guids[0], nobody)),
		"after a growth":  descriptorText(88, 8, guids[0], image(guids[0], typeDelta, "a.hds"), shot(guids[0], nobody)),
	} {
		write(t, path, text)
		img, _, err := Open(dir, "")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := readAll(t, img); len(got) != 80*512 || got[0] != 'a' {
			t.Errorf("%s: %d bytes", name, len(got))
		}
		img.Close()
	}
	if _, _, err := Open(filepath.Join(top, "nowhere"), ""); err == nil {
		t.Error("an image that is not there was opened")
	}
	_, _, err := Open(top, "")
	says(t, err, filepath.Join(top, descriptorName)+": no such file or directory")
	_, _, err = Open(filepath.Join(dir, "a.hds"), guids[0])
	says(t, err, "a single delta has no snapshots")
}
