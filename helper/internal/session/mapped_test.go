package session

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/session/record"
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
