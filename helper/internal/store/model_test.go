package store

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/livefleet/handover/helper/internal/blockmap"
	"github.com/livefleet/handover/helper/internal/nbd"
)

const testSize = 10*cluster + 512

// inMemory is a folder whose syncs cost nothing.
func inMemory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "store-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// model is a store, and all that it has to hold.
type model struct {
	t      *testing.T
	rnd    *rand.Rand
	noise  *rand.ChaCha8
	dir    string
	disk   []byte            // the workload's, now
	points map[string][]byte // by ID
	dirty  map[int64]bool    // clusters that were written since the current point
	clock  time.Time
	chain  bool // no point but the first is full

	byMarks int // rollbacks
}

func newModel(t *testing.T, seed uint64) *model {
	m := &model{
		t: t, rnd: rand.New(rand.NewPCG(seed, 7)), noise: rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), 7}),
		dir: filepath.Join(inMemory(t), "store"), disk: make([]byte, testSize), points: map[string][]byte{}, dirty: map[int64]bool{},
		clock: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC),
	}
	m.scribble(9)
	return m
}

// fork is the same once more, in a folder of its own.
func (m *model) fork(seed uint64) *model {
	n := newModel(m.t, seed)
	m.check(os.CopyFS(n.dir, os.DirFS(m.dir)))
	n.disk, n.points, n.dirty, n.clock = bytes.Clone(m.disk), maps.Clone(m.points), maps.Clone(m.dirty), m.clock
	return n
}

