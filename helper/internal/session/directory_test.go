package session

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/tree"
)

// sameFiles demands that the directory volume is on the destination as it is on
// the source.
func (r *rig) sameFiles() {
	r.t.Helper()
	here, bytes, err := tree.Digest(context.Background(), r.files)
	if err != nil {
		r.t.Fatal(err)
	}
	there, _, err := tree.Digest(context.Background(), r.dstFiles)
	if err != nil {
		r.t.Fatal(err)
	}
	if here != there || bytes == 0 {
		r.t.Errorf("the directory volume (%d bytes) is %s here and %s there", bytes, here, there)
	}
}

// A directory has no file system of its own to be frozen. If somebody who is not
// part of the workload writes to it, the workload stays where it is.
func TestSomebodyElseWritesToADirectory(t *testing.T) {
	r := newRig(t)
	w := r.startWriter()
	// Behind the last pass, while the destination restores.
	if err := os.WriteFile(filepath.Join(r.control, "restore-takes"), []byte("300ms"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.start()
	r.wait(r.src, record.UntilConverged)
	go func() {
		_, _ = record.Wait(brief(t), r.dst, []string{string(record.Flushed)})
		_ = await(filepath.Join(r.control, "restoring"))
		_ = os.WriteFile(filepath.Join(r.files, "backup.lock"), nil, 0o600)
	}()
	src, dst := r.cutover()
	if src.State != record.Thawed || dst.State != record.Discarded {
		t.Fatalf("source %s, destination %s", src.State, dst.State)
	}
	if want := "volume files: tree: " + r.files + ": something outside of the workload writes to it: backup.lock"; !strings.Contains(src.Error, want) {
		t.Errorf("%q, without %q", src.Error, want)
	}
	r.runsOnce(w, record.Source)
	r.cleanDestination()
}

// What is in the way on the destination stays as it is.
func TestADirectoryIsNotOverwritten(t *testing.T) {
	r := newRig(t)
	mine := filepath.Join(r.dstFiles, "mine")
	if err := os.WriteFile(mine, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.write(r.dst, r.spec.dst)
	err := Receive(context.Background(), r.dst, r.dstRun, planted)
	if err == nil || !strings.Contains(err.Error(), r.dstFiles+" is not empty, and what is in it is never overwritten") {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(mine); err != nil || string(b) != "mine" {
		t.Errorf("%q, %v", b, err)
	}
}

// A copy needs no workload.
func TestACopyOfADirectory(t *testing.T) {
	r := newRig(t)
	for _, s := range []*record.Spec{&r.spec.src, &r.spec.dst} {
		s.Mode, s.Workload, s.Hooks, s.Volumes, s.Trees = record.Copy, "", record.Hooks{}, nil, nil
	}
	for i := range 500 {
		name := filepath.Join(r.files, string(rune('a'+i%26)), strconv.Itoa(i))
		if err := os.MkdirAll(filepath.Dir(name), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(name), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	r.start()
	r.wait(r.src, record.UntilConverged)
	if err := os.WriteFile(filepath.Join(r.files, "late"), []byte("late"), 0o600); err != nil {
		t.Fatal(err)
	}
	src, dst := r.cutover()
	if src.State != record.Done || dst.State != record.Done {
		t.Fatalf("source %s %q, destination %s %q", src.State, src.Error, dst.State, dst.Error)
	}
	r.sameFiles()
	last := src.Passes[len(src.Passes)-1]
	if len(src.Passes) < 2 || last.Files != 2 || last.Sent != 4 { // the file, and the folder that it is in
		t.Errorf("passes: %+v", src.Passes)
	}
}
