package hooks

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A process that was killed leaves its gate. The CRIU that comes next is refused once; the gate is gone then, and
// no other program's dump is held up.
func TestAGateThatAKilledSnapshotHasLeft(t *testing.T) {
	dir, err := os.MkdirTemp("", "stay-") // a socket has a short path
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	images := filepath.Join(dir, "images")
	if err := os.Mkdir(images, 0o700); err != nil {
		t.Fatal(err)
	}
	s := Stays{Cgroup: "/nowhere", Froze: filepath.Join(dir, "froze"), Limit: time.Second}
	left := func() *Registration {
		g, err := OpenStaying(dir, images, s)
		if err != nil {
			t.Fatal(err)
		}
		g.listener.Close() // as with its process
		r, err := Lookup(dir, images)
		if err != nil || r == nil {
			t.Fatalf("%v, %v", r, err)
		}
		return r
	}
	if goOn, err := left().Stay(PreDump, "", os.Getpid()); goOn || err != nil {
		t.Errorf("%v, %v", goOn, err)
	}
	if r, err := Lookup(dir, images); r != nil || err != nil {
		t.Errorf("%v, %v", r, err)
	}
	if goOn, err := left().Stay(PostRestore, "", os.Getpid()); !goOn || err != nil {
		t.Errorf("what is restored from there is held up: %v, %v", goOn, err)
	}
	// Its CRIU has the images open until it ends.
	left()
	criu, err := os.Open(images)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := OpenStaying(dir, images, s); err == nil || !strings.Contains(err.Error(), "CRIU is still at work") {
		t.Errorf("%v", err)
	}
	criu.Close()
	// A move takes its place, and not that of one which is being made.
	g, err := OpenGate(dir, images, "/sessions/s1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := OpenStaying(dir, images, s); err == nil {
		t.Error("a move's gate was taken over")
	}
	g.Close()
	if g, err = OpenStaying(dir, images, s); err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if _, err := OpenGate(dir, images, "/sessions/s1"); err == nil {
		t.Error("a snapshot's gate was taken over")
	}
}
