package tree

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/loop"
)

// filesystem is a mounted file system of its own, with a folder src to follow, a
// folder dst to follow it in, and a folder outside beside them.
func filesystem(t *testing.T, fstype string) (src, dst, outside string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: fanotify, loop devices and mounts")
	}
	top := t.TempDir()
	image, mnt := filepath.Join(top, "image"), filepath.Join(top, "mnt")
	must(t, os.WriteFile(image, nil, 0o600), os.Truncate(image, 512<<20))
	if out, err := exec.Command("mkfs."+fstype, "-q", image).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.%s: %v: %s", fstype, err, out)
	}
	dev, err := loop.Attach(image)
	must(t, err)
	t.Cleanup(func() { must(t, loop.Unmount(mnt), loop.Detach(dev)) })
	must(t, loop.Mount(dev, mnt, fstype, ""))
	src, dst, outside = filepath.Join(mnt, "src"), filepath.Join(mnt, "dst"), filepath.Join(mnt, "outside")
	must(t, os.Mkdir(src, 0o755), os.Mkdir(dst, 0o700), os.Mkdir(outside, 0o700))
	return src, dst, outside
}

// follow begins to follow src in dst, and returns what makes one pass.
func follow(t *testing.T, src, dst string) (*Follower, func(last bool) (Stats, string)) {
	t.Helper()
	f, err := Follow(src)
	must(t, err)
	t.Cleanup(func() { must(t, f.Close()) })
	return f, func(last bool) (Stats, string) {
		t.Helper()
		r, w := io.Pipe()
		done := make(chan error, 1)
		go func() {
			err := Unpack(dst, r)
			r.CloseWithError(err)
			done <- err
		}()
		s, why, err := f.Pass(w, last)
		w.CloseWithError(err)
		must(t, <-done, err)
		return s, why
	}
}

// equal compares by our eyes and by rsync's.
func equal(t *testing.T, src, dst string) {
	t.Helper()
	same(t, src, dst)
	out, err := exec.Command("rsync", "-aHAXcni", "--numeric-ids", "--delete", src+"/", dst+"/").CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Fatalf("rsync finds a difference: %v\n%s", err, out)
	}
}

// busy is a workload that does everything that a workload can do to a folder. It
// keeps files open and mapped, as a frozen one would.
type busy struct {
	t            *testing.T
	src, outside string
	rnd          *rand.Rand
	open         []*os.File
	maps         [][]byte
	n            int
}

func (b *busy) name() string {
	const letters = "abcdefg"
	p := b.src
	for range b.rnd.IntN(3) {
		p = filepath.Join(p, "d"+string(letters[b.rnd.IntN(4)]))
	}
	return filepath.Join(p, string(letters[b.rnd.IntN(len(letters))]))
}

func (b *busy) data() []byte {
	d := make([]byte, 1+b.rnd.IntN(20_000))
	for i := range d {
		d[i] = byte(b.rnd.Uint32())
	}
	return d
}

// below tells whether an entry's folder is another one than the followed one.
func (b *busy) below(p string) bool { return filepath.Dir(p) != b.src }

// release closes and unmaps everything.
func (b *busy) release() {
	for _, f := range b.open {
		f.Close()
	}
	for _, m := range b.maps {
		_ = unix.Munmap(m)
	}
	b.open, b.maps = nil, nil
}

