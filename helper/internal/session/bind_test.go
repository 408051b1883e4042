package session

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/livefleet/handover/helper/internal/session/record"
)

// A single file of the host is received where an empty one is.
func TestASingleFileOfTheHost(t *testing.T) {
	path := filepath.Join(t.TempDir(), "conf")
	d := record.Directory{Name: path, Path: path, File: true}
	dst := newDestination(&record.Session{Spec: &record.Spec{Directories: []record.Directory{d}, Role: record.Destination}}, planted)
	if err := dst.findDirectories(); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("a file that is not there was found: %v", err)
	}
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := dst.findDirectories(); err == nil || !strings.Contains(err.Error(), "is not empty, and what is in it is never overwritten") {
		t.Errorf("a file with something in it was taken: %v", err)
	}
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	if err := dst.findDirectories(); err != nil {
		t.Error(err)
	}
	if err := dst.syncDirectories(); err != nil {
		t.Error(err)
	}
}
