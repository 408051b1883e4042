package tracker

import (
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/blockmap"
	"github.com/livefleet/handover/helper/internal/tracker/blockdev"
)

// openVZ stands in for an OpenVZ kernel, which cannot run here: it keeps records of
// whole clusters as that does, gives them away in the same order, and fails in the
// same ways.
type openVZ struct {
	cluster      uint64
	records      []extent // in order, apart from each other
	on, aborted  bool
	pos, pointer uint64
	end          uint64   // what is allocated
	during       func()   // what is written while extents are read
	accepted     []extent // that it marks when it is asked to sync
	deaf         bool     // it knows no sync
}

func (k *openVZ) sync() error {
	if k.deaf {
		return unix.ENOTTY
	}
	for _, e := range k.accepted {
		k.write(e.start, e.end-e.start)
	}
	k.accepted = nil
	return nil
}

func (k *openVZ) write(off, n uint64) {
	k.end = max(k.end, (off+n+k.cluster-1)/k.cluster*k.cluster)
	for c := off / k.cluster * k.cluster; c < off+n; c += k.cluster {
		if !k.on || c >= k.pos {
			continue
		}
		k.records = append(k.records, extent{c, c + k.cluster})
	}
	slices.SortFunc(k.records, func(a, b extent) int { return int(int64(a.start) - int64(b.start)) })
	var merged []extent
	for _, r := range k.records {
		if n := len(merged); n > 0 && r.start <= merged[n-1].end {
			merged[n-1].end = max(merged[n-1].end, r.end)
			continue
		}
		merged = append(merged, r)
	}
	k.records = merged
}

func (k *openVZ) init() (extent, error) {
	if k.on {
		return extent{}, unix.EBUSY
	}
	k.on, k.pos, k.pointer = true, 0, 0
	return extent{0, k.end}, nil
}

func (k *openVZ) setpos(pos uint64) error {
	if !k.on || pos < k.pos {
		return unix.EINVAL
	}
	k.pos = pos
	return nil
}

func (k *openVZ) read() (extent, error) {
	if k.aborted {
		k.records = nil
		return extent{}, unix.ECONNABORTED
	}
	if k.during != nil {
		k.during()
	}
	find := func(from uint64) int {
		return slices.IndexFunc(k.records, func(r extent) bool { return r.end > from })
	}
	i := find(k.pointer)
	if i < 0 && k.pointer > 0 {
		i = find(0)
	}
	if i < 0 {
		k.pointer = 0
		return extent{}, unix.EAGAIN
	}
	e := k.records[i]
	k.records = slices.Delete(k.records, i, i+1)
	k.pointer = e.end
	return e, nil
}

func (k *openVZ) stop() error {
	if k.aborted {
		k.on = false
		return unix.ECONNABORTED
	}
	if len(k.records) > 0 {
		return unix.EBUSY
	}
	k.on = false
	return nil
}

func (k *openVZ) abort() error {
	k.records, k.on = nil, false
	return nil
}
func (k *openVZ) Close() error { return nil }

// Whatever is written and whenever, also while the extents are read and where the
// image was not allocated yet, the copy is the image in the end.
func TestPloopCopies(t *testing.T) {
	const cluster, size = 4096, 60 * 4096
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 9))
		k := &openVZ{cluster: cluster, end: uint64(1+r.IntN(60)) * cluster}
		image, copied := make([]byte, size), make([]byte, size)
		put := func() {
			off := r.IntN(size)
			n := 1 + r.IntN(min(3*cluster, size-off))
			for i := range n {
				image[off+i] = byte(r.Uint32())
			}
			k.write(uint64(off), uint64(n)) // marked when it is written, as that kernel does
		}
		put()
		tr, err := newPloop(&blockdev.Device{Path: "/dev/ploop0", Cluster: cluster}, k, size)
		if err != nil {
			t.Fatal(err)
		}
		take := func(m *blockmap.Map) {
			for off, n := range m.Runs(cluster) {
				if r.IntN(5) == 0 {
					put()
				}
				copy(copied[off:off+n], image[off:])
			}
		}
		all := blockmap.New(size, cluster)
		all.MarkAll()
		take(all)
		if seed%2 == 0 {
			k.during = func() {
				if r.IntN(3) > 0 {
					put()
				}
			}
		}
		for range 4 {
			take(swap(t, tr))
		}
		k.during = nil
		put = func() {}
		take(swap(t, tr))
		if m := swap(t, tr); !m.Empty() {
			t.Fatalf("seed %d: nobody writes any more, and %d clusters are marked", seed, m.Count())
		}
		if !slices.Equal(image, copied) {
			t.Fatalf("seed %d: the copy differs", seed)
		}
		if err := tr.Close(); err != nil || k.on {
			t.Fatalf("seed %d: %v, on: %v", seed, err, k.on)
		}
	}
}

