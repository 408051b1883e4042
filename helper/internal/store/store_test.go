package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// grown is a store with some points.
func grown(t *testing.T, points int) *model {
	m := newModel(t, 3)
	m.grow(points)
	return m
}

// One byte that is flipped anywhere in the store is named, with the points that need it,
// and is never part of what is read.
func TestOneFlippedByteIsNamed(t *testing.T) {
	start := grown(t, 4)
	var files []string
	for _, pattern := range []string{"store*.json", "layers/*", "files/*/*"} {
		found, err := filepath.Glob(filepath.Join(start.dir, pattern))
		start.check(err)
		files = append(files, found...)
	}
	for i, path := range files {
		m := start.fork(uint64(i))
		name, err := filepath.Rel(start.dir, path)
		m.check(err)
		path = filepath.Join(m.dir, name)
		b, err := os.ReadFile(path)
		m.check(err)
		flips := 6
		if testing.Short() {
			flips = 1
		}
		for range flips {
			at := m.rnd.IntN(len(b))
			b[at] ^= 1 << m.rnd.IntN(8)
			m.check(os.WriteFile(path, b, 0o600))
			r, err := Verify(context.Background(), m.dir)
			switch {
			case name == indexFile:
				if err == nil || !strings.Contains(err.Error(), indexFile) {
					t.Errorf("byte %d of %s: %v", at, name, err)
				}
			case err != nil || len(r.Faults) != 1 || r.Faults[0].File != name || strings.HasPrefix(name, layersDir) && len(r.Faults[0].Points) == 0:
				t.Errorf("byte %d of %s: %v %+v", at, name, err, r)
			}
			for id, want := range m.points {
				v, _, err := OpenVolume(m.dir, id, "disk")
				if err != nil {
					continue
				}
				got := make([]byte, testSize)
				if _, err := v.ReadAt(got, 0); err == nil && !bytes.Equal(got, want) {
					t.Errorf("byte %d of %s: the point was read, and is another", at, name)
				}
				m.check(v.Close())
			}
			if along, found := strings.CutPrefix(name, filesDir+"/"); found {
				if f, err := OpenFile(m.dir, filepath.Dir(along), filepath.Base(along)); err == nil || !strings.Contains(err.Error(), name+" is damaged") {
					t.Errorf("byte %d of %s: %v", at, name, err)
					f.Close()
				}
			}
			b[at] = b[at] ^ 0xff
			b, err = os.ReadFile(filepath.Join(start.dir, name))
			m.check(err)
		}
	}
}

// A merge reads through the sums: what is damaged is not given a new digest.
func TestDamageIsNotMerged(t *testing.T) {
	m := newModel(t, 5)
	m.chain = true
	s, err := Open(m.dir, true)
	m.check(err)
	var ids []string
	for range 2 {
		p, err := m.take(s, true)
		m.check(err)
		m.taken(p)
		ids = append(ids, p.ID)
		for c := range int64(5) {
			m.noise.Read(m.disk[c*cluster : (c+1)*cluster])
		}
	}
	path := filepath.Join(m.dir, layersDir, s.Index().Layers[0].File())
	b, err := os.ReadFile(path)
	m.check(err)
	v, _, err := OpenVolume(m.dir, ids[1], "disk")
	m.check(err)
	c := slices.IndexFunc(v.places, func(p place) bool { return p/blank == 2 && p.isData() })
	at := int64(v.places[c]&dataAt)*cluster + 5
	m.check(v.Close())
	b[at] ^= 1
	m.check(os.WriteFile(path, b, 0o600))
	if err := s.Delete(context.Background(), ids[0]); err == nil || !strings.Contains(err.Error(), "is damaged at") {
		t.Errorf("%v", err)
	}
	m.check(s.Close())
	b[at] ^= 1
	m.check(os.WriteFile(path, b, 0o600))
	m.whole(true)
}

