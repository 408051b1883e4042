package blockprobe

import (
	"os"
	"testing"

	"github.com/livefleet/handover/helper/internal/blockmap"
)

// What is within a front, at its edge and behind it is marked once and exactly, and
// counted once, whichever way it goes.
func TestFrontAndBehind(t *testing.T) {
	const cluster = 4 << 10
	const reach = (frontWords - frontMarks) * 64 * cluster
	const size = reach + 8*MiB
	dev := loopOf(t, size)
	tr := trackIdle(t, cluster, dev)
	f := open(t, dev, os.O_RDWR|direct)
	before := tr.seen()
	want, written := blockmap.New(size, cluster), int64(0)
	for _, w := range []struct{ off, n int64 }{
		{0, cluster}, {64*cluster - cluster, 2 * cluster}, // within a word, and over its end
		{reach - cluster, cluster}, {reach - 4*cluster, 8 * cluster}, {reach, cluster}, {size - cluster, cluster},
		{0, cluster}, // what is marked is counted all the same
	} {
		write(t, f, w.off, w.n)
		want.MarkRange(w.off, w.n)
		written += w.n
	}
	var ahead uint64
	for _, word := range tr.slot.ahead.words[frontMarks:] {
		ahead |= word
	}
	if ahead == 0 {
		t.Error("nothing was marked in the front: this test shows nothing")
	}
	same(t, swap(t, tr), want)
	if got := (tr.seen() - before) * 512; got != written {
		t.Errorf("%d bytes were counted, and %d written", got, written)
	}
	same(t, swap(t, tr), blockmap.New(size, cluster))
}

// A front is in use while its disk has one tracker, and only if its place is free.
// What was marked in it stays when it is in use no more.
func TestFrontComesAndGoes(t *testing.T) {
	const size, cluster = 8 * MiB, 64 << 10
	dev := loopOf(t, size)
	tr := trackIdle(t, cluster, dev)
	l, place := tr.coll, frontOf(tr.dev.DiskKey())
	f := open(t, dev, os.O_RDWR|direct)
	used := func(yes bool) {
		t.Helper()
		var at uint32
		if err := l.maps.front.Lookup(place, &at); (err == nil) != yes {
			t.Errorf("in use: %v (%v), should be %v", err == nil, err, yes)
		}
	}
	want := blockmap.New(size, cluster)
	mark := func(n int64) {
		write(t, f, n*cluster, cluster)
		want.MarkRange(n*cluster, cluster)
	}
	used(true)
	mark(1)
	second, err := l.track(tr.dev, nil)
	if err != nil {
		t.Fatal(err)
	}
	used(false)
	mark(2)
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	used(true)
	mark(3)

	// Another disk has the place; nobody may take it from that one.
	if err := l.hideFront(tr.dev.DiskKey()); err != nil {
		t.Fatal(err)
	}
	l.fronts[place] = tr.dev.DiskKey() + fronts
	if err := l.showFront(tr.dev.DiskKey()); err != nil {
		t.Fatal(err)
	}
	if err := l.hideFront(tr.dev.DiskKey()); err != nil {
		t.Fatal(err)
	}
	if l.fronts[place] != tr.dev.DiskKey()+fronts {
		t.Error("another disk's place was taken")
	}
	used(false)
	mark(4)
	delete(l.fronts, place)
	same(t, swap(t, tr), want)
}

// A front of another disk in the place is not marked in.
func TestFrontOfAnotherDisk(t *testing.T) {
	const size, cluster = 8 * MiB, 64 << 10
	devs := []string{loopOf(t, size), loopOf(t, size)}
	ts := track(t, cluster, devs...)
	a, b := ts[0], ts[1]
	a.settled, b.settled = true, true
	if err := a.coll.hideFront(a.dev.DiskKey()); err != nil {
		t.Fatal(err)
	}
	place := frontOf(a.dev.DiskKey())
	if err := a.coll.maps.front.Put(place, b.slot.front); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = a.coll.maps.front.Delete(place) }()
	write(t, open(t, devs[0], os.O_RDWR|direct), 0, cluster)
	want := blockmap.New(size, cluster)
	same(t, swap(t, b), want)
	want.MarkRange(0, cluster)
	same(t, swap(t, a), want)
}
