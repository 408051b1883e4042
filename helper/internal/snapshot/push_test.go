package snapshot

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/livefleet/handover/helper/internal/store"
)

// pushed is a disk that QEMU's own programs copy into the store's images, as its backup job does.
type pushed struct{ *served }

func newPushed(t *testing.T, size string) *pushed { return &pushed{newServed(t, size)} }

func (s *pushed) request(d Pushed) Push {
	d.Name, d.Size = "vda", s.size()
	return Push{Store: s.store, Taken: time.Unix(1e9, 0), FrozenMS: 1.5, Disks: []Pushed{d}}
}

// raw is the disk, byte for byte.
func (s *pushed) raw() []byte {
	s.t.Helper()
	path := filepath.Join(s.t.TempDir(), "raw")
	s.run("qemu-img", "convert", "-f", "qcow2", "-O", "raw", s.image, path)
	b, err := os.ReadFile(path)
	if err != nil {
		s.t.Fatal(err)
	}
	return b
}

func (s *pushed) size() int64 { return int64(len(s.raw())) }

func (s *pushed) targets(d Pushed) Target {
	s.t.Helper()
	found, err := PushTargets(s.request(d))
	if err != nil || len(found) != 1 {
		s.t.Fatal(found, err)
	}
	return found[0]
}

// copies has clusters of the disk written into the target, as many bytes as the last one has.
func (s *pushed) copies(target string, clusters ...int64) {
	s.t.Helper()
	b, path := s.raw(), filepath.Join(s.t.TempDir(), "cluster")
	for _, c := range clusters {
		part := b[c*cluster : min(int64(len(b)), (c+1)*cluster)]
		order := fmt.Sprintf("write -s %s %d %d", path, c*cluster, len(part))
		if strings.Trim(string(part), "\x00") == "" {
			order = fmt.Sprintf("write -z %d %d", c*cluster, len(part))
		}
		if err := os.WriteFile(path, part, 0o600); err != nil {
			s.t.Fatal(err)
		}
		s.run("qemu-io", "-f", "qcow2", "-c", order, target)
	}
}

func (s *pushed) everything() (all []int64) {
	for c := int64(0); c*cluster < s.size(); c++ {
		all = append(all, c)
	}
	return all
}

func (s *pushed) push(d Pushed) (*store.Volume, error) {
	taken, err := PushInto(context.Background(), s.request(d))
	if err != nil {
		return nil, err
	}
	return taken.Volume("vda")
}

func (s *pushed) must(d Pushed) *store.Volume {
	s.t.Helper()
	v, err := s.push(d)
	if err != nil {
		s.t.Fatal(err)
	}
	s.same()
	x, err := store.Peek(s.store)
	if err != nil {
		s.t.Fatal(err)
	}
	image := x.Image(s.store, *v)
	s.run("qemu-img", "check", "-q", image)
	if st, err := os.Stat(image); err != nil || st.Mode().Perm() != 0o600 || st.Size()%cluster != 0 {
		s.t.Fatalf("%v, %v", st, err)
	}
	if _, err := os.Stat(filepath.Join(s.store, store.PushFolder)); !os.IsNotExist(err) {
		s.t.Fatalf("the folder of the images is left: %v", err)
	}
	return v
}

func TestAPushedDiskIsTakenWholeAndThenByItsCheckpoint(t *testing.T) {
	s := newPushed(t, "1000k")
	s.write("write -P 1 0 300k", "write -P 3 1023488 512") // in the last cluster, which is short
	target := s.targets(Pushed{Checkpoint: "one"})
	s.copies(target.Path, s.everything()...)
	v := s.must(Pushed{Checkpoint: "one"})
	if v.How != store.Full || v.Mark.Tracker != "one" || v.Stored != 6*64*kib {
		t.Fatalf("the first: %+v", v)
	}

	s.write("write -P 4 200k 1k", "write -z 0 64k", "write -P 5 1023488 512", "write -P 6 600k 1k")
	if target = s.targets(Pushed{Since: "one", Checkpoint: "two"}); target.Why != "" {
		t.Fatal(target)
	}
	s.copies(target.Path, 0, 3, 9, 15)
	v = s.must(Pushed{Since: "one", Checkpoint: "two"})
	if v.How != store.Marks || v.Mark.Tracker != "two" || v.Stored != 3*64*kib {
		t.Fatalf("the second: %+v", v)
	}
	// The third goes by digests, as of a raw image: everything is there, and only differences are stored.
	s.write("write -P 7 400k 1k", "write -z 600k 1k")
	target = s.targets(Pushed{Why: "raw"})
	s.copies(target.Path, s.everything()...)
	v = s.must(Pushed{Why: "raw"})
	if v.How != store.Digests || v.Why != "raw" || v.Mark != nil || v.Stored != 1*64*kib {
		t.Fatalf("the third: %+v", v)
	}
}

