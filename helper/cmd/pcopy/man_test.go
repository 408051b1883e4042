//go:build man

package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheManualIsWritten(t *testing.T) {
	dir := t.TempDir()
	if err := execute(context.Background(), io.Discard, []string{"internal", "man", dir}); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(dir, "pcopy-session-resolve.1"))
	if err != nil || !strings.Contains(string(page), "fenced if that host was switched off") {
		t.Errorf("%v: %s", err, page)
	}
	if hidden, _ := filepath.Glob(filepath.Join(dir, "pcopy-internal*")); len(hidden) > 0 {
		t.Errorf("words for programs have pages: %v", hidden)
	}
}
