package session

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func bindSpec(role Role, dirs ...Directory) *Spec {
	return &Spec{Directories: dirs, Role: role}
}

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
func TestASingleFileOfTheHost(t *testing.T) {
	path := filepath.Join(t.TempDir(), "conf")
	d := Directory{Name: path, Path: path, File: true}
	if tree := d.tree(); tree.Path != filepath.Dir(path) || tree.only != "conf" {
		t.Errorf("it is laid down as %+v", tree)
	}
	if tree := (&Directory{Name: "v", Path: "/v"}).tree(); tree.Path != "/v" || tree.only != "" {
		t.Errorf("a folder is laid down as %+v", tree)
	}
	dst := &destination{base: &base{spec: bindSpec(Destination, d)}}
	if err := dst.findDirectories(); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("a file that is not there was found: %v", err)
	}
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := dst.findDirectories(); err == nil || !strings.Contains(err.Error(), "is not empty, and what is in it is never overwritten") {
		t.Errorf("a file with something in it was taken: %v", err)
	}
	if err := d.clear(); err != nil {
		t.Fatal(err)
	}
	if err := dst.findDirectories(); err != nil {
		t.Error(err)
	}
	if f, err := d.follow(); err != nil {
		t.Error(err)
	} else if err := f.Close(); err != nil {
		t.Error(err)
	}
	if sum, size, err := d.digest(t.Context()); err != nil || size != 0 || len(sum) != 64 {
		t.Errorf("%q, %d bytes, %v", sum, size, err)
	}
	if err := dst.syncDirectories(); err != nil {
		t.Error(err)
	}
}
