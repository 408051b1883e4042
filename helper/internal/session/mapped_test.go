package session

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/session/recovery"
	"github.com/livefleet/handover/helper/internal/watch/aiotest"
)

// Some writes to a file of a directory volume are no events. A workload that writes in
// no other way leaves nothing that says that the volume has changed.
func TestAWriteWithoutAnEventMoves(t *testing.T) {
	ways := map[string]func(t *testing.T, f *os.File) (write func([]byte)){
		"through a mapping": func(t *testing.T, f *os.File) func([]byte) {
			page, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = unix.Munmap(page) })
			return func(data []byte) { copy(page, data) }
		},
		"asynchronous": func(t *testing.T, f *os.File) func([]byte) {
			write := aiotest.New(t)
			return func(data []byte) { write(f, data) }
		},
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			file, err := os.OpenFile(filepath.Join(r.files, "file"), os.O_CREATE|os.O_RDWR, 0o600)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { file.Close() })
			want := make([]byte, 4096)
			if _, err := file.Write(want); err != nil {
				t.Fatal(err)
			}
			write := way(t, file)
			r.playStill()
			r.start()
			r.wait(r.src, record.UntilConverged)
			copy(want, "written last")
			write(want)
			if src, dst := r.cutover(); src.State != record.Done || dst.State != record.Done {
				t.Fatalf("source %s %q, destination %s %q", src.State, src.Error, dst.State, dst.Error)
			}
			if got, err := os.ReadFile(filepath.Join(r.dstFiles, "file")); err != nil || !bytes.Equal(got, want) {
				t.Errorf("the destination has %.20q (%v)", got, err)
			}
		})
	}
}

// Processes that are not the workload's are looked at before the pause. One that comes to
// map a file after that may have written what no pass has.
func TestAStrangerThatJoinsStopsTheMove(t *testing.T) {
	r := newRig(t)
	runs := r.withCgroup()
	arms := filepath.Join(r.control, "armed-takes")
	if err := os.WriteFile(arms, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r.playStill() // each pass before the pause is a look at all processes
	path := filepath.Join(r.files, "stranger")
	if err := os.WriteFile(path, make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	r.start()
	r.wait(r.src, record.UntilConverged)
	go func() { _, _ = recovery.Cutover(context.Background(), r.src) }()
	if err := await(filepath.Join(r.control, "arming")); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	page, err := unix.Mmap(int(file.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(page) //nolint:errcheck // the process's own
	if err := os.Remove(arms); err != nil {
		t.Fatal(err)
	}
	<-r.send
	if s := r.wait(r.src, record.UntilEnded); s.State != record.Thawed || !strings.Contains(s.Error, "something outside of the workload writes to it: stranger") {
		t.Fatalf("the source is %s (%s)", s.State, s.Error)
	}
	comesBack(t, runs)
	<-r.receive
	r.cleanDestination()
}

// playStill says what the writer says when it stands still, so that nothing else writes.
func (r *rig) playStill() {
	r.t.Helper()
	for path, text := range map[string]string{filepath.Join(r.control, "counter"): "0", filepath.Join(r.control, "stopped"): "", filepath.Join(r.mountpoint, "ledger"): ""} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			r.t.Fatal(err)
		}
	}
}

func TestWhenAVolumeIsDue(t *testing.T) {
	for _, c := range []struct {
		d      directory
		paused bool
		want   bool
	}{
		{directory{}, false, false},
		{directory{entries: 1}, false, true},
		{directory{}, true, true},
		{directory{looked: true}, true, false},
		{directory{looked: true, entries: 1}, true, true},
	} {
		if got := c.d.due(c.paused); got != c.want {
			t.Errorf("%d entries, looked at %v, in the pause %v: due %v", c.d.entries, c.d.looked, c.paused, got)
		}
	}
}
