package elsewhere

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/livefleet/handover/helper/internal/store"
	"github.com/livefleet/handover/helper/internal/transport"
)

// TestMain is also the other host: its commands run here, and the helper behind them is
// this program.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == transport.RunnerWord {
		if err := transport.Run(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) > 2 && os.Args[1] == "internal" && os.Args[2] == ServeWord {
		rw, err := transport.Stdio()
		if err == nil {
			err = Serve(rw)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	argv = func(_ string, words []string) []string { return append([]string{self}, words...) }
	if len(os.Args) > 3 && os.Args[1] == "act-take" {
		writer(os.Args[2], os.Args[3])
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const size = 3*store.Cluster + 512

// disk is one with a letter for each cluster; a dot is zeroes.
func disk(letters string) []byte {
	b := make([]byte, size)
	for i, c := range []byte(letters) {
		if c != '.' {
			part := b[i*store.Cluster : min(size, (i+1)*store.Cluster)]
			copy(part, bytes.Repeat([]byte{c}, len(part)))
		}
	}
	return b
}

type rig struct {
	*testing.T
	dir string
}

func newRig(t *testing.T) rig { return rig{t, filepath.Join(t.TempDir(), "repository", "shop")} }

func (r rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r rig) place() Place { return Place{"host", r.dir} }

// take takes a point of a disk, found in one of the ways.
func (r rig) take(how, letters string, before ...string) *store.Point {
	r.Helper()
	l, err := Open(r.place(), true)
	r.must(err)
	defer func() { r.must(l.Close()) }()
	t, err := l.Begin("", "")
	r.must(err)
	v, err := t.Volume("data", size, how == store.Full)
	r.must(err)
	v.Found(how, "", &store.Mark{Tracker: "t", Generation: 7})
	for _, each := range append(before, letters) { // the last one counts
		r.must(v.Write(disk(each), 0))
	}
	r.must(t.File("config.json", strings.NewReader("{}")))
	p, err := t.Finish(time.Now(), 1.5)
	r.must(err)
	return p
}

// has demands that a point of the store is a disk.
func (r rig) has(dir, point, letters string) {
	r.Helper()
	v, _, err := store.OpenVolume(dir, point, "data")
	r.must(err)
	defer v.Close()
	got := make([]byte, size)
	_, err = v.ReadAt(got, 0)
	r.must(err)
	if !bytes.Equal(got, disk(letters)) {
		r.Errorf("%s is not %s", point, letters)
	}
}

func (r rig) whole(dir string) {
	r.Helper()
	report, err := store.Verify(r.Context(), dir)
	r.must(err)
	for _, f := range report.Faults {
		r.Errorf("%+v", f)
	}
}

func TestAPlace(t *testing.T) {
	for word, want := range map[string]Place{
		"backup1:/srv/b":        {"backup1", "/srv/b"},
		"root@10.0.0.1:/b":      {"root@10.0.0.1", "/b"},
		"[fe80::1%eth0]:/srv/b": {"[fe80::1%eth0]", "/srv/b"},
		"/srv/a:/b":             {},
		"backup1:b":             {},
		"-oProxyCommand=x:/b":   {},
		"a b:/c":                {},
	} {
		if p, ok := Parse(word); p != want || ok != (want != Place{}) {
			t.Errorf("%s: %v %v", word, p, ok)
		}
	}
}

// The store on the other host is the one that this host would have made.
func TestPointsAreTakenThere(t *testing.T) {
	r := newRig(t)
	one := r.take(store.Full, "ab.d")
	two := r.take(store.Marks, "aB.d")
	if one.Volumes[0].Stored != 3*store.Cluster || two.Volumes[0].Stored != store.Cluster || two.Parent != one.ID || two.FrozenMS != 1.5 {
		t.Errorf("%+v %+v", one.Volumes, two.Volumes)
	}
	if v := two.Volumes[0]; v.How != store.Marks || v.Mark == nil || v.Mark.Generation != 7 || v.Read != size {
		t.Errorf("%+v", v)
	}
	r.has(r.dir, one.ID, "ab.d")
	r.has(r.dir, two.ID, "aB.d")
	r.whole(r.dir)
	x, err := Peek(r.place())
	r.must(err)
	if len(x.Points) != 2 || x.Current != two.ID {
		t.Errorf("%+v", x)
	}
	b, err := ReadFile(r.place(), one.ID, "config.json")
	r.must(err)
	if string(b) != "{}" {
		t.Errorf("%s", b)
	}
}

// Where all is compared, only what differs travels; and a cluster that changed and then
// changed back is as it is at last.
func TestWhatTheParentHasDoesNotTravel(t *testing.T) {
	r := newRig(t)
	r.take(store.Full, "ab.d")
	for _, c := range []struct {
		before []string
		last   string
		stored int64
	}{
		{nil, "ab.d", 0},
		{nil, "aXYd", 2},
		{[]string{"Q.Qd"}, "aXY.", 0}, // a cluster of zeroes takes no room
		{[]string{"QXYQ"}, "aXY.", 0},
	} {
		p := r.take(store.Digests, c.last, c.before...)
		r.has(r.dir, p.ID, c.last)
		if v := p.Volumes[0]; v.Stored != c.stored*store.Cluster || v.How != store.Digests {
			t.Errorf("%s: %+v", c.last, v)
		}
	}
	r.whole(r.dir)
	l, err := Open(r.place(), false)
	r.must(err)
	defer func() { r.must(l.Close()) }()
	k, err := l.Begin("", "")
	r.must(err)
	w, err := k.Volume("data", size, false)
	r.must(err)
	w.Found(store.Digests, "", nil)
	before := l.conn.Sent()
	r.must(w.Write(disk("aXY."), 0))
	r.must(w.Zero(3*store.Cluster, 512))
	r.must(l.conn.Flush())
	if n := l.conn.Sent() - before; n > 1000 {
		t.Errorf("%d bytes were sent for a disk that is as its parent", n)
	}
	r.must(k.Abandon())
}

// One point comes to this host as a store of its own, and goes on there.
func TestAPointIsCopied(t *testing.T) {
	r := newRig(t)
	r.take(store.Full, "ab.d")
	two := r.take(store.Marks, "aB.d")
	r.take(store.Marks, "aBCd")
	here := filepath.Join(t.TempDir(), "here")
	r.must(Copy(r.place(), two.ID[:6], here))
	r.has(here, two.ID, "aB.d")
	r.whole(here)
	x, err := store.Peek(here)
	r.must(err)
	if len(x.Points) != 1 || len(x.Layers) != 2 || x.Current != two.ID || x.Points[0].Parent != "" || x.Points[0].Volumes[0].Mark != nil {
		t.Errorf("%+v", x)
	}
	if err := Copy(r.place(), two.ID, here); err == nil || !strings.Contains(err.Error(), "there is a store with snapshots") {
		t.Errorf("%v", err)
	}
	second := filepath.Join(t.TempDir(), "second")
	r.must(CopyHere(here, two.ID, second))
	r.has(second, two.ID, "aB.d")
	// A byte that was flipped there is named, and nothing stands here.
	layer := filepath.Join(r.dir, "layers", x.Layers[0].File())
	b, err := os.ReadFile(layer)
	r.must(err)
	b[len(b)-1] ^= 1
	r.must(os.WriteFile(layer, b, 0o600))
	third := filepath.Join(t.TempDir(), "third")
	if err := Copy(r.place(), two.ID, third); err == nil || !strings.Contains(err.Error(), "has come damaged") {
		t.Errorf("%v", err)
	}
	if x, err := store.Peek(third); err != nil || len(x.Points) > 0 {
		t.Errorf("%v", err)
	}
}

func TestRefusalsAreThoseOfTheStore(t *testing.T) {
	r := newRig(t)
	says := func(text string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%v\n  should say %q", err, text)
		}
	}
	_, err := Open(r.place(), false)
	says("host: store: "+r.dir+": there is no store here", err)
	l, err := Open(r.place(), true)
	r.must(err)
	_, err = Open(r.place(), true)
	says("works on it", err)
	_, err = l.Begin("a b", "")
	says(`host: store: "a b" cannot be a name`, err)
	_ = l.Close()
	before := argv
	defer func() { argv = before }()
	argv = func(string, []string) []string { return []string{"sh", "-c", "echo Permission denied >&2; exit 255"} }
	_, err = Open(r.place(), true)
	says("Permission denied", err)
	says("ssh -o BatchMode=yes host", err)
}

// writer takes one point after the other, and says which are acknowledged.
func writer(dir, seed string) {
	rnd := rand.New(rand.NewChaCha8([32]byte([]byte(strings.Repeat(seed, 32))[:32])))
	for {
		letters := make([]byte, 4)
		for i := range letters {
			letters[i] = ".abcdef"[rnd.IntN(7)]
		}
		l, err := Open(Place{"host", dir}, true)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		t, err := l.Begin("", "")
		if err == nil {
			var v store.VolumeWriter
			if v, err = t.Volume("data", size, false); err == nil {
				v.Found(store.Digests, "", nil)
				err = v.Write(disk(string(letters)), 0)
			}
		}
		var p *store.Point
		if err == nil {
			p, err = t.Finish(time.Now(), 0)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(p.ID, string(letters))
		_ = l.Close()
	}
}
