package session

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/image"
	"github.com/livefleet/handover/helper/internal/session/protocol"
	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/session/recovery"
)

// filled puts data on the volume, so that a pass takes its time.
func (r *rig) filled(megabytes int) {
	r.t.Helper()
	b := make([]byte, megabytes<<20)
	rand.NewChaCha8([32]byte{1}).Read(b)
	err := os.WriteFile(filepath.Join(r.mountpoint, "ballast"), b, 0o600)
	if err == nil {
		err = image.Syncfs(r.mountpoint)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// passed waits until so many bytes of the first pass were dealt with.
func (r *rig) passed(bytes int64) {
	r.t.Helper()
	for range 3000 {
		if s, err := record.Show(r.src); err == nil && s.DoneBytes >= bytes {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	r.t.Fatalf("the first pass has not come to %d bytes", bytes)
}

// arrived waits until so much is in the destination's image: on a busy machine much of
// what has been sent is under way.
func (r *rig) arrived(bytes int64) {
	r.t.Helper()
	for range 3000 {
		var st unix.Stat_t
		if err := unix.Stat(r.dstImage, &st); err == nil && st.Blocks*512 >= bytes {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	r.t.Fatalf("%d bytes have not arrived in %s", bytes, r.dstImage)
}

func (r *rig) reconnected(times int) {
	r.t.Helper()
	for range 3000 {
		s, err := record.Show(r.src)
		if err == nil && s.Reconnects >= times && s.Broken == "" {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	s, err := record.Show(r.src)
	r.t.Fatalf("the connection was not made again %d times: %+v, %v", times, s, err)
}

// movedWith demands that the workload moves with so many connections made again, and that
// little was sent twice of 24 MiB of ballast.
func (r *rig) movedWith(w *writer, times int) {
	r.t.Helper()
	r.reconnected(times)
	presync, err := record.Show(r.src)
	if err != nil {
		r.t.Fatal(err)
	}
	r.cutover()
	src, dst := r.moved(w)
	if src.Reconnects < times || dst.Reconnects < times {
		r.t.Errorf("made again: source %d times, destination %d times", src.Reconnects, dst.Reconnects)
	}
	// The ballast once, and what the writer made of its 4 MiB during the passes.
	if most := int64(24+24) << 20; presync.SentBytes > most {
		r.t.Errorf("%d bytes were sent, and %d would do", presync.SentBytes, most)
	}
}

// A connection that breaks in the middle of a pass, again and again, is made
// again. What arrived is not sent once more, and in the end every byte is there.
func TestABrokenConnectionInPresyncIsMadeAgain(t *testing.T) {
	r := newRig(t)
	r.filled(24)
	r.spec.src.Policy.Limit = 24 << 20
	r.spec.src.Policy.ReconnectTimeout, r.spec.dst.Policy.ReconnectTimeout = 60, 60
	w := r.startWriter()
	r.start()
	r.passed(6 << 20)
	r.proxy.cut()
	r.reconnected(1)
	time.Sleep(200 * time.Millisecond)
	r.proxy.hush() // the destination does not notice, until there is another one
	r.reconnected(2)
	r.wait(r.src, record.UntilConverged)
	r.proxy.cut()
	r.movedWith(w, 3)
	if b, err := os.ReadFile(filepath.Join(r.dstLayer, "file")); err != nil || string(b) != "first" {
		t.Errorf("the layer's file: %q, %v", b, err)
	}
}

// A destination that cannot be reached any more costs the session, after a while,
// and nothing else.
func TestAConnectionThatStaysBrokenEndsTheSession(t *testing.T) {
	r := newRig(t)
	r.filled(24)
	r.spec.src.Policy.Limit = 16 << 20
	r.spec.src.Policy.ReconnectTimeout, r.spec.dst.Policy.ReconnectTimeout = 1, 1
	w := r.startWriter()
	r.start()
	r.passed(6 << 20)
	r.proxy.l.Close()
	r.proxy.cut()
	<-r.send
	<-r.receive
	src, err := record.Show(r.src)
	if err != nil {
		t.Fatal(err)
	}
	dst, err := record.Show(r.dst)
	if err != nil {
		t.Fatal(err)
	}
	if src.State != record.Failed || !strings.Contains(src.Error, "and no other could be made within 1s") {
		t.Errorf("source %s: %s", src.State, src.Error)
	}
	if dst.State != record.Discarded || !strings.Contains(dst.Error, "the source has not come back within 1s") {
		t.Errorf("destination %s: %s", dst.State, dst.Error)
	}
	r.runsOnce(w, record.Source)
	r.cleanDestination()
}

func TestAbortWhileTheConnectionIsBroken(t *testing.T) {
	r := newRig(t)
	r.filled(24)
	r.spec.src.Policy.Limit = 16 << 20
	r.spec.dst.Policy.ReconnectTimeout = 1
	w := r.startWriter()
	r.start()
	r.passed(6 << 20)
	r.proxy.l.Close()
	r.proxy.cut()
	for range 3000 {
		if s, err := record.Show(r.src); err == nil && s.Broken != "" {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	s, err := recovery.Abort(ctx, r.src, r.srcRun)
	if err != nil || s.State != record.Failed || !strings.Contains(s.Error, "aborted on request") {
		t.Fatalf("%+v, %v", s, err)
	}
	<-r.send
	<-r.receive
	r.runsOnce(w, record.Source)
	r.cleanDestination()
}

// A sender that is killed in presync and started again trusts nothing: it finds
// what the destination does not hold by digests, also what was written while
// nobody tracked.
func TestASenderThatIsStartedAgainComparesDigests(t *testing.T) {
	r := newRig(t)
	r.filled(24)
	r.spec.src.Policy.Limit = 24 << 20
	r.spec.src.Policy.ReconnectTimeout, r.spec.dst.Policy.ReconnectTimeout = 60, 60
	w := r.startWriter()
	kill := r.startApart(record.Source)
	r.passed(12 << 20)
	kill()
	// What arrived is changed where no tracker sees it.
	f, err := os.OpenFile(filepath.Join(r.mountpoint, "ballast"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	for off := int64(0); off < 24<<20; off += 1 << 20 {
		if _, err := f.WriteAt([]byte("written between two processes"), off); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
	// As its unit does: what it left is cleared away, and the session is not given up.
	if s, err := recovery.Recover(brief(t), r.src, r.srcRun, true); err != nil || s.State != record.Presync || s.Broken == "" || s.Error != "" {
		t.Errorf("after the kill: %+v, %v", s, err)
	}
	// If nobody starts it, those who wait are told.
	old := time.Now().Add(-2 * record.RestartPatience)
	if err := os.Chtimes(filepath.Join(r.src, record.StatusFile), old, old); err != nil {
		t.Fatal(err)
	}
	if s, err := record.Show(r.src); err != nil || !strings.Contains(s.Error, "it can be started again") {
		t.Errorf("long after the kill: %+v, %v", s, err)
	}
	go func() { r.send <- Send(context.Background(), r.src, r.srcRun, planted) }()
	for {
		if s, err := record.Show(r.src); err == nil && s.Running {
			break
		}
		time.Sleep(time.Millisecond)
	}
	r.wait(r.src, record.UntilConverged)
	presync, err := record.Show(r.src)
	if err != nil {
		t.Fatal(err)
	}
	r.cutover()
	r.moved(w)
	if b, err := os.ReadFile(filepath.Join(r.dstMnt, "ballast")); err != nil || string(b[5<<20:][:29]) != "written between two processes" {
		t.Errorf("the ballast: %v", err)
	}
	// Half of the ballast lay there, and is not among what the first pass sent.
	if len(presync.Passes) == 0 || presync.Passes[0].Sent > 20<<20 {
		t.Errorf("the passes %+v", presync.Passes)
	}
}

// Another process that claims to be the one that began is turned away.
func TestOnlyTheProcessThatBeganGoesOn(t *testing.T) {
	d := newDestination(&record.Session{Spec: &record.Spec{ID: "rig"}}, planted)
	d.tokenHash = tokenHash("mine")
	err := d.again(context.Background(), &protocol.Again{ID: "rig", TokenHash: tokenHash("another's")})
	if err == nil || !strings.Contains(err.Error(), "another process of the source than the one that began") {
		t.Errorf("%v", err)
	}
}
