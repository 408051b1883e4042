package tree

import (
	"archive/tar"
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// transfer brings what changed since before from src to dst.
func transfer(t *testing.T, src, dst string, before *Scan) *Scan {
	t.Helper()
	now, err := First(src)
	must(t, err)
	paths := now.Paths()
	if before != nil {
		var gone []string
		paths, gone = now.Changed(before)
		must(t, Remove(dst, gone))
	}
	var b bytes.Buffer
	must(t, now.Pack(&b, paths))
	must(t, Unpack(dst, &b))
	return now
}

// same compares two folders with rsync's eyes: content, owner, mode, times,
// links, devices, attributes.
func same(t *testing.T, a, b string) {
	t.Helper()
	var list [2][]string
	for i, root := range []string{a, b} {
		err := filepath.Walk(root, func(p string, info os.FileInfo, err error) error {
			if err != nil {
				return err
			}
			rel, _ := filepath.Rel(root, p)
			var st unix.Stat_t
			if err := unix.Lstat(p, &st); err != nil {
				return err
			}
			line := fmt.Sprintf("%s mode=%o uid=%d gid=%d rdev=%d", rel, st.Mode, st.Uid, st.Gid, st.Rdev)
			if !info.IsDir() {
				line += fmt.Sprintf(" size=%d nlink=%d mtime=%d", st.Size, st.Nlink, info.ModTime().UnixNano())
			}
			if info.Mode().IsRegular() {
				data, err := os.ReadFile(p)
				if err != nil {
					return err
				}
				line += fmt.Sprintf(" data=%x", data)
			}
			if l, err := os.Readlink(p); err == nil {
				line += " -> " + l
			}
			x, err := xattrs(p)
			if err != nil {
				return err
			}
			list[i] = append(list[i], fmt.Sprint(line, x))
			return nil
		})
		must(t, err)
	}
	if !slices.Equal(list[0], list[1]) {
		t.Fatalf("they differ:\n%s\n\n%s", strings.Join(list[0], "\n"), strings.Join(list[1], "\n"))
	}
}

func TestEverythingTravels(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: owners, devices, trusted attributes")
	}
	src, dst := t.TempDir(), t.TempDir()
	at := func(p string) string { return filepath.Join(src, p) }
	must(t,
		os.Mkdir(at("d"), 0o750),
		os.WriteFile(at("d/setuid"), []byte("x"), 0o755), os.Chown(at("d/setuid"), 7, 8), os.Chmod(at("d/setuid"), 0o4755|os.ModeSetuid),
		os.WriteFile(at("big"), bytes.Repeat([]byte("0123456789"), 100_000), 0o600),
		os.Link(at("big"), at("d/hard")),
		os.Symlink("/etc/passwd", at("d/soft")), os.Lchown(at("d/soft"), 5, 5),
		unix.Mknod(at("whiteout"), unix.S_IFCHR, 0), // how overlayfs notes a removed file
		unix.Mkfifo(at("fifo"), 0o640),
		unix.Setxattr(at("d"), "trusted.overlay.opaque", []byte("y"), 0),
		unix.Setxattr(at("big"), "user.note", []byte{0, 1, 2, '='}, 0),
		os.WriteFile(at("name with \n and ünïcode"), nil, 0o644),
		os.Chtimes(at("big"), time.Unix(1, 5), time.Unix(1234567890, 987654321)),
	)
	out, err := exec.Command("python3", "-c", "import socket,sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])", at("socket")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	transfer(t, src, dst, nil)
	must(t, os.Remove(at("socket"))) // left out on purpose
	same(t, src, dst)
}

// Random changes between two transfers: after the second the folders are equal,
// and what did not change did not travel.
func TestChangesTravel(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		src, dst := t.TempDir(), t.TempDir()
		change := func() {
			p := filepath.Join(src, fmt.Sprintf("%c/%c", 'a'+rune(rnd.IntN(3)), 'a'+rune(rnd.IntN(6))))
			switch rnd.IntN(7) {
			case 0, 1, 2:
				must(t, os.MkdirAll(filepath.Dir(p), 0o755))
				if i, err := os.Lstat(p); err == nil && i.IsDir() {
					return
				}
				must(t, os.WriteFile(p, []byte(fmt.Sprint(rnd.Uint64())), 0o600))
			case 3:
				_ = os.RemoveAll(p)
			case 4:
				_ = os.RemoveAll(filepath.Dir(p))
			case 5:
				_ = os.Rename(p, p+"x")
			case 6:
				_ = os.Link(p, p+fmt.Sprint(rnd.IntN(3)))
			}
		}
		for range 20 {
			change()
		}
		first := transfer(t, src, dst, nil)
		for range rnd.IntN(10) {
			change()
		}
		transfer(t, src, dst, first)
		same(t, src, dst)
	}
}

