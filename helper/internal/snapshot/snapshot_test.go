package snapshot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/blockmap"
	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/image"
	"github.com/livefleet/handover/helper/internal/loop"
	"github.com/livefleet/handover/helper/internal/store"
	"github.com/livefleet/handover/helper/internal/tracker"
)

// TestMain is also the guard, and a process that is killed in the middle of a freeze.
func TestMain(m *testing.M) {
	if len(os.Args) > 3 && os.Args[1] == "internal" && os.Args[2] == ThawWord {
		limit, err := time.ParseDuration(os.Args[3])
		if err == nil {
			err = ThawWhenGone(limit, os.Args[4:])
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) > 2 && os.Args[1] == "act-rollback" {
		var r Return
		if err := json.Unmarshal([]byte(os.Args[2]), &r); err != nil {
			panic(err)
		}
		if _, err := Restore(context.Background(), r); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) > 2 && os.Args[1] == "act-freeze" {
		var r Request
		if err := json.Unmarshal([]byte(os.Args[2]), &r); err != nil {
			panic(err)
		}
		whileFrozen = func() {
			fmt.Println("frozen")
			time.Sleep(time.Hour)
		}
		_, err := Take(context.Background(), r)
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// bench is a mounted volume whose files are always being written.
type bench struct {
	t        *testing.T
	fstype   string
	size     int64
	dir      string
	image    string
	dev, mnt string
}

func newBench(t *testing.T, fstype string) *bench {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: loop devices, mounts and BPF")
	}
	b := &bench{t: t, fstype: fstype, dir: t.TempDir(), size: 96 << 20}
	if fstype == "xfs" {
		b.size = 320 << 20 // it takes no less
	}
	b.image, b.mnt = filepath.Join(b.dir, "image"), filepath.Join(b.dir, "mnt")
	b.must(os.WriteFile(b.image, nil, 0o600))
	b.must(os.Truncate(b.image, b.size))
	b.run("mkfs."+fstype, "-q", b.image)
	// A place of its own for trackers: another test on this machine sweeps the usual one.
	b.must(os.Mkdir(b.bpf(), 0o700))
	b.must(unix.Mount("bpf", b.bpf(), "bpf", 0, ""))
	t.Cleanup(func() { b.must(unix.Unmount(b.bpf(), unix.MNT_DETACH)) })
	b.attach()
	t.Cleanup(func() {
		_ = image.Thaw(b.mnt)
		b.detach()
		if x, err := store.Peek(b.store()); err == nil {
			if err := Forget(x, b.trackers(), filepath.Join(b.bpf(), "pins")); err != nil {
				t.Error(err)
			}
		}
	})
	return b
}

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) run(name string, args ...string) {
	b.t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		b.t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}

func (b *bench) attach() {
	b.t.Helper()
	var err error
	b.dev, err = loop.Attach(b.image)
	b.must(err)
	b.must(loop.Mount(b.dev, b.mnt, b.fstype, "noatime"))
}

func (b *bench) detach() {
	for _, err := range []error{loop.Unmount(b.mnt), loop.Detach(b.dev)} {
		if err != nil {
			b.t.Error(err)
		}
	}
}

func (b *bench) store() string    { return filepath.Join(b.dir, "store") }
func (b *bench) bpf() string      { return filepath.Join(b.dir, "bpf") }
func (b *bench) trackers() string { return filepath.Join(b.dir, "track") }

func (b *bench) request() Request {
	return Request{
		Part{Store: b.store(), Volumes: []Place{{"data", b.image}}},
		Options{Tracker: tracker.Auto, Track: true, TrackRoot: b.trackers(), TrackPins: filepath.Join(b.bpf(), "pins"), FreezeLimit: 30 * time.Second},
	}
}

// writer writes, removes and syncs files until the function that it returns is called.
func (b *bench) writer(seed uint64) (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		rnd, noise := rand.New(rand.NewPCG(seed, 5)), rand.NewChaCha8([32]byte{byte(seed)})
		content := make([]byte, 200<<10)
		for {
			select {
			case <-end:
				return
			default:
			}
			path := filepath.Join(b.mnt, strconv.Itoa(rnd.IntN(20)))
			if rnd.IntN(4) == 0 {
				_ = os.Remove(path)
				continue
			}
			f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
			if err == nil {
				n := 1 + rnd.IntN(len(content))
				noise.Read(content[:n])
				_, err = f.WriteAt(content[:n], rnd.Int64N(1<<20))
				if rnd.IntN(3) == 0 {
					err = errors.Join(err, f.Sync())
				}
				err = errors.Join(err, f.Close())
			}
			if err != nil {
				b.t.Error(err)
				return
			}
			time.Sleep(time.Duration(rnd.IntN(3)) * time.Millisecond)
		}
	}()
	return func() { close(end); <-ended }
}

