package record

import (
	"os"
	"path/filepath"
	"testing"
)

// A file or folder of the host has its path for a name; anything else that is no name
// is refused.
func TestNamesOfDirectories(t *testing.T) {
	for _, c := range []struct {
		d    Directory
		path bool
	}{
		{Directory{Name: "/srv/a", Path: "/srv/a"}, true},
		{Directory{Name: "/srv/a/../b", Path: "/srv/a/../b"}, false},
		{Directory{Name: "/srv/a", Path: "/srv/b"}, false},
		{Directory{Name: "files", Path: "/srv/b"}, false},
		{Directory{Name: "srv", Path: "srv"}, true}, // not absolute: check refuses it
	} {
		if got := c.d.byPath(); got != c.path {
			t.Errorf("%+v: %t", c.d, got)
		}
	}
	if err := (&Directory{Name: "srv", Path: "srv"}).check(); err == nil {
		t.Error("a path that is not absolute was taken")
	}
}

// A single file is laid down by its name alone, found empty, emptied and digested.
func TestASingleFileIsAVolume(t *testing.T) {
	path := filepath.Join(t.TempDir(), "conf")
	d := Directory{Name: path, Path: path, File: true}
	if tree := d.Tree(); tree.Path != filepath.Dir(path) || tree.only != "conf" {
		t.Errorf("it is laid down as %+v", tree)
	}
	if tree := (&Directory{Name: "v", Path: "/v"}).Tree(); tree.Path != "/v" || tree.only != "" {
		t.Errorf("a folder is laid down as %+v", tree)
	}
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if empty, err := d.Empty(); err != nil || empty {
		t.Errorf("a file with something in it is empty: %t, %v", empty, err)
	}
	if err := d.Clear(); err != nil {
		t.Fatal(err)
	}
	if empty, err := d.Empty(); err != nil || !empty {
		t.Errorf("it was emptied: %t, %v", empty, err)
	}
	if f, err := d.Follow(); err != nil {
		t.Error(err)
	} else if err := f.Close(); err != nil {
		t.Error(err)
	}
	if sum, size, err := d.Digest(t.Context()); err != nil || size != 0 || len(sum) != 64 {
		t.Errorf("%q, %d bytes, %v", sum, size, err)
	}
}