// A store whose index is lost is no new one: with a new index all layers would be files
// that no point needs.
func TestALostIndexIsNoNewStore(t *testing.T) {
	for _, gone := range [][]string{{indexFile}, {indexFile, copyFile}} {
		m := grown(t, 2)
		files, err := filepath.Glob(filepath.Join(m.dir, layersDir, "*"))
		m.check(err)
		aside, err := os.ReadFile(filepath.Join(m.dir, indexFile))
		m.check(err)
		for _, name := range gone {
			m.check(os.Remove(filepath.Join(m.dir, name)))
		}
		for _, create := range []bool{true, false, true} {
			if s, err := Open(m.dir, create); err == nil || !strings.Contains(err.Error(), "is missing, and files of a store are there") {
				t.Errorf("%v %v: %v", gone, create, err)
				m.check(errors.Join(err, s.Close()))
			}
		}
		if _, err := Peek(m.dir); err == nil || !strings.Contains(err.Error(), "is missing, and files of a store are there") {
			t.Errorf("%v: %v", gone, err)
		}
		left, err := filepath.Glob(filepath.Join(m.dir, layersDir, "*"))
		m.check(err)
		if !slices.Equal(files, left) {
			t.Errorf("%v: of %d files %d are left", gone, len(files), len(left))
		}
		for _, name := range gone {
			m.check(os.WriteFile(filepath.Join(m.dir, name), aside, 0o600))
		}
		m.whole(true)
	}
}

