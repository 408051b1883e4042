package changes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/image"
	"github.com/livefleet/handover/helper/internal/loop"
)

const MiB = 1 << 20

// Where it matters each step of a backup is a process of its own: this binary,
// started again.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "step" {
		if err := step(os.Stdout, os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// step is ROOT PINS WORD ARGUMENTS…; it answers in JSON.
func step(out io.Writer, args []string) error {
	s, err := Open(args[0], args[1])
	if err != nil {
		return err
	}
	var answer any
	switch word, args := args[2], args[3:]; word {
	case "start":
		cluster := DefaultCluster
		if len(args) > 2 {
			cluster = 4096
		}
		answer, err = s.Start(args[0], args[1], cluster)
	case "list":
		answer, err = s.List()
	case "swap":
		answer, err = s.Swap(args[0], args[1], len(args) > 2)
	case "export":
		answer, err = s.Export(args[0], args[1])
	case "stop":
		err = s.Stop(args[0])
	case "swap-killed": // before the bitmap is written
		var st *state
		if st, _, err = s.whole(args[0]); err == nil {
			if _, err = s.keep.Swap(&st.Kept, nil); err == nil {
				err = unix.Kill(os.Getpid(), unix.SIGKILL)
			}
		}
	}
	if err = errors.Join(err, s.Close()); err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(answer)
}

// bench is a place for trackers of one test.
type bench struct {
	t          *testing.T
	root, pins string
	apart      bool // each step is a process of its own
}

func newBench(t *testing.T) *bench {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: loop devices and BPF")
	}
	top := t.TempDir()
	b := &bench{t: t, root: filepath.Join(top, "track"), pins: filepath.Join(top, "bpf", "pins")}
	if err := os.Mkdir(filepath.Dir(b.pins), 0o700); err != nil {
		t.Fatal(err)
	}
	err := unix.Mount("bpf", filepath.Dir(b.pins), "bpf", 0, "")
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENODEV) {
		t.Skip("needs a BPF file system: ", err)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(filepath.Dir(b.pins), 0); err != nil {
			t.Error(err)
		}
	})
	return b
}

// device makes a loop device.
func (b *bench) device(size int64) string {
	b.t.Helper()
	file := filepath.Join(b.t.TempDir(), "disk.img")
	err := os.WriteFile(file, nil, 0o600)
	if err == nil {
		err = os.Truncate(file, size)
	}
	var dev string
	if err == nil {
		dev, err = loop.Attach(file)
	}
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		if err := loop.Detach(dev); err != nil {
			b.t.Error(err)
		}
	})
	return dev
}

// run is one step; it returns the answer, or what the process said on its way out.
func (b *bench) run(args ...string) (answer []byte, err error) {
	b.t.Helper()
	args = append([]string{b.root, b.pins}, args...)
	if !b.apart {
		var out bytes.Buffer
		err := step(&out, args)
		return out.Bytes(), err
	}
	self, err := os.Executable()
	if err != nil {
		b.t.Fatal(err)
	}
	cmd := exec.CommandContext(context.Background(), self, append([]string{"step"}, args...)...)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, said.String())
	}
	return out.Bytes(), nil
}

func (b *bench) must(args ...string) []byte {
	b.t.Helper()
	out, err := b.run(args...)
	if err != nil {
		if strings.Contains(err.Error(), "the kernel refused") || strings.Contains(err.Error(), "has no BTF") {
			b.t.Skip("needs a kernel that can, and a machine that lets us: ", err)
		}
		b.t.Fatalf("%v: %v", args, err)
	}
	return out
}

// start begins to track a device until the test ends.
func (b *bench) start(dev, name string, small ...string) {
	b.t.Helper()
	b.must(append([]string{"start", dev, name}, small...)...)
	b.t.Cleanup(func() {
		if _, err := os.Stat(filepath.Join(b.root, name, stateFile)); err == nil {
			b.must("stop", name)
		}
	})
}

func (b *bench) fails(text string, args ...string) {
	b.t.Helper()
	out, err := b.run(args...)
	if err == nil || !strings.Contains(err.Error(), text) {
		b.t.Fatalf("%v: %v (%s); should say %q", args, err, out, text)
	}
}

func (b *bench) list() (all []Info) {
	b.t.Helper()
	if err := json.Unmarshal(b.must("list"), &all); err != nil {
		b.t.Fatal(err)
	}
	return all
}

// pinned is how many things are in the BPF file system.
func (b *bench) pinned() (n int) {
	_ = filepath.WalkDir(b.pins, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			n++
		}
		return nil
	})
	return n
}

