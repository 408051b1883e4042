package store

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/livefleet/handover/helper/internal/blockmap"
	"github.com/livefleet/handover/helper/internal/nbd"
)

// twoPoints is a store with two points of a disk of ten clusters and a half: the letters
// are its clusters, and a dot is zeroes. The disk in the file is that of the second.
func twoPoints(t *testing.T, one, two string) (dir, path, first string) {
	t.Helper()
	dir, path = filepath.Join(inMemory(t), "store"), filepath.Join(t.TempDir(), "disk")
	s, err := Open(dir, true)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, letters := range []string{one, two} {
		take, err := s.Begin("", "")
		if err != nil {
			t.Fatal(err)
		}
		w, err := take.Volume("disk", testSize, false)
		if err == nil {
			err = w.Write(lettered(letters), 0)
		}
		if err != nil {
			t.Fatal(err)
		}
		p, err := take.Finish(time.Unix(1, 0), 0)
		if err != nil {
			t.Fatal(err)
		}
		if first == "" {
			first = p.ID
		}
	}
	writeSparse(t, path, two)
	return dir, path, first
}

func lettered(letters string) []byte {
	b := make([]byte, testSize)
	for i, c := range []byte(letters) {
		if c != '.' {
			part := b[i*cluster : min(testSize, (i+1)*cluster)]
			copy(part, bytes.Repeat([]byte{c}, len(part)))
		}
	}
	return b
}

// writeSparse writes a disk with holes where it has zeroes.
func writeSparse(t *testing.T, path, letters string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(testSize); err != nil {
		t.Fatal(err)
	}
	for i, c := range []byte(letters) {
		if off := i * cluster; c != '.' {
			if _, err := f.WriteAt(lettered(letters)[off:min(testSize, off+cluster)], int64(off)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// goBack goes back to a point by the marks of some clusters.
func goBack(t *testing.T, dir, path, point string, marked ...int64) *Restored {
	t.Helper()
	s, err := Open(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	v, p, err := OpenVolume(dir, point, "disk")
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	done, err := s.Rollback(context.Background(), p, []Disk{{View: v, Path: path, Since: func(*nbd.Disk) (*blockmap.Map, string) {
		m := blockmap.New(testSize, cluster)
		for _, c := range marked {
			m.MarkRange(c*cluster, 1)
		}
		return m, ""
	}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	want := make([]byte, testSize)
	if _, rerr := v.ReadAt(want, 0); err != nil || rerr != nil || !bytes.Equal(got, want) {
		t.Fatalf("the disk is not that of the point (%v, %v)", err, rerr)
	}
	return done[0]
}

// The clusters in which the points differ are written, and those with a mark that differ;
// the others are not even read.
func TestOnlyWhatCanDifferIsRead(t *testing.T) {
	dir, path, first := twoPoints(t, "abcdefghij.", "abcDefghij.")
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("X"), 7*cluster+5); err != nil {
		t.Fatal(err)
	}
	f.Close()
	done := goBack(t, dir, path, first, 6, 7)
	if done.How != Marks || done.Read != 3*cluster || done.Written != (2+2)*cluster || done.Zeroed != 0 {
		t.Errorf("%+v", done) // where a gate may stand is always written
	}
}

// Holes are zeroes, and are read only where data belong.
func TestHolesAreNotRead(t *testing.T) {
	dir, path, first := twoPoints(t, "abcd..g.i..", "abcd....i..")
	done := goBack(t, dir, path, first, 4, 5, 6, 7, 10)
	if done.How != Marks || done.Read != cluster || done.Written != (2+1)*cluster || done.Zeroed != 0 {
		t.Errorf("%+v", done)
	}
}

// A cluster in which the points differ, and that is not as in the current one although it
// has no mark: the marks are not whole, and all is compared.
func TestAWriteWithoutAMarkIsSeen(t *testing.T) {
	dir, path, first := twoPoints(t, "abcdefghij.", "abcDefghij.")
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []int64{3, 8} {
		if _, err := f.WriteAt([]byte("X"), c*cluster+5); err != nil {
			t.Fatal(err)
		}
	}
	f.Close()
	done := goBack(t, dir, path, first)
	if done.How != Digests || !strings.Contains(done.Why, "the cluster at 196608 is not as in the current snapshot, and has no mark") {
		t.Errorf("%+v", done)
	}
}

// A current point whose tables are damaged is none to rely on, and no reason not to go back.
func TestADamagedCurrentPointIsNotReliedOn(t *testing.T) {
	dir, path, first := twoPoints(t, "abcdefghij.", "abcDefghij.")
	x, err := Peek(dir)
	if err != nil {
		t.Fatal(err)
	}
	sums := filepath.Join(dir, layersDir, x.Layers[1].Sums.Name)
	b, err := os.ReadFile(sums)
	if err != nil {
		t.Fatal(err)
	}
	b[30] ^= 1
	if err := os.WriteFile(sums, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if done := goBack(t, dir, path, first); done.How != Digests || !strings.Contains(done.Why, "is damaged") {
		t.Errorf("%+v", done)
	}
}
