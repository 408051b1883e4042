package snapshot

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/livefleet/handover/helper/internal/store"
)

// twoPoints has a disk with two points, of which the second one's bitmap is in the image, and
// writes after that. It returns the first.
func twoPoints(t *testing.T) (s *served, first string) {
	s = newServed(t, "64M")
	s.write("write -P 1 0 32M", "write -P 2 50M 1M")
	s.must(Served{})
	first = s.point()
	s.write("write -P 3 4M 64k", "write -z 6M 128k", "write -P 4 60M 64k")
	s.bitmap("two")
	s.must(Served{Checkpoint: "two"})
	s.write("write -P 5 5M 64k", "write -P 5 61M 64k", "discard 50M 64k")
	return s, first
}

func (s *served) goesBack(to, bitmap string) *store.Restored {
	s.t.Helper()
	address, ended := s.writable(bitmap)
	done, err := Restore(context.Background(), s.returnTo(to, address))
	if err != nil {
		s.t.Fatal(err)
	}
	ended()
	if !s.is(to) {
		s.t.Fatalf("the image is not the disk of %s: %+v", to, done.Volumes[0])
	}
	return done.Volumes[0]
}

// The bitmap in the image has all that was written since the current snapshot.
func TestAServedDiskGoesBackByItsBitmap(t *testing.T) {
	s, first := twoPoints(t)
	second := s.point()
	v := s.goesBack(first, "two")
	if v.How != store.Marks || v.Why != "" || v.Read > (mostTriedTwice+8)*64*kib || v.Written+v.Zeroed > 9*64*kib {
		t.Errorf("%+v", v)
	}
	s.run("qemu-img", "check", "-q", s.image)
	// The way forwards has a bitmap, and no snapshot that it begins at.
	if v = s.goesBack(second, "two"); v.How != store.Digests || !strings.Contains(v.Why, "by the current snapshot") {
		t.Errorf("%+v", v)
	}
}

// mostTriedTwice are the clusters that are read to see that the marks are whole.
const mostTriedTwice = 2 * 64

// Marks that are not whole, or of another moment or disk, leave no cluster as it was.
func TestMarksOfAServedDiskThatAreNotWhole(t *testing.T) {
	for name, c := range map[string]struct {
		bitmap string
		spoil  func(s *served)
		why    string
	}{
		"another moment": {"three", func(s *served) { s.bitmap("three") }, "the bitmap three is not that of the current snapshot"},
		"another disk": {"two", func(s *served) {
			// It has a bitmap of the same name, as a guest's disks have of one checkpoint.
			s.run("qemu-img", "create", "-q", "-f", "qcow2", s.image, "64M")
			s.write("write -P 9 8M 20M")
			s.bitmap("two")
		}, "is not as in the current snapshot, and has no mark"},
		"cleared marks": {"two", func(s *served) {
			s.write("write -P 7 10M 20M")
			s.run("qemu-img", "bitmap", "--clear", s.image, "two")
		}, "is not as in the current snapshot, and has no mark"},
	} {
		t.Run(name, func(t *testing.T) {
			s, first := twoPoints(t)
			c.spoil(s)
			if v := s.goesBack(first, c.bitmap); v.How != store.Digests || !strings.Contains(v.Why, c.why) {
				t.Errorf("%+v", v)
			}
		})
	}
}

// QEMU gives no bitmap out that a process has left open, such as that of a guest that crashed.
func TestABitmapThatWasLeftOpen(t *testing.T) {
	s, _ := twoPoints(t)
	_ = exec.Command("qemu-io", "-f", "qcow2", "-c", "write -P 6 9M 64k", "-c", "flush", "-c", "abort", s.image).Run()
	info, err := exec.Command("qemu-img", "info", "--output=json", s.image).Output()
	if err != nil || !strings.Contains(string(info), `"in-use"`) {
		t.Fatalf("%v: %s", err, info)
	}
	out, err := exec.Command("qemu-nbd", "--format=qcow2", "--bitmap=two", "--socket="+filepath.Join(t.TempDir(), "nbd"), s.image).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "inconsistent") {
		t.Errorf("%v: %s", err, out)
	}
}