// step does one thing. Most of what it tries is possible, and what is not fails:
// the name is taken by something else, or by nothing.
func (b *busy) step() {
	p, q := b.name(), b.name()
	out := filepath.Join(b.outside, fmt.Sprint(b.rnd.IntN(5)))
	switch b.rnd.IntN(26) {
	case 0, 1, 2:
		_ = os.MkdirAll(filepath.Dir(p), 0o755)
		_ = os.WriteFile(p, b.data(), 0o640)
	case 3: // stays open
		if f, err := os.OpenFile(p, os.O_RDWR|os.O_CREATE, 0o600); err == nil {
			b.open = append(b.open, f)
		}
	case 4, 5, 6:
		if len(b.open) > 0 {
			_, _ = b.open[b.rnd.IntN(len(b.open))].WriteAt(b.data(), b.rnd.Int64N(50_000))
		}
	case 7:
		if n := len(b.open); n > 0 {
			i := b.rnd.IntN(n)
			b.open[i].Close()
			b.open[i] = b.open[n-1]
			b.open = b.open[:n-1]
		}
	case 8: // mapped, and the descriptor closed or not
		if f, err := os.OpenFile(p, os.O_RDWR, 0); err == nil {
			if i, err := f.Stat(); err == nil && i.Size() >= 4096 {
				if m, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
					b.maps = append(b.maps, m)
				}
			}
			f.Close()
		}
	case 9, 10, 11, 12:
		if len(b.maps) > 0 {
			b.poke(b.maps[b.rnd.IntN(len(b.maps))])
		}
	case 13:
		if n := len(b.maps); n > 0 {
			i := b.rnd.IntN(n)
			_ = unix.Munmap(b.maps[i])
			b.maps[i] = b.maps[n-1]
			b.maps = b.maps[:n-1]
		}
	case 14:
		_ = os.Rename(p, q)
	case 15:
		if b.below(p) && b.below(q) {
			_ = os.Rename(filepath.Dir(p), filepath.Dir(q))
		}
	case 16:
		_ = os.Link(p, q)
	case 17:
		_ = os.Remove(p)
	case 18:
		if b.below(p) {
			_ = os.RemoveAll(filepath.Dir(p))
		}
	case 19:
		_ = os.Chmod(p, os.FileMode(0o600+b.rnd.IntN(64)))
		_ = os.Lchown(q, b.rnd.IntN(5), b.rnd.IntN(5))
	case 20:
		_ = unix.Setxattr(p, "user.n", fmt.Append(nil, b.rnd.IntN(100)), 0)
		_ = os.Chtimes(q, time.Now(), time.Unix(b.rnd.Int64N(1e9), 5))
	case 21:
		_ = os.Symlink(fmt.Sprint("to", b.rnd.IntN(9)), p)
		_ = unix.Mkfifo(q+" fifo", 0o600)
	case 22: // a directory goes out, is changed there, and comes in again
		if b.below(p) && os.Rename(filepath.Dir(p), out) == nil {
			_ = os.WriteFile(filepath.Join(out, "a"), b.data(), 0o600)
		} else if b.below(q) {
			_ = os.Rename(out, filepath.Dir(q))
		}
	case 23: // through a name outside
		if os.Link(p, out) == nil {
			_ = os.WriteFile(out, b.data(), 0)
			_ = os.Remove(out)
		}
	case 24: // a file that gets its name when it is written, and is written on
		_ = os.MkdirAll(filepath.Dir(p), 0o755)
		if fd, err := unix.Open(filepath.Dir(p), unix.O_TMPFILE|unix.O_RDWR, 0o600); err == nil {
			f := os.NewFile(uintptr(fd), "tmp")
			_, _ = f.Write(b.data())
			_ = unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, p, unix.AT_SYMLINK_FOLLOW)
			b.open = append(b.open, f)
		}
	case 25:
		if len(b.open) > 0 {
			f := b.open[b.rnd.IntN(len(b.open))]
			_ = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, b.rnd.Int64N(9000)+1)
			_ = f.Truncate(b.rnd.Int64N(60_000))
		}
		_ = unix.Renameat2(unix.AT_FDCWD, p, unix.AT_FDCWD, q, unix.RENAME_EXCHANGE)
	}
	b.n++
}

// poke writes to a mapping. Where the file under it was cut off that is a bus
// error, and here a panic.
func (b *busy) poke(m []byte) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { _ = recover() }()
	m[b.rnd.IntN(len(m))] = byte(b.rnd.Uint32())
}

