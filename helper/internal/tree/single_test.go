package tree

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// carryFile is one pass of a single file.
func carryFile(t *testing.T, f *Follower, to string, last bool) error {
	t.Helper()
	var b bytes.Buffer
	if _, _, err := f.Pass(&b, last); err != nil {
		return err
	}
	return UnpackOnly(filepath.Dir(to), filepath.Base(to), &b, func(string, bool) {})
}

// A single file travels with all that it has, as often as it changes, and nothing
// beside it is touched.
func TestASingleFileTravels(t *testing.T) {
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		src, dst := t.TempDir(), t.TempDir()
		from, to := filepath.Join(src, "conf"), filepath.Join(dst, "conf")
		must(t,
			os.WriteFile(from, []byte("one"), 0o640), os.WriteFile(filepath.Join(src, "beside"), []byte("secret"), 0o600),
			os.WriteFile(to, nil, 0o600), os.WriteFile(filepath.Join(dst, "other"), []byte("stays"), 0o600),
		)
		long := time.Now().Add(-time.Hour)
		must(t, os.Chtimes(dst, long, long))
		f, err := FollowFile(from)
		must(t, err)
		for range 4 {
			must(t, carryFile(t, f, to, false))
			switch rnd.IntN(4) {
			case 0:
				must(t, os.WriteFile(from, fmt.Append(nil, rnd.Uint64()), 0o640))
			case 1:
				must(t, os.WriteFile(from+".new", fmt.Append(nil, rnd.Uint64()), 0o600), os.Rename(from+".new", from))
			case 2:
				must(t, os.Chmod(from, os.FileMode(0o600+rnd.IntN(64))))
			case 3:
				must(t, os.Truncate(from, rnd.Int64N(100)))
			}
		}
		must(t, carryFile(t, f, to, true), f.Quiet(), f.Close())
		one, _, err := DigestFile(t.Context(), from)
		must(t, err)
		other, _, err := DigestFile(t.Context(), to)
		must(t, err)
		if one != other {
			t.Fatalf("seed %d: the file is another one", seed)
		}
		names, err := os.ReadDir(dst)
		must(t, err)
		info, err := os.Stat(dst)
		must(t, err)
		if len(names) != 2 || !info.ModTime().Equal(long) {
			t.Fatalf("seed %d: the folder was touched: %v, %v", seed, names, info.ModTime())
		}
	}
}

// What is no single file, or not that one, is refused.
func TestASingleFileStaysThat(t *testing.T) {
	root := t.TempDir()
	path := filepath.Join(root, "conf")
	must(t, os.WriteFile(path, nil, 0o600))
	for name, c := range map[string]struct {
		do   func() error
		want string
	}{
		"gone":         {func() error { return os.Remove(path) }, "no such file"},
		"a folder":     {func() error { return os.Mkdir(path, 0o700) }, "no regular file"},
		"a link":       {func() error { return os.Symlink("/etc/passwd", path) }, "no regular file"},
		"further name": {func() error { return os.Link(path, path+"2") }, "further names"},
	} {
		t.Run(name, func(t *testing.T) {
			must(t, os.RemoveAll(path), os.RemoveAll(path+"2"), os.WriteFile(path, nil, 0o600))
			f, err := FollowFile(path)
			must(t, err)
			defer f.Close()
			if name != "further name" {
				must(t, os.Remove(path))
			}
			if name != "gone" {
				must(t, c.do())
			}
			if err := carryFile(t, f, filepath.Join(t.TempDir(), "conf"), true); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, without %q", err, c.want)
			}
		})
	}
}

// A write behind the last pass is seen.
func TestAWriteBehindTheLastPassOfASingleFileIsSeen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "conf")
	must(t, os.WriteFile(path, []byte("x"), 0o600))
	f, err := FollowFile(path)
	must(t, err)
	defer f.Close()
	must(t, carryFile(t, f, filepath.Join(t.TempDir(), "conf"), true), f.Quiet())
	time.Sleep(Settle)
	must(t, os.WriteFile(path, []byte("y"), 0o600))
	if err := f.Quiet(); err == nil || !strings.Contains(err.Error(), "something outside of the workload writes to it") {
		t.Errorf("it was not seen: %v", err)
	}
}

// A peer that is to send one file cannot write another.
func TestNothingBesideASingleFileIsTaken(t *testing.T) {
	src, dst := t.TempDir(), t.TempDir()
	must(t, os.WriteFile(filepath.Join(src, "passwd"), nil, 0o600))
	var b bytes.Buffer
	_, err := mirror(t, src).Everything(&b, Changes{})
	must(t, err)
	if err := UnpackOnly(dst, "conf", &b, func(string, bool) {}); err == nil {
		t.Error("it was taken")
	}
	if names, err := os.ReadDir(dst); err != nil || len(names) != 0 {
		t.Errorf("%v was laid down (%v)", names, err)
	}
}

func TestASingleFileIsEmptied(t *testing.T) {
	path := filepath.Join(t.TempDir(), "conf")
	must(t, ClearFile(path), os.WriteFile(path, []byte("x"), 0o600))
	if empty, err := EmptyFile(path); err != nil || empty {
		t.Errorf("a file that holds something is empty: %t, %v", empty, err)
	}
	must(t, ClearFile(path))
	if empty, err := EmptyFile(path); err != nil || !empty {
		t.Errorf("it is not empty: %v", err)
	}
	must(t, os.Remove(path), unix.Mkfifo(path, 0o600))
	if empty, err := EmptyFile(path); err != nil || empty {
		t.Errorf("a pipe is taken for an empty file: %v", err)
	}
}
