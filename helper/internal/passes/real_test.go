package passes

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/image"
	"github.com/livefleet/handover/helper/internal/loop"
	"github.com/livefleet/handover/helper/internal/pipeline"
	"github.com/livefleet/handover/helper/internal/tracker"
	"github.com/livefleet/handover/helper/internal/wire"
)

// mounted is a file system on a loop device until the test ends.
func mounted(t *testing.T, fstype string, size int64) (dev, mnt string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: loop devices, mounts and BPF")
	}
	top := t.TempDir()
	path, mnt := filepath.Join(top, "image"), filepath.Join(top, "mnt")
	f, err := os.Create(path)
	if err == nil {
		err = f.Truncate(size)
		f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	run(t, "mkfs."+fstype, "-q", path)
	if dev, err = loop.Attach(path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = image.Thaw(mnt)
		for _, err := range []error{loop.Unmount(mnt), loop.Detach(dev)} {
			if err != nil {
				t.Error(err)
			}
		}
	})
	if err := loop.Mount(dev, mnt, fstype, "noatime"); err != nil {
		t.Fatal(err)
	}
	return dev, mnt
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}

// busy makes, changes, reserves and removes files until it is told to stop.
func busy(t *testing.T, mnt string, seed uint64, stop <-chan struct{}) {
	rnd := rand.New(rand.NewPCG(seed, 5))
	content := make([]byte, 600<<10)
	for i := range content {
		content[i] = byte(rnd.Uint32())
	}
	for {
		select {
		case <-stop:
			return
		default:
		}
		path := filepath.Join(mnt, strconv.FormatUint(seed, 10)+"-"+strconv.Itoa(rnd.IntN(12)))
		if rnd.IntN(4) == 0 {
			_ = os.Remove(path)
			continue
		}
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			t.Error(err)
			return
		}
		if rnd.IntN(5) == 0 {
			_ = unix.Fallocate(int(f.Fd()), 0, rnd.Int64N(1<<20), 1<<20)
		}
		_, err = f.WriteAt(content[:1+rnd.IntN(len(content))], rnd.Int64N(1<<20))
		if rnd.IntN(5) == 0 {
			_ = f.Sync()
		}
		f.Close()
		if err != nil {
			t.Error(err)
			return
		}
	}
}