// Whatever is done to a folder while passes run, after the last one the two are
// equal.
func TestNothingIsMissed(t *testing.T) {
	for _, fstype := range []string{"ext4", "xfs"} {
		for seed := range uint64(2) {
			t.Run(fmt.Sprint(fstype, seed), func(t *testing.T) {
				src, dst, outside := filesystem(t, fstype)
				prepare := &busy{t: t, src: src, outside: outside, rnd: rand.New(rand.NewPCG(seed, 1))}
				for range 300 {
					prepare.step()
				}
				workers := []*busy{prepare}
				for i := range uint64(3) {
					workers = append(workers, &busy{t: t, src: src, outside: outside, rnd: rand.New(rand.NewPCG(seed, 2+i))})
				}
				var all sync.WaitGroup
				t.Cleanup(func() {
					all.Wait()
					for _, w := range workers {
						w.release()
					}
				})
				_, pass := follow(t, src, dst)
				for _, w := range workers {
					all.Add(1)
					go func() {
						defer all.Done()
						for range 1000 {
							w.step()
							if w.rnd.IntN(20) == 0 {
								time.Sleep(time.Millisecond)
							}
						}
					}()
				}
				stopped := make(chan struct{})
				go func() { all.Wait(); close(stopped) }()
				passes, full := 0, 0
				for live := true; live; {
					select {
					case <-stopped:
						live = false
					default:
					}
					_, why := pass(!live)
					passes++
					if why != "" {
						full++
						t.Log(why)
					}
				}
				t.Logf("%d passes, %d of them over everything", passes, full)
				equal(t, src, dst)
			})
		}
	}
}