func (m *model) check(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

// scribble is the workload at work.
func (m *model) scribble(times int) {
	for range times {
		off := m.rnd.Int64N(testSize)
		n := min(1+m.rnd.Int64N(2*cluster), testSize-off)
		if m.rnd.IntN(4) == 0 {
			off = off / cluster * cluster
			clear(m.disk[off:min(off+cluster, testSize)])
		} else {
			m.noise.Read(m.disk[off : off+n])
		}
		for c := off / cluster; c <= (min(off+max(n, cluster), testSize)-1)/cluster; c++ {
			m.dirty[c] = true
		}
	}
}

// take takes a point, of the dirty clusters alone or of everything.
func (m *model) take(s *Store, all bool) (*Point, error) {
	take, err := s.Begin("", "")
	if err != nil {
		return nil, err
	}
	p, err := m.fill(s, take, all)
	if err != nil {
		if aerr := take.Abandon(); aerr != nil && !killed(err) {
			m.t.Error(aerr)
		}
	}
	return p, err
}

func (m *model) fill(s *Store, take *Take, all bool) (*Point, error) {
	w, err := take.Volume("disk", testSize, !m.chain && m.rnd.IntN(8) == 0)
	if err != nil {
		return nil, err
	}
	order := m.rnd.Perm(int(clustersOf(testSize)))
	for _, pass := range []bool{true, false} { // what comes first is written over
		for _, c := range order {
			off := int64(c) * cluster
			if !all && !w.Full() && !m.dirty[int64(c)] || pass && c%3 > 0 {
				continue
			}
			b := bytes.Clone(m.disk[off:min(off+cluster, testSize)])
			if pass {
				m.noise.Read(b)
			}
			if !pass && bytes.Equal(b, make([]byte, len(b))) {
				err = w.Zero(off, int64(len(b)))
			} else {
				err = w.Write(b, off)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	if err := take.File("config.json", bytes.NewReader([]byte(fmt.Sprint(len(m.points))))); err != nil {
		return nil, err
	}
	m.clock = m.clock.Add(time.Hour)
	return take.Finish(m.clock, 1)
}

func (m *model) taken(p *Point) {
	m.points[p.ID] = bytes.Clone(m.disk)
	clear(m.dirty)
}

func (m *model) any() string {
	ids := make([]string, 0, len(m.points))
	for id := range m.points {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids[m.rnd.IntN(len(ids))]
}

// restore has the workload go on from a point: on a disk in a file.
func (m *model) restore(s *Store, id string) error {
	path := filepath.Join(filepath.Dir(m.dir), workload)
	m.check(os.WriteFile(path, m.disk, 0o600))
	v, p, err := OpenVolume(m.dir, id, "disk")
	m.check(err)
	defer v.Close()
	done, err := s.Rollback(context.Background(), p, []Disk{{View: v, Path: path, Since: m.since()}}, nil)
	if err != nil {
		return err
	}
	if done[0].How == Marks {
		m.byMarks++
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, m.points[id]) {
		m.t.Fatalf("the disk is not that of the point (%v)", err)
	}
	return nil
}

// workload is the name of the file with the workload's disk.
const workload = "workload"

// since gives a rollback the marks, now and then.
func (m *model) since() func(*nbd.Disk) (*blockmap.Map, string) {
	if m.rnd.IntN(3) == 0 {
		return nil
	}
	return func(*nbd.Disk) (*blockmap.Map, string) {
		marks := blockmap.New(testSize, cluster)
		for c := range m.dirty {
			marks.MarkRange(c*cluster, cluster)
		}
		return marks, ""
	}
}

func (m *model) restored(id string) {
	copy(m.disk, m.points[id])
	clear(m.dirty)
}

// whole demands that every point is there, and nothing else is in the store.
func (m *model) whole(independent bool) {
	m.t.Helper()
	x, err := Peek(m.dir)
	m.check(err)
	if len(x.Points) != len(m.points) {
		m.t.Fatalf("%d points are in the store, and %d were taken and not deleted", len(x.Points), len(m.points))
	}
	for id, want := range m.points {
		v, _, err := OpenVolume(m.dir, id, "disk")
		m.check(err)
		got := make([]byte, testSize)
		if _, err := v.ReadAt(got, 0); err != nil {
			m.t.Fatal(err)
		}
		m.check(v.Close())
		if !bytes.Equal(got, want) {
			m.t.Fatalf("the point %s is not as it was taken", id)
		}
		if f, err := OpenFile(m.dir, id, "config.json"); err != nil {
			m.t.Fatal(err)
		} else {
			f.Close()
		}
		if independent {
			raw := filepath.Join(inMemory(m.t), "raw")
			m.check(os.WriteFile(raw, want, 0o600))
			m.qemu("check", "-q", "-f", "qcow2", v.Path())
			m.qemu("compare", "-q", "-f", "raw", "-F", "qcow2", raw, v.Path())
		}
	}
	r, err := Verify(context.Background(), m.dir)
	m.check(err)
	if len(r.Faults) > 0 {
		m.t.Fatalf("%+v", r.Faults[0])
	}
	if found, err := os.ReadDir(filepath.Join(m.dir, layersDir)); err != nil || len(found) != 2*len(x.Layers) {
		m.t.Fatalf("%d files are in the store for %d layers (%v)", len(found), len(x.Layers), err)
	}
}

func (m *model) qemu(args ...string) {
	m.t.Helper()
	if _, err := exec.LookPath("qemu-img"); err != nil {
		m.t.Skip("needs qemu-img")
	}
	if out, err := exec.Command("qemu-img", args...).CombinedOutput(); err != nil {
		m.t.Fatalf("qemu-img %v: %v\n%s", args, err, out)
	}
}

// Random trees of random writes, of which points are deleted: every point that is left is
// as it was taken, for us and for QEMU.
func TestEveryPointStays(t *testing.T) {
	seeds, changes := uint64(4), 30
	if testing.Short() {
		seeds, changes = 1, 10
	}
	for seed := range seeds {
		m := newModel(t, seed)
		s, err := Open(m.dir, true)
		m.check(err)
		for n := range changes {
			switch what := m.rnd.IntN(10); {
			case len(m.points) == 0 || what < 5:
				p, err := m.take(s, m.rnd.IntN(3) == 0)
				m.check(err)
				m.taken(p)
				m.scribble(m.rnd.IntN(6))
			case what < 8:
				id := m.any()
				if id == s.Index().Current { // nothing is known of what comes after it
					for c := range clustersOf(testSize) {
						m.dirty[c] = true
					}
				}
				m.check(s.Delete(context.Background(), id))
				delete(m.points, id)
			default:
				id := m.any()
				m.check(m.restore(s, id))
				m.restored(id)
				m.scribble(m.rnd.IntN(6))
			}
			m.whole(n == changes/2)
		}
		m.check(s.Close())
		m.whole(true)
		if m.byMarks == 0 {
			t.Errorf("seed %d: no rollback was by marks", seed)
		}
	}
}
