package snapshot

import (
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/store"
)

// numbered is a file in each of two volumes. One program writes each number to the first,
// has it on the disk, and only then writes it to the second.
type numbered struct{ first, second *os.File }

func (n *numbered) write(number uint64) error {
	for _, f := range []*os.File{n.first, n.second} {
		if _, err := f.WriteAt(binary.LittleEndian.AppendUint64(nil, number), 0); err != nil {
			return err
		}
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			return err
		}
	}
	return nil
}

// number is the one in a snapshot of a volume.
func (b *bench) number(storePath, point string) uint64 {
	b.t.Helper()
	path := filepath.Join(b.t.TempDir(), "restored")
	_, err := Restore(context.Background(), Return{Store: storePath, Point: point, Volumes: []Place{{"data", path}}})
	b.must(err)
	at := b.t.TempDir()
	b.run("mount", "-o", "loop", path, at) // replays the journal
	defer b.run("umount", at)
	content, err := os.ReadFile(filepath.Join(at, "number"))
	b.must(err)
	return binary.LittleEndian.Uint64(content)
}

// Two workloads, each with a store of its own, are as they were at one moment: what the
// first acknowledged before the second began is never in the second alone.
func TestTwoWorkloadsAtOneMoment(t *testing.T) {
	one, two := newBench(t, "ext4"), newBench(t, "ext4")
	files := &numbered{}
	for f, b := range map[**os.File]*bench{&files.first: one, &files.second: two} {
		opened, err := os.Create(filepath.Join(b.mnt, "number"))
		b.must(err)
		*f = opened
	}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for n := uint64(1); ; n++ {
			select {
			case <-end:
				return
			default:
			}
			if err := files.write(n); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	stop := func() {
		close(end)
		<-ended
		one.must(files.first.Close())
		two.must(files.second.Close())
	}
	defer func() { stop() }()

	r := one.request()
	parts := []Part{r.Part, two.request().Part}
	var all [][]*Taken
	for _, name := range []string{"a", "b", "c"} {
		for i := range parts {
			parts[i].Name = name
		}
		taken, err := TakeTogether(context.Background(), parts, r.Options)
		one.must(err)
		all = append(all, taken)
	}
	stop()
	stop = func() {}
	last := uint64(0)
	for i, taken := range all {
		if taken[0].Store != one.store() || taken[1].Store != two.store() || taken[0].FrozenMS != taken[1].FrozenMS || !taken[0].Taken.Equal(taken[1].Taken) {
			t.Errorf("%+v and %+v are not of one moment", taken[0], taken[1])
		}
		first, second := one.number(one.store(), taken[0].ID), two.number(two.store(), taken[1].ID)
		if first != second && first != second+1 {
			t.Errorf("the first volume has %d, and the second %d", first, second)
		}
		if second <= last && i > 0 {
			t.Errorf("%d follows %d", second, last)
		}
		last = second
		want := []string{store.Full, store.Marks, store.Marks}[i]
		if hows := []string{taken[0].Volumes[0].How, taken[1].Volumes[0].How}; !slices.Equal(hows, []string{want, want}) {
			t.Errorf("%v, and not %s", hows, want)
		}
	}
}

// What cannot be taken together is refused, and neither store has anything of it.
func TestWhatCannotBeTakenTogether(t *testing.T) {
	b := newBench(t, "ext4")
	other := filepath.Join(b.dir, "other")
	for name, c := range map[string]struct {
		parts []Part
		says  string
	}{
		"no volume":       {[]Part{{Store: b.store(), Volumes: []Place{{"data", b.image}}}, {Store: other}}, "there is no volume to take"},
		"one image twice": {[]Part{{Store: b.store(), Volumes: []Place{{"data", b.image}}}, {Store: other, Volumes: []Place{{"mine", b.image}}}}, "are one disk"},
		"and its device":  {[]Part{{Store: b.store(), Volumes: []Place{{"data", b.image}}}, {Store: other, Volumes: []Place{{"mine", b.dev}}}}, "are one disk"},
		"one store twice": {[]Part{{Store: b.store(), Volumes: []Place{{"data", b.image}}}, {Store: b.store(), Volumes: []Place{{"rest", b.rest()}}}}, "two workloads have the store"},
		"on the other's":  {[]Part{{Store: filepath.Join(b.mnt, "store"), Volumes: []Place{{"rest", b.rest()}}}, {Store: other, Volumes: []Place{{"data", b.image}}}}, "stands still while it is taken"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := TakeTogether(context.Background(), c.parts, b.request().Options); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v\n  should say %q", err, c.says)
			}
			for _, p := range c.parts {
				if x, err := store.Peek(p.Store); err == nil && len(x.Points) > 0 {
					t.Errorf("%s has %d snapshots", p.Store, len(x.Points))
				}
			}
		})
	}
}

// rest is a disk that nothing uses.
func (b *bench) rest() string {
	b.t.Helper()
	path := filepath.Join(b.dir, "rest")
	b.must(os.WriteFile(path, []byte("at rest"), 0o600))
	return path
}
