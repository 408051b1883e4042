package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/livefleet/handover/helper/internal/nbd"
	"github.com/livefleet/handover/helper/internal/store"
)

const kib = 1 << 10

// served is a disk of a guest's, as QEMU's own server has it.
type served struct {
	t     *testing.T
	image string
	store string
}

func newServed(t *testing.T, size string) *served {
	for _, tool := range []string{"qemu-nbd", "qemu-img", "qemu-io"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
	s := &served{t, filepath.Join(t.TempDir(), "disk.qcow2"), filepath.Join(t.TempDir(), "store")}
	s.run("qemu-img", "create", "-q", "-f", "qcow2", s.image, size)
	return s
}

func (s *served) run(argv ...string) {
	s.t.Helper()
	if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
		s.t.Fatalf("%v: %v: %s", argv, err, out)
	}
}

// write has a guest write: qemu-io, which marks the bitmaps of the image.
func (s *served) write(orders ...string) {
	s.t.Helper()
	argv := []string{"qemu-io", "-f", "qcow2"}
	for _, o := range orders {
		argv = append(argv, "-c", o)
	}
	s.run(append(argv, s.image)...)
}

func (s *served) bitmap(name string) { s.run("qemu-img", "bitmap", "--add", s.image, name) }

// pull serves the disk and takes a point of it.
// listens waits until a server listens on its socket: the file is there a moment before.
func listens(t *testing.T, socket string) {
	t.Helper()
	for range 200 {
		sockets, err := os.ReadFile("/proc/net/unix")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(sockets)) {
			// Num RefCount Protocol Flags Type St Inode Path; the flag says that it accepts.
			if f := strings.Fields(line); len(f) == 8 && f[7] == socket && f[3] == "00010000" {
				return
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal("qemu-nbd does not serve")
}

func (s *served) pull(d Served) (*store.Volume, error) {
	s.t.Helper()
	d.Name, d.Export, d.Socket = "vda", "vda", filepath.Join(s.t.TempDir(), "nbd")
	argv := []string{"--read-only", "--format=qcow2", "--export-name=vda", "--socket=" + d.Socket}
	if d.Bitmap != "" {
		argv = append(argv, "--bitmap="+d.Bitmap)
	}
	c := exec.Command("qemu-nbd", append(argv, s.image)...)
	if err := c.Start(); err != nil {
		s.t.Fatal(err)
	}
	defer func() { _, _ = c.Process.Kill(), c.Wait() }()
	listens(s.t, d.Socket)
	taken, err := PullInto(context.Background(), Pull{Store: s.store, Taken: time.Unix(1e9, 0), FrozenMS: 1.5, Disks: []Served{d}})
	if err != nil {
		return nil, err
	}
	return taken.Volume("vda")
}

func (s *served) must(d Served) *store.Volume {
	s.t.Helper()
	v, err := s.pull(d)
	if err != nil {
		s.t.Fatal(err)
	}
	return v
}

// same demands that the latest point is the disk, by QEMU's own word.
func (s *served) same() {
	s.t.Helper()
	x, err := store.Peek(s.store)
	if err != nil {
		s.t.Fatal(err)
	}
	v, err := x.Now().Volume("vda")
	if err != nil {
		s.t.Fatal(err)
	}
	s.run("qemu-img", "compare", x.Image(s.store, *v), s.image)
	if r, err := store.Verify(context.Background(), s.store); err != nil || len(r.Faults) > 0 {
		s.t.Fatalf("verify: %v, %v", err, r)
	}
}

func TestAServedDiskIsTakenWholeAndThenByItsBitmap(t *testing.T) {
	s := newServed(t, "100M")
	s.write("write -P 1 0 3M", "write -P 2 50M 100k", "write -z 60M 1M", "write -P 3 104856576 1k")
	v := s.must(Served{Checkpoint: "one"})
	if v.How != store.Full || v.Mark.Tracker != "one" || v.Stored < 3<<20 || v.Stored > 4<<20 {
		t.Fatalf("the first: %+v", v)
	}
	s.same()

	s.bitmap("since-one")
	s.write("write -P 4 51201k 1k", "write -P 5 70M 64k", "write -z 1M 128k", "write -P 6 104857088 512")
	v = s.must(Served{Bitmap: "since-one", Since: "one", Checkpoint: "two"})
	if v.How != store.Marks || v.Why != "" || v.Mark.Tracker != "two" || v.Read > 512*kib || v.Stored > 4*64*kib {
		t.Fatalf("the second: %+v", v)
	}
	s.same()
}

// Without this rule a bitmap that begins later than the parent would leave writes out.
func TestABitmapThatBeginsElsewhereIsNotUsed(t *testing.T) {
	s := newServed(t, "8M")
	s.write("write -P 1 0 1M")
	s.must(Served{Checkpoint: "one"})
	s.write("write -P 2 2M 64k") // in no bitmap
	s.bitmap("since-two")
	v := s.must(Served{Bitmap: "since-two", Since: "two", Checkpoint: "three"})
	if v.How != store.Digests || v.Why != "the checkpoint two is not that of the backup before" {
		t.Fatalf("%+v", v)
	}
	s.same()
	// Nor after a backup that had no checkpoint.
	s.must(Served{Why: "raw keeps no bitmap"})
	s.write("write -P 3 4M 64k")
	s.bitmap("since-three")
	if v = s.must(Served{Bitmap: "since-three", Since: "three"}); v.How != store.Digests || v.Mark != nil {
		t.Fatalf("%+v", v)
	}
	s.same()
}

func TestADiskThatHasGrownIsReadWhole(t *testing.T) {
	s := newServed(t, "8M")
	s.write("write -P 1 0 1M")
	s.must(Served{Checkpoint: "one"})
	s.bitmap("since-one")
	s.run("qemu-img", "resize", "-q", s.image, "9M")
	s.write("write -P 3 8M 64k")
	if v := s.must(Served{Bitmap: "since-one", Since: "one"}); v.How != store.Full || v.Stored < 1<<20 {
		t.Fatalf("%+v", v)
	}
	s.same()
}

func TestAMissingBitmapIsAnErrorAndLeavesNothing(t *testing.T) {
	s := newServed(t, "8M")
	s.write("write -P 1 0 1M")
	s.must(Served{Checkpoint: "one"})
	socket := filepath.Join(t.TempDir(), "none")
	_, err := PullInto(context.Background(), Pull{Store: s.store, Taken: time.Now(), Disks: []Served{{Name: "vda", Socket: socket, Export: "vda"}}})
	if err == nil || !strings.Contains(err.Error(), "the disk vda: nbd: dial unix") {
		t.Fatal(err)
	}
	c := exec.Command("qemu-nbd", "--read-only", "--format=qcow2", "--export-name=vda", "--persistent", "--shared=4", "--socket="+socket, s.image)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = c.Process.Kill(), c.Wait() }()
	listens(t, socket)
	disk := Served{Name: "vda", Socket: socket, Export: "vda", Bitmap: "lost", Since: "one"}
	_, err = PullInto(context.Background(), Pull{Store: s.store, Taken: time.Now(), Disks: []Served{disk}})
	if err == nil || !strings.Contains(err.Error(), "it has no qemu:dirty-bitmap:lost") {
		t.Fatal(err)
	}
	if x, err := store.Peek(s.store); err != nil || len(x.Points) != 1 || len(x.Layers) != 1 {
		t.Fatalf("%v, %v", x, err)
	}
	stopped, stop := context.WithCancelCause(context.Background())
	stop(errors.New("ended"))
	disk.Bitmap = ""
	if _, err = PullInto(stopped, Pull{Store: s.store, Taken: time.Now(), Disks: []Served{disk}}); err == nil {
		t.Fatal("a pull that was ended is taken")
	}
	s.same()
}

func TestClustersOfExtents(t *testing.T) {
	const c = cluster
	data, zero, clean, dirty := uint32(0), uint32(nbd.Zero), uint32(0), uint32(nbd.Written)
	for _, at := range []struct {
		name       string
		size       int64
		allocation []nbd.Extent
		bitmap     []nbd.Extent
		want       string
	}{
		{"all data", 2 * c, []nbd.Extent{{Length: 2 * c, Flags: data}}, nil, "0+2"},
		{"half a cluster of zeroes is read", 3 * c, []nbd.Extent{{Length: c / 2, Flags: data}, {Length: 2 * c, Flags: zero}, {Length: c / 2, Flags: data}}, nil, "0+1 1+1z 2+1"},
		{"one written sector is a cluster", 4 * c, []nbd.Extent{{Length: 4 * c, Flags: data}}, []nbd.Extent{{Length: c + 512, Flags: clean}, {Length: 512, Flags: dirty}, {Length: 3*c - 1024, Flags: clean}}, "1+1"},
		{"two sectors of one cluster are one", 2 * c, []nbd.Extent{{Length: 2 * c, Flags: data}}, []nbd.Extent{{Length: 512, Flags: dirty}, {Length: 512, Flags: clean}, {Length: 512, Flags: dirty}, {Length: 2*c - 1536, Flags: clean}}, "0+1"},
		{"written, and zero now", 4 * c, []nbd.Extent{{Length: 4 * c, Flags: zero}}, []nbd.Extent{{Length: c, Flags: clean}, {Length: 2 * c, Flags: dirty}, {Length: c, Flags: clean}}, "1+2z"},
		{"an answer that ends early", 4 * c, []nbd.Extent{{Length: 2*c + 512, Flags: data}}, nil, "0+2"},
		{"an answer of less than a cluster", 4 * c, []nbd.Extent{{Length: 512, Flags: zero}}, []nbd.Extent{{Length: 512, Flags: clean}}, "0+1"},
		{"the last is short", c + 512, []nbd.Extent{{Length: c, Flags: data}, {Length: 512, Flags: zero}}, nil, "0+1 1+512bz"},
	} {
		t.Run(at.name, func(t *testing.T) {
			found, bitmap := map[string][]nbd.Extent{nbd.Allocation: at.allocation}, ""
			if at.bitmap != nil {
				bitmap = "b"
				found[nbd.Dirty("b")] = at.bitmap
			}
			runs, _ := clustersOf(0, at.size, found, bitmap)
			var words []string
			for _, r := range runs {
				w := fmt.Sprintf("%d+%d", r.off/c, r.n/c)
				if r.n%c != 0 {
					w = fmt.Sprintf("%d+%db", r.off/c, r.n)
				}
				if r.zero {
					w += "z"
				}
				words = append(words, w)
			}
			if got := strings.Join(words, " "); got != at.want {
				t.Errorf("%s, not %s", got, at.want)
			}
		})
	}
}

// Whatever the extents: each written byte is read, and nothing that has data is zero.
func TestNoWrittenClusterIsLeftOut(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		size := int64(1+r.IntN(20*cluster/512)) * 512
		written, isZero := make([]bool, size/512), make([]bool, size/512)
		cut := func(off int64, what []bool, flag uint32) (all []nbd.Extent) {
			for n := off / 512; n < size/512; n++ {
				f := uint32(0)
				if what[n] {
					f = flag
				}
				if k := len(all); k > 0 && all[k-1].Flags == f {
					all[k-1].Length += 512
				} else {
					all = append(all, nbd.Extent{Length: 512, Flags: f})
				}
			}
			return all[:min(len(all), 1+r.IntN(6))] // a server may say less
		}
		for n := 0; n < len(written); {
			w, z := r.IntN(3) == 0, r.IntN(2) == 0
			for k := 1 + r.IntN(300); k > 0 && n < len(written); k-- {
				written[n], isZero[n] = w, z
				n++
			}
		}
		was, now := bytes.Repeat([]byte{1}, len(written)), bytes.Repeat([]byte{1}, len(written))
		for n := range now {
			if written[n] {
				now[n] = 2
				if isZero[n] {
					now[n] = 0
				}
			} else if isZero[n] {
				now[n], was[n] = 0, 0
			}
		}
		got := slices.Clone(was)
		for off := int64(0); off < size; {
			runs, end := clustersOf(off, size, map[string][]nbd.Extent{nbd.Allocation: cut(off, isZero, nbd.Zero), nbd.Dirty("b"): cut(off, written, nbd.Written)}, "b")
			if end <= off || end%cluster != 0 && end != size {
				t.Fatalf("from %d to %d of %d", off, end, size)
			}
			for _, u := range runs {
				if u.off%cluster != 0 || u.n < 1 {
					t.Fatalf("%+v is no run of clusters", u)
				}
				for n := u.off / 512; n < min(u.off+u.n, size)/512; n++ {
					if got[n] = now[n]; u.zero {
						got[n] = 0
					}
				}
			}
			off = end
		}
		if !bytes.Equal(got, now) {
			t.Fatal("the copy is another disk")
		}
	}
}
