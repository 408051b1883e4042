package session

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/loop"
	"github.com/livefleet/handover/helper/internal/session/record"
)

// small is a file system of 32 MiB in a place.
func small(t *testing.T, place string) {
	t.Helper()
	if err := os.MkdirAll(place, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := loop.MountTmpfs(place); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		if err := loop.Unmount(place); err != nil {
			t.Error(err)
		}
	})
	if err := unix.Mount("", place, "", unix.MS_REMOUNT, "size=32m"); err != nil {
		t.Fatal(err)
	}
}

func free(t *testing.T, place string) int64 {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(place, &st); err != nil {
		t.Fatal(err)
	}
	return int64(st.Bfree) * st.Bsize
}

// Others cannot take the room that a directory volume needs, and it gives way to what
// comes. Nothing of it has a name.
func TestTheRoomOfADirectoryIsHeld(t *testing.T) {
	place := t.TempDir()
	small(t, place)
	all := free(t, place)
	d := &places{Session: &record.Session{}, rooms: map[uint32]*room{}}
	d.Spec = &record.Spec{Trees: make([]record.Tree, 2), Directories: []record.Directory{{Name: "files", Path: place, Size: 30 << 20}, {Name: "none", Path: place}}}
	if err := d.holdRooms(); err != nil {
		t.Fatal(err)
	}
	if left := free(t, place); left > all-30<<20 {
		t.Errorf("%d of %d bytes are free", left, all)
	}
	if names, err := os.ReadDir(place); err != nil || len(names) > 0 {
		t.Errorf("%v, %v", names, err)
	}
	err := os.WriteFile(filepath.Join(place, "another"), make([]byte, 4<<20), 0o600)
	if err == nil {
		t.Error("another program takes the room")
	}
	_ = os.Remove(filepath.Join(place, "another"))
	f, err := os.Create(filepath.Join(place, "its own"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	piece := make([]byte, 1<<20)
	for range 29 {
		if err := d.arrive(2, len(piece), false); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write(piece); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.arrive(2, 0, true); err != nil || len(d.rooms) > 0 {
		t.Errorf("%v, %v", d.rooms, err)
	}
	if left := free(t, place); left != all-29<<20 {
		t.Errorf("%d of %d bytes are free", left, all)
	}
}

// A destination without room for a directory volume is known before a byte is copied, if
// it is to reserve that.
func TestADestinationWithoutRoomForADirectorySaysSoAtOnce(t *testing.T) {
	r := newRig(t)
	small(t, r.dstFiles)
	all := free(t, r.dstFiles)
	r.spec.dst.Directories[0].Size = 40 << 20
	r.spec.dst.Policy.ReserveSpace = true
	r.write(r.dst, r.spec.dst)
	err := Receive(brief(t), r.dst, r.dstRun, planted)
	if want := "session: volume files: it needs 40 MiB: the file system that holds " + r.dstFiles + " is full"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, without %q", err, want)
	}
	if s, err := record.Show(r.dst); err != nil || s.State != record.Discarded {
		t.Errorf("%+v, %v", s, err)
	}
	if left := free(t, r.dstFiles); left != all {
		t.Errorf("%d of %d bytes are free", left, all)
	}
}

// A move with room held is a move as any other.
func TestAMoveWithRoomHeld(t *testing.T) {
	r := newRig(t)
	r.spec.dst.Directories[0].Size = 40 << 20
	r.spec.dst.Policy.ReserveSpace = true
	w := r.startWriter()
	r.start()
	r.wait(r.src, record.UntilConverged)
	if src, dst := r.cutover(); src.State != record.Done || dst.State != record.Done {
		t.Fatalf("source %s (%s), destination %s (%s)", src.State, src.Error, dst.State, dst.Error)
	}
	r.sameFiles()
	r.runsOnce(w, record.Destination)
}
