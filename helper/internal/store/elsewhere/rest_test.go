package elsewhere

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/livefleet/handover/helper/internal/store"
)

// The store of this host has all that the other one has, and the second time only what is
// new travels.
func TestTheRestOfAStoreComes(t *testing.T) {
	r := newRig(t)
	one := r.take(store.Full, "ab.d")
	two := r.take(store.Marks, "aB.d")
	dir := filepath.Join(t.TempDir(), "here")
	told, err := Join(r.place(), dir, store.Joining{DryRun: true})
	r.must(err)
	came, err := Join(r.place(), dir, store.Joining{Current: true})
	r.must(err)
	if len(came.Points) != 2 || came.Bytes != told.Bytes {
		t.Errorf("%+v %+v", came, told)
	}
	three := r.take(store.Marks, "aBCd")
	came, err = Join(r.place(), dir, store.Joining{Current: true})
	r.must(err)
	if len(came.Points) != 1 || came.Bytes >= told.Bytes {
		t.Errorf("%d points came with %d bytes, and %d before", len(came.Points), came.Bytes, told.Bytes)
	}
	for id, letters := range map[string]string{one.ID: "ab.d", two.ID: "aB.d", three.ID: "aBCd"} {
		r.has(dir, id, letters)
	}
	r.whole(dir)
	x, err := store.Peek(dir)
	r.must(err)
	if x.Current != three.ID || x.Points[2].Parent != two.ID || x.Points[2].Volumes[0].Mark != nil {
		t.Errorf("%+v", x)
	}
	local := filepath.Join(t.TempDir(), "local")
	_, err = JoinHere(dir, local, store.Joining{})
	r.must(err)
	r.has(local, three.ID, "aBCd")
	for _, dry := range []bool{true, false} {
		_, err = Join(r.place(), dir, store.Joining{Points: []string{"nothing"}, DryRun: dry})
		if err == nil || !strings.Contains(err.Error(), `host: store: there is no snapshot "nothing"`) {
			t.Errorf("%v", err)
		}
	}
}
