package snapshot

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/loop"
	"github.com/livefleet/handover/helper/internal/store"
)

// snap takes a snapshot of the volume in use.
func (b *bench) snap() *store.Point {
	b.t.Helper()
	taken, err := Take(context.Background(), b.request())
	b.must(err)
	return taken.Point
}

// note notes the volume, which is unmounted and attached.
func (b *bench) note() *Noted {
	b.t.Helper()
	all, err := Note(Noting{Store: b.store(), Volumes: []Place{{"data", b.image}}, TrackRoot: b.trackers(), TrackPins: filepath.Join(b.bpf(), "pins")})
	b.must(err)
	return all[0]
}

// leave unmounts, notes and detaches.
func (b *bench) leave() *Noted {
	b.t.Helper()
	var fs unix.Statfs_t
	if b.must(unix.Statfs(b.image, &fs)); !telling[fs.Type] {
		b.t.Skip("needs a folder for temporary files on ext4, XFS or Btrfs")
	}
	b.must(loop.Unmount(b.mnt))
	n := b.note()
	b.must(loop.Detach(b.dev))
	return n
}

// back goes back to a point, and demands that the whole disk is that of the store.
func (b *bench) back(point string) *store.Restored {
	b.t.Helper()
	done, err := Restore(context.Background(), Return{Store: b.store(), Point: point, Volumes: []Place{{"data", b.image}}, Current: true, TrackRoot: b.trackers()})
	b.must(err)
	b.isStored(point)
	return done.Volumes[0]
}

func (b *bench) isStored(point string) {
	b.t.Helper()
	v, _, err := store.OpenVolume(b.store(), point, "data")
	b.must(err)
	defer v.Close()
	f, err := os.Open(b.image)
	b.must(err)
	defer f.Close()
	want, got := make([]byte, 1<<20), make([]byte, 1<<20)
	for off := int64(0); off < b.size; off += int64(len(want)) {
		_, err := v.ReadAt(want, off)
		b.must(err)
		_, err = f.ReadAt(got, off)
		b.must(err)
		if !bytes.Equal(want, got) {
			b.t.Fatalf("the disk is not that of the snapshot %s, from %d on", point, off)
		}
	}
}

// check has the file system's own checker look at the image.
func (b *bench) check() {
	b.t.Helper()
	// As after a loss of power: its journal has to be replayed first.
	at := filepath.Join(b.t.TempDir(), "at")
	copied := filepath.Join(b.t.TempDir(), "copied")
	b.run("cp", "--sparse=always", b.image, copied)
	b.must(loop.MountImage(copied, at, b.fstype, ""))
	b.must(loop.Unmount(at))
	if b.fstype == "xfs" {
		b.run("xfs_repair", "-n", copied)
	} else {
		b.run("e2fsck", "-fn", copied)
	}
}

// mess writes, overwrites, deletes, cuts, sets aside and trims files at random.
func (b *bench) mess(rnd *rand.Rand, noise *rand.ChaCha8, times int) {
	b.t.Helper()
	content := make([]byte, 400<<10)
	for range times {
		path := filepath.Join(b.mnt, fmt.Sprintf("m%d", rnd.IntN(24)))
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		b.must(err)
		n, off := 1+rnd.IntN(len(content)), rnd.Int64N(2<<20)
		part := content[:n]
		if noise.Read(part); rnd.IntN(4) == 0 {
			clear(part) // zeroes that are data to the file system
		}
		switch what := rnd.IntN(12); {
		case what < 5:
			_, err = f.WriteAt(part, off)
		case what < 8:
			err = os.Remove(path)
		case what == 8:
			err = f.Truncate(off)
		case what == 9:
			err = unix.Fallocate(int(f.Fd()), 0, off, int64(n))
		case what == 10:
			err = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, int64(n))
		default:
			b.trim()
		}
		b.must(err)
		if rnd.IntN(5) == 0 {
			b.must(f.Sync())
		}
		b.must(f.Close())
	}
}

// trim discards the blocks that the file system does not use.
func (b *bench) trim() {
	d, err := os.Open(b.mnt)
	b.must(err)
	defer d.Close()
	r := [3]uint64{0, ^uint64(0), 0}
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, d.Fd(), 0xC0185879, uintptr(unsafe.Pointer(&r))); e != 0 && e != unix.EOPNOTSUPP { // FITRIM
		b.must(e)
	}
}

