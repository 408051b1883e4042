package watch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/watch/aiotest"
)

func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// watched is a folder on the machine's own disk, with all that goes on there
// besides, and its watch.
func watched(t *testing.T) (*Watch, func(string) string) {
	t.Helper()
	return watchedWith(t, unix.FAN_UNLIMITED_QUEUE)
}

// watchedWith has the kernel keep a queue of events, or its default of 16384.
func watchedWith(t *testing.T, queue uint) (*Watch, func(string) string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: fanotify on a file system")
	}
	top, err := os.MkdirTemp("/var/tmp", "watch") // TMPDIR may be a tmpfs, which watches less well
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(top) })
	dir := filepath.Join(top, "in")
	must(t, os.Mkdir(dir, 0o755), os.Mkdir(filepath.Join(top, "out"), 0o755))
	w, err := start(dir, queue)
	must(t, err)
	t.Cleanup(func() { w.Close() })
	return w, func(p string) string { return filepath.Join(dir, p) }
}

func everyone(uint64) bool { return true }
func nobody(uint64) bool   { return false }

// swap is what was touched, as text.
func (w *Watch) swap(t *testing.T) string {
	t.Helper()
	s, err := w.Swap(nobody)
	must(t, err)
	if s.Everything != "" {
		t.Fatalf("everything: %s", s.Everything)
	}
	var words []string
	for _, e := range s.Touched {
		how := ""
		for i, letter := range "nwc" {
			if e.How&(1<<i) != 0 {
				how += string(letter)
			}
		}
		words = append(words, e.Path+":"+how)
	}
	return strings.Join(words, " ")
}

func TestWhatIsTouched(t *testing.T) {
	w, at := watched(t)
	var f *os.File
	must(t, os.WriteFile(at("a"), []byte("x"), 0o600), os.Mkdir(at("d"), 0o755), os.MkdirAll(at("../out/x/y"), 0o755))
	w.swap(t)
	for _, step := range []struct {
		what string
		do   func() error
		want string
	}{
		{"nothing", func() error { return nil }, ""},
		{"a new file", func() error { return os.WriteFile(at("b"), []byte("x"), 0o600) }, "b:nwc"},
		{"reading", func() error { _, err := os.ReadFile(at("a")); return err }, ""},
		{"opening", func() (err error) { f, err = os.OpenFile(at("a"), os.O_RDWR, 0); return err }, ""},
		{"writing", func() error { _, err := f.WriteAt([]byte("y"), 5000); return err }, "a:w"},
		{"cutting", func() error { return f.Truncate(1000) }, "a:w"},
		{"closing", func() error { return f.Close() }, "a:c"},
		{"mode", func() error { return os.Chmod(at("a"), 0o644) }, "a:w"},
		{"owner", func() error { return os.Chown(at("a"), 1, 1) }, "a:w"},
		{"times", func() error { return os.Chtimes(at("a"), time.Now(), time.Unix(1, 0)) }, "a:w"},
		{"attribute", func() error { return unix.Setxattr(at("a"), "user.x", []byte("y"), 0) }, "a:w"},
		{"no attribute", func() error { return unix.Removexattr(at("a"), "user.x") }, "a:w"},
		{"symbolic link", func() error { return os.Symlink("a", at("l")) }, "l:n"},
		{"device", func() error { return unix.Mknod(at("null"), unix.S_IFCHR, int(unix.Mkdev(1, 3))) }, "null:n"},
		{"directories", func() error { return os.MkdirAll(at("d/e/f"), 0o755) }, "d/e:n d/e/f:n"},
		{"below", func() error { return os.WriteFile(at("d/e/f/g"), nil, 0o600) }, "d/e/f/g:nc"},
		{"a directory's mode", func() error { return os.Chmod(at("d/e"), 0o700) }, "d/e:w"},
		{"the folder's mode", func() error { return os.Chmod(at("."), 0o700) }, ".:w"},
		{"moving a directory", func() error { return os.Rename(at("d/e"), at("E")) }, "E:n d/e:n"},
		{"below it, then", func() error { return os.WriteFile(at("E/f/g"), []byte("x"), 0o600) }, "E/f/g:wc"},
		{"moving a file", func() error { return os.Rename(at("b"), at("E/b")) }, "E/b:n b:n"},
		{"exchanging", func() error {
			return unix.Renameat2(unix.AT_FDCWD, at("a"), unix.AT_FDCWD, at("E"), unix.RENAME_EXCHANGE)
		}, "E:n a:n"},
		{"outside", func() error { return os.WriteFile(at("../out/x/y/z"), []byte("x"), 0o600) }, ""},
		{"coming in", func() error { return os.Rename(at("../out/x"), at("x")) }, "x:n"},
		{"below what came in", func() error { return os.WriteFile(at("x/y/z"), []byte("y"), 0o600) }, "x/y/z:wc"},
		{"going out", func() error { return os.Rename(at("x"), at("../out/x")) }, "x:n"},
		{"below what went out", func() error { return os.WriteFile(at("../out/x/y/z"), []byte("z"), 0o600) }, ""},
		{"removing", func() error { return os.Remove(at("l")) }, "l:n"},
		{"removing all", func() error { return os.RemoveAll(at("a")) }, "a:n"},
		{"a strange name", func() error { return os.WriteFile(at("x \n\xff (deleted)"), nil, 0o600) }, "x \n\xff (deleted):nc"},
	} {
		must(t, step.do())
		if got := w.swap(t); got != step.want {
			t.Errorf("%s: %q, and should be %q", step.what, got, step.want)
		}
	}
}

