package store

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/livefleet/handover/helper/internal/blockmap"
	"github.com/livefleet/handover/helper/internal/nbd"
)

// struck ends a rollback at one of its steps. It knows what the disks held when they were
// last synced: without the host's power any sector written since may be the old one.
type struck struct {
	t      *testing.T
	left   int
	paths  []string
	synced map[string][]byte
	after  string // a disk whose sync was the last step
}

func (k *struck) before(step, path string) error {
	if k.after != "" {
		k.look(k.after)
		k.after = ""
	}
	if k.left--; k.left < 0 {
		return errKilled
	}
	if _, ours := k.synced[path]; ours && step == "fsync" {
		k.after = path
	}
	return nil
}

func (k *struck) look(path string) {
	b, err := os.ReadFile(path)
	if err != nil {
		k.t.Fatal(err)
	}
	k.synced[path] = b
}

// loses takes sectors back that were not synced.
func (k *struck) loses(rnd *rand.Rand) {
	for _, path := range k.paths {
		now, err := os.ReadFile(path)
		if err != nil {
			k.t.Fatal(err)
		}
		for at := 0; at < len(now); at += gateSector {
			if rnd.IntN(2) == 0 {
				copy(now[at:at+gateSector], k.synced[path][at:])
			}
		}
		if err := os.WriteFile(path, now, 0o600); err != nil {
			k.t.Fatal(err)
		}
	}
}

// A rollback of two disks that is struck at any step, by a kill or a loss of power, leaves
// both as they were, both as they are to be, or one of them shut by a gate. Then the same
// once more, or one to another point, makes them whole.
func TestRollbackStruckAtEveryStep(t *testing.T) {
	rnd, noise := rand.New(rand.NewPCG(4, 4)), rand.NewChaCha8([32]byte{4})
	base := filepath.Join(inMemory(t), "base")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	volumes := []string{"a", "b"}
	moments := [2][2][]byte{}
	s, err := Open(base, true)
	must(err)
	points := make([]*Point, 2)
	for n := range moments {
		take, err := s.Begin("", "")
		must(err)
		for i, name := range volumes {
			disk := make([]byte, testSize)
			noise.Read(disk)
			clear(disk[4*cluster*n : 4*cluster*(n+1)])
			moments[n][i] = disk
			w, err := take.Volume(name, testSize, false)
			must(err)
			must(w.Write(disk, 0))
		}
		points[n], err = take.Finish(time.Unix(int64(n), 0), 0)
		must(err)
	}
	must(s.Close())

	// The disks are those of the current point, whenever one of them is not shut.
	asCurrent := func(*nbd.Disk) (*blockmap.Map, string) { return blockmap.New(testSize, cluster), "" }
	strikes, gated := 0, 0
	for left := 0; ; left += stride() {
		dir := inMemory(t)
		k := &struck{t: t, left: left, synced: map[string][]byte{}}
		must(os.CopyFS(filepath.Join(dir, "store"), os.DirFS(base)))
		for i, name := range volumes {
			path := filepath.Join(dir, name)
			k.paths = append(k.paths, path)
			must(os.WriteFile(path, moments[1][i], 0o600))
			k.look(path)
		}
		back := func(n int, d disk) error {
			s, err := open(filepath.Join(dir, "store"), false, d)
			must(err)
			defer s.Close()
			var disks []Disk
			for i, name := range volumes {
				v, _, err := OpenVolume(s.dir, points[n].ID, name)
				must(err)
				defer v.Close()
				disks = append(disks, Disk{View: v, Path: k.paths[i], Since: asCurrent})
			}
			_, err = s.Rollback(context.Background(), points[n], disks, nil)
			return err
		}
		are := func() (n int) { // the moment that the disks are of; -1: one of them is shut
			t.Helper()
			is := [2]int{}
			for i, path := range k.paths {
				got, err := os.ReadFile(path)
				must(err)
				if _, shut, err := Shut(bytes.NewReader(got)); err != nil || shut {
					must(err)
					return -1
				}
				switch {
				case bytes.Equal(got, moments[1][i]):
					is[i] = 1
				case !bytes.Equal(got, moments[0][i]):
					t.Fatalf("struck at step %d: the disk %s is neither old nor new, and has no gate", left, volumes[i])
				}
			}
			if is[0] != is[1] {
				t.Fatalf("struck at step %d: one disk is old and the other is new, and neither has a gate", left)
			}
			return is[0]
		}
		err := back(0, disk{before: k.before})
		if err == nil {
			if are() != 0 {
				t.Fatal("the disks are not those of the point")
			}
			break
		}
		if !killed(err) {
			t.Fatal(err)
		}
		strikes++
		if left%3 > 0 {
			k.loses(rnd)
		}
		n := are()
		if n < 0 {
			gated++
		}
		s, err := Open(filepath.Join(dir, "store"), false)
		must(err)
		if x := s.Index(); x.Restoring == "" && n < 0 || n >= 0 && x.Restored && n != 0 {
			t.Fatalf("struck at step %d: the index does not know of it", left)
		}
		if n >= 0 && s.Index().Restoring != "" {
			must(s.Settle())
			if want := points[n].ID; s.Index().Current != want {
				t.Fatalf("struck at step %d: the disks are of another point than the current one", left)
			}
		}
		must(s.Close())
		to := left % 2 // once more, or back to where it was
		must(back(to, disk{}))
		if are() != to {
			t.Fatalf("struck at step %d: the second rollback did not make the disks whole", left)
		}
		x, err := Peek(filepath.Join(dir, "store"))
		must(err)
		if x.Current != points[to].ID || x.Restoring != "" || x.Restored {
			t.Fatalf("struck at step %d: %+v", left, x)
		}
	}
	if strikes < 25/stride() || gated < 10/stride() {
		t.Errorf("%d steps were struck, and a gate stood after %d", strikes, gated)
	}
	t.Logf("%d steps, a gate after %d", strikes, gated)
}

// The collection's own word for an image that is shut (module image_volume) is the
// beginning of a gate.
func TestTheCollectionKnowsAGate(t *testing.T) {
	b, err := os.ReadFile("../../../plugins/module_utils/_podman/volume_observer.py")
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := bytes.Cut(b, []byte(`ROLLBACK_BEGUN = b"`))
	word, _, ended := bytes.Cut(after, []byte(`"`))
	if !found || !ended || !bytes.HasPrefix(gateFor("0123456789abcdef"), word) || len(word) < 20 {
		t.Errorf("volume_observer.py looks for %q", word)
	}
}