// Forwards and backwards, to any snapshot: the disk is that of the snapshot to the byte,
// free blocks too, and the clusters that differ were found by the marks.
func TestBackByMarks(t *testing.T) {
	for _, fstype := range []string{"ext4", "xfs"} {
		t.Run(fstype, func(t *testing.T) {
			rounds := 8
			if testing.Short() {
				if rounds = 3; fstype == "xfs" {
					t.Skip("its disk is large, and the race detector slow: the suite runs this without")
				}
			}
			b := newBench(t, fstype)
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			rnd, noise := rand.New(rand.NewPCG(seed, 1)), rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
			m := b.watched()
			moments := map[string]*moment{}
			var ids []string
			for round := range rounds {
				stop := b.writer(seed + uint64(round)) // it does not rest for a snapshot
				for range 1 + rnd.IntN(3) {
					b.mess(rnd, noise, rnd.IntN(40))
					if rnd.IntN(4) == 0 { // the marks are lost: the next one compares digests, and leaves out free blocks
						stop()
						b.detach()
						b.attach()
						stop = b.writer(seed - uint64(round))
					}
					p := b.snap()
					b.unreserved(m)
					moments[p.ID] = &moment{m.disk, m.free}
					ids = append(ids, p.ID)
				}
				b.mess(rnd, noise, rnd.IntN(30))
				stop()
				if n := b.leave(); n.Why != "" {
					t.Fatalf("round %d: %s", round, n.Why)
				}
				to := ids[rnd.IntN(len(ids))]
				done := b.back(to)
				if done.How != store.Marks || done.Why != "" {
					t.Fatalf("round %d: %+v", round, done)
				}
				b.check()
				if fstype == "ext4" {
					b.hasUsed(moments[to])
				}
				t.Logf("read %d KiB, wrote %d, zeroed %d", done.Read>>10, done.Written>>10, done.Zeroed>>10)
				b.attach()
			}
		})
	}
}

// hasUsed demands that all that a file system used at a moment is on the disk.
func (b *bench) hasUsed(m *moment) {
	b.t.Helper()
	got, err := os.ReadFile(b.image)
	b.must(err)
	for off := int64(0); off < b.size; off += cluster {
		if !m.free.Has(off) && !bytes.Equal(got[off:off+cluster], m.disk[off:off+cluster]) {
			b.t.Fatalf("the cluster at %d is not as it was", off)
		}
	}
}

// Zeroes that were data, then others, then free when the current snapshot was taken:
// neither the marks nor the two snapshots tell, and rubbish would come back in the file.
func TestClustersThatWereFreeAreCompared(t *testing.T) {
	b := newBench(t, "ext4")
	file := filepath.Join(b.mnt, "file")
	const n = 4 << 20
	b.must(os.WriteFile(file, make([]byte, n), 0o600))
	then := b.snap()
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	b.must(err)
	_, err = f.WriteAt(bytes.Repeat([]byte("rubbish!"), n/8), 0) // the same blocks
	b.must(err)
	b.must(f.Sync())
	b.must(f.Close())
	b.must(os.Remove(file))
	b.detach() // the marks are gone: the next one is by digests
	b.attach()
	if now := b.snap().Volumes[0]; now.How != store.Digests {
		t.Fatalf("%+v", now)
	}
	for range 2 { // and it is passed on from one snapshot to the next
		b.must(os.WriteFile(filepath.Join(b.mnt, "other"), []byte("small"), 0o600))
		if now := b.snap().Volumes[0]; now.How != store.Marks {
			t.Fatalf("%+v", now)
		}
	}
	if noted := b.leave(); noted.Why != "" || noted.Bytes < n {
		t.Errorf("%+v", noted)
	}
	if done := b.back(then.ID); done.How != store.Marks || done.Zeroed < n-2*cluster {
		t.Errorf("%+v", done)
	}
	b.attach()
	if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, make([]byte, n)) {
		t.Error("the file has rubbish", err)
	}
}