// writers write to a device at random until they are stopped.
func writers(t *testing.T, dev string, size int64) (stop func()) {
	t.Helper()
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 3 {
		f, err := os.OpenFile(dev, os.O_RDWR|unix.O_DIRECT|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			defer f.Close()
			buf := image.Buffer(4096)
			for {
				select {
				case <-done:
					return
				default:
				}
				for i := range 64 {
					buf[rand.IntN(len(buf))] = byte(i)
				}
				if _, err := f.WriteAt(buf, rand.Int64N(size/4096)*4096); err != nil {
					t.Error(err)
					return
				}
			}
		}()
	}
	stop = sync.OnceFunc(func() { close(done); wg.Wait() })
	t.Cleanup(stop)
	return stop
}

// copyExtents copies what a bitmap names from the device into the backup.
func copyExtents(t *testing.T, dev string, bitmap *Bitmap, backup []byte) {
	t.Helper()
	src, err := image.OpenSource(dev)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	for off, n := range bitmap.Extents() {
		if _, err := src.ReadAt(backup[off:off+n], off); err != nil {
			t.Fatal(err)
		}
	}
}

func whole(t *testing.T, dev string, size int64) []byte {
	t.Helper()
	all := make([]byte, size)
	src, err := image.OpenSource(dev)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	if _, err := src.ReadAt(all, 0); err != nil {
		t.Fatal(err)
	}
	return all
}

// A whole copy and then increments, each step by a process of its own, of which
// some are killed, under writers all the time: restored, it is the device.
func TestIncrementsUnderWriters(t *testing.T) {
	const size = 128 * MiB // so large that few clusters are written twice: what was lost stays lost
	b := newBench(t)
	b.apart = true
	dev := b.device(size)
	files := t.TempDir()
	stop := writers(t, dev, size)
	b.start(dev, "disk", "small")
	backup := whole(t, dev, size)
	var at uint64
	increment := func(i int, again bool) *Bitmap {
		file := filepath.Join(files, fmt.Sprintf("%d.bitmap", i))
		args := []string{"swap", "disk", file}
		if again {
			args = append(args, "again")
		}
		b.must(args...)
		m, err := ReadBitmap(file)
		if err != nil {
			t.Fatal(err)
		}
		if m.From != at && !again {
			t.Fatalf("increment %d begins with %d, and the one before it ended with %d", i, m.From, at)
		}
		at = m.To
		return m
	}
	failed := false
	for i := range 12 {
		switch rand.IntN(4) {
		case 0:
			if _, err := b.run("swap-killed", "disk"); err == nil {
				t.Fatal("it was to be killed")
			}
		case 1: // the increment comes to nothing: the next one holds it
			increment(100+i, failed)
			failed = true
			continue
		}
		copyExtents(t, dev, increment(i, failed), backup)
		failed = false
	}
	stop()
	copyExtents(t, dev, increment(99, failed), backup)
	now := whole(t, dev, size)
	if !bytes.Equal(now, backup) {
		at := slices.IndexFunc(now, func(byte) bool { return true })
		for at = range now {
			if now[at] != backup[at] {
				break
			}
		}
		t.Fatalf("restored, it differs from the device at byte %d", at)
	}
	b.must("stop", "disk")
	if n := b.pinned(); n != 0 {
		t.Errorf("%d things are still pinned", n)
	}
}

// Each tracker is its own, and with the last everything is gone.
func TestSeveralTrackers(t *testing.T) {
	const size = 8 * MiB
	b := newBench(t)
	names := []string{"a", "b", "c"}
	devs := map[string]string{}
	for _, n := range names {
		devs[n] = b.device(size)
		b.start(devs[n], n)
	}
	b.start(devs["a"], "again") // a second tracker of one device
	b.fails("a is tracked already", "start", devs["b"], "a")
	for i, n := range names {
		writeAt(t, devs[n], int64(i+1)*MiB, 4096)
	}
	for _, i := range b.list() {
		if i.Marked != DefaultCluster || i.Lost || i.Generation != 0 {
			t.Errorf("%+v", i)
		}
	}
	b.must("stop", "a")
	for i, n := range []string{"again", "b", "c"} {
		m := swapOf(t, b, n)
		if m.Map.Count() != 1 || !m.Map.Has(int64(i+1)*MiB) {
			t.Errorf("%s: %d clusters are marked", n, m.Map.Count())
		}
	}
	for _, n := range []string{"c", "again", "b"} {
		b.must("stop", n)
	}
	if n := b.pinned(); n != 0 {
		t.Errorf("%d things are still pinned", n)
	}
	b.fails("nothing is tracked under the name b", "stop", "b")
}