// moment is the disk while it stood still.
type moment struct {
	disk []byte
	free *blockmap.Map // clusters that the file system did not use
}

// watched has the disk of each snapshot read while it stands still.
func (b *bench) watched() *moment {
	m := &moment{}
	whileFrozen = func() {
		src, err := image.OpenSource(b.dev)
		b.must(err)
		defer src.Close()
		m.disk, m.free = image.Buffer(int(b.size)), blockmap.New(b.size, cluster)
		_, err = src.ReadAt(m.disk, 0)
		b.must(err)
		b.must(image.FreeSpace(b.mnt, b.dev, m.free.MarkWithin))
	}
	b.t.Cleanup(func() { whileFrozen = func() {} })
	return m
}

// unreserved marks the clusters that the running file system had set aside for files to
// come: what mounts the disk of the moment finds them unused, and rubbish is in them.
func (b *bench) unreserved(m *moment) {
	b.t.Helper()
	if b.fstype == "xfs" {
		return
	}
	dir := b.t.TempDir()
	path, mnt := filepath.Join(dir, "moment"), filepath.Join(dir, "mnt")
	b.must(os.WriteFile(path, m.disk, 0o600))
	dev, err := loop.Attach(path)
	b.must(err)
	defer func() { b.must(loop.Detach(dev)) }()
	b.must(loop.Mount(dev, mnt, b.fstype, ""))
	defer func() { b.must(loop.Unmount(mnt)) }()
	b.must(image.FreeSpace(mnt, dev, m.free.MarkWithin))
}

// isThe demands that a point restores to the disk of a moment: ext4 to the byte.
func (b *bench) isThe(m *moment, point string, check ...string) {
	b.t.Helper()
	path := filepath.Join(b.t.TempDir(), "restored")
	_, err := Restore(context.Background(), Return{Store: b.store(), Point: point, Volumes: []Place{{"data", path}}})
	b.must(err)
	if b.fstype == "xfs" {
		// It gives files blocks behind their ends, in which rubbish is: what counts is their content.
		// The mounts also replay the end of its log.
		then := filepath.Join(b.t.TempDir(), "moment")
		b.must(os.WriteFile(then, m.disk, 0o600))
		if was, is := b.files(then), b.files(path); !maps.Equal(was, is) {
			b.t.Fatalf("%d files were there, and %d are restored, or others", len(was), len(is))
		}
	} else {
		got, err := os.ReadFile(path)
		b.must(err)
		for off := int64(0); off < b.size; off += cluster {
			if !m.free.Has(off) && !bytes.Equal(got[off:off+cluster], m.disk[off:off+cluster]) {
				b.t.Fatalf("the cluster at %d is not as it was", off)
			}
		}
	}
	if len(check) > 0 {
		b.run(check[0], append(check[1:], path)...)
	}
}

// files are the digests of an image's files, each with its size.
func (b *bench) files(path string) map[string]string {
	b.t.Helper()
	at := filepath.Join(b.t.TempDir(), "files")
	b.must(loop.MountImage(path, at, b.fstype, map[string]string{"xfs": "nouuid"}[b.fstype]))
	defer func() { b.must(loop.Unmount(at)) }()
	found := map[string]string{}
	b.must(filepath.WalkDir(at, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(file)
		found[strings.TrimPrefix(file, at)] = fmt.Sprintf("%d %x", len(content), sha256.Sum256(content))
		return err
	}))
	if len(found) == 0 {
		b.t.Fatal("the image has no file")
	}
	return found
}

