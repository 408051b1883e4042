package watchd

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/livefleet/handover/helper/internal/transport"
)

func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// watched is a folder that is served, and its run directory.
func watched(t *testing.T) (runDir, dir string, ended chan error) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: fanotify")
	}
	runDir, err := os.MkdirTemp("", "f") // t.TempDir can be too long for a socket's path
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(runDir) })
	if dir, err = os.MkdirTemp("/var/tmp", "watchd"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	must(t, os.WriteFile(filepath.Join(dir, "old"), nil, 0o600))
	ready := make(chan struct{})
	ended = make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	go func() {
		ended <- Serve(ctx, runDir, dir, func() error { close(ready); return nil })
	}()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	return runDir, dir, ended
}

func TestListAndStop(t *testing.T) {
	ctx := context.Background()
	runDir, dir, ended := watched(t)
	if names, err := List(ctx, runDir, dir); err != nil || len(names) != 0 {
		t.Fatalf("%q, %v", names, err)
	}
	strange := "new\nname\xff"
	must(t, os.WriteFile(filepath.Join(dir, strange), nil, 0o600), os.Remove(filepath.Join(dir, "old")))
	names, err := List(ctx, runDir, dir+"/../"+filepath.Base(dir))
	if err != nil || !slices.Equal(names, []string{".", strange, "old"}) {
		t.Fatalf("%q, %v", names, err)
	}
	if err := Serve(ctx, runDir, dir, nil); err == nil || !strings.Contains(err.Error(), "is watched already") {
		t.Errorf("a second one: %v", err)
	}
	must(t, Stop(ctx, runDir, dir), <-ended)
	if _, err := List(ctx, runDir, dir); !errors.Is(err, ErrNobody) {
		t.Errorf("after the end: %v", err)
	}
}

// A list that nobody got is not taken for one that was copied.
func TestAListThatGotLost(t *testing.T) {
	ctx := context.Background()
	runDir, dir, _ := watched(t)
	for i := range 3000 { // more than a socket takes at once
		must(t, os.WriteFile(filepath.Join(dir, strings.Repeat("long name ", 20)+string(rune('a'+i%26))+string(rune('a'+i/26))), nil, 0o600))
	}
	path, _, err := socket(runDir, dir)
	must(t, err)
	conn, err := transport.DialUnix(ctx, path)
	must(t, err)
	_, err = io.WriteString(conn, list+"\n")
	must(t, err)
	_, err = conn.Read(make([]byte, 10))
	must(t, err, conn.Close())
	if _, err := List(ctx, runDir, dir); err == nil || !strings.Contains(err.Error(), "did not reach the one who had asked for it): copy everything once more") {
		t.Fatalf("%v", err)
	}
	must(t, os.Chmod(filepath.Join(dir, "old"), 0o640))
	if names, err := List(ctx, runDir, dir); err != nil || !slices.Equal(names, []string{".", "old"}) {
		t.Errorf("the next one: %q, %v", names, err)
	}
}
