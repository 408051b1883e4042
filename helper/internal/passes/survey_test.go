package passes

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/livefleet/handover/helper/internal/blockmap"
	"github.com/livefleet/handover/helper/internal/image"
	"github.com/livefleet/handover/helper/internal/pipeline"
	"github.com/livefleet/handover/helper/internal/tracker"
	"github.com/livefleet/handover/helper/internal/wire"
)

const (
	cluster  = 4096
	clusters = 96
	diskSize = clusters * cluster
)

// disk is a device with a file system that somebody uses: clusters are in use or
// free, and every write to the device is marked, as a tracker does.
type disk struct {
	t     *testing.T
	rnd   *rand.Rand
	f     *os.File
	used  [clusters]bool
	marks *blockmap.Map
	lose  bool // marks are lost

	answer func(mountpoint, device string, free func(off, n int64)) error // when it is asked for its free space
}

// inMemory is a folder for disks that cost no disk.
func inMemory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "passes")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func newDisk(t *testing.T, seed uint64, dir string) *disk {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "disk"))
	if err == nil {
		err = f.Truncate(diskSize)
	}
	if err != nil {
		t.Fatal(err)
	}
	d := &disk{t: t, rnd: rand.New(rand.NewPCG(seed, 3)), f: f, marks: blockmap.New(diskSize, cluster)}
	for range 60 {
		d.something()
	}
	d.answer = d.free
	return d
}

// write puts something on a cluster, whether it is in use or not.
func (d *disk) write(c int) {
	b := make([]byte, cluster)
	if d.rnd.IntN(4) > 0 {
		for i := range b {
			b[i] = byte(d.rnd.Uint32())
		}
	}
	if _, err := d.f.WriteAt(b, int64(c)*cluster); err != nil {
		d.t.Fatal(err)
	}
	if !d.lose {
		d.marks.MarkRange(int64(c)*cluster, cluster)
	}
}

// something is what a file system does.
func (d *disk) something() {
	c := d.rnd.IntN(clusters)
	switch d.rnd.IntN(6) {
	case 0: // a file is removed: nothing is written where it was
		d.used[c] = false
	case 1: // space is reserved: nothing is written there yet
		d.used[c] = true
	case 2: // a file is made, and removed
		d.used[c] = true
		d.write(c)
		d.used[c] = false
	default:
		d.used[c] = true
		d.write(c)
	}
}

func (d *disk) a(few int) {
	for range d.rnd.IntN(few + 1) {
		d.something()
	}
}

// free is what image.FreeSpace would say: runs of free clusters, not all of them
// cut at the cluster's edge, while the file system goes on.
func (d *disk) free(_, _ string, free func(off, n int64)) error {
	for c := 0; c < clusters; {
		if d.used[c] {
			c++
			continue
		}
		end := c
		for end < clusters && !d.used[end] {
			end++
		}
		free(int64(c)*cluster, int64(end-c)*cluster)
		c = end
		d.a(1) // behind what was told already, and before it
	}
	d.a(10)
	return nil
}

func (d *disk) Swap() (*blockmap.Map, error) { return d.marks.Swap(), nil }
func (d *disk) InFlight() (int64, error)     { return 0, nil }
func (d *disk) Kind() string                 { return "model" }
func (d *disk) Close() error                 { return nil }

// far is the destination: what the frames make of it.
type far struct {
	b []byte
	n int // frames
}

func (f *far) Write(fr *wire.Frame) error {
	f.n++
	switch fr.Type {
	case wire.Data:
		copy(f.b[fr.Pos:], fr.Payload)
	case wire.Zero:
		clear(f.b[fr.Pos:][:fr.Length])
	default:
		return fmt.Errorf("a %s frame", fr.Type)
	}
	return nil
}
func (f *far) Flush() error    { return nil }
func (f *far) Interrupt(error) {}

// begin begins a copy of the disk.
func (d *disk) begin(t *testing.T, to *far, empty bool) (*Copy, *Volume) {
	t.Helper()
	src, err := image.OpenSource(d.f.Name())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { src.Close() })
	sender, err := pipeline.NewSender([]pipeline.FrameWriter{to}, pipeline.SendOptions{Readers: 1, Slots: 2, RunBytes: 4 * cluster})
	if err != nil {
		t.Fatal(err)
	}
	v := &Volume{Name: "disk", Device: d.f.Name(), Mountpoint: "(model)", Tracker: "model", Cluster: cluster, Source: src, Empty: empty, SkipFree: true}
	c := New(sender, []*Volume{v}, Options{
		Open: func(string, []tracker.Device) ([]tracker.Tracker, error) {
			d.marks.Swap() // it knows nothing of what was before
			return []tracker.Tracker{d}, nil
		},
		Free: func(mountpoint, device string, free func(off, n int64)) error {
			return d.answer(mountpoint, device, free)
		},
	})
	if _, err := c.Track(); err != nil {
		t.Fatal(err)
	}
	return c, v
}