// Under a writer that never stops, each snapshot is the disk of its moment: the first in
// full, later ones by marks, and by digests when the marks are lost.
func TestEachIsItsMoment(t *testing.T) {
	for _, c := range []struct {
		fstype, kind string
		check        []string
	}{
		{"ext4", tracker.Auto, []string{"e2fsck", "-fn"}},
		{"xfs", tracker.EBPF, []string{"xfs_repair", "-n"}},
		{"ext4", tracker.Hash, []string{"e2fsck", "-fn"}},
	} {
		t.Run(c.fstype+" "+c.kind, func(t *testing.T) {
			rounds := 4
			if testing.Short() {
				rounds = 2
				if c.fstype == "xfs" {
					t.Skip("its disk is large, and the race detector slow: the suite runs this without")
				}
			}
			b := newBench(t, c.fstype)
			stop := b.writer(1)
			defer func() { stop() }()
			m := b.watched()
			all := map[string]*moment{}
			for n := range rounds {
				if n == 2 { // the device goes, and its marks with it
					stop()
					b.detach()
					b.attach()
					stop = b.writer(2)
				}
				r := b.request()
				r.Tracker = c.kind
				taken, err := Take(context.Background(), r)
				b.must(err)
				b.unreserved(m)
				b.isThe(m, taken.ID, c.check...)
				all[taken.ID] = &moment{m.disk, m.free}
				want := [...]string{store.Full, store.Marks, store.Digests, store.Marks}[n]
				if c.kind == tracker.Hash && n > 0 {
					want = store.Digests
				}
				v := taken.Volumes[0]
				if v.How != want || (v.Why == "") != (want != store.Digests) {
					t.Errorf("snapshot %d: %s (%s), and not %s", n, v.How, v.Why, want)
				}
				t.Logf("%s: %d bytes read, %d stored, frozen for %.1f ms with %d bytes", v.How, v.Read, v.Stored, taken.FrozenMS, taken.Dirty)
			}
			if testing.Short() {
				return // the suite runs all of it, without the race detector
			}
			for id, m := range all { // and it stays so
				b.isThe(m, id)
			}
		})
	}
}

// A snapshot that came to nothing loses no marks: the next one has them.
func TestMarksOfAFailedSnapshotAreInTheNext(t *testing.T) {
	b := newBench(t, "ext4")
	m := b.watched()
	first, err := Take(context.Background(), b.request())
	b.must(err)
	for n := range 3 {
		b.must(os.WriteFile(filepath.Join(b.mnt, strconv.Itoa(n)), bytes.Repeat([]byte{byte(n + 1)}, 300<<10), 0o600))
		r := b.request()
		r.Files = []Place{{"config.json", filepath.Join(b.dir, "missing")}}
		if _, err := Take(context.Background(), r); err == nil || !strings.Contains(err.Error(), "no such file") {
			t.Fatal(err)
		}
	}
	next, err := Take(context.Background(), b.request())
	b.must(err)
	if v := next.Volumes[0]; v.How != store.Marks || next.Parent != first.ID || v.Stored < 900<<10 || v.Read > 8<<20 {
		t.Errorf("%+v", next)
	}
	b.unreserved(m)
	b.isThe(m, next.ID, "e2fsck", "-fn")
}

