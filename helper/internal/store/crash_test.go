package store

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var errKilled = errors.New("killed")

func killed(err error) bool { return errors.Is(err, errKilled) }

// crash ends the work at one of its steps, and nothing is done afterwards. Without the
// host's power, what was not synced may be lost: names from some point on, and the
// content of files.
type crash struct {
	t     *testing.T
	rnd   *rand.Rand
	left  int
	aside string
	names []change        // not synced
	dirty map[string]bool // files
	count int
}

// change of a name that can be taken back.
type change struct{ step, path, was string }

func (c *crash) before(step, path string) error {
	if c.left--; c.left < 0 {
		return errKilled
	}
	keep := func() string { // the file that had the name
		if _, err := os.Lstat(path); err != nil {
			return ""
		}
		c.count++
		was := filepath.Join(c.aside, string(rune('a'+c.count%26))+"-"+filepath.Base(path)+strings.Repeat("_", c.count/26))
		if st, err := os.Lstat(path); err == nil && st.IsDir() {
			return "" // of a point that was deleted: that it comes back does not matter
		}
		if err := os.Link(path, was); err != nil {
			c.t.Fatal(err)
		}
		return was
	}
	switch step {
	case "create", "rename", "remove":
		c.names = append(c.names, change{step, path, keep()})
	case "syncdir":
		kept := c.names[:0]
		for _, n := range c.names {
			if filepath.Dir(n.path) != path {
				kept = append(kept, n)
			}
		}
		c.names = kept
	case "write":
		c.dirty[path] = filepath.Base(path) != workload // TestRollbackStruckAtEveryStep has that one
	case "fsync":
		delete(c.dirty, path)
	}
	return nil
}

// loses takes back what the disk had not got yet.
func (c *crash) loses() {
	for path, ours := range c.dirty {
		if !ours {
			continue
		}
		if st, err := os.Stat(path); err == nil && c.rnd.IntN(2) == 0 {
			if err := os.Truncate(path, c.rnd.Int64N(st.Size()+1)); err != nil {
				c.t.Fatal(err)
			}
		}
	}
	stays := c.rnd.IntN(len(c.names) + 1)
	for i := len(c.names) - 1; i >= stays; i-- {
		n := c.names[i]
		switch {
		case n.step == "rename":
			_ = os.Rename(n.path, n.path+newSuffix)
			if n.was != "" {
				_ = os.Rename(n.was, n.path)
			}
		case n.was != "":
			_ = os.Link(n.was, n.path)
		case n.step == "create":
			_ = os.Remove(n.path)
		}
	}
}

// grow takes some points, in a tree.
func (m *model) grow(points int) {
	s, err := Open(m.dir, true)
	m.check(err)
	for n := range points {
		p, err := m.take(s, false)
		m.check(err)
		m.taken(p)
		m.scribble(3)
		if n == points/2 {
			id := m.any()
			m.check(m.restore(s, id))
			m.restored(id)
			m.scribble(3)
		}
	}
	m.check(s.Close())
}

// isOldOrNew demands of a store that was struck in a change that it is as before it, or
// as after it.
func (m *model) isOldOrNew(s *Store, change, current string, done func()) {
	m.t.Helper()
	x := s.Index()
	switch {
	case change == "restore":
		if x.Restoring == "" {
			break
		}
		if _, err := s.Begin("", ""); err == nil || !strings.Contains(err.Error(), "a rollback to") {
			m.t.Errorf("a snapshot of disks that are not whole: %v", err)
		}
	case len(x.Points) == len(m.points):
	case change == "take": // it was not acknowledged, and came to be: as a whole
		p := x.point(x.Current)
		if p == nil || p.Parent != current || m.points[p.ID] != nil {
			m.t.Fatal("the new point is not the current one")
		}
		m.taken(p)
	default:
		done()
	}
}

// stride is from one step that is struck to the next: all are, but for the race detector,
// with which each takes ten times as long.
func stride() int {
	if testing.Short() {
		return 12
	}
	return 1
}

// A store that is struck at any step of any change is as before it, or as after it:
// nothing that was acknowledged is missing. So with the power of the host, too.
func TestKilledAtEveryStep(t *testing.T) {
	changes := []struct {
		name string
		do   func(m *model, s *Store) (done func(), err error)
	}{
		{"take", func(m *model, s *Store) (func(), error) {
			p, err := m.take(s, false)
			return func() { m.taken(p) }, err
		}},
		{"delete", func(m *model, s *Store) (func(), error) {
			id := s.Index().Now().Parent // others need it
			return func() { delete(m.points, id) }, s.Delete(context.Background(), id)
		}},
		{"prune", func(m *model, s *Store) (func(), error) {
			verdicts, err := Prune(s.Index().Points, s.Index().Current, Policy{Last: 2}, m.clock.Location())
			m.check(err)
			var gone []string
			for _, v := range verdicts {
				if !v.Keep {
					gone = append(gone, v.Point.ID)
				}
			}
			return func() {
				for _, id := range gone {
					delete(m.points, id)
				}
			}, s.Delete(context.Background(), gone...)
		}},
		{"restore", func(m *model, s *Store) (func(), error) {
			id := m.any()
			return func() { m.restored(id) }, m.restore(s, id)
		}},
	}
	for _, change := range changes {
		t.Run(change.name, func(t *testing.T) {
			strikes, start := 0, newModel(t, 1)
			start.grow(5)
			for left := 0; ; left += stride() {
				m := start.fork(1) // the same change each time
				c := &crash{t: t, rnd: rand.New(rand.NewPCG(uint64(left), 8)), left: left, aside: inMemory(t), dirty: map[string]bool{}}
				s, err := open(m.dir, false, disk{before: c.before})
				m.check(err)
				current := s.Index().Current
				done, err := change.do(m, s)
				if cerr := s.Close(); cerr != nil {
					t.Fatal(cerr)
				}
				if err == nil {
					done()
					m.whole(false)
					break
				}
				if !killed(err) {
					t.Fatal(err)
				}
				strikes++
				if left%2 == 1 { // the host's power, too
					c.loses()
				}
				s, err = Open(m.dir, false)
				if err != nil {
					t.Fatalf("at step %d: %v", left, err)
				}
				m.isOldOrNew(s, change.name, current, done)
				m.check(s.Close())
				m.whole(left%16 == 0)
			}
			if strikes < 10/stride() {
				t.Errorf("only %d steps were struck", strikes)
			}
			t.Logf("%d steps", strikes)
		})
	}
}
