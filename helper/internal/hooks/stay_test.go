package hooks

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func init() {
	if len(os.Args) != 4 || os.Args[1] != "internal" || os.Args[2] != StayWord {
		return
	}
	r, err := ReadStaying(os.Args[3])
	if err == nil {
		err = r.StayWhenGone()
	}
	if err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

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

// The kernel closes the sockets of a process that ends one after the other: the owner's end of the connection may
// be gone while its gate still seems to be served.
func TestAGateWhoseOwnerIsStillEnding(t *testing.T) {
	t.Run("frozen", func(t *testing.T) { ownerIsStillEnding(t, true) })
	t.Run("before anything is frozen", func(t *testing.T) { ownerIsStillEnding(t, false) })
}

func ownerIsStillEnding(t *testing.T, frozen bool) {
	t.Helper()
	dir, err := os.MkdirTemp("", "stay-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	images, froze := filepath.Join(dir, "images"), filepath.Join(dir, "froze")
	if err := os.Mkdir(images, 0o700); err != nil {
		t.Fatal(err)
	}
	if frozen {
		if err := os.WriteFile(froze, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	g, err := OpenStaying(dir, images, Stays{Cgroup: Cgroup(dir), Froze: froze, Limit: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	g.listener.Close()
	r, err := Lookup(dir, images)
	if err != nil {
		t.Fatal(err)
	}
	owner, err := net.Listen("unix", r.Socket)
	if err != nil {
		t.Fatal(err)
	}
	criu := exec.Command("sleep", "60")
	if err := criu.Start(); err != nil {
		t.Fatal(err)
	}
	if err := r.stayBehind(criu.Process.Pid); err != nil {
		t.Error(err)
	}
	connected, err := owner.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_ = criu.Process.Kill()
	_ = criu.Wait()
	connected.Close()
	for until := time.Now().Add(time.Minute); ; time.Sleep(stayPause) {
		if _, err := os.Lstat(froze); errors.Is(err, os.ErrNotExist) {
			break
		}
		if time.Now().After(until) {
			t.Fatal("nothing lets the tasks run")
		}
	}
	time.Sleep(2 * stayPause)
	free, err := alone(dir) // a move is about to open its gate
	if err != nil {
		t.Fatal(err)
	}
	owner.(*net.UnixListener).SetUnlinkOnClose(false)
	owner.Close()
	time.Sleep(5 * stayPause)
	if r, err := Lookup(dir, images); r == nil || err != nil {
		t.Errorf("the gate went while another process had the gates: %v", err)
	}
	free()
	for until := time.Now().Add(2 * closeLimit); ; time.Sleep(stayPause) {
		if left, err := os.ReadDir(Gates(dir)); err == nil && len(left) == 0 {
			return
		}
		if time.Now().After(until) {
			t.Fatal("the gate stays")
		}
	}
}

// A thaw that the kernel refuses is tried again, and told once: nothing reads what this process writes.
func TestTheProcessLeftBehindTriesAgain(t *testing.T) {
	dir := t.TempDir()
	freeze, froze := filepath.Join(dir, "cgroup", freezeFile), filepath.Join(dir, "froze")
	if err := errors.Join(os.MkdirAll(freeze, 0o700), os.WriteFile(froze, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	told := make(chan string, 100)
	was := tell
	tell = func(text string) { told <- text }
	defer func() { tell = was }()
	r := &Registration{ImageDir: dir, Stays: &Stays{Cgroup: Cgroup(filepath.Dir(freeze)), Froze: froze}}
	done := make(chan error, 1)
	go func() { done <- r.keepTrying() }()
	if text := <-told; !strings.Contains(text, "do not run on yet") || !strings.Contains(text, "is a directory") {
		t.Error(text)
	}
	select {
	case err := <-done:
		t.Fatalf("it gave up: %v", err)
	case <-time.After(5 * stayPause):
	}
	// The file appears with all that is in it, in the place of the folder: a thaw between its making and its text would be written
	// over, and with neither there the cgroup would seem to have gone.
	whole := filepath.Join(dir, "whole")
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "cgroup", eventsFile), []byte("frozen 1\n"), 0o600), os.WriteFile(whole, []byte("1"), 0o600),
		unix.Renameat2(unix.AT_FDCWD, whole, unix.AT_FDCWD, freeze, unix.RENAME_EXCHANGE)); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(freeze); string(b) != "0" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	if len(told) > 1 {
		t.Errorf("it was told %d times more", len(told))
	}
}

// Of two that find no gate one opens it, and the other is told of that one.
func TestAGateIsOpenedByOne(t *testing.T) {
	dir, err := os.MkdirTemp("", "stay-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	s := Stays{Cgroup: "/nowhere", Froze: filepath.Join(dir, "froze"), Limit: time.Second}
	for range 50 {
		opened := make(chan *Gate, 4)
		for range cap(opened) {
			go func() { g, _ := OpenStaying(dir, dir, s); opened <- g }()
		}
		var gates []*Gate
		for range cap(opened) {
			if g := <-opened; g != nil {
				gates = append(gates, g)
			}
		}
		if len(gates) != 1 || !Served(dir, dir) {
			t.Fatalf("%d have opened it", len(gates))
		}
		gates[0].Close()
	}
	free, err := alone(dir)
	if err != nil {
		t.Fatal(err)
	}
	aloneLimit = 3 * stayPause
	defer func() { aloneLimit = 5 * time.Second }()
	if _, err := OpenGate(dir, dir, "/sessions/s1"); err == nil || !strings.Contains(err.Error(), "another process opens a gate") {
		t.Errorf("%v", err)
	}
	free()
	g, err := OpenGate(dir, dir, "/sessions/s1")
	if err != nil {
		t.Fatal(err)
	}
	g.Close()
}