// Each of them would be a snapshot of half a disk.
func TestAnImageThatIsNotEnoughIsRefused(t *testing.T) {
	s := newPushed(t, "1M")
	s.write("write -P 1 0 1M")
	target := s.targets(Pushed{Checkpoint: "one"})
	s.copies(target.Path, s.everything()...)
	s.must(Pushed{Checkpoint: "one"})
	for _, c := range []struct {
		name  string
		d     Pushed
		spoil func(path string)
		want  string
	}{
		{"another checkpoint", Pushed{Since: "other"}, func(string) {}, "the checkpoint other is not that of the backup before: take it again"},
		{"no image", Pushed{Since: "one"}, func(path string) { _ = os.Remove(path) }, "no such file"},
		{"a link", Pushed{Since: "one"}, func(path string) {
			_ = os.Rename(path, path+"-away")
			_ = os.Symlink(path+"-away", path)
		}, "too many levels of symbolic links"},
		{"another size", Pushed{Since: "one"}, func(path string) { s.run("qemu-img", "resize", "-q", path, "2M") }, "it is of a disk of 2097152 bytes"},
		{"another image below", Pushed{Since: "one"}, func(path string) {
			s.run("qemu-img", "rebase", "-u", "-f", "qcow2", "-F", "qcow2", "-b", s.image, path)
		}, "on nothing was asked for"},
		{"another format", Pushed{Since: "one"}, func(path string) { _ = os.WriteFile(path, make([]byte, 1<<17), 0o600) }, "this is no qcow2 image"},
		{"a rollback that has not ended", Pushed{Since: "one"}, func(path string) {
			b := filepath.Join(t.TempDir(), "gate")
			_ = os.WriteFile(b, []byte("handover: a rollback of this disk was begun, and has not ended. Run it again.\nsnapshot 0123456789abcdef\n"+strings.Repeat("\n", 512)), 0o600)
			s.run("qemu-io", "-f", "qcow2", "-c", "write -s "+b+" 0 64k", path)
		}, "a rollback of it to the snapshot 0123456789abcdef was begun"},
	} {
		target := s.targets(c.d)
		if (target.Why == "") != (c.d.Since == "one") {
			t.Errorf("%s: %+v", c.name, target)
		}
		c.spoil(target.Path)
		if _, err := s.push(c.d); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
		if x, err := store.Peek(s.store); err != nil || len(x.Points) != 1 || len(x.Layers) != 1 {
			t.Fatalf("%s: %v, %v", c.name, x, err)
		}
		if found, _ := filepath.Glob(filepath.Join(s.store, "layers", "*")); len(found) != 2 {
			t.Errorf("%s: %v", c.name, found)
		}
	}
	s.same()
	for want, r := range map[string]Push{
		"QEMU writes to files of this one": {Store: "backup1:/srv", Disks: []Pushed{{Name: "vda", Size: 512}}},
		"there is no disk to push":         {Store: s.store},
		`"../x" is no name of a disk`:      {Store: s.store, Disks: []Pushed{{Name: "../x", Size: 512}}},
	} {
		if _, err := PushTargets(r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v", err)
		}
	}
}

// A store whose disk has another size now needs everything.
func TestADiskThatHasGrownIsPushedWhole(t *testing.T) {
	s := newPushed(t, "1M")
	s.write("write -P 1 0 1M")
	s.copies(s.targets(Pushed{Checkpoint: "one"}).Path, s.everything()...)
	s.must(Pushed{Checkpoint: "one"})
	s.run("qemu-img", "resize", "-q", s.image, "1088k")
	s.write("write -P 2 1M 64k")
	target := s.targets(Pushed{Since: "one"})
	if target.Why != "the disk has 1114112 bytes, and had 1048576" {
		t.Fatal(target)
	}
	s.copies(target.Path, s.everything()...)
	if v := s.must(Pushed{Why: target.Why}); v.How != store.Full {
		t.Fatalf("%+v", v)
	}
}