// Whatever takes the proof away that the marks are all: the rollback compares digests, says
// why, and is as right as ever.
func TestWithoutProofDigestsAreCompared(t *testing.T) {
	touch := func(b *bench) { // a byte behind the tracker's back, with the file's times as before
		var st unix.Stat_t
		b.must(unix.Stat(b.image, &st))
		f, err := os.OpenFile(b.image, os.O_RDWR, 0)
		b.must(err)
		_, err = f.WriteAt([]byte{0xee}, 40<<20)
		b.must(err)
		b.must(f.Close())
		b.must(unix.UtimesNanoAt(unix.AT_FDCWD, b.image, []unix.Timespec{st.Atim, st.Mtim}, 0))
	}
	edit := func(change func(w *note)) func(b *bench) {
		return func(b *bench) {
			b.leave()
			x, err := store.Peek(b.store())
			b.must(err)
			path := filepath.Join(b.trackers(), trackerName(x.ID, "data"), "rest.json")
			data, err := os.ReadFile(path)
			b.must(err)
			var w note
			b.must(json.Unmarshal(data, &w))
			change(&w)
			data, err = json.Marshal(w)
			b.must(err)
			b.must(os.WriteFile(path, data, 0o600))
		}
	}
	for name, c := range map[string]struct {
		leave func(b *bench)
		why   string
	}{
		"nothing was noted": {func(b *bench) { b.detach() }, "the marks were not noted before the disk was detached"},
		"the host was restarted": {func(b *bench) {
			edit(func(w *note) { w.Boot = "0b0ffa7e-1111-2222-3333-444455556666" })(b)
		}, "the host was restarted"},
		"written since":         {func(b *bench) { b.leave(); touch(b) }, "was changed since the marks were noted"},
		"of another generation": {edit(func(w *note) { w.Mark.Generation++ }), "for another snapshot than the current one"},
		"of another tracker":    {edit(func(w *note) { w.Mark.Tracker = "0" }), "for another snapshot than the current one"},
		"a flipped bit":         {edit(func(w *note) { w.Bitmap[200] ^= 4 }), "the note of the marks is damaged"},
		"a copy of the file": {func(b *bench) {
			b.leave()
			b.run("cp", "--archive", b.image, b.image+".copy")
			b.must(os.Rename(b.image+".copy", b.image))
			touch(b)
		}, "is another file than when the marks were noted"},
		"untracked": {func(b *bench) {
			b.leave()
			x, err := store.Peek(b.store())
			b.must(err)
			b.must(Forget(x, b.trackers(), filepath.Join(b.bpf(), "pins")))
			touch(b)
		}, "the marks were not noted before the disk was detached"},
		"a snapshot since": {func(b *bench) {
			b.leave()
			touch(b)
			p := b.snap()
			if p.Volumes[0].Mark != nil {
				b.t.Errorf("%+v", p.Volumes[0])
			}
		}, "no tracker was left in the kernel by the current snapshot"},
		"attached anew": {func(b *bench) {
			b.detach()
			touch(b)
			b.attach()
			b.says(b.leave(), "is another disk", "another medium is in the device", "the device has no medium")
		}, "another or the device has no medium"}, // some other test may have had the loop device, or has it
		"mounted elsewhere": {func(b *bench) {
			other := filepath.Join(b.dir, "other")
			b.must(os.Mkdir(other, 0o700))
			b.must(unix.Mount(b.mnt, other, "", unix.MS_BIND, ""))
			b.must(loop.Unmount(b.mnt))
			b.says(b.note(), "is still mounted")
			b.must(os.WriteFile(filepath.Join(other, "late"), []byte("late"), 0o600))
			b.must(loop.Unmount(other))
			b.must(loop.Detach(b.dev))
		}, "is still mounted"},
		"attached twice": {func(b *bench) {
			b.must(loop.Unmount(b.mnt))
			second, err := loop.Attach(b.image)
			b.must(err)
			b.says(b.note(), "is attached to 2 loop devices")
			b.must(loop.Detach(second))
			b.must(loop.Detach(b.dev))
			touch(b)
		}, "is attached to 2 loop devices"},
		"nothing of what was left out": {func(b *bench) {
			found, err := filepath.Glob(filepath.Join(b.trackers(), "*", "unread-*"))
			b.must(err)
			for _, path := range found {
				b.must(os.Remove(path))
			}
			b.says(b.leave(), "which clusters the current snapshot left out")
			touch(b)
		}, "which clusters the current snapshot left out"},
		"written while it was noted": {func(b *bench) {
			whileNoted = func() { touch(b) }
			defer func() { whileNoted = func() {} }()
			b.says(b.leave(), "was written while it was noted")
		}, "was written while it was noted"},
		"a rollback that has not ended": {func(b *bench) {
			b.leave()
			s, err := store.Open(b.store(), false)
			b.must(err)
			to := s.Index().Current
			v, p, err := store.OpenVolume(b.store(), to, "data")
			b.must(err)
			_, err = s.Rollback(context.Background(), p, []store.Disk{{View: v, Path: b.image}}, func(func() error) error { return fmt.Errorf("cut off") })
			if err == nil {
				b.t.Error("it was not cut off")
			}
			touch(b)
			b.must(v.Close())
			b.must(s.Close())
		}, "a rollback was begun before, and has not ended"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "ext4")
			b.must(os.WriteFile(filepath.Join(b.mnt, "file"), bytes.Repeat([]byte("one"), 1<<20), 0o600))
			then := b.snap()
			b.must(os.WriteFile(filepath.Join(b.mnt, "file"), bytes.Repeat([]byte("two"), 1<<20), 0o600))
			b.snap()
			b.must(os.WriteFile(filepath.Join(b.mnt, "third"), bytes.Repeat([]byte("3"), 1<<20), 0o600))
			c.leave(b)
			done := b.back(then.ID)
			says := func(why string) bool { return strings.Contains(done.Why, why) }
			if done.How != store.Digests || !slices.ContainsFunc(strings.Split(c.why, " or "), says) {
				t.Errorf("%+v\n  should say %q", done, c.why)
			}
			b.attach()
		})
	}
}

