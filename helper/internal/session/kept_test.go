package session

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/loop"
	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/session/recovery"
)

// copyFile copies a file, holes and all that is in it.
func copyFile(t *testing.T, from, to string) {
	t.Helper()
	src, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	dst, err := os.Create(to)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(dst, src); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(dst.Sync(), dst.Close()); err != nil {
		t.Fatal(err)
	}
}

// keeping has the destination keep a copy, and lays one there that is older than
// the volume and wrong in one place.
func (r *rig) keeping(seed byte) (kept string) {
	r.t.Helper()
	r.filled(24)
	unix.Sync()
	kept = r.dstImage + ".migrated"
	r.spec.dst.Volumes[0].Kept = kept
	copyFile(r.t, r.image, kept)
	f, err := os.OpenFile(kept, os.O_RDWR, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	for off := int64(0); off < rigSize; off += 8 << 20 {
		if _, err := f.WriteAt(bytes.Repeat([]byte{seed}, 4096), off+4096); err != nil {
			r.t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		r.t.Fatal(err)
	}
	return kept
}

// A copy from an earlier time is taken as it is, where it is as it should be: what
// differs is found, and nothing else is sent. Both sides are compared in the end.
func TestAKeptCopyIsComparedAndNotSentAgain(t *testing.T) {
	r := newRig(t)
	kept := r.keeping(0x5a)
	w := r.startWriter()
	r.start()
	r.wait(r.src, record.UntilConverged)
	presync, err := record.Show(r.src)
	if err != nil {
		t.Fatal(err)
	}
	r.cutover()
	r.moved(w)
	if len(presync.Passes) == 0 || presync.Passes[0].Sent > 12<<20 {
		t.Errorf("24 MiB lay there, and the passes are %+v", presync.Passes)
	}
	if exists(kept) {
		t.Error("the copy is still there under its old name")
	}
}

// A copy that is shorter than the volume, which was grown meanwhile.
func TestAKeptCopyGrowsWithTheVolume(t *testing.T) {
	r := newRig(t)
	kept := r.keeping(0x5a)
	if err := os.Truncate(kept, rigSize/4); err != nil {
		t.Fatal(err)
	}
	w := r.startWriter()
	r.start()
	r.wait(r.src, record.UntilConverged)
	r.cutover()
	r.moved(w)
}

// What has arrived of a move that is broken off is there for the next one, whether
// the destination ends it or whoever cleans up behind its process.
func TestWhatHasArrivedIsKept(t *testing.T) {
	for _, apart := range []record.Role{"", record.Destination} {
		t.Run("apart "+string(apart), func(t *testing.T) {
			r := newRig(t)
			r.filled(24)
			r.spec.src.Policy.Limit = 24 << 20
			kept := r.dstImage + ".migrated"
			r.spec.dst.Volumes[0].Kept = kept
			w := r.startWriter()
			kill := r.startApart(apart)
			r.passed(12 << 20)
			r.arrived(6 << 20)
			if apart == record.Destination {
				kill()
				<-r.send
				r.recovered(r.dst, r.dstRun, record.Discarded)
			} else {
				if _, err := recovery.Abort(brief(t), r.src, r.srcRun); err != nil {
					t.Fatal(err)
				}
				<-r.send
				<-r.receive
			}
			r.runsOnce(w, record.Source)
			r.cleanDestination()
			var st unix.Stat_t
			// The rest of the 12 MiB may have been under way.
			if err := unix.Stat(kept, &st); err != nil || st.Size != rigSize || st.Blocks*512 < 6<<20 {
				t.Errorf("what has arrived: %d bytes, %d blocks: %v", st.Size, st.Blocks, err)
			}
		})
	}
}

// Somebody looks into the copy: it is not written to under them.
func TestAKeptCopyInUseIsLeftAlone(t *testing.T) {
	r := newRig(t)
	kept := r.keeping(0)
	dev, err := loop.Attach(kept)
	if err != nil {
		t.Fatal(err)
	}
	r.write(r.dst, r.spec.dst)
	err = Receive(brief(t), r.dst, r.dstRun, planted)
	if err == nil || !strings.Contains(err.Error(), "is in use by "+dev) {
		t.Errorf("the copy is in use: %v", err)
	}
	if err := loop.Detach(dev); err != nil {
		t.Fatal(err)
	}
	if !exists(kept) || exists(r.dstImage) {
		t.Error("the copy was touched")
	}
}
