package session

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/image"
	"github.com/livefleet/handover/helper/internal/loop"
	"github.com/livefleet/handover/helper/internal/pagecache"
	"github.com/livefleet/handover/helper/internal/session/prefetch"
	"github.com/livefleet/handover/helper/internal/session/protocol"
	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/wire"
)

func TestRangesBecomeClusters(t *testing.T) {
	const k = 1 << 10
	for _, c := range []struct {
		what   string
		ranges []pagecache.Range
		want   []protocol.Clusters
	}{
		{"nothing", nil, nil},
		{"a page in the middle of a cluster", []pagecache.Range{{Offset: 68 * k, Length: 4 * k}}, []protocol.Clusters{{Volume: 3, First: 1, End: 2}}},
		{"over an edge", []pagecache.Range{{Offset: 60 * k, Length: 8 * k}}, []protocol.Clusters{{Volume: 3, First: 0, End: 2}}},
		{"two in one cluster", []pagecache.Range{{Offset: 0, Length: 4 * k}, {Offset: 8 * k, Length: 4 * k}}, []protocol.Clusters{{Volume: 3, First: 0, End: 1}}},
		{"a cluster between them is read, two are not", []pagecache.Range{{Offset: 0, Length: 4 * k}, {Offset: 128 * k, Length: 4 * k}, {Offset: 320 * k, Length: 64 * k}}, []protocol.Clusters{{Volume: 3, First: 0, End: 3}, {Volume: 3, First: 5, End: 6}}},
	} {
		if got := clustersOf(3, 64*k, c.ranges, prefetch.MostRanges); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", c.what, got, c.want)
		}
	}
}

// However many ranges there are, the message has room for what is said, and nothing is left out.
func TestManyRangesFitIntoTheMessage(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var ranges []pagecache.Range
	for at := int64(0); len(ranges) < 10*prefetch.MostRanges; at += 4096 * (1 + r.Int64N(200)) {
		ranges = append(ranges, pagecache.Range{Offset: at, Length: 4096})
		at += 4096
	}
	got := clustersOf(0, 4096, ranges, prefetch.MostRanges)
	if len(got) > prefetch.MostRanges {
		t.Fatalf("%d ranges", len(got))
	}
	if few := clustersOf(0, 4096, ranges, 1); len(few) != 1 || few[0].First != 0 || few[0].End != got[len(got)-1].End {
		t.Errorf("in one range: %+v", few)
	}
	// With as many of mapped files, of the longest names, it is a frame still.
	all := &protocol.Arm{Warm: got}
	for room := prefetch.MostRanges; room > 0; room -= 2 + 4096/16 {
		all.Mapped = append(all.Mapped, prefetch.File{Path: strings.Repeat("\x01", 4096), Ranges: [][2]int64{{1 << 40, 1 << 40}}})
	}
	if f, err := protocol.Frame(all); err != nil || len(f.Payload) > wire.MaxPayload {
		t.Errorf("%d bytes (%v)", len(f.Payload), err)
	}
	n := 0
	for i, c := range got {
		if c.First >= c.End || i > 0 && c.First <= got[i-1].End {
			t.Fatalf("range %d is %+v", i, c)
		}
		for n < len(ranges) && ranges[n].Offset/4096 < c.End {
			if ranges[n].Offset/4096 < c.First {
				t.Fatalf("%+v is in none", ranges[n])
			}
			n++
		}
	}
	if n != len(ranges) {
		t.Errorf("%d of %d ranges", n, len(ranges))
	}
}

// What a mounted file system has read of itself is said, and is in the other side's memory then.
func TestWhatTheSourceHasInMemoryIsRead(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: loop devices and mounts")
	}
	const size = 64 << 20
	dir := t.TempDir()
	from, to, mountpoint := filepath.Join(dir, "from.img"), filepath.Join(dir, "to.img"), filepath.Join(dir, "mnt")
	t.Cleanup(func() {
		_ = loop.Unmount(mountpoint)
		_ = loop.DetachImage(from)
	})
	if err := os.WriteFile(from, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(from, size); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-b", "4096", from).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := loop.MountImage(from, mountpoint, "ext4", ""); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(mountpoint, "some/folders"), 0o700); err != nil {
		t.Fatal(err)
	}
	device, err := loop.DeviceOf(from)
	if err != nil {
		t.Fatal(err)
	}
	ranges, err := touchedOf(record.Vol{Device: device, Cluster: record.DefaultCluster})
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip("this kernel has no cachestat")
	}
	if err != nil {
		t.Fatal(err)
	}
	said := clustersOf(0, record.DefaultCluster, ranges, prefetch.MostRanges)
	if n := pagecache.Total(ranges); len(said) == 0 || n < record.DefaultCluster || n > size/2 {
		t.Fatalf("%d bytes are said to be in memory, of a small file system that was mounted a moment ago", n)
	}

	target, err := image.CreateTarget(to, size)
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	if _, err := target.WriteAt(make([]byte, size), 0); err != nil {
		t.Fatal(err)
	}
	if err := target.Datasync(); err != nil {
		t.Fatal(err)
	}
	f, err := pagecache.Open(to)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	forget(t, to)
	b := &record.Session{Spec: &record.Spec{Volumes: []record.Vol{{Cluster: record.DefaultCluster, Image: to, Mountpoint: mountpoint}}}}
	d := newDestination(b, planted)
	d.targets = []*image.Target{target}
	warmed := map[string]bool{}
	if d.warmVolumes(t.Context(), said, warmed) == 0 || !warmed[to] {
		t.Error("nothing was read")
	}
	var want []pagecache.Range
	for _, c := range said {
		want = append(want, pagecache.Range{Offset: c.First * record.DefaultCluster, Length: (c.End - c.First) * record.DefaultCluster})
	}
	_, missing, err := f.Resident(f.Clip(want))
	if err != nil || len(missing) > 0 {
		t.Errorf("%d bytes are not in memory (%v)", pagecache.Total(missing), err)
	}
	if _, missing, err = f.Resident(f.Whole()); err != nil || pagecache.Total(missing) < size/4 {
		t.Errorf("nearly everything was read: all but %d bytes (%v)", pagecache.Total(missing), err)
	}

	nothing := []protocol.Clusters{{Volume: 1, First: 0, End: 1}, {Volume: -1, First: 0, End: 1}, {First: 0, End: 1 << 62}, {First: 1 << 40, End: 1 << 41}, {First: -1, End: 1}}
	if n := d.warmVolumes(t.Context(), nothing, warmed); n > 0 {
		t.Errorf("%d bytes were read of what there is not", n)
	}
}

// In a move the volume is warm before the freeze.
func TestAMoveFindsItsVolumeInMemory(t *testing.T) {
	r := newRig(t)
	if _, err := touchedOf(record.Vol{Device: r.device, Cluster: record.DefaultCluster}); errors.Is(err, errors.ErrUnsupported) {
		t.Skip("this kernel has no cachestat")
	}
	w := r.startWriter()
	r.start()
	r.wait(r.src, record.UntilConverged)
	r.cutover()
	r.moved(w)
	said, err := os.ReadFile(filepath.Join(r.dst, record.EventsFile))
	if err != nil {
		t.Fatal(err)
	}
	warm, frozen := bytes.Index(said, []byte(`"event":"warm"`)), bytes.Index(said, []byte(`"frozen"`))
	if warm < 0 || frozen >= 0 && frozen < warm || bytes.Contains(said[warm:], []byte(`"volumes":0,`)) {
		t.Errorf("what was read before the freeze, if anything: %s", said)
	}
}

func forget(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(path)
	if err == nil {
		err = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
		f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}
