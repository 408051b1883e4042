package passes

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/livefleet/handover/helper/internal/image"
	"github.com/livefleet/handover/helper/internal/loop"
	"github.com/livefleet/handover/helper/internal/pipeline"
	"github.com/livefleet/handover/helper/internal/tracker"
	"github.com/livefleet/handover/helper/internal/wire"
)

// meddling writes to the device between what a pass takes and what it reads, and
// takes some of it back afterwards: what is sent then was there for a moment only.
type meddling struct {
	toTarget
	before, after func()
}

func (m meddling) Write(f *wire.Frame) error {
	m.before()
	defer m.after()
	return m.toTarget.Write(f)
}

// bare is a loop device of its own.
func bare(t *testing.T, size int64) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: loop devices")
	}
	path := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
	dev, err := loop.Attach(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := loop.Detach(dev); err != nil {
			t.Error(err)
		}
	})
	return dev
}

// Whatever is written and taken back between two looks, the copy is the source in
// the end, and the tracker says so only then.
func TestComparingIsWithWhatWasSent(t *testing.T) {
	const cluster, size = 4096, 64*4096 + 512
	dev := bare(t, size)
	f, err := os.OpenFile(dev, os.O_RDWR|syscall.O_DSYNC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for seed := range *seeds {
		r, noise := rand.New(rand.NewPCG(seed, 3)), rand.NewChaCha8([32]byte{byte(seed), 3})
		now := make([]byte, size)
		if r.IntN(4) > 0 {
			noise.Read(now)
		}
		put := func(off int, b []byte) {
			t.Helper()
			copy(now[off:], b)
			if _, err := f.WriteAt(b, int64(off)); err != nil {
				t.Fatal(err)
			}
		}
		put(0, now)
		src, err := image.OpenSource(dev)
		if err != nil {
			t.Fatal(err)
		}
		target, err := image.CreateTarget(filepath.Join(t.TempDir(), "copy"), size)
		if err != nil {
			t.Fatal(err)
		}
		var was []byte
		at, frozen := 0, false
		m := meddling{toTarget{target}, func() {
			if frozen || r.IntN(3) > 0 {
				was = nil
				return
			}
			at = r.IntN(size - cluster)
			was = bytes.Clone(now[at : at+cluster])
			b := make([]byte, cluster)
			noise.Read(b)
			put(at, b)
		}, func() {
			if was != nil && r.IntN(3) > 0 {
				put(at, was)
			}
		}}
		sender, err := pipeline.NewSender([]pipeline.FrameWriter{m}, pipeline.SendOptions{Slots: 2, RunBytes: 3 * cluster})
		if err != nil {
			t.Fatal(err)
		}
		c := New(sender, []*Volume{{Name: "v", Device: dev, Tracker: tracker.Hash, Cluster: cluster, Source: src, Empty: true}}, Options{})
		if _, err := c.Track(); err != nil {
			t.Fatal(err)
		}
		for n := range 5 {
			frozen = n == 4
			if _, err := c.Send(context.Background(), nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Silent(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		got, err := os.ReadFile(target.Path())
		if err != nil || !bytes.Equal(got, now) {
			t.Fatalf("seed %d: the copy differs (%v)", seed, err)
		}
		// And one byte that is changed afterwards is seen.
		put(r.IntN(size), []byte{now[0] + 1, 7, 9}[:1])
		if c.Silent() == nil && !bytes.Equal(got, now) {
			t.Fatalf("seed %d: a byte was changed, and nothing was marked", seed)
		}
		for _, err := range []error{c.Close(), src.Close(), target.Close()} {
			if err != nil {
				t.Error(err)
			}
		}
	}
}

// Without the right to load programs, auto compares, and says why.
func TestAutoComparesWithoutPermission(t *testing.T) {
	if dev := os.Getenv("PASSES_TEST_DEVICE"); dev != "" {
		src, err := image.OpenSource(dev)
		if err != nil {
			t.Fatal(err)
		}
		v := &Volume{Name: "v", Device: dev, Tracker: tracker.Auto, Cluster: 65536, Source: src}
		c := New(nil, []*Volume{v}, Options{})
		kinds, err := c.Track()
		if err != nil {
			t.Fatal(err)
		}
		if kinds["v"] != tracker.Hash || !strings.Contains(v.Comparing, "the kernel refused the block tracepoints (EPERM)") {
			t.Fatalf("%v: %s", kinds, v.Comparing)
		}
		return
	}
	dev := bare(t, 1<<20)
	setpriv, err := exec.LookPath("setpriv")
	if err != nil {
		t.Skip("needs setpriv")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(setpriv, "--bounding-set=-all", "--inh-caps=-all", self, "-test.run=^TestAutoComparesWithoutPermission$")
	cmd.Env = append(os.Environ(), "PASSES_TEST_DEVICE="+dev)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