func inode(t *testing.T, path string) uint64 {
	t.Helper()
	var st unix.Stat_t
	must(t, unix.Lstat(path, &st))
	return st.Ino
}

// A file that is written through another name than it has in the folder comes by
// its inode.
func TestOtherNames(t *testing.T) {
	for what, do := range map[string]func(at func(string) string) (*os.File, error){
		"a name outside": func(at func(string) string) (*os.File, error) {
			return os.OpenFile(at("../out/other"), os.O_WRONLY, 0)
		},
		"a name that is gone": func(at func(string) string) (*os.File, error) {
			f, err := os.OpenFile(at("second"), os.O_WRONLY, 0)
			return f, errors.Join(err, os.Remove(at("second")))
		},
		"a name that another file has now": func(at func(string) string) (*os.File, error) {
			f, err := os.OpenFile(at("second"), os.O_WRONLY, 0)
			return f, errors.Join(err, os.Remove(at("second")), os.WriteFile(at("second"), nil, 0o600))
		},
	} {
		t.Run(what, func(t *testing.T) {
			w, at := watched(t)
			must(t, os.WriteFile(at("first"), nil, 0o600), os.Link(at("first"), at("second")), os.Link(at("first"), at("../out/other")))
			f, err := do(at)
			must(t, err)
			defer f.Close()
			_, err = w.Swap(everyone)
			must(t, err)
			_, err = f.Write([]byte("x"))
			must(t, err)
			s, err := w.Swap(func(ino uint64) bool { return ino == inode(t, at("first")) })
			must(t, err)
			if !slices.Contains(s.Inodes, inode(t, at("first"))) {
				t.Errorf("it was not told: %+v", s)
			}
		})
	}
}

// What cannot be seen is listed as in use, by its path here.
func TestInUse(t *testing.T) {
	w, at := watched(t)
	for _, name := range []string{"idle", "read", "open", "mapped", "once"} {
		must(t, os.WriteFile(at(name), make([]byte, 4096), 0o600))
	}
	open := func(name string, flags int) *os.File {
		f, err := os.OpenFile(at(name), flags, 0)
		must(t, err)
		t.Cleanup(func() { f.Close() })
		return f
	}
	open("read", os.O_RDONLY)
	open("open", os.O_WRONLY)
	f := open("mapped", os.O_RDWR)
	page, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(t, err, f.Close())
	defer unix.Munmap(page)
	must(t, os.Rename(at("open"), at("renamed")))
	uses, err := w.InUse(nobody)
	must(t, err)
	want := []Use{{Inode: inode(t, at("mapped")), Path: "mapped", Mapped: true}, {Inode: inode(t, at("renamed")), Path: "renamed"}}
	if !slices.Equal(uses, want) {
		t.Errorf("%+v, and should be %+v", uses, want)
	}
}

