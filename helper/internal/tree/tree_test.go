package tree

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
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

// mirror opens a folder's mirror for one test.
func mirror(t *testing.T, src string) *Mirror {
	t.Helper()
	m, err := Open(src)
	must(t, err)
	t.Cleanup(func() { must(t, m.Close()) })
	return m
}

// transfer brings everything that the mirror's other side does not hold to dst.
func transfer(t *testing.T, m *Mirror, dst string) Stats {
	t.Helper()
	since, err := WriteBack(m.path)
	must(t, err)
	var b bytes.Buffer
	s, err := m.Everything(&b, Changes{Since: since})
	must(t, err)
	must(t, Unpack(dst, &b))
	return s
}

// same compares two folders with rsync's eyes: content, owner, mode, times,
// links, devices, attributes.
func same(t *testing.T, a, b string) {
	t.Helper()
	var list [2][]string
	for i, root := range []string{a, b} {
		first := map[uint64]string{} // inode → its first name: hard links
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
			line += fmt.Sprintf(" mtime=%d", info.ModTime().UnixNano())
			if !info.IsDir() {
				if first[st.Ino] == "" {
					first[st.Ino] = rel
				}
				line += fmt.Sprintf(" size=%d is=%s", st.Size, first[st.Ino])
			}
			if info.Mode().IsRegular() {
				data, err := os.ReadFile(p)
				if err != nil {
					return err
				}
				line += fmt.Sprintf(" data=%x", sha256.Sum256(data))
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
		only := func(a, b []string) (lines []string) {
			for _, l := range a {
				if !slices.Contains(b, l) {
					lines = append(lines, l)
				}
			}
			return lines
		}
		t.Fatalf("they differ:\n%s\n\n%s", strings.Join(only(list[0], list[1]), "\n"), strings.Join(only(list[1], list[0]), "\n"))
	}
}

// acl is `u::rwx,u:7:rw,g::rx,m::rwx,o::-` as the kernel has it in an attribute.
var acl = []byte{
	2, 0, 0, 0,
	0x01, 0, 7, 0, 0xff, 0xff, 0xff, 0xff,
	0x02, 0, 6, 0, 7, 0, 0, 0,
	0x04, 0, 5, 0, 0xff, 0xff, 0xff, 0xff,
	0x10, 0, 7, 0, 0xff, 0xff, 0xff, 0xff,
	0x20, 0, 0, 0, 0xff, 0xff, 0xff, 0xff,
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
		unix.Setxattr(at("big"), "user.empty", nil, 0),
		os.Mkdir(at("acl"), 0o770), unix.Setxattr(at("acl"), "system.posix_acl_default", acl, 0), // what comes into it inherits this
		os.WriteFile(at("acl/inherits"), nil, 0o640),
		os.WriteFile(at("acl/inherits not"), nil, 0o640), unix.Removexattr(at("acl/inherits not"), "system.posix_acl_access"), os.Chmod(at("acl/inherits not"), 0o640),
		os.WriteFile(at("name with \n and ünïcode"), nil, 0o644),
		os.Chtimes(at("big"), time.Unix(1, 5), time.Unix(1234567890, 987654321)),
	)
	out, err := exec.Command("python3", "-c", "import socket,sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])", at("socket")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	transfer(t, mirror(t, src), dst)
	same(t, src, dst)
}

// Random changes between two transfers: after the second the folders are equal,
// and what did not change did not travel.
func TestChangesTravel(t *testing.T) {
	for seed := range uint64(60) {
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
		m := mirror(t, src)
		transfer(t, m, dst)
		for range rnd.IntN(10) {
			change()
		}
		transfer(t, m, dst)
		same(t, src, dst)
	}
}

func TestOnlyChangesTravel(t *testing.T) {
	src, dst := t.TempDir(), t.TempDir()
	for i := range 100 {
		must(t, os.WriteFile(filepath.Join(src, fmt.Sprint(i)), nil, 0o600))
	}
	m := mirror(t, src)
	transfer(t, m, dst)
	// As if they had been as they are for long: what is younger is not trusted.
	for ino, h := range m.held {
		h.mark |= markBits
		m.held[ino] = h
	}
	must(t, os.Chmod(filepath.Join(src, "7"), 0o644))
	if s := transfer(t, m, dst); s.Entries != 1 {
		t.Errorf("%d entries travelled", s.Entries)
	}
	same(t, src, dst)
}

// A change that is so young that another one could have the same time is not
// taken for the last one.
func TestAYoungChangeIsNotTrusted(t *testing.T) {
	src, dst := t.TempDir(), t.TempDir()
	must(t, os.WriteFile(filepath.Join(src, "young"), nil, 0o600))
	m := mirror(t, src)
	transfer(t, m, dst)
	for _, h := range m.held {
		if h.mark&markBits != 0 {
			t.Errorf("%s, which was made just now, is trusted", h.name)
		}
	}
}

func TestHolesTravelAsHoles(t *testing.T) {
	src, dst := t.TempDir(), t.TempDir()
	for name, at := range map[string][]int64{"middle": {1 << 30}, "none": nil, "several": {0, 5 << 20, 1<<40 - 3}} {
		f, err := os.Create(filepath.Join(src, name))
		must(t, err, f.Truncate(1<<40))
		for _, off := range at {
			_, err := f.WriteAt([]byte("abc"), off)
			must(t, err)
		}
		must(t, f.Close())
	}
	if s := transfer(t, mirror(t, src), dst); s.Bytes > 1<<20 {
		t.Errorf("%d bytes travelled", s.Bytes)
	}
	for _, name := range []string{"middle", "none", "several"} {
		var a, b unix.Stat_t
		must(t, unix.Stat(filepath.Join(src, name), &a), unix.Stat(filepath.Join(dst, name), &b))
		if a.Size != b.Size || b.Blocks > a.Blocks+64 {
			t.Errorf("%s has %d bytes in %d blocks, and had %d in %d", name, b.Size, b.Blocks, a.Size, a.Blocks)
		}
		f, err := os.Open(filepath.Join(dst, name))
		must(t, err)
		defer f.Close()
		fd := int(f.Fd())
		pieces, err := extents(fd, b.Size)
		must(t, err)
		g, err := os.Open(filepath.Join(src, name))
		must(t, err)
		defer g.Close()
		for _, p := range pieces {
			x, y := make([]byte, p.length), make([]byte, p.length)
			_, err1 := f.ReadAt(x, p.off)
			_, err2 := g.ReadAt(y, p.off)
			must(t, err1, err2)
			if !bytes.Equal(x, y) {
				t.Errorf("%s differs in %v", name, p)
			}
		}
		if want, err := extents(int(g.Fd()), a.Size); err != nil || len(want) != len(pieces) {
			t.Errorf("%s has its data in %v, and had it in %v (%v)", name, pieces, want, err)
		}
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
		{"a list of a folder outside", []tar.Header{{Name: "..", Typeflag: typeOnly}}},
		{"a list over a link", []tar.Header{{Name: "l", Typeflag: tar.TypeSymlink, Linkname: ".."}, {Name: "l", Typeflag: typeOnly}}},
		{"a list that names something outside", []tar.Header{{Name: ".", Typeflag: typeGone, Linkname: "../secret"}}},
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
				data := ""
				if h.Typeflag == typeGone {
					data, h.Linkname = h.Linkname, ""
					h.Size = int64(len(data))
				}
				must(t, w.WriteHeader(&h))
				_, err := io.WriteString(w, data)
				must(t, err)
			}
			must(t, w.Close())
			if err := Unpack(root, &b); err == nil && c.name != "a list over a link" { // what a link hides is nothing to tidy
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
}

func FuzzUnpack(f *testing.F) {
	src := f.TempDir()
	_ = os.WriteFile(filepath.Join(src, "file"), []byte("data"), 0o600)
	if f, err := os.Create(filepath.Join(src, "holes")); err == nil {
		_ = f.Truncate(1 << 20)
		_, _ = f.WriteAt([]byte("x"), 1<<19)
		f.Close()
	}
	if m, err := Open(src); err == nil {
		for range 2 { // the second with lists
			var b bytes.Buffer
			_, _ = m.Everything(&b, Changes{})
			f.Add(b.Bytes())
		}
		m.Close()
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