func TestOnlyChangesTravel(t *testing.T) {
	src := t.TempDir()
	for i := range 100 {
		must(t, os.WriteFile(filepath.Join(src, fmt.Sprint(i)), nil, 0o600))
	}
	time.Sleep(2 * Settle)
	before, err := First(src)
	must(t, err)
	must(t, os.Chmod(filepath.Join(src, "7"), 0o644))
	now, err := Take(src)
	must(t, err)
	if changed, gone := now.Changed(before); !slices.Equal(changed, []string{"7"}) || gone != nil {
		t.Errorf("changed %v, gone %v", changed, gone)
	}
}

// A page that is dirty already is written without a change time.
func TestWritesThroughAMappingTravel(t *testing.T) {
	src := t.TempDir()
	var fs unix.Statfs_t
	must(t, unix.Statfs(src, &fs))
	if fs.Type == unix.TMPFS_MAGIC {
		t.Skip("a tmpfs writes nothing back: point TMPDIR at a file system on a disk")
	}
	f, err := os.Create(filepath.Join(src, "mapped"))
	must(t, err)
	defer f.Close()
	must(t, f.Truncate(4096))
	page, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(t, err)
	defer unix.Munmap(page)
	page[0] = 1 // dirty from here on
	time.Sleep(3 * Settle)
	before, err := First(src)
	must(t, err)
	page[0] = 2
	now, err := Take(src)
	must(t, err)
	if changed, _ := now.Changed(before); !slices.Contains(changed, "mapped") {
		t.Errorf("a write through a mapping went unseen: changed are %v", changed)
	}
}

// What a peer sends never leads out of the folder.
func TestNothingLeavesTheFolder(t *testing.T) {
	for _, c := range []struct {
		name    string
		headers []tar.Header
	}{
		{"dots", []tar.Header{{Name: "../x", Typeflag: tar.TypeReg, Mode: 0o600}}},
		{"absolute", []tar.Header{{Name: "/tmp/handover-escape", Typeflag: tar.TypeReg, Mode: 0o600}}},
		{"hidden dots", []tar.Header{{Name: "a/../../x", Typeflag: tar.TypeReg, Mode: 0o600}}},
		{"over a link", []tar.Header{{Name: "l", Typeflag: tar.TypeSymlink, Linkname: ".."}, {Name: "l/x", Typeflag: tar.TypeReg, Mode: 0o600}}},
		{"hard link out", []tar.Header{{Name: "h", Typeflag: tar.TypeLink, Linkname: "../secret"}}},
		{"hard link over a link", []tar.Header{{Name: "l", Typeflag: tar.TypeSymlink, Linkname: ".."}, {Name: "h", Typeflag: tar.TypeLink, Linkname: "l/secret"}}},
		{"the folder as a file", []tar.Header{{Name: ".", Typeflag: tar.TypeReg, Mode: 0o600}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			top := t.TempDir()
			root := filepath.Join(top, "root")
			must(t, os.Mkdir(root, 0o700), os.WriteFile(filepath.Join(top, "secret"), []byte("s"), 0o600))
			var b bytes.Buffer
			w := tar.NewWriter(&b)
			for _, h := range c.headers {
				h.Uid, h.Gid = os.Getuid(), os.Getgid()
				must(t, w.WriteHeader(&h))
			}
			must(t, w.Close())
			if err := Unpack(root, &b); err == nil {
				t.Error("it was laid down without an error")
			}
			entries, err := os.ReadDir(top)
			must(t, err)
			if len(entries) != 2 {
				t.Errorf("something was written outside: %v", entries)
			}
			if _, err := os.Lstat("/tmp/handover-escape"); err == nil {
				t.Error("something was written to an absolute path")
			}
		})
	}
	top := t.TempDir()
	must(t, os.Mkdir(filepath.Join(top, "root"), 0o700), os.WriteFile(filepath.Join(top, "secret"), nil, 0o600),
		os.Symlink("..", filepath.Join(top, "root/l")))
	for _, p := range []string{"../secret", "l/secret", filepath.Join(top, "secret")} {
		if err := Remove(filepath.Join(top, "root"), []string{p}); err == nil {
			t.Errorf("%s was removed", p)
		}
	}
	if _, err := os.Lstat(filepath.Join(top, "secret")); err != nil {
		t.Error("a file outside is gone")
	}
}

func FuzzUnpack(f *testing.F) {
	src := f.TempDir()
	_ = os.WriteFile(filepath.Join(src, "file"), []byte("data"), 0o600)
	if s, err := Take(src); err == nil {
		var b bytes.Buffer
		_ = s.Pack(&b, s.Paths())
		f.Add(b.Bytes())
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		top := t.TempDir()
		root := filepath.Join(top, "root")
		must(t, os.Mkdir(root, 0o700))
		_ = Unpack(root, bytes.NewReader(data))
		if entries, _ := os.ReadDir(top); len(entries) != 1 {
			t.Errorf("something was written outside: %v", entries)
		}
	})
}