// Asynchronous I/O causes no event; whoever does it is known by it.
func TestAsynchronousWritesAreKnown(t *testing.T) {
	w, at := watched(t)
	must(t, os.WriteFile(at("a"), make([]byte, 4096), 0o600))
	f, err := os.OpenFile(at("a"), os.O_RDWR, 0)
	must(t, err)
	write := aiotest.New(t)
	w.swap(t)
	write(f, []byte("asynchronous"))
	uses, err := w.InUse(nobody)
	must(t, err)
	if len(uses) != 1 || uses[0].Path != "a" || !uses[0].Async {
		t.Errorf("in use: %+v", uses)
	}
	must(t, f.Close())
	if got := w.swap(t); got != "a:c" {
		t.Errorf("closing it: %q", got)
	}
}

// When events are lost, that is said.
func TestOverflow(t *testing.T) {
	w, at := watchedWith(t, 0)
	w.mu.Lock() // nobody reads meanwhile
	must(t, os.WriteFile(at("0"), nil, 0o600))
	for i := range 20_000 { // one event each name
		must(t, os.Rename(at(fmt.Sprint(i)), at(fmt.Sprint(i+1))))
	}
	w.mu.Unlock()
	s, err := w.Swap(nobody)
	must(t, err)
	if !strings.Contains(s.Everything, "overflowed") {
		t.Errorf("%d were touched, and everything: %q", len(s.Touched), s.Everything)
	}
	must(t, os.WriteFile(at("later"), nil, 0o600))
	if got := w.swap(t); got != "later:nc" {
		t.Errorf("after it: %q", got)
	}
}

func TestWhatCannotBeWatched(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: mounts")
	}
	top := t.TempDir()
	must(t, os.Mkdir(filepath.Join(top, "below"), 0o700), os.WriteFile(filepath.Join(top, "file"), nil, 0o600))
	must(t, unix.Mount("none", filepath.Join(top, "below"), "tmpfs", 0, ""))
	defer unix.Unmount(filepath.Join(top, "below"), 0)
	for path, text := range map[string]string{
		top:                          "another file system is mounted below it, on " + top + "/below",
		filepath.Join(top, "file"):   "not a directory",
		filepath.Join(top, "absent"): "no such file",
		"/proc":                      "it cannot be watched",
		"/sys/fs/cgroup":             "",
	} {
		w, err := Start(path)
		if err == nil {
			w.Close()
		}
		if text != "" && (err == nil || !strings.Contains(err.Error(), text)) {
			t.Errorf("%s: %v, without %q", path, err, text)
		}
	}
}

func FuzzParse(f *testing.F) {
	head := func(size int) []byte {
		b := make([]byte, metadataSize)
		b[0], b[4], b[6], b[8] = byte(size), unix.FANOTIFY_METADATA_VERSION, metadataSize, unix.FAN_MODIFY
		return b
	}
	record := append([]byte{unix.FAN_EVENT_INFO_TYPE_DFID_NAME, 0, 32, 0, 1, 2, 3, 4, 5, 6, 7, 8, 4, 0, 0, 0, 1, 0, 0, 0, 9, 9, 9, 9}, "name\x00\x00\x00\x00"...)
	f.Add(head(metadataSize))
	f.Add(append(head(metadataSize+32), record...))
	f.Fuzz(func(t *testing.T, data []byte) {
		n := 0
		_ = parse(data, func(e event) {
			if n++; strings.Contains(e.name, "\x00") {
				t.Errorf("a name with a NUL: %q", e.name)
			}
		})
		if n > len(data)/metadataSize {
			t.Errorf("%d events in %d bytes", n, len(data))
		}
	})
}
