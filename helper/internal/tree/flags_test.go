package tree

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// locked gives an entry these flags, and takes them away again when the test ends.
func locked(t *testing.T, path string, flags uint32) {
	t.Helper()
	if err := setFlags(unix.AT_FDCWD, path, flags); err != nil {
		t.Skipf("flags cannot be set here: %v", err)
	}
	t.Cleanup(func() { _ = setFlags(unix.AT_FDCWD, path, 0) })
}

// freed is a folder for a test, from which whatever is locked can be removed.
func freed(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	t.Cleanup(func() { must(t, Clear(root), setFlags(unix.AT_FDCWD, root, 0)) })
	return root
}

// flagsBelow is the exact flags of everything in a folder.
func flagsBelow(t *testing.T, root string) string {
	t.Helper()
	var found []string
	must(t, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		flags, err := flagsAt(unix.AT_FDCWD, path)
		if flags &= exactFlags; flags != 0 {
			found = append(found, fmt.Sprintf("%s: %s", strings.TrimPrefix(path, root), flagNames(flags)))
		}
		return err
	}))
	return strings.Join(found, "\n")
}

// Random changes of files, flags and sockets: after each transfer both sides have
// the same, and a digest says so.
func TestFlagsAndSocketsTravel(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: flags")
	}
	choices := []uint32{0, 0, immutable, appendOnly, immutable | appendOnly, 0x40, 0x80}
	for seed := range uint64(15) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		src, dst := freed(t), freed(t)
		locked(t, src, 0)
		change := func() {
			folder := filepath.Join(src, string('a'+rune(rnd.IntN(3))))
			path := filepath.Join(folder, string('a'+rune(rnd.IntN(4))))
			_ = setFlags(unix.AT_FDCWD, src, 0)
			_ = setFlags(unix.AT_FDCWD, folder, 0)
			_ = setFlags(unix.AT_FDCWD, path, 0)
			must(t, os.MkdirAll(folder, 0o750))
			switch rnd.IntN(5) {
			case 0, 1:
				_ = os.Remove(path)
				must(t, os.WriteFile(path, fmt.Append(nil, rnd.Uint64()), 0o600))
			case 2:
				_ = os.Remove(path)
				must(t, unix.Mknod(path, unix.S_IFSOCK|0o640, 0))
			case 3:
				_ = os.Remove(path)
			case 4:
				_ = os.Link(path, path+"x")
			}
			for _, each := range []string{path, folder, src} {
				if info, err := os.Lstat(each); err == nil && (info.IsDir() || info.Mode().IsRegular()) {
					must(t, setFlags(unix.AT_FDCWD, each, choices[rnd.IntN(len(choices))]))
				}
			}
		}
		m := mirror(t, src)
		for range 3 {
			for range 1 + rnd.IntN(8) {
				change()
			}
			transfer(t, m, dst)
			same(t, src, dst)
			if here, there := flagsBelow(t, src), flagsBelow(t, dst); here != there {
				t.Fatalf("seed %d: the flags were\n%s\nand are\n%s", seed, here, there)
			}
			one, _, err := Digest(t.Context(), src)
			must(t, err)
			other, _, err := Digest(t.Context(), dst)
			must(t, err)
			if one != other {
				t.Fatalf("seed %d: the digests differ", seed)
			}
		}
	}
}

// A digest sees a flag.
func TestADigestSeesAFlag(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: flags")
	}
	root := freed(t)
	file := filepath.Join(root, "file")
	must(t, os.WriteFile(file, nil, 0o600))
	before, _, err := Digest(t.Context(), root)
	must(t, err)
	locked(t, file, immutable)
	after, _, err := Digest(t.Context(), root)
	must(t, err)
	if before == after {
		t.Error("a file became immutable, and the digest is the same")
	}
}

// A folder with locked files can be emptied, or nothing that came could be taken back.
func TestLockedFilesAreRemoved(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: flags")
	}
	root := freed(t)
	below := filepath.Join(root, "a", "b")
	must(t, os.MkdirAll(below, 0o700), os.WriteFile(filepath.Join(below, "c"), nil, 0o600))
	for _, path := range []string{filepath.Join(below, "c"), below, filepath.Dir(below), root} {
		locked(t, path, immutable)
	}
	must(t, Clear(root))
	if empty, err := Empty(root); err != nil || !empty {
		t.Errorf("something is left (%v)", err)
	}
}

// An engine removes files that nothing locks any more.
func TestUnlockedFilesCanBeRemoved(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: flags")
	}
	root := freed(t)
	below := filepath.Join(root, "a", "b")
	must(t, os.MkdirAll(below, 0o700), os.WriteFile(filepath.Join(below, "c"), nil, 0o600), os.Symlink("/etc/hosts", filepath.Join(root, "link")))
	for _, path := range []string{filepath.Join(below, "c"), below, filepath.Dir(below), root} {
		locked(t, path, immutable|0x40)
	}
	must(t, Unlock(root))
	if flags, err := flagsAt(unix.AT_FDCWD, filepath.Join(below, "c")); err != nil || flags != 0x40 {
		t.Errorf("the file's flags are %x (%v)", flags, err)
	}
	must(t, os.RemoveAll(root))
	must(t, os.Mkdir(root, 0o700))
}

// Flags that a peer must not send are no flags.
func TestForeignFlagsAreRefused(t *testing.T) {
	for _, record := range []string{"800", "100000", "80000000", "-1", "x", "1ffffffff"} {
		root := t.TempDir()
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		must(t, w.WriteHeader(&tar.Header{
			Name: "f", Typeflag: tar.TypeReg, Mode: 0o600, Uid: os.Getuid(), Gid: os.Getgid(), Format: tar.FormatPAX,
			PAXRecords: map[string]string{flagsRecord: record},
		}), w.Close())
		if err := Unpack(root, &b); err == nil || !strings.Contains(err.Error(), "damaged") {
			t.Errorf("%q was taken: %v", record, err)
		}
	}
}
