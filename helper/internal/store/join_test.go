package store

import (
	"bytes"
	"context"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// other is a store on this host that another one joins. A test may damage what comes.
type other struct {
	dir     string
	spoil   bool
	came    []File
	readers map[string]io.Reader
}

func (o *other) Rest(known, points []string) (*Index, error) {
	b, err := OpenRest(o.dir, known, points)
	if err != nil {
		return nil, err
	}
	o.came, o.readers = nil, map[string]io.Reader{}
	return b.Index, b.Each(func(f File, r io.Reader) error { o.readers[f.Name] = r; return nil })
}

func (o *other) Next(f File) (io.Reader, error) {
	o.came = append(o.came, f)
	if o.spoil {
		return io.MultiReader(strings.NewReader("x"), o.readers[f.Name]), nil
	}
	return o.readers[f.Name], nil
}

// twin is a model of a store that has all of another one.
func (m *model) twin(dir string) *model {
	n := newModel(m.t, 5)
	n.dir, n.points, n.disk, n.clock = dir, maps.Clone(m.points), bytes.Clone(m.disk), m.clock
	return n
}

func (m *model) current() string {
	x, err := Peek(m.dir)
	m.check(err)
	return x.Current
}

// more takes some points in a tree that is there.
func (m *model) more(points int) {
	s, err := Open(m.dir, false)
	m.check(err)
	for range points {
		m.scribble(3)
		p, err := m.take(s, false)
		m.check(err)
		m.taken(p)
	}
	m.check(s.Close())
}

func (m *model) remove(ids ...string) {
	s, err := Open(m.dir, false)
	m.check(err)
	m.check(s.Delete(context.Background(), ids...))
	m.check(s.Close())
	for _, id := range ids {
		delete(m.points, id)
	}
}

func TestAStoreJoinsAnother(t *testing.T) {
	one := grown(t, 5)
	from := &other{dir: one.dir}
	dir := filepath.Join(inMemory(t), "two")
	told, err := Join(dir, Joining{DryRun: true}, from)
	one.check(err)
	if _, err := os.Stat(dir); len(told.Points) != 5 || told.Bytes == 0 || err == nil {
		t.Errorf("%+v %v", told, err)
	}
	came, err := Join(dir, Joining{Current: true}, from)
	one.check(err)
	two := one.twin(dir)
	two.whole(true)
	if came.Bytes != told.Bytes || two.current() != one.current() {
		t.Errorf("%d bytes came, and %d were told; %s is the current one, and was %s", came.Bytes, told.Bytes, two.current(), one.current())
	}
	x, err := Peek(dir)
	one.check(err)
	y, err := Peek(one.dir)
	one.check(err)
	for i, p := range x.Points {
		if p.Parent != y.Points[i].Parent || p.Volumes[0].Mark != nil {
			t.Errorf("%+v", p)
		}
	}
	before := x.Generation
	came, err = Join(dir, Joining{Current: true}, from)
	one.check(err)
	if x, err = Peek(dir); err != nil || came.Points == nil || len(came.Points) != 0 || len(from.came) != 0 || x.Generation != before {
		t.Errorf("the second time %d points came, of %d files, and the index changed from %d to %d (%v)", len(came.Points), len(from.came), before, x.Generation, err)
	}
}

// Only what is new travels, there and back again, whatever was merged on either side.
func TestOnlyTheRestComes(t *testing.T) {
	for seed := range uint64(12) {
		one := newModel(t, seed)
		one.grow(6)
		dir := filepath.Join(inMemory(t), "two")
		from, back := &other{dir: one.dir}, &other{dir: dir}
		_, err := Join(dir, Joining{Current: true}, from)
		one.check(err)
		two := one.twin(dir)
		// What was written is known since the current point: that one stays.
		shared := slices.DeleteFunc(slices.Sorted(maps.Keys(one.points)), func(id string) bool { return id == one.current() })
		one.remove(shared[0], shared[2])
		two.remove(shared[1], shared[2])
		one.more(2)
		all := one.fork(seed)
		maps.Copy(all.points, two.points)
		y, err := Peek(one.dir)
		one.check(err)
		known, err := Peek(dir)
		one.check(err)
		came, err := Join(dir, Joining{Current: true}, from)
		one.check(err)
		want := 0
		for _, p := range y.Points {
			if known.point(p.ID) == nil {
				want++
			}
		}
		for _, f := range from.came {
			if slices.ContainsFunc(known.Layers, func(l *Layer) bool { return f.Name == filepath.Join(layersDir, l.File()) }) {
				t.Errorf("seed %d: %s came, and was there", seed, f.Name)
			}
		}
		if len(came.Points) != want {
			t.Errorf("seed %d: %d points came, and %d were lacking", seed, len(came.Points), want)
		}
		two = all.twin(dir)
		two.whole(seed == 0)
		if two.current() != one.current() {
			t.Errorf("seed %d: the current point is another", seed)
		}
		two.disk = bytes.Clone(one.disk)
		two.more(2)
		_, err = Join(one.dir, Joining{Current: true}, back)
		one.check(err)
		one.points = maps.Clone(two.points)
		one.whole(false)
	}
}

// A point that is asked for alone goes on from the nearest one that is there.
func TestSomePointsJoin(t *testing.T) {
	one := newModel(t, 9)
	one.chain = true
	one.grow(2)
	one.more(3)
	x, err := Peek(one.dir)
	one.check(err)
	ids := func(at ...int) (words []string) {
		for _, i := range at {
			words = append(words, x.Points[i].ID)
		}
		return words
	}
	dir := filepath.Join(inMemory(t), "two")
	_, err = Join(dir, Joining{Points: ids(1)}, &other{dir: one.dir})
	one.check(err)
	_, err = Join(dir, Joining{Points: ids(4), Current: true}, &other{dir: one.dir})
	one.check(err)
	y, err := Peek(dir)
	one.check(err)
	last := y.point(x.Points[4].ID)
	if len(y.Points) != 2 || last.Parent != one.parents(x, x.Points[4], y) || y.Current != last.ID {
		t.Errorf("%+v, current %s", last, y.Current)
	}
	two := one.twin(dir)
	maps.DeleteFunc(two.points, func(id string, _ []byte) bool { return y.point(id) == nil })
	two.whole(true)
	if _, err = Join(dir, Joining{Points: []string{"nothing"}}, &other{dir: one.dir}); err == nil || !strings.Contains(err.Error(), `there is no snapshot "nothing"`) {
		t.Errorf("%v", err)
	}
}

// parents is the nearest one above a point that another store has.
func (m *model) parents(x *Index, p *Point, y *Index) string {
	for id := p.Parent; id != ""; id = x.point(id).Parent {
		if y.point(id) != nil {
			return id
		}
	}
	return ""
}

func TestNothingIsMixedUp(t *testing.T) {
	named := func(dir, name string) {
		m := newModel(t, 4)
		m.dir = dir
		s, err := Open(dir, true)
		m.check(err)
		take, err := s.Begin(name, "")
		m.check(err)
		_, err = m.fill(s, take, true)
		m.check(err)
		m.check(s.Close())
	}
	one, two := filepath.Join(inMemory(t), "one"), filepath.Join(inMemory(t), "two")
	named(one, "before-upgrade")
	named(two, "before-upgrade")
	for _, dry := range []bool{true, false} {
		_, err := Join(two, Joining{DryRun: dry}, &other{dir: one})
		if err == nil || !strings.Contains(err.Error(), "there is another snapshot before-upgrade, of 2026-11-01 01:00:00") {
			t.Errorf("%v", err)
		}
	}
	m := grown(t, 2)
	s, err := Open(m.dir, false)
	m.check(err)
	m.check(s.become(func(next *Index) { next.Restoring = next.Current }))
	m.check(s.Close())
	_, err = Join(filepath.Join(inMemory(t), "three"), Joining{}, &other{dir: m.dir})
	if err == nil || !strings.Contains(err.Error(), "before the snapshots are brought to another store") {
		t.Errorf("%v", err)
	}
	_, err = Join(m.dir, Joining{}, &other{dir: one})
	if err == nil || !strings.Contains(err.Error(), "before other snapshots come") {
		t.Errorf("%v", err)
	}
	n := grown(t, 2)
	_, err = Join(filepath.Join(inMemory(t), "four"), Joining{}, &other{dir: n.dir, spoil: true})
	if err == nil || !strings.Contains(err.Error(), "has come damaged") {
		t.Errorf("%v", err)
	}
}

// A join that is struck at any step, also with the host's power, leaves whole points
// alone, and the next one brings the rest.
func TestAJoinIsStruckAtEveryStep(t *testing.T) {
	one := grown(t, 5)
	base := filepath.Join(inMemory(t), "base")
	x, err := Peek(one.dir)
	one.check(err)
	_, err = Join(base, Joining{Points: []string{x.Points[0].ID}}, &other{dir: one.dir})
	one.check(err)
	some := map[int]bool{}
	for left := 0; ; left += stride() {
		dir := filepath.Join(inMemory(t), "two")
		one.check(os.CopyFS(dir, os.DirFS(base)))
		c := &crash{t: t, rnd: rand.New(rand.NewPCG(uint64(left), 8)), left: left, aside: inMemory(t), dirty: map[string]bool{}}
		s, err := open(dir, false, disk{before: c.before})
		one.check(err)
		from := &other{dir: one.dir}
		rest, err := from.Rest(s.index.knows(), nil)
		one.check(err)
		jerr := s.join(rest, true, 0, from)
		one.check(s.Close())
		if jerr != nil && !killed(jerr) {
			t.Fatal(jerr)
		}
		if jerr != nil && left%2 == 1 {
			c.loses()
		}
		s, err = Open(dir, false)
		if err != nil {
			t.Fatalf("at step %d: %v", left, err)
		}
		y := s.Index()
		one.check(s.Close())
		two := one.twin(dir)
		maps.DeleteFunc(two.points, func(id string, _ []byte) bool { return y.point(id) == nil })
		two.whole(false)
		some[len(y.Points)] = true
		_, err = Join(dir, Joining{Current: true}, &other{dir: one.dir})
		one.check(err)
		two = one.twin(dir)
		two.whole(false)
		if two.current() != one.current() {
			t.Fatalf("at step %d: the current point is another", left)
		}
		if jerr == nil {
			break
		}
	}
	if len(some) < 4 && !testing.Short() {
		t.Errorf("strikes left %v points", some)
	}
}
