package tree

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// again sends everything once more, as a sender does that is not sure, and tells
// what that changed.
func again(t *testing.T, from, to string) []string {
	t.Helper()
	m, err := Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var b bytes.Buffer
	if _, err := m.Everything(&b, Changes{Since: time.Now()}); err != nil {
		t.Fatal(err)
	}
	laid := []string{}
	if err := UnpackNoting(to, &b, func(name string, seen bool) {
		if seen {
			laid = append(laid, name)
		}
	}); err != nil {
		t.Fatal(err)
	}
	return laid
}

func inode(t *testing.T, path string) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}

// What comes as it is there already is left alone, and what differs in anything
// is not.
func TestWhatIsThereAlreadyIsLeftAlone(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	in := func(name string) string { return filepath.Join(from, name) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Mkdir(in("folder"), 0o750))
	must(os.WriteFile(in("folder/file"), []byte("content"), 0o640))
	must(os.Symlink("file", in("folder/link")))
	must(unix.Mkfifo(in("fifo"), 0o600))
	f, err := os.Create(in("sparse"))
	must(err)
	_, err = f.WriteAt([]byte("end"), 1<<20)
	must(err)
	must(f.Close())
	again(t, from, to)
	was := inode(t, filepath.Join(to, "folder/file"))
	if laid := again(t, from, to); len(laid) > 0 {
		t.Errorf("nothing had changed, and %v were laid down", laid)
	}
	if inode(t, filepath.Join(to, "folder/file")) != was {
		t.Error("a file that had not changed is another one now")
	}

	for name, change := range map[string]func(){
		"folder/file": func() { // as many bytes, at the same time
			var st unix.Stat_t
			must(unix.Lstat(in("folder/file"), &st))
			must(os.WriteFile(in("folder/file"), []byte("CONTENT"), 0o640))
			must(unix.UtimesNanoAt(unix.AT_FDCWD, in("folder/file"), []unix.Timespec{st.Atim, st.Mtim}, 0))
		},
		"sparse": func() { must(os.Chmod(in("sparse"), 0o600)) },
		"folder": func() { must(os.Chown(in("folder"), 1, 1)) },
		"folder/link": func() {
			must(os.Remove(in("folder/link")))
			must(os.Symlink("elsewhere", in("folder/link")))
		},
	} {
		change()
		if laid := again(t, from, to); !slices.Contains(laid, name) {
			t.Errorf("%s had changed, and %v were laid down", name, laid)
		}
	}
	b, err := os.ReadFile(filepath.Join(to, "folder/file"))
	if err != nil || string(b) != "CONTENT" {
		t.Errorf("the file holds %q (%v)", b, err)
	}
}

// A folder that was only written to at another time has that time, and nothing of it
// was laid down.
func TestTimesOfAFolderAreNotSeen(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	if err := os.Mkdir(filepath.Join(from, "tmp"), 0o755); err != nil {
		t.Fatal(err)
	}
	again(t, from, to)
	at := time.Unix(1700000000, 123)
	if err := os.Chtimes(filepath.Join(from, "tmp"), at, at); err != nil {
		t.Fatal(err)
	}
	if laid := again(t, from, to); len(laid) > 0 {
		t.Errorf("%v were laid down", laid)
	}
	if info, err := os.Stat(filepath.Join(to, "tmp")); err != nil || !info.ModTime().Equal(at) {
		t.Errorf("its time is not that of the original (%v)", err)
	}
}

// Two names of one file that are two files by now must not stay one.
func TestASecondNameBecomesAFileOfItsOwn(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	one, two := filepath.Join(from, "one"), filepath.Join(from, "two")
	at := time.Now().Add(-time.Hour).Truncate(time.Second)
	write := func(path string) {
		if err := os.WriteFile(path, []byte("the same"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	write(one)
	if err := os.Link(one, two); err != nil {
		t.Fatal(err)
	}
	again(t, from, to)
	if err := os.Remove(two); err != nil {
		t.Fatal(err)
	}
	write(two)
	again(t, from, to)
	if inode(t, filepath.Join(to, "one")) == inode(t, filepath.Join(to, "two")) {
		t.Error("two files are one")
	}
}
