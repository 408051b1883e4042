package pagecache

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const pages = 600 // more than one piece of reading, with the page sizes that there are

func image(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(path, make([]byte, pages*page), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// device is an image as a block device.
func device(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root, for loop devices")
	}
	out, err := exec.Command("losetup", "--find", "--show", "--direct-io=on", image(t)).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	path := strings.TrimSpace(string(out))
	t.Cleanup(func() { exec.Command("losetup", "--detach", path).Run() })
	return path
}

func open(t *testing.T, path string) *File {
	t.Helper()
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func evict(t *testing.T, f *File) {
	t.Helper()
	if err := f.file.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Fadvise(int(f.file.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		t.Fatal(err)
	}
}

func resident(t *testing.T, f *File, ranges []Range) int64 {
	t.Helper()
	n, missing, err := f.Resident(ranges)
	if err != nil {
		t.Fatal(err)
	}
	present, err := f.Present(ranges)
	if err != nil {
		t.Fatal(err)
	}
	if both := f.Clip(slices.Concat(present, missing)); Total(present) != n || n+Total(missing) != Total(ranges) || !reflect.DeepEqual(both, ranges) {
		t.Errorf("%d resident: %v, and %v missing, of %v", n, present, missing, ranges)
	}
	return n
}

func TestRangesBecomeWholePagesEachOfThemOnce(t *testing.T) {
	f := &File{size: 10*page + 1}
	got := f.Clip([]Range{{9 * page, 100 * page}, {1, 1}, {page - 1, 2}, {4 * page, page}, {6 * page, 0}, {20 * page, page}, {-page, page + 1}})
	want := []Range{{0, 2 * page}, {4 * page, page}, {9 * page, 2 * page}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestOnlyWhatIsAskedForIsRead(t *testing.T) {
	f := open(t, device(t))
	// Otherwise the kernel reads ahead.
	if err := unix.Fadvise(int(f.file.Fd()), 0, 0, unix.FADV_RANDOM); err != nil {
		t.Fatal(err)
	}
	evict(t, f)
	ranges := f.Clip([]Range{{3 * page, page}, {500 * page, 10 * page}})
	for _, want := range []int64{11 * page, 0} {
		read, err := f.Read(context.Background(), ranges)
		if err != nil || read != want {
			t.Errorf("read %d pages, %v; want %d", read/page, err, want/page)
		}
	}
	if n := resident(t, f, ranges); n != 11*page {
		t.Errorf("%d pages are resident", n/page)
	}
	if n := resident(t, f, f.Whole()); n != 11*page {
		t.Errorf("%d pages are resident in all", n/page)
	}
}

// What the holder rests on: with the last close a device's pages go, and while we have it open they stay, through the open and
// close of one who has it for himself.
func TestAnOpenFileKeepsTheDevicesPages(t *testing.T) {
	path := device(t)
	serve := func() {
		f, err := os.OpenFile(path, os.O_RDWR|unix.O_EXCL, 0)
		if err != nil {
			t.Fatalf("an exclusive open beside ours: %v", err)
		}
		defer f.Close()
		lock := unix.Flock_t{Type: unix.F_WRLCK}
		if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &lock); err != nil {
			t.Fatalf("a write lock beside ours: %v", err)
		}
		if _, err := f.ReadAt(make([]byte, 8*page), 0); err != nil {
			t.Fatal(err)
		}
	}
	first := []Range{{0, 8 * page}}

	serve()
	if n := resident(t, open(t, path), first); n != 0 {
		t.Fatalf("%d pages outlived the last close: this test shows nothing on this kernel", n/page)
	}

	f := open(t, path)
	serve()
	serve()
	if n := resident(t, f, first); n != 8*page {
		t.Errorf("%d pages are resident", n/page)
	}
}

func TestLockedPagesStay(t *testing.T) {
	f := open(t, device(t))
	evict(t, f)
	locked := []Range{{page, 20 * page}}
	if err := f.Lock(context.Background(), locked); err != nil {
		t.Fatal(err)
	}
	evict(t, f)
	if n := resident(t, f, locked); n != 20*page {
		t.Errorf("%d of 20 locked pages are resident", n/page)
	}
}

func TestAnythingButFilesAndBlockDevicesIsRefused(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/dev/null", t.TempDir(), fifo} {
		if f, err := Open(path); err == nil {
			f.Close()
			t.Errorf("%s was opened", path)
		}
	}
}

func TestReadingEndsWhenItsTimeIsUp(t *testing.T) {
	f := open(t, image(t))
	evict(t, f)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := f.Read(ctx, f.Whole()); err != context.Canceled {
		t.Errorf("Read says %v", err)
	}
}

// What a mounted file system has read of itself counts, what others have read as well, and nothing else does.
func TestTouched(t *testing.T) {
	f := open(t, device(t))
	if _, err := f.Touched(page); errors.Is(err, errors.ErrUnsupported) {
		t.Skip("this kernel has no cachestat")
	}
	if err := unix.Fadvise(int(f.file.Fd()), 0, 0, unix.FADV_RANDOM); err != nil {
		t.Fatal(err)
	}
	evict(t, f)
	if got, err := f.Touched(page); err != nil || got != nil {
		t.Errorf("nothing was read, and %v is in memory (%v)", got, err)
	}
	if _, err := f.Read(t.Context(), f.Clip([]Range{{3 * page, page}, {500 * page, 10 * page}, {(pages - 1) * page, page}})); err != nil {
		t.Fatal(err)
	}
	for length, want := range map[int64][]Range{
		page:         {{3 * page, page}, {500 * page, 10 * page}, {(pages - 1) * page, page}},
		8 * page:     {{0, 8 * page}, {496 * page, 16 * page}, {592 * page, 8 * page}},
		7 * page:     {{0, 7 * page}, {497 * page, 14 * page}, {595 * page, 5 * page}},
		1000 * page:  {{0, pages * page}},
		pages * page: {{0, pages * page}},
	} {
		if got, err := f.Touched(length); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("in stretches of %d pages: %v, want %v (%v)", length/page, got, want, err)
		}
	}
}