// A file that is mapped is written through a page that was dirty before the
// first pass: no event, no change time.
func TestAMappedFileIsFollowed(t *testing.T) {
	src, dst, _ := filesystem(t, "ext4")
	path := filepath.Join(src, "mapped")
	must(t, os.WriteFile(path, make([]byte, 8192), 0o600))
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	page, err := unix.Mmap(int(f.Fd()), 0, 8192, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(t, err, f.Close())
	defer unix.Munmap(page)
	page[0] = 1
	time.Sleep(3 * Settle)
	_, pass := follow(t, src, dst)
	pass(false)
	page[0] = 2
	pass(true)
	equal(t, src, dst)
}

func TestAWriteThroughAnotherNameIsFollowed(t *testing.T) {
	src, dst, outside := filesystem(t, "ext4")
	path, other := filepath.Join(src, "a"), filepath.Join(outside, "a")
	must(t, os.WriteFile(path, []byte("first"), 0o600), os.Link(path, other), os.Link(path, filepath.Join(src, "b")))
	_, pass := follow(t, src, dst)
	pass(false)
	must(t, os.WriteFile(other, []byte("through the name outside"), 0))
	pass(false)
	equal(t, src, dst)
	must(t, os.Remove(other), os.Remove(filepath.Join(src, "b")), os.Link(path, filepath.Join(src, "c")))
	pass(true)
	equal(t, src, dst)
}

// A directory whose name another one takes leaves nothing of what was in it.
func TestAReplacedDirectoryIsFollowed(t *testing.T) {
	src, dst, _ := filesystem(t, "ext4")
	at := func(p string) string { return filepath.Join(src, p) }
	must(t, os.MkdirAll(at("d/e"), 0o755), os.WriteFile(at("d/old"), nil, 0o600), os.WriteFile(at("d/e/old"), nil, 0o600))
	_, pass := follow(t, src, dst)
	pass(false)
	must(t, os.Rename(at("d"), at("was")), os.MkdirAll(at("d/e"), 0o700), os.WriteFile(at("d/e/new"), nil, 0o600))
	pass(true)
	equal(t, src, dst)
}

// After events were lost everything is looked at, and what is not there any more
// goes.
func TestLostEvents(t *testing.T) {
	src, dst, _ := filesystem(t, "ext4")
	at := func(p string) string { return filepath.Join(src, p) }
	must(t, os.MkdirAll(at("d/e"), 0o755), os.WriteFile(at("d/e/a"), nil, 0o600), os.WriteFile(at("b"), nil, 0o600))
	f, pass := follow(t, src, dst)
	pass(false)
	must(t, os.RemoveAll(at("d")), os.WriteFile(at("b"), []byte("changed"), 0o600), os.Mkdir(at("new"), 0o700))
	_, err := f.watch.Swap(f.Knows)
	must(t, err)
	f.pending.Everything = "a test lost them"
	if _, why := pass(true); why != "a test lost them" {
		t.Errorf("why everything was looked at: %q", why)
	}
	equal(t, src, dst)
}

// What a list names is all that rsync needs to be told.
func TestAListForRsync(t *testing.T) {
	src, dst, outside := filesystem(t, "ext4")
	for seed := range uint64(4) {
		b := &busy{t: t, src: src, outside: outside, rnd: rand.New(rand.NewPCG(seed, 9))}
		for range 400 {
			b.step()
		}
		f, err := Follow(src)
		must(t, err)
		t.Cleanup(func() {
			b.release()
			must(t, f.Close())
		})
		must(t, f.Note())
		rsync(t, nil, "-aHAX", "--delete", src+"/", dst+"/")
		for range 2 {
			for range 300 {
				b.step()
			}
			b.release()
			names, why, err := f.List()
			must(t, err)
			if why != "" {
				t.Fatal(why)
			}
			rsync(t, []byte(strings.Join(names, "\x00")), "-lptgoDHAX", "--from0", "--files-from=-", "--delete-missing-args", "--force", src+"/", dst+"/")
			equal(t, src, dst)
		}
	}
}

func rsync(t *testing.T, stdin []byte, args ...string) {
	t.Helper()
	c := exec.Command("rsync", append([]string{"--numeric-ids", "--sparse", "--modify-window=-1"}, args...)...)
	c.Stdin = bytes.NewReader(stdin)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// The second pass sends what changed and looks at nothing else.
func TestASecondPassCostsWhatChanged(t *testing.T) {
	src, dst, _ := filesystem(t, "ext4")
	for i := range 3000 {
		must(t, os.WriteFile(filepath.Join(src, fmt.Sprint(i)), []byte("x"), 0o600))
	}
	open, err := os.OpenFile(filepath.Join(src, "9"), os.O_RDWR, 0) // and not written
	must(t, err)
	defer open.Close()
	time.Sleep(3 * Settle)
	_, pass := follow(t, src, dst)
	pass(false)
	must(t, os.WriteFile(filepath.Join(src, "7"), []byte("y"), 0o600), os.Remove(filepath.Join(src, "8")))
	s, why := pass(true)
	// The file, and the folder, whose times changed.
	if s.Entries != 2 || s.Removed != 1 || s.Bytes != 1 || why != "" {
		t.Errorf("%+v %q", s, why)
	}
	equal(t, src, dst)
}

// Of what somebody outside writes after the last pass is told.
func TestAWriterFromOutsideIsSeen(t *testing.T) {
	src, dst, _ := filesystem(t, "ext4")
	must(t, os.WriteFile(filepath.Join(src, "a"), nil, 0o600))
	f, pass := follow(t, src, dst)
	pass(false)
	pass(true)
	must(t, f.Quiet())
	must(t, os.WriteFile(filepath.Join(src, "a"), []byte("late"), 0o600))
	if err := f.Quiet(); err == nil || !strings.Contains(err.Error(), "something outside of the workload writes to it: a") {
		t.Errorf("%v", err)
	}
}

func TestAFolderThatIsGone(t *testing.T) {
	_, err := Follow(filepath.Join(t.TempDir(), "nowhere"))
	if !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// A write to somewhere that fails ends the pass.
func TestAPassEndsWithItsStream(t *testing.T) {
	src := t.TempDir()
	must(t, os.WriteFile(filepath.Join(src, "a"), bytes.Repeat([]byte("x"), 1<<20), 0o600))
	r, w := io.Pipe()
	must(t, r.CloseWithError(errors.New("the disk is full")))
	if _, err := mirror(t, src).Everything(w, Changes{}); err == nil || !strings.Contains(err.Error(), "the disk is full") {
		t.Error(err)
	}
}
