package prefetch

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/pagecache"
)

func TestMappingsAreReadAsTheKernelWritesThem(t *testing.T) {
	for line, want := range map[string]mapping{
		"00400000-0048a000 r-xp 00001000 00:2d 7654                               /usr/bin/a b": {0x400000, 0x48a000, true, 0x1000, "/usr/bin/a b"},
		"7f00c0de1000-7f00c0de5000 rw-s 00000000 fe:00 12 /srv/c":                               {0x7f00c0de1000, 0x7f00c0de5000, false, 0, "/srv/c"},
		"7f00c0de1000-7f00c0de5000 rw-s 00000000 00:01 12 /memfd:x (deleted)":                   {},
		"7f00c0de1000-7f00c0de5000 rw-s 00000000 00:05 12 /dev/shm/PostgreSQL.1":                {},
		"7f00c0de1000-7f00c0de5000 rw-s 00000000 00:05 12 /srv/a\\012b":                         {},
		"7f00c0de1000-7f00c0de5000 rw-p 00000000 00:00 0                          [heap]":       {},
		"7f00c0de1000-7f00c0de5000 rw-p 00000000 00:00 0 ":                                      {},
		"7f00c0de1000-7f00c0de1000 rw-p 00000000 fe:00 12 /srv/c":                               {},
		"7f00c0de1000 rw-p 00000000 fe:00 12 /srv/c":                                            {},
		"7f00c0de1000-7f00c0de5000 rw 00000000 fe:00 12 /srv/c":                                 {},
		"/": {},
	} {
		if got, ok := parseMapping(line + "\n"); ok != (want.path != "") || ok && got != want {
			t.Errorf("%q: %+v, %t", line, got, ok)
		}
	}
}

// Of a file that is mapped that is named which is in memory, and that of which the
// task has written pages of its own, and nothing else.
func TestWhatIsMappedIsFound(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: map_files")
	}
	page := os.Getpagesize()
	path := filepath.Join(t.TempDir(), "mapped")
	if err := os.WriteFile(path, make([]byte, 64*page), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_RANDOM); err != nil { // no more than is asked for
		t.Fatal(err)
	}
	own, err := unix.Mmap(int(f.Fd()), int64(32*page), 32*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(own)
	if err := unix.Madvise(own, unix.MADV_RANDOM); err != nil {
		t.Fatal(err)
	}
	own[3*page], own[4*page] = 1, 1
	writtenOut(t, path)
	if _, err := f.ReadAt(make([]byte, page), int64(7*page)); err != nil {
		t.Fatal(err)
	}
	if own[9*page] != 0 { // the file's own page
		t.Fatal("it has something")
	}

	var all mappings
	all.add("/proc/self")
	all.add("/proc/self") // another task, with the same
	want := [][2]int64{{int64(7 * page), int64(page)}, {int64(35 * page), int64(2 * page)}, {int64(41 * page), int64(page)}}
	for _, found := range all.files() {
		if found.Path == path {
			if !reflect.DeepEqual(found.Ranges, want) {
				t.Errorf("%v, want %v", found.Ranges, want)
			}
			return
		}
	}
	t.Error("it is not among what was found")
}

// What is in memory on the source is read from the root on the destination, and nothing outside of it.
func TestWhatIsMappedIsRead(t *testing.T) {
	top := t.TempDir()
	at := func(p string) string { return filepath.Join(top, p) }
	for _, dir := range []string{"bundle", "root/usr/lib"} {
		if err := os.MkdirAll(at(dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	config, err := json.Marshal(map[string]any{"root": map[string]any{"path": at("root")}})
	if err != nil {
		t.Fatal(err)
	}
	const size = 4 << 20
	for path, content := range map[string][]byte{"bundle/config.json": config, "root/usr/lib/some.so": make([]byte, size), "outside": make([]byte, size)} {
		if err := os.WriteFile(at(path), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"root/away": at("outside"), "root/up": "../outside", "root/lib": "usr/lib"} {
		if err := os.Symlink(to, at(link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(at("root/fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	present := func(path string) []pagecache.Range {
		f, err := pagecache.Open(at(path))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		ranges, err := f.Present(f.Whole())
		if err != nil {
			t.Fatal(err)
		}
		return ranges
	}
	some := [][2]int64{{1 << 20, 8192}, {3 << 20, 4096}, {size - 4096, 1 << 40}}
	bundle := at("bundle")
	for _, path := range []string{"/away", "/up", "../outside", "/../outside", "/fifo", "/usr", "/nothing", "", "/"} {
		writtenOut(t, at("outside"))
		if n, err := Read(t.Context(), bundle, []File{{path, some}}); n > 0 || err != nil {
			t.Errorf("%q: %d bytes were read (%v)", path, n, err)
		}
		if got := present("outside"); len(got) > 0 {
			t.Errorf("%q has led to a file outside of the root: %v", path, got)
		}
	}
	for _, path := range []string{"/usr/lib/some.so", "/lib/some.so"} {
		writtenOut(t, at("root/usr/lib/some.so"))
		if n, err := Read(t.Context(), bundle, []File{{"/nothing", some}, {path, append(some, [2]int64{-5, 3})}}); n != 8192+4096+4096 || err != nil {
			t.Errorf("%s: %d bytes were read (%v)", path, n, err)
		}
		got := present("root/usr/lib/some.so")
		for _, r := range some {
			in := false
			for _, g := range got {
				in = in || g.Offset <= r[0] && r[0]+min(r[1], 4096) <= g.Offset+g.Length
			}
			if !in {
				t.Errorf("%s: %v is not in memory: %v", path, r, got)
			}
		}
	}

	if err := os.WriteFile(at("bundle/config.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(t.Context(), bundle, []File{{"/lib/some.so", some}}); err == nil {
		t.Error("a bundle that is none has a root")
	}
}

// writtenOut writes a file out and has the kernel forget it.
func writtenOut(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err == nil {
		err = f.Sync()
		f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	dropPages(t, path)
}

func dropPages(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(path)
	if err == nil {
		err = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
		f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}