// A write that the kernel has only accepted is marked when the tracker has settled.
func TestPloopSettles(t *testing.T) {
	k := &openVZ{cluster: 4096, end: 1 << 20, accepted: []extent{{8192, 8193}}}
	tr, err := newPloop(&blockdev.Device{Path: "/dev/ploop0", Cluster: 4096}, k, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if m := swap(t, tr); !m.Empty() {
		t.Fatal("marked before it was written")
	}
	var settler Settler = tr
	if err := settler.Settle(); err != nil {
		t.Fatal(err)
	}
	if m := swap(t, tr); !m.Has(8192) {
		t.Error("the last write before the freeze is not marked")
	}
	k.deaf = true
	if err := tr.Settle(); !errorSays(err, "/dev/ploop0: the kernel could not sync the image below the frozen device") {
		t.Error(err)
	}
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	if err := tr.Settle(); !errorSays(err, "the tracker is closed") {
		t.Error(err)
	}
}

// Extents that come faster than they are read end no Swap never.
func TestPloopSwapEnds(t *testing.T) {
	k := &openVZ{cluster: 4096, end: 1 << 20}
	tr, err := newPloop(&blockdev.Device{Path: "/dev/ploop0", Cluster: 4096}, k, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	k.during = func() {
		if n++; n > 1000 {
			t.Fatal("Swap does not end")
		}
		for c := range uint64(16) {
			k.write(c*65536, 1)
		}
	}
	if m := swap(t, tr); m.Count() != 16 {
		t.Errorf("%d clusters", m.Count())
	}
}

func TestPloopFails(t *testing.T) {
	open := func() (*openVZ, *ploopTracker) {
		k := &openVZ{cluster: 4096, end: 8192}
		tr, err := newPloop(&blockdev.Device{Path: "/dev/ploop0", Cluster: 4096}, k, 16384)
		if err != nil {
			t.Fatal(err)
		}
		return k, tr
	}
	k, tr := open()
	if _, err := newPloop(&blockdev.Device{Path: "/dev/ploop0", Cluster: 4096}, k, 16384); err == nil {
		t.Error("tracked twice")
	} else if !errorSays(err, "is being tracked, merged or grown already") {
		t.Error(err)
	}
	k.write(0, 1)
	if err := tr.Close(); err != nil || k.on { // with something unread
		t.Errorf("%v, on: %v", err, k.on)
	}
	k, tr = open()
	k.aborted = true
	for range 2 {
		fails(t, tr, "has given up tracking")
	}
	if err := tr.Close(); err != nil {
		t.Error(err)
	}
	k, tr = open()
	k.write(40960, 4096)
	for range 2 {
		fails(t, tr, "was the disk grown?")
	}
	var l *blockdev.LostError
	if _, err := tr.Swap(); !errors.As(err, &l) {
		t.Errorf("%v", err)
	}
	k = &openVZ{cluster: 4096, end: 1 << 20}
	if _, err := newPloop(&blockdev.Device{Path: "/dev/ploop0", Cluster: 4096}, k, 4096); err == nil || k.on {
		t.Errorf("%v, on: %v", err, k.on)
	}
}

func TestPloopRefusesAnotherDevice(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes a loop device")
	}
	file := filepath.Join(t.TempDir(), "disk.img")
	if err := os.WriteFile(file, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("losetup", "-f", "--show", file).CombinedOutput()
	if err != nil {
		t.Skipf("needs loop devices: losetup: %v\n%s", err, out)
	}
	dev := strings.TrimSpace(string(out))
	t.Cleanup(func() {
		if out, err := exec.Command("losetup", "-d", dev).CombinedOutput(); err != nil {
			t.Errorf("losetup -d %s: %v\n%s", dev, err, out)
		}
	})
	openFails(t, Ploop, Device{Path: dev, Cluster: 4096, Size: 1 << 20}, "this is no ploop device (it is loop")
}

func errorSays(err error, text string) bool { return err != nil && strings.Contains(err.Error(), text) }

func swap(t *testing.T, tr Tracker) *blockmap.Map {
	t.Helper()
	m, err := tr.Swap()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// fails asserts that Swap fails with a text, now and ever after.
func fails(t *testing.T, tr Tracker, text string) {
	t.Helper()
	for range 2 {
		if _, err := tr.Swap(); !errorSays(err, text) {
			t.Fatalf("Swap: %v; should say %q", err, text)
		}
	}
}
