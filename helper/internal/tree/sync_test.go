package tree

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// What Unpack names is what Sync finds, whatever kind it is; what is gone, or a
// link that leads elsewhere, is no error.
func TestSyncFindsWhatUnpackNames(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	for _, err := range []error{
		os.MkdirAll(filepath.Join(from, "a/b"), 0o755),
		os.WriteFile(filepath.Join(from, "a/b/file"), []byte("x"), 0o600),
		os.Symlink("/etc/passwd", filepath.Join(from, "a/link")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	m, err := Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var stream bytes.Buffer
	if _, err := m.Everything(&stream, Changes{}); err != nil {
		t.Fatal(err)
	}
	var names []string
	if err := UnpackNoting(to, &stream, func(name string, _ bool) { names = append(names, filepath.Clean(name)) }); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"a", "a/b", "a/b/file", "a/link"} {
		if !slices.Contains(names, want) {
			t.Errorf("%s was laid down and not named: %v", want, names)
		}
	}
	if err := Sync(to, append(names, "gone", "no/such/folder")); err != nil {
		t.Error(err)
	}
	if err := Sync(to, []string{"../elsewhere"}); err == nil {
		t.Error("a name that leads out of the folder was taken")
	}
}
