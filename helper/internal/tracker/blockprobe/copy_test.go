package blockprobe

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/blockmap"
	"github.com/livefleet/handover/helper/internal/image"
)

// passes copies a device while a writer writes to it, the way a session does:
// everything, then what was written meanwhile, again and again, until the writer
// is stopped and nothing is left. It returns the copy. spoil may take marks away.
func passes(t *testing.T, dev string, size int64, cluster int, tr *Tracker, quiet func(), spoil func(*blockmap.Map)) *os.File {
	t.Helper()
	src := open(t, dev, os.O_RDONLY|direct)
	dst := open(t, sparse(t, size), os.O_RDWR)
	all := blockmap.New(size, cluster)
	all.MarkAll()
	copyMarked(t, all, src, dst)
	for range 5 {
		m := swap(t, tr)
		spoil(m)
		copyMarked(t, m, src, dst)
	}
	quiet()
	aMinuteLater(tr)
	for {
		n, err := tr.InFlight()
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	m := swap(t, tr)
	spoil(m)
	copyMarked(t, m, src, dst)
	if m := swap(t, tr); !m.Empty() {
		t.Fatalf("nobody writes any more, and %d clusters are marked", m.Count())
	}
	return dst
}

// writers write at random to a device until the returned function is called:
// buffered to the first third of it and direct to the rest (both to one place is
// an error to the kernel), small and large, with discards in between.
func writers(t *testing.T, dev string, size int64) (stop func()) {
	t.Helper()
	done := make(chan struct{})
	var wg sync.WaitGroup
	for i := range 3 {
		flags, from, room := os.O_RDWR, int64(0), size/3/4096*4096
		if i > 0 {
			flags, from, room = flags|direct, room, size-room
		}
		f := open(t, dev, flags)
		wg.Add(1)
		go func() {
			defer wg.Done()
			b := buffer(256 << 10)
			for k := 0; ; k++ {
				select {
				case <-done:
					if err := f.Sync(); err != nil {
						t.Error(err)
					}
					return
				default:
				}
				fill(b)
				n := (1 + rand.Int64N(int64(len(b))/4096)) * 4096
				off := from + rand.Int64N((room-n)/4096)*4096
				switch {
				case k%16 == 15 && flags&direct != 0:
					r := [2]uint64{uint64(off), uint64(n)}
					if err := discard(f, &r); err != nil && err != unix.EOPNOTSUPP { // RAID 5 cannot
						t.Error(err)
						return
					}
				default:
					if _, err := f.WriteAt(b[:n], off); err != nil {
						t.Error(err)
						return
					}
				}
				if k%32 == 31 && flags&direct == 0 {
					if err := f.Sync(); err != nil {
						t.Error(err)
						return
					}
				}
			}
		}()
	}
	var once sync.Once
	stop = func() {
		once.Do(func() { close(done) })
		wg.Wait()
	}
	t.Cleanup(stop)
	return stop
}

func discard(f *os.File, r *[2]uint64) error {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), unix.BLKDISCARD, uintptr(unsafe.Pointer(r)))
	if errno != 0 {
		return errno
	}
	return nil
}

// The promise of the whole thing: whatever is written and whenever, the copy is
// the source in the end.
func TestCopyUnderWritersIsEqual(t *testing.T) {
	const size, cluster = 24 * MiB, 64 << 10
	eachKind(t, size, func(t *testing.T, dev string) {
		stop := writers(t, dev, size) // before the tracker: some writes are under way when it comes
		time.Sleep(20 * time.Millisecond)
		tr := track(t, cluster, dev)[0]
		dst := passes(t, dev, size, cluster, tr, stop, func(*blockmap.Map) {})
		if at := firstDifference(t, open(t, dev, os.O_RDONLY|direct), dst, size); at >= 0 {
			t.Fatalf("the copy differs from the source at byte %d", at)
		}
	})
}

// And it is the marks that make it so: take one away, and the copy is wrong.
func TestALostMarkIsSeen(t *testing.T) {
	const size, cluster = 16 * MiB, 64 << 10
	dev := loopOf(t, size)
	tr := track(t, cluster, dev)[0]
	f := open(t, dev, os.O_RDWR|direct)
	const victim = 5 * MiB
	var wrote atomic.Bool
	lost := 0
	dst := passes(t, dev, size, cluster, tr, func() {}, func(m *blockmap.Map) {
		if m.Has(victim) {
			m.Clear(victim)
			lost++
		}
		if !wrote.Swap(true) {
			write(t, f, victim, cluster)
			write(t, f, victim+MiB, cluster)
		}
	})
	if lost != 1 {
		t.Fatalf("%d marks were taken away, and one was to be", lost)
	}
	at := firstDifference(t, open(t, dev, os.O_RDONLY|direct), dst, size)
	if at < victim || at >= victim+cluster {
		t.Fatalf("the mark of the cluster at %d was lost, and the first difference is at %d", victim, at)
	}
}

// A mounted ext4, frozen at the end as a session does it.
func TestFileSystemUnderLoad(t *testing.T) {
	const size, cluster = 64 * MiB, 64 << 10
	if _, err := exec.LookPath("mkfs.ext4"); err != nil {
		t.Skip("needs mkfs.ext4")
	}
	dev := loopOf(t, size)
	run(t, "mkfs.ext4", "-q", dev)
	mnt := t.TempDir()
	run(t, "mount", "-o", "discard", dev, mnt)
	t.Cleanup(func() { run(t, "umount", mnt) })
	tr := track(t, cluster, dev)[0]

	var stopped atomic.Bool
	var wg sync.WaitGroup
	for i := range 2 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for k := 0; !stopped.Load(); k++ {
				name := filepath.Join(mnt, string(rune('a'+i))+string(rune('0'+k%8)))
				b := make([]byte, rand.IntN(MiB))
				fill(b)
				if err := os.WriteFile(name, b, 0o600); err != nil {
					t.Error(err)
					return
				}
				if k%3 == 2 {
					os.Remove(name)
				}
				if k%5 == 4 {
					if err := image.Syncfs(mnt); err != nil {
						t.Error(err)
						return
					}
				}
			}
		}()
	}
	defer wg.Wait()
	defer stopped.Store(true)
	dst := passes(t, dev, size, cluster, tr, func() {
		if err := image.Freeze(mnt); err != nil { // the writers go on, and wait
			t.Fatal(err)
		}
	}, func(*blockmap.Map) {})
	defer func() {
		if err := image.Thaw(mnt); err != nil {
			t.Error(err)
		}
	}()
	if at := firstDifference(t, open(t, dev, os.O_RDONLY|direct), dst, size); at >= 0 {
		t.Fatalf("the copy differs from the frozen source at byte %d", at)
	}
	copied := loop(t, dst.Name(), "-r")
	run(t, "e2fsck", "-fn", "-E", "journal_only", copied)
}