// A file system that goes on at every moment, in the middle of being asked among
// them; passes in between; then it stands still. What it uses is on the
// destination as it is on the source, and what it does not use is zeroes there, or
// what it is on the source. The digests agree exactly then.
func TestNothingInUseIsLeftOut(t *testing.T) {
	seeds := 2000
	if testing.Short() {
		seeds = 300
	}
	dir := inMemory(t)
	var left int64
	for seed := range uint64(seeds) {
		d := newDisk(t, seed, dir)
		to := &far{b: make([]byte, diskSize)}
		empty := seed%2 == 0
		if !empty { // an image of old
			for i := range to.b {
				to.b[i] = 0xee
			}
		}
		c, v := d.begin(t, to, empty)
		for range 1 + d.rnd.IntN(4) {
			d.a(20)
			if _, err := c.Send(context.Background(), nil); err != nil {
				t.Fatal(err)
			}
		}
		d.a(5)
		// It is frozen: nothing happens any more, also not while it is asked.
		still := d.used
		d.answer = func(_, _ string, free func(off, n int64)) error {
			for c, used := range still {
				if !used {
					free(int64(c)*cluster, cluster)
				}
			}
			return nil
		}
		if err := v.recheck(); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Send(context.Background(), nil); err != nil {
			t.Fatal(err)
		}
		if err := c.Silent(); err != nil {
			t.Fatal(err)
		}
		d.compare(t, fmt.Sprintf("seed %d", seed), v, to)
		left += v.Left()
		d.f.Close()
		v.Source.Close()
	}
	if left == 0 {
		t.Error("nothing was ever left out: this proves nothing")
	}
}

func (d *disk) compare(t *testing.T, what string, v *Volume, to *far) {
	t.Helper()
	now := make([]byte, diskSize)
	if _, err := d.f.ReadAt(now, 0); err != nil {
		t.Fatal(err)
	}
	for c := range clusters {
		here, there := now[c*cluster:][:cluster], to.b[c*cluster:][:cluster]
		switch {
		case bytes.Equal(here, there):
		case d.used[c]:
			t.Fatalf("%s: cluster %d is in use and differs", what, c)
		case len(bytes.Trim(there, "\x00")) != 0:
			t.Fatalf("%s: cluster %d is free and neither what it was nor zeroes", what, c)
		case !v.left.Has(int64(c) * cluster):
			t.Fatalf("%s: cluster %d differs and is not said to be left out", what, c)
		}
	}
	mine, err := v.Digest(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := image.Digest(context.Background(), bytes.NewReader(to.b), diskSize, cluster)
	if err != nil {
		t.Fatal(err)
	}
	if err := mine.Root().Equal(theirs.Root()); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// What is not free any more is sent at the end, even if no tracker named it.
func TestTheEndDoesNotHangOnTheTracker(t *testing.T) {
	d := newDisk(t, 1, inMemory(t))
	to := &far{b: make([]byte, diskSize)}
	d.used = [clusters]bool{}
	c, v := d.begin(t, to, true)
	if _, err := c.Send(context.Background(), nil); err != nil {
		t.Fatal(err)
	}
	d.lose = true
	for n := range clusters {
		if v.left.Has(int64(n) * cluster) {
			d.used[n] = true
			d.write(n)
		}
	}
	still := d.used
	d.answer = func(_, _ string, free func(off, n int64)) error {
		for c, used := range still {
			if !used {
				free(int64(c)*cluster, cluster)
			}
		}
		return nil
	}
	if err := v.recheck(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Send(context.Background(), nil); err != nil {
		t.Fatal(err)
	}
	now := make([]byte, diskSize)
	if _, err := d.f.ReadAt(now, 0); err != nil {
		t.Fatal(err)
	}
	for n := range clusters {
		if still[n] && !bytes.Equal(now[n*cluster:][:cluster], to.b[n*cluster:][:cluster]) {
			t.Errorf("cluster %d is in use and was left out", n)
		}
	}
}

// A write that nobody marked makes the digests differ: what was left out is not
// taken for an excuse.
func TestTheDigestSeesALostMark(t *testing.T) {
	d := newDisk(t, 2, inMemory(t))
	for c := range clusters / 2 {
		d.used[c] = true
		d.write(c)
	}
	d.rnd = rand.New(rand.NewPCG(1, 1))
	to := &far{b: make([]byte, diskSize)}
	c, v := d.begin(t, to, true)
	if _, err := c.Send(context.Background(), nil); err != nil {
		t.Fatal(err)
	}
	if v.Left() == 0 {
		t.Fatal("nothing was left out")
	}
	n := 0
	for v.left.Has(int64(n) * cluster) {
		n++
	}
	b := make([]byte, cluster)
	b[7] = 1
	if _, err := d.f.WriteAt(b, int64(n)*cluster); err != nil {
		t.Fatal(err)
	}
	mine, err := v.Digest(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := image.Digest(context.Background(), bytes.NewReader(to.b), diskSize, cluster)
	if err != nil {
		t.Fatal(err)
	}
	if mine.Root().Equal(theirs.Root()) == nil {
		t.Error("the digests agree on a cluster that differs")
	}
}