// A file system in use, the free parts of which do not travel: the copy is sound,
// everything that is in use when it is frozen is there byte by byte, and the
// digests agree.
func TestRealFileSystems(t *testing.T) {
	for _, c := range []struct {
		fstype, kind string
		check        []string
	}{
		{"ext4", tracker.EBPF, []string{"e2fsck", "-fn"}},
		{"ext4", tracker.Hash, []string{"e2fsck", "-fn"}},
		{"xfs", tracker.EBPF, []string{"xfs_repair", "-n"}},
		{"xfs", tracker.Hash, []string{"xfs_repair", "-n"}},
	} {
		fstype, check := c.fstype, c.check
		t.Run(fstype+" "+c.kind, func(t *testing.T) {
			const size = 320 << 20
			dev, mnt := mounted(t, fstype, size)
			// Rubbish where nothing is: the device is full once, and then free again.
			rubbish := bytes.Repeat([]byte("rubbish!"), 1<<17)
			for i := range 60 {
				if err := os.WriteFile(filepath.Join(mnt, "rubbish"+strconv.Itoa(i)), rubbish, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := image.Syncfs(mnt); err != nil {
				t.Fatal(err)
			}
			for i := range 60 {
				if err := os.Remove(filepath.Join(mnt, "rubbish"+strconv.Itoa(i))); err != nil {
					t.Fatal(err)
				}
			}
			if err := image.Syncfs(mnt); err != nil {
				t.Fatal(err)
			}

			src, err := image.OpenSource(dev)
			if err != nil {
				t.Fatal(err)
			}
			defer src.Close()
			target, err := image.CreateTarget(filepath.Join(t.TempDir(), "copy"), size)
			if err != nil {
				t.Fatal(err)
			}
			defer target.Close()
			sender, err := pipeline.NewSender([]pipeline.FrameWriter{toTarget{target}}, pipeline.SendOptions{})
			if err != nil {
				t.Fatal(err)
			}
			v := &Volume{Name: fstype, Device: dev, Mountpoint: mnt, Tracker: c.kind, Cluster: 64 << 10, Source: src, Empty: true, SkipFree: true}
			c := New(sender, []*Volume{v}, Options{})

			stop := make(chan struct{})
			var writers sync.WaitGroup
			for seed := range uint64(2) {
				writers.Add(1)
				go func() { defer writers.Done(); busy(t, mnt, seed, stop) }()
			}
			ended := sync.OnceFunc(func() { close(stop); _ = c.Thaw(); writers.Wait() })
			defer ended()
			time.Sleep(20 * time.Millisecond)

			if _, err := c.Track(); err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			send := func() Pass {
				t.Helper()
				p, err := c.Send(context.Background(), nil)
				if err != nil {
					t.Fatal(err)
				}
				return p
			}
			first := send()
			for range 3 {
				send()
			}
			// The writers go on: it is the freeze that stops them.
			for _, step := range []func() error{c.Sync, c.Freeze} {
				if err := step(); err != nil {
					t.Fatal(err)
				}
			}
			send()
			if err := c.Silent(); err != nil {
				t.Fatal(err)
			}
			t.Logf("%s: %+v, first pass %d of %d bytes, %d left out in the end", fstype, v.Survey, first.Bytes, int64(size), v.Left())
			if v.Left() < 20<<20 || v.Survey.Free < 20<<20 {
				t.Errorf("%d bytes were left out, and more were free: %+v", v.Left(), v.Survey)
			}
			inUse(t, v, target.Path())
			mine, err := v.Digest(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			copied, err := image.OpenSource(target.Path())
			if err != nil {
				t.Fatal(err)
			}
			defer copied.Close()
			theirs, err := image.Digest(context.Background(), copied, size, v.Cluster)
			if err != nil {
				t.Fatal(err)
			}
			if err := mine.Root().Equal(theirs.Root()); err != nil {
				t.Error(err)
			}
			if err := target.Datasync(); err != nil {
				t.Fatal(err)
			}
			ended()
			if fstype == "xfs" { // its log is in use when it is frozen, on purpose
				replay(t, target.Path())
			}
			run(t, check[0], append(check[1:], target.Path())...)
		})
	}
}

// replay mounts a copy and unmounts it.
func replay(t *testing.T, path string) {
	t.Helper()
	dev, err := loop.Attach(path)
	if err != nil {
		t.Fatal(err)
	}
	mnt := filepath.Join(t.TempDir(), "mnt")
	err = loop.Mount(dev, mnt, "xfs", "nouuid")
	for _, err := range []error{err, loop.Unmount(mnt), loop.Detach(dev)} {
		if err != nil {
			t.Error(err)
		}
	}
}

// inUse compares, block by block, what the frozen file system uses.
func inUse(t *testing.T, v *Volume, path string) {
	t.Helper()
	there, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	at := int64(0)
	compare := func(off, n int64) {
		for end := off; at < end; {
			a, b := image.Buffer(int(min(end-at, 1<<20))), make([]byte, min(end-at, 1<<20))
			if _, err := v.Source.ReadAt(a, at); err != nil {
				t.Fatal(err)
			}
			if _, err := there.ReadAt(b, at); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(a, b) {
				t.Fatalf("a part that is in use differs, between %d and %d", at, at+int64(len(a)))
			}
			at += int64(len(a))
		}
		at = off + n
	}
	if err := image.FreeSpace(v.Mountpoint, v.Device, compare); err != nil {
		t.Fatal(err)
	}
	compare(v.Source.Size(), 0)
}

// toTarget writes frames down at once.
type toTarget struct{ *image.Target }

func (w toTarget) Write(f *wire.Frame) error {
	if f.Type == wire.Data {
		_, err := w.WriteAt(f.Payload, f.Pos)
		return err
	}
	return w.Zero(f.Pos, f.Length)
}
func (toTarget) Flush() error    { return nil }
func (toTarget) Interrupt(error) {}

// What is discarded on the source is a hole on the destination.
func TestDiscardsTravel(t *testing.T) {
	const size = 64 << 20
	dev, mnt := mounted(t, "ext4", size)
	src, err := image.OpenSource(dev)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	target, err := image.CreateTarget(filepath.Join(t.TempDir(), "copy"), size)
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	sender, err := pipeline.NewSender([]pipeline.FrameWriter{toTarget{target}}, pipeline.SendOptions{})
	if err != nil {
		t.Fatal(err)
	}
	v := &Volume{Name: "ext4", Device: dev, Mountpoint: mnt, Tracker: "auto", Cluster: 64 << 10, Source: src, Empty: true}
	c := New(sender, []*Volume{v}, Options{})
	file := filepath.Join(mnt, "file")
	if err := os.WriteFile(file, bytes.Repeat([]byte("data"), 4<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := image.Syncfs(mnt); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Track(); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	pass := func() int64 {
		t.Helper()
		if err := c.Sync(); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Send(context.Background(), nil); err != nil {
			t.Fatal(err)
		}
		if err := target.Datasync(); err != nil {
			t.Fatal(err)
		}
		var st unix.Stat_t
		if err := unix.Stat(target.Path(), &st); err != nil {
			t.Fatal(err)
		}
		return st.Blocks * 512
	}
	before := pass()
	if before < 16<<20 || before > 40<<20 {
		t.Fatalf("%d bytes are taken", before)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := image.Syncfs(mnt); err != nil { // what is not on the disk yet is not free yet
		t.Fatal(err)
	}
	run(t, "fstrim", mnt)
	if after := pass(); after > before-15<<20 {
		t.Errorf("%d bytes are taken before the discard and %d after it", before, after)
	}
}