func writeAt(t *testing.T, dev string, off, n int64) {
	t.Helper()
	f, err := os.OpenFile(dev, os.O_RDWR|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	buf := image.Buffer(int(n))
	if _, err := f.WriteAt(buf, off); err != nil {
		t.Fatal(err)
	}
}

func swapOf(t *testing.T, b *bench, name string) *Bitmap {
	t.Helper()
	file := filepath.Join(t.TempDir(), "bitmap")
	b.must("swap", name, file)
	m, err := ReadBitmap(file)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestExportLeavesTheMarks(t *testing.T) {
	b := newBench(t)
	dev := b.device(8 * MiB)
	b.start(dev, "disk")
	writeAt(t, dev, 3*MiB, 4096)
	file := filepath.Join(t.TempDir(), "bitmap")
	b.must("export", "disk", file)
	b.fails("exists already", "export", "disk", file)
	b.fails("exists already", "swap", "disk", file)
	m, err := ReadBitmap(file)
	if err != nil {
		t.Fatal(err)
	}
	if !m.Open || m.Map.Count() != 1 || m.From != 0 || m.To != 1 {
		t.Errorf("%+v", m.Header)
	}
	if m := swapOf(t, b, "disk"); m.Open || !m.Map.Has(3*MiB) || m.From != 0 || m.To != 1 {
		t.Errorf("%+v", m.Header)
	}
	if m := swapOf(t, b, "disk"); m.Map.Count() != 0 || m.From != 1 || m.To != 2 {
		t.Errorf("%+v", m.Header)
	}
	if all, _ := filepath.Glob(filepath.Join(b.pins, "*", "marks-*")); len(all) != 1 {
		t.Errorf("the arrays %v are pinned", all)
	}
}

// Whatever loses marks is said, at once and for ever, and never passed over.
func TestLostMarks(t *testing.T) {
	edit := func(change func(st *state)) func(b *bench, dev string) {
		return func(b *bench, _ string) {
			path := filepath.Join(b.root, "disk", stateFile)
			data, err := os.ReadFile(path)
			var st state
			if err == nil {
				err = json.Unmarshal(data, &st)
			}
			if err == nil {
				change(&st)
				err = replaceJSON(path, &st)
			}
			if err != nil {
				b.t.Fatal(err)
			}
		}
	}
	for _, c := range []struct {
		name  string
		plant func(b *bench, dev string)
		text  string
	}{
		{"a restart", edit(func(st *state) { st.Kept.Boot = "12345678-1234-1234-1234-123456789abc" }), "the host was restarted since tracking began"},
		{"another medium", edit(func(st *state) { st.Kept.Diskseq = "1" }), "another medium is in the device"},
		{"another disk", edit(func(st *state) { st.Kept.Disk = 7<<32 | 99 }), "this is another disk (7:"},
		{"another version", edit(func(st *state) { st.Kept.Layout = 99 }), "its marks are gone from the kernel"},
		{"another place", edit(func(st *state) { st.Pins = "/nonexistent/pins" }), "/nonexistent/pins is in no BPF file system"},
		{"an array that somebody removed", func(b *bench, _ string) {
			all, _ := filepath.Glob(filepath.Join(b.pins, "*", "marks-*"))
			for _, path := range all {
				if err := os.Remove(path); err != nil {
					b.t.Fatal(err)
				}
			}
		}, "its marks are gone from the kernel"},
		{"everything removed", func(b *bench, _ string) {
			if err := os.RemoveAll(b.pins); err != nil {
				b.t.Fatal(err)
			}
		}, "its marks are gone from the kernel"},
		{"a device that grew", func(b *bench, dev string) {
			out, err := exec.Command("losetup", "-nO", "BACK-FILE", dev).Output()
			if err == nil {
				err = os.Truncate(strings.TrimSpace(string(out)), 16*MiB)
			}
			if err == nil {
				err = exec.Command("losetup", "-c", dev).Run()
			}
			if err != nil {
				b.t.Fatal(err)
			}
		}, "the device was resized"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			dev := b.device(8 * MiB)
			b.start(dev, "disk")
			c.plant(b, dev)
			file := filepath.Join(t.TempDir(), "bitmap")
			for range 2 {
				b.fails(c.text, "swap", "disk", file)
				b.fails("make a whole copy", "export", "disk", file)
			}
			if _, err := os.Stat(file); err == nil {
				t.Error("there is a bitmap")
			}
			if all := b.list(); len(all) != 1 || !all[0].Lost || !strings.Contains(all[0].Why, c.text) {
				t.Errorf("%+v", all)
			}
			b.must("stop", "disk")
			b.start(dev, "disk") // begins anew, whatever was left
			if m := swapOf(t, b, "disk"); m.Map.Count() != 0 {
				t.Errorf("%d clusters are marked", m.Map.Count())
			}
		})
	}
}

func TestBadNames(t *testing.T) {
	b := newBench(t)
	dev := b.device(MiB)
	b.fails("cannot be a name", "start", dev, "../x")
	b.fails("is no name of a tracker", "swap", "a/b", "x")
	b.fails("nothing is tracked under the name x", "export", "x", "y")
	b.fails("no such file", "start", dev+"x", "x")
	b.fails("this is no block device", "start", "/dev/null", "x")
	if n := b.pinned(); n != 0 {
		t.Errorf("%d things are pinned", n)
	}
}
