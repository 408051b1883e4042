package blockprobe

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// A write bio that was never seen when it was queued marks everything.
func TestAnUnknownBioMarksAll(t *testing.T) {
	const size, cluster = 8 * MiB, 64 << 10
	dev := zram(t, size)
	tr := track(t, cluster, dev)[0]
	// Take away the program that sees bios come; it was attached last.
	last := len(tr.coll.links) - 1
	if err := tr.coll.links[last].Close(); err != nil {
		t.Fatal(err)
	}
	tr.coll.links = tr.coll.links[:last]
	write(t, open(t, dev, os.O_RDWR|direct), MiB, 4096)
	if m := swap(t, tr); m.Count() != m.Clusters() {
		t.Fatalf("%d of %d clusters are marked", m.Count(), m.Clusters())
	}
	if m := swap(t, tr); !m.Empty() {
		t.Fatalf("nothing was written since, and %d clusters are marked", m.Count())
	}
}

// As long as a write from before Open may be under way unseen, all is marked, and
// once more after that.
func TestUnsettled(t *testing.T) {
	full := func(tr *Tracker) bool { m := swap(t, tr); return m.Count() == m.Clusters() }
	t.Run("the kernel counts", func(t *testing.T) {
		tr := track(t, 64<<10, loopOf(t, 8*MiB))[0]
		tr.settled, tr.untold = false, true
		if first, second := full(tr), full(tr); !first || second {
			t.Errorf("an idle device: all marked at first %v, and then %v", first, second)
		}
	})
	t.Run("the kernel does not count", func(t *testing.T) {
		tr := track(t, 64<<10, zram(t, 8*MiB))[0]
		tr.settled, tr.untold = false, true
		for range 2 {
			if !full(tr) {
				t.Error("nobody knows, and not all is marked")
			}
		}
		aMinuteLater(tr)
		if first, second := full(tr), full(tr); !first || second {
			t.Errorf("a minute later: all marked at first %v, and then %v", first, second)
		}
	})
}

func TestGrownDevice(t *testing.T) {
	const size = 8 * MiB
	file := sparse(t, size)
	dev := loop(t, file)
	tr := track(t, 64<<10, dev)[0]
	if err := os.Truncate(file, 2*size); err != nil {
		t.Fatal(err)
	}
	run(t, "losetup", "-c", dev)
	fails(t, tr, "the device was resized or moved while it was tracked")
}

func TestWriteOutside(t *testing.T) {
	const size = 8 * MiB
	file := sparse(t, size)
	dev := loop(t, file)
	tr := track(t, 64<<10, dev)[0]
	if err := os.Truncate(file, 2*size); err != nil {
		t.Fatal(err)
	}
	run(t, "losetup", "-c", dev)
	write(t, open(t, dev, os.O_RDWR|direct), size, 4096)
	if err := os.Truncate(file, size); err != nil {
		t.Fatal(err)
	}
	run(t, "losetup", "-c", dev) // as if nothing had been
	fails(t, tr, "a write was completed outside the 8388608 bytes")
}

func TestAnotherMedium(t *testing.T) {
	needRoot(t)
	const size = 8 * MiB
	file := sparse(t, size)
	dev := loop(t, file)
	if _, err := os.Stat("/sys/class/block/" + filepath.Base(dev) + "/diskseq"); err != nil {
		t.Skip("needs a kernel that numbers media (5.15)")
	}
	tr := track(t, 64<<10, dev)[0]
	run(t, "losetup", "-d", dev)
	for range 50 { // a detach is done when the last user is gone, which may be udev
		if out, err := exec.Command("losetup", dev, file).CombinedOutput(); err == nil {
			break
		} else if !strings.Contains(string(out), "busy") {
			t.Fatalf("losetup: %s", out)
		}
		time.Sleep(20 * time.Millisecond)
	}
	fails(t, tr, "another medium is in the device than when tracking began")
}

// fails asserts that Swap fails with a text, now and ever after.
func fails(t *testing.T, tr *Tracker, text string) {
	t.Helper()
	for range 2 {
		if _, err := tr.Swap(); err == nil || !strings.Contains(err.Error(), text) {
			t.Fatalf("Swap: %v; should say %q", err, text)
		}
	}
}

func TestWhatTheKernelReportsLost(t *testing.T) {
	dev := loopOf(t, 8*MiB)
	for _, c := range []struct {
		own, shared uint64
		text        string
	}{
		{own: statusOutside, text: "was completed outside the 8388608 bytes"},
		{shared: statusFull, text: "more than 65536 were under way at once"},
		{shared: statusDeep, text: "went through more than 2 of the tracked devices"},
		{shared: statusInternal, text: "fell outside the tracker's map"},
	} {
		tr := track(t, 64<<10, dev)[0]
		atomic.OrUint64(&tr.slot.shared.words[slotStatus], c.own)
		atomic.OrUint64(&tr.coll.lost.words[lostStatus], c.shared)
		fails(t, tr, c.text)
	}
	tr := track(t, 64<<10, dev)[0]
	atomic.OrUint64(&tr.slot.shared.words[slotStatus], statusAll)
	if m := swap(t, tr); m.Count() != m.Clusters() {
		t.Errorf("the kernel marked all, and %d of %d clusters are", m.Count(), m.Clusters())
	}
	if m := swap(t, tr); !m.Empty() {
		t.Errorf("%d clusters are still marked", m.Count())
	}
}
