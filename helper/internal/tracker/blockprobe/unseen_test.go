package blockprobe

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/livefleet/handover/helper/internal/blockmap"
	"github.com/livefleet/handover/helper/internal/image"
)

// A device, its kernel and its programs, in a clock of their own: writes are
// submitted and complete, some of them unseen. Whoever reads each cluster of a
// map after the map was taken must in the end have read every write.
func TestUnseenCompletionsAreGivenAgain(t *testing.T) {
	const clusters, cluster, size = 32, 4096, 32 * 4096
	type write struct {
		cluster int64
		ends    time.Time
	}
	lostWithout := 0
	for seed := range uint64(1000) {
		r := rand.New(rand.NewPCG(seed, 0))
		hide := r.IntN(4) == 0 // on the other kernels all is seen, and little should come again
		marks := blockmap.New(size, cluster)
		now := time.Unix(1e9, 0)
		var u unseen
		var kernel, seen int64
		var under []write
		var content, read [clusters]int // how many writes landed in a cluster, and were there when it was read
		naive := read
		complete := func() {
			rest := under[:0]
			for _, w := range under {
				if w.ends.After(now) {
					rest = append(rest, w)
					continue
				}
				content[w.cluster]++
				kernel += 8
				if hide && r.IntN(10) == 0 {
					continue
				}
				seen += 8
				marks.MarkRange(w.cluster*cluster, 1)
			}
			under = rest
		}
		swap := func() {
			m := marks.Swap()
			fresh := blockmap.New(size, cluster)
			if err := fresh.Merge(m); err != nil {
				t.Fatal(err)
			}
			v := dontKnow
			still := len(under) == 0
			if still || r.IntN(3) > 0 { // else our count did not stand still
				distance := kernel - seen
				if !still { // a completion may be half done, again and again
					distance -= 8
					for range samples {
						if r.IntN(50) > 0 {
							distance = kernel - seen
						}
					}
				}
				v = u.judge(distance)
			}
			if err := u.give(m, v, still, now); err != nil {
				t.Fatal(err)
			}
			// Reading takes its time, and writes go on meanwhile.
			for c := range int64(clusters) {
				if m.Has(c * cluster) {
					read[c] = content[c]
				}
				if fresh.Has(c * cluster) {
					naive[c] = content[c]
				}
			}
		}
		u.judge(0)
		for range 200 {
			now = now.Add(time.Duration(r.Int64N(int64(2 * time.Second))))
			complete()
			if r.IntN(8) == 0 {
				now = now.Add(time.Duration(r.Int64N(int64(50 * time.Second))))
				complete()
			}
			if r.IntN(2) == 0 {
				w := write{r.Int64N(clusters), now.Add(time.Duration(r.Int64N(int64(landed))))}
				under = append(under, w)
				marks.MarkRange(w.cluster*cluster, 1)
			}
			if r.IntN(6) == 0 {
				swap()
			}
			if n := len(u.recent); n > 8 {
				t.Fatalf("seed %d: %d maps are kept", seed, n)
			}
		}
		now = now.Add(landed)
		complete()
		swap()
		if read != content {
			t.Fatalf("seed %d: landed %v, read %v", seed, content, read)
		}
		if naive != content {
			lostWithout++
		}
	}
	if lostWithout < 30 {
		t.Errorf("only %d of the runs have an unseen completion that matters: they test too little", lostWithout)
	}
}

// What a device that is never quiet was read for once does not come again and
// again: a session would never converge on it.
func TestABusyDeviceConverges(t *testing.T) {
	const cluster = 64 << 10
	dev, stuck := stuckDevice(t, 8*MiB)
	tr := trackIdle(t, cluster, dev)
	f := open(t, dev, os.O_RDWR|direct)
	write(t, f, MiB, cluster)
	want := blockmap.New(8*MiB, cluster)
	want.MarkRange(MiB, cluster)
	same(t, swap(t, tr), want)

	stuck(tr, f, 2*MiB, cluster)
	want.Clear(MiB)
	want.MarkRange(2*MiB, cluster)
	same(t, swap(t, tr), want)
	want.Clear(2 * MiB)
	for range 3 {
		same(t, swap(t, tr), want)
	}
}

// stuckDevice makes a device and a function that lets one write to it be under
// way until the test ends, or until the function is called that it returns: the
// file system that holds the device's backing file is frozen.
func stuckDevice(t *testing.T, size int64) (dev string, stuck func(tr *Tracker, f *os.File, off, n int64) (finish func())) {
	t.Helper()
	if _, err := exec.LookPath("mkfs.ext4"); err != nil {
		t.Skip("needs mkfs.ext4")
	}
	below := loopOf(t, 64*MiB)
	run(t, "mkfs.ext4", "-q", below)
	mnt := t.TempDir()
	run(t, "mount", below, mnt)
	t.Cleanup(func() { run(t, "umount", mnt) })
	file := filepath.Join(mnt, "upper.img")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, size); err != nil {
		t.Fatal(err)
	}
	dev = loop(t, file)
	return dev, func(tr *Tracker, f *os.File, off, n int64) func() {
		if err := image.Freeze(mnt); err != nil {
			t.Fatal(err)
		}
		written := make(chan error, 1)
		go func() {
			_, err := f.WriteAt(buffer(int(n)), off)
			written <- err
		}()
		done := false
		finish := func() {
			if done {
				return
			}
			done = true
			if err := image.Thaw(mnt); err != nil {
				t.Error(err)
			}
			if err := <-written; err != nil {
				t.Error(err)
			}
		}
		t.Cleanup(finish)
		inFlight(t, tr, 1)
		return finish
	}
}

// inFlight waits until so many writes are under way.
func inFlight(t *testing.T, tr *Tracker, want int64) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		n, err := tr.InFlight()
		if err != nil {
			t.Fatal(err)
		}
		if n == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d writes are under way, and InFlight says %d", want, n)
		}
	}
}