// A process that dies in the freeze, a command that hangs, a freeze that takes too long:
// the file system goes on, and the store is as before.
func TestTheThawIsCertain(t *testing.T) {
	b := newBench(t, "ext4")
	goesOn := func() {
		t.Helper()
		written := make(chan error, 1)
		go func() { written <- os.WriteFile(filepath.Join(b.mnt, "alive"), []byte("x"), 0o600) }()
		select {
		case err := <-written:
			b.must(err)
		case <-time.After(20 * time.Second):
			t.Error("the file system still stands still")
			b.must(image.Thaw(b.mnt))
		}
		if x, err := store.Peek(b.store()); err == nil && len(x.Points) > 0 {
			t.Errorf("the store has %d points", len(x.Points))
		}
	}

	r := b.request()
	request, err := json.Marshal(r)
	b.must(err)
	self, err := os.Executable()
	b.must(err)
	cmd := exec.Command(self, "act-freeze", string(request))
	out, err := cmd.StdoutPipe()
	b.must(err)
	b.must(cmd.Start())
	line := make([]byte, 6)
	if _, err := out.Read(line); err != nil || string(line) != "frozen" {
		t.Fatalf("%q %v", line, err)
	}
	b.must(cmd.Process.Kill())
	_ = cmd.Wait()
	goesOn()

	r = b.request()
	r.FreezeLimit = 300 * time.Millisecond
	whileFrozen = func() {
		time.Sleep(2 * time.Second)
		goesOn() // the guard has let it go
	}
	_, err = Take(context.Background(), r)
	whileFrozen = func() {}
	if err == nil || !strings.Contains(err.Error(), "although it is frozen") && !strings.Contains(err.Error(), "stood still for 300ms and were let go") {
		t.Errorf("%v", err)
	}
	goesOn()

	r = b.request()
	after := filepath.Join(b.dir, "after")
	r.Before, r.After = &hooks.Command{Argv: []string{"sleep", "100"}, Timeout: 1}, &hooks.Command{Argv: []string{"touch", after}}
	if _, err = Take(context.Background(), r); err == nil || !strings.Contains(err.Error(), "the command before the freeze") {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(after); err != nil {
		t.Error("the command afterwards was not run")
	}
	goesOn()

	r.Before, r.After = nil, &hooks.Command{Argv: []string{"sleep", "100"}, Timeout: 1}
	if _, err = Take(context.Background(), r); err == nil || !strings.Contains(err.Error(), "but afterwards: the command after the freeze") {
		t.Errorf("%v", err)
	}
	if x, err := store.Peek(b.store()); err != nil || len(x.Points) != 1 {
		t.Errorf("%v", err)
	}
}

// A guard lets go only of a freeze that its process began: a move may have frozen the
// file system meanwhile, and proves that nothing is written.
func TestAFreezeOfOthersStays(t *testing.T) {
	b := newBench(t, "ext4")
	g, err := watch([]string{b.mnt}, time.Minute, nil)
	b.must(err)
	b.must(image.Freeze(b.mnt))
	defer image.Thaw(b.mnt)
	b.must(g.end.Close()) // as when the process dies
	b.must(g.cmd.Wait())
	if err := image.Freeze(b.mnt); err == nil || !strings.Contains(err.Error(), "frozen already") {
		t.Errorf("the guard has let go of it: %v", err)
	}
}

// A disk that nothing uses is read as it is; one that a program writes is refused.
func TestADiskAtRest(t *testing.T) {
	b := newBench(t, "ext4")
	path := filepath.Join(b.dir, "disk")
	content := make([]byte, 3*cluster+512)
	noise := rand.NewChaCha8([32]byte{1})
	noise.Read(content[cluster:])
	b.must(os.WriteFile(path, content, 0o600))
	r := b.request()
	r.Volumes = []Place{{"disk", path}}
	one, err := Take(context.Background(), r)
	b.must(err)
	content[5] = 1
	b.must(os.WriteFile(path, content, 0o600))
	two, err := Take(context.Background(), r)
	b.must(err)
	if v := two.Volumes[0]; v.How != store.Digests || v.Stored != cluster || one.Volumes[0].How != store.Full {
		t.Errorf("%+v", v)
	}
	// Back, in place, and the store knows where the disk stands.
	done, err := Restore(context.Background(), Return{Store: r.Store, Point: one.ID, Volumes: r.Volumes, Current: true})
	b.must(err)
	content[5] = 0
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, content) || done.Volumes[0].Written+done.Volumes[0].Zeroed != 2*cluster { // where a gate may stand is always written
		t.Errorf("%v %+v", err, done.Volumes[0])
	}
	x, err := store.Peek(r.Store)
	if err != nil || x.Current != one.ID || x.Restoring != "" {
		t.Errorf("%v %+v", err, x)
	}

	says := func(text string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%v\n  should say %q", err, text)
		}
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	b.must(err)
	_, err = Take(context.Background(), r)
	says("is open for writing", err)
	_, err = Restore(context.Background(), Return{Store: r.Store, Point: one.ID, Volumes: r.Volumes})
	says("is open for writing", err)
	b.must(f.Close())
	r.Volumes = []Place{{"data", b.image}}
	_, err = Restore(context.Background(), Return{Store: r.Store, Point: one.ID, Volumes: r.Volumes})
	says("is attached to "+b.dev, err)
	_, err = Restore(context.Background(), Return{Store: r.Store, Point: one.ID, Volumes: []Place{{"data", b.dev}}})
	says("is mounted on "+b.mnt, err)
	r.Store = filepath.Join(b.mnt, "in", "it")
	_, err = Take(context.Background(), r)
	says("lies on the volume data", err)
	r.Volumes = []Place{{"data", b.mnt}}
	_, err = Take(context.Background(), r)
	says("is no image file and no block device", err)
}