// The folders above a new store are on the disk, and root's alone.
func TestANewStoreStaysWithItsFolders(t *testing.T) {
	top := t.TempDir()
	synced := map[string]bool{}
	s, err := open(filepath.Join(top, "repository", "shop"), true, disk{before: func(step, path string) error {
		synced[path] = synced[path] || step == "syncdir"
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, dir := range []string{top, filepath.Join(top, "repository"), filepath.Join(top, "repository", "shop")} {
		st, err := os.Stat(dir)
		if err != nil || !synced[dir] || dir != top && st.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v %v %v", dir, err, st.Mode(), synced[dir])
		}
	}
}

func TestRefusals(t *testing.T) {
	m := grown(t, 2)
	s, err := Open(m.dir, false)
	m.check(err)
	says := func(text string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%v\n  should say %q", err, text)
		}
	}
	_, err = Open(m.dir, false)
	says(fmt.Sprintf("process %d works on it", os.Getpid()), err)
	take, err := s.Begin("first", "")
	m.check(err)
	if _, err := m.fill(s, take, true); err != nil {
		t.Fatal(err)
	}
	_, err = s.Begin("first", "")
	says("the name first is taken", err)
	_, err = s.Begin("../x", "")
	says("cannot be a name", err)
	says(`there is no snapshot "nothing"`, s.Delete(context.Background(), "nothing"))
	_, _, err = OpenVolume(m.dir, "first", "other")
	says(`has no volume "other": it has disk`, err)
	_, err = OpenFile(m.dir, "first", "../../.lock")
	says("has no file", err)
	m.check(s.Close())

	other := t.TempDir()
	_, err = Open(other, false)
	says("there is no store here", err)
	m.check(os.WriteFile(filepath.Join(other, "thesis"), nil, 0o600))
	_, err = Open(other, true)
	says("there are other things in this folder", err)

	b, err := os.ReadFile(filepath.Join(m.dir, indexFile))
	m.check(err)
	m.check(os.WriteFile(filepath.Join(m.dir, indexFile), bytes.Replace(b, []byte(`"version":1`), []byte(`"version":2`), 1), 0o600))
	_, err = Open(m.dir, false)
	says("a store of version 2, and this pcopy understands 1", err)
	m.check(os.WriteFile(filepath.Join(m.dir, indexFile), b[:len(b)/2], 0o600))
	_, err = Open(m.dir, false)
	says("copy store.copy.json over it", err)
}

// A target becomes the disk of a point, and nothing is written that is so already.
func TestOnlyTheDifferenceIsWritten(t *testing.T) {
	m := grown(t, 3)
	path := filepath.Join(inMemory(t), "target")
	var first string
	for id := range m.points {
		first = id
		break
	}
	v, _, err := OpenVolume(m.dir, first, "disk")
	m.check(err)
	defer v.Close()
	same := func(written int64) {
		t.Helper()
		r, err := v.WriteTo(context.Background(), path)
		m.check(err)
		got, err := os.ReadFile(path)
		m.check(err)
		if !bytes.Equal(got, m.points[first]) {
			t.Error("the target is not the point's disk")
		}
		if written >= 0 && r.Written+r.Zeroed != written {
			t.Errorf("%+v, and %d bytes differed", r, written)
		}
	}
	same(-1)
	same(0)
	b := bytes.Clone(m.points[first])
	b[3*cluster+7] ^= 1
	b[len(b)-1] ^= 1
	m.check(os.WriteFile(path, b, 0o600))
	same(cluster + 512)
	m.check(os.Truncate(path, testSize-512))
	if _, err := v.WriteTo(context.Background(), path); err == nil || !strings.Contains(err.Error(), "has") {
		t.Errorf("a target of another size: %v", err)
	}
}

// A chain of 200 increments is read as quickly as one layer: each cluster from one place.
func TestLongChain(t *testing.T) {
	if testing.Short() {
		t.Skip("200 layers take minutes with the race detector: the suite runs this without")
	}
	m := newModel(t, 9)
	m.chain = true
	s, err := Open(m.dir, true)
	m.check(err)
	for range 200 {
		m.scribble(1)
		p, err := m.take(s, false)
		m.check(err)
		m.points = map[string][]byte{}
		m.taken(p)
	}
	now := s.Index().Now()
	if n := len(s.Index().chain(now.Volumes[0].Layer)); n < 100 {
		t.Fatalf("the chain has %d layers", n)
	}
	v, _, err := OpenVolume(m.dir, now.ID, "disk")
	m.check(err)
	got := make([]byte, testSize)
	if _, err := v.ReadAt(got, 0); err != nil || !bytes.Equal(got, m.disk) {
		t.Errorf("another disk (%v)", err)
	}
	m.check(v.Close())
	raw := filepath.Join(inMemory(t), "raw")
	m.check(os.WriteFile(raw, m.disk, 0o600))
	m.qemu("compare", "-q", "-f", "raw", "-F", "qcow2", raw, v.Path())
	// And only the newest is kept: most of the chain goes.
	verdicts, err := Prune(s.Index().Points, s.Index().Current, Policy{Last: 1}, time.UTC)
	m.check(err)
	var gone []string
	for _, v := range verdicts[1:] {
		gone = append(gone, v.Point.ID)
	}
	m.check(s.Delete(context.Background(), gone...))
	if n := len(s.Index().Layers); n > 3 {
		t.Errorf("%d layers are left", n)
	}
	m.check(s.Close())
	m.whole(true)
}

func TestPrune(t *testing.T) {
	at := func(text string) *Point {
		when, err := time.Parse("2006-01-02 15:04", text)
		if err != nil {
			t.Fatal(err)
		}
		return &Point{ID: text, Taken: when}
	}
	points := []*Point{at("2025-12-31 23:00"), at("2026-10-31 12:00"), at("2026-11-01 12:00"), at("2026-11-22 12:00"), at("2026-11-25 09:10"), at("2026-11-26 08:05"), at("2026-11-26 08:55"), at("2026-11-26 09:10")}
	points[1].Name = "before-upgrade"
	for _, c := range []struct {
		policy Policy
		keeps  string
	}{
		{Policy{Last: 2}, "2026-11-26 09:10: current last; 2026-11-26 08:55: last; 2026-10-31 12:00: named"},
		{Policy{Hourly: 2}, "2026-11-26 09:10: current hourly; 2026-11-26 08:55: hourly; 2026-10-31 12:00: named"},
		{Policy{Daily: 2}, "2026-11-26 09:10: current daily; 2026-11-25 09:10: daily; 2026-10-31 12:00: named"},
		{Policy{Weekly: 2}, "2026-11-26 09:10: current weekly; 2026-11-22 12:00: weekly; 2026-10-31 12:00: named"},
		{Policy{Monthly: 9}, "2026-11-26 09:10: current monthly; 2026-10-31 12:00: named monthly; 2025-12-31 23:00: monthly"},
		{Policy{Yearly: 1}, "2026-11-26 09:10: current yearly; 2026-10-31 12:00: named"},
		{Policy{Last: 1, Yearly: 9}, "2026-11-26 09:10: current last yearly; 2026-10-31 12:00: named; 2025-12-31 23:00: yearly"},
	} {
		verdicts, err := Prune(points, points[len(points)-1].ID, c.policy, time.UTC)
		if err != nil {
			t.Fatal(err)
		}
		var kept []string
		for _, v := range verdicts {
			if v.Keep != (len(v.Why) > 0) {
				t.Errorf("%+v", v)
			}
			if v.Keep {
				kept = append(kept, v.Point.ID+": "+strings.Join(v.Why, " "))
			}
		}
		if got := strings.Join(kept, "; "); len(verdicts) != len(points) || got != c.keeps {
			t.Errorf("%+v keeps\n  %s\nand should\n  %s", c.policy, got, c.keeps)
		}
	}
	// The clock was ahead for a while: what was taken then does not outdo what follows.
	ahead := []*Point{at("2027-05-01 09:00"), at("2027-05-01 10:00"), at("2026-11-25 09:00"), at("2026-11-26 09:00")}
	verdicts, err := Prune(ahead, ahead[3].ID, Policy{Last: 2, Daily: 2}, time.UTC)
	if err != nil || !verdicts[0].Keep || !verdicts[1].Keep || verdicts[1].Point != ahead[2] || verdicts[2].Keep || verdicts[3].Keep {
		t.Errorf("%v %+v", err, verdicts)
	}
	for _, bad := range []Policy{{}, {Last: -1}} {
		if _, err := Prune(points, "", bad, time.UTC); err == nil {
			t.Errorf("%+v", bad)
		}
	}
}

// What an index is read from is what it is written as; anything else is an error.
func FuzzIndex(f *testing.F) {
	for _, x := range []*Index{
		{ID: "0123456789abcdef"},
		{ID: "0123456789abcdef", Current: "1123456789abcdef", Pending: []string{"2123456789abcdef.qcow2"},
			Points: []*Point{{ID: "1123456789abcdef", Name: "a", Volumes: []Volume{{Name: "v", Size: 512, Layer: "2123456789abcdef", Mark: &Mark{"x", 1}}},
				Files: []File{{"config.json", 3, strings.Repeat("a", 64)}}}},
			Layers: []*Layer{{ID: "2123456789abcdef", Volume: "v", Size: 512, Bytes: 5 * cluster, Clusters: 1, SHA256: strings.Repeat("b", 64),
				Sums: File{"2123456789abcdef-1.sums", 48, strings.Repeat("c", 64)}}}},
	} {
		b, err := json.Marshal(x)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		x, err := parseIndex(sealed(body))
		if err != nil {
			return
		}
		for _, l := range x.Layers {
			if strings.ContainsAny(l.File()+l.Sums.Name, "/") || len(x.chain(l.ID)) > len(x.Layers) {
				t.Fatalf("%+v", l)
			}
		}
		b, err := x.encode()
		if err != nil {
			t.Fatal(err)
		}
		if y, err := parseIndex(b); err != nil || len(y.Points) != len(x.Points) {
			t.Fatalf("%v", err)
		}
	})
}

// sealed is an index with the right digest.
func sealed(body []byte) []byte {
	return fmt.Appendf(nil, `{"format":%q,"version":%d,"sha256":%q,"index":%s}`, format, Version, fileOf("", body).SHA256, body)
}

func FuzzSums(f *testing.F) {
	f.Add(encodeSums(nil))
	f.Add(encodeSums([]entry{{cluster: 1, sum: sum{1}}, {cluster: 7, zero: true}}))
	f.Fuzz(func(t *testing.T, in []byte) {
		entries, err := parseSums(in)
		if err == nil && !bytes.Equal(encodeSums(entries), in) {
			t.Fatal("read and written are two things")
		}
	})
}