// Rollbacks by marks are possible again after one snapshot that compares digests.
func TestWhatWasLeftOutIsLearntAgain(t *testing.T) {
	b := newBench(t, "ext4")
	b.snap()
	found, err := filepath.Glob(filepath.Join(b.trackers(), "*", "unread-*"))
	b.must(err)
	if len(found) == 0 {
		t.Fatal("nothing was kept")
	}
	for _, path := range found {
		b.must(os.Remove(path))
	}
	p := b.snap()
	if v := p.Volumes[0]; v.How != store.Digests || !strings.Contains(v.Why, "which clusters the snapshot before left out") || v.Mark == nil {
		t.Errorf("%s: %s", v.How, v.Why)
	}
	if p = b.snap(); p.Volumes[0].How != store.Marks {
		t.Errorf("%s: %s", p.Volumes[0].How, p.Volumes[0].Why)
	}
	b.leave()
	if d := b.back(p.ID); d.How != store.Marks {
		t.Errorf("%s: %s", d.How, d.Why)
	}
}

func (b *bench) says(n *Noted, any ...string) {
	b.t.Helper()
	for _, text := range any {
		if strings.Contains(n.Why, text) {
			return
		}
	}
	b.t.Errorf("%+v\n  should say %q", n, any)
}

// A snapshot that came to nothing took marks: they are put back, for a rollback too.
func TestBackAfterAFailedSnapshot(t *testing.T) {
	b := newBench(t, "ext4")
	then := b.snap()
	for n := range 2 {
		b.must(os.WriteFile(filepath.Join(b.mnt, fmt.Sprint(n)), bytes.Repeat([]byte{byte(n + 1)}, 1<<20), 0o600))
		r := b.request()
		r.Files = []Place{{"config.json", filepath.Join(b.dir, "missing")}}
		if _, err := Take(context.Background(), r); err == nil {
			t.Fatal("it was to fail")
		}
	}
	b.must(loop.Unmount(b.mnt))
	for range 3 { // a note, once more, has as much
		if n := b.note(); n.Why != "" || n.Bytes < 2<<20 {
			t.Fatalf("%+v", n)
		}
	}
	b.must(loop.Detach(b.dev))
	if done := b.back(then.ID); done.How != store.Marks || done.Read > 24<<20 {
		t.Errorf("%+v", done)
	}
	b.attach()
	// It goes on from there: the next one begins a tracker.
	if p := b.snap().Volumes[0]; p.How != store.Digests || p.Mark == nil || p.Stored > 4<<20 {
		t.Errorf("%+v", p)
	}
	if p := b.snap().Volumes[0]; p.How != store.Marks {
		t.Errorf("%+v", p)
	}
}

// A file that is written all the time has no stamp, nor one whose time is to come, nor one on
// a file system that may not tell.
func TestStamps(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	write := func() {
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write()
	one, why, err := stampOf(path)
	if err != nil || why != "" {
		t.Skip(err, why)
	}
	for range 20 { // at the very next moment, a write gives it another
		write()
		two, err := stampNow(path)
		if err != nil || one == two {
			t.Fatalf("%+v %v", two, err)
		}
		if one, why, err = stampOf(path); err != nil || why != "" {
			t.Fatal(why, err)
		}
	}
	now := time.Now()
	if s := (stamp{Ctime: now.Add(time.Hour).UnixNano()}); s.left(now) <= wholeTick {
		t.Error("a time to come")
	}
	if s := (stamp{Ctime: now.Truncate(time.Second).UnixNano()}); s.left(s.time().Add(time.Second)) <= 0 {
		t.Error("an inode that counts seconds")
	}
	if s := (stamp{Ctime: now.Truncate(time.Second).UnixNano() + 1}); s.left(s.time().Add(time.Second)) > 0 {
		t.Error("an inode that counts nanoseconds")
	}
	if _, why, err := stampOf("/proc/self/status"); err != nil || !strings.Contains(why, "is not known to tell of each write") {
		t.Error(why, err)
	}
}
