package session

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/session/recovery"
	"github.com/livefleet/handover/helper/internal/share"
)

// others are sessions of the same host that began earlier, and have yet to converge.
func (r *rig) others(names ...string) (members []*share.Member) {
	r.t.Helper()
	for _, name := range names {
		m, err := share.New(filepath.Join(r.srcRun, record.TurnsDir), name)
		if err == nil {
			err = m.Join()
		}
		if err != nil {
			r.t.Fatal(err)
		}
		r.t.Cleanup(m.Leave)
		members = append(members, m)
	}
	return members
}

// waits waits until the session says that so many come before it.
func (r *rig) waits(ahead int64) {
	r.t.Helper()
	for range 3000 {
		if s, err := record.Show(r.src); err == nil && s.State == record.Presync && s.Waits == ahead {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	s, err := record.Show(r.src)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Fatalf("it should wait for %d others: it is %s, in pass %d, and waits for %d", ahead, s.State, s.Pass, s.Waits)
}

// nothingSent demands that the session has copied nothing.
func (r *rig) nothingSent() {
	r.t.Helper()
	if s, err := record.Show(r.src); err != nil || s.Pass != 0 || s.SentBytes != 0 {
		r.t.Errorf("it copies before its turn: pass %d (%v)", s.Pass, err)
	}
}

// Two of those before it are too many where two copy at once, one is not; what was
// written while it waited is there in the end.
func TestSessionsCopyInTheOrderInWhichTheyBegan(t *testing.T) {
	r := newRig(t)
	r.spec.src.Policy.AtOnce = 2
	first := r.others("0-shop", "0-web", "99999999999999999999-later")
	w := r.startWriter()
	r.start()
	r.waits(2)
	time.Sleep(2 * turnPause)
	r.nothingSent()
	first[1].Leave()
	s := r.wait(r.src, record.UntilConverged)
	if s.Waits != 0 {
		t.Errorf("it has converged, and says that it waits for %d", s.Waits)
	}
	if ahead := r.others("3-observer")[0]; ahead.Ahead() != 1 {
		t.Errorf("it has converged, and others wait for it: %d", ahead.Ahead())
	}
	r.cutover()
	r.moved(w)
}

// A cutover that is asked for while it waits begins when it has converged.
func TestACutoverMayBeAskedForBeforeItsTurn(t *testing.T) {
	r := newRig(t)
	r.spec.src.Policy.AtOnce = 1
	first := r.others("0-shop")
	w := r.startWriter()
	r.start()
	r.waits(1)
	time.AfterFunc(2*turnPause, first[0].Leave)
	r.cutover()
	r.moved(w)
}

func TestAConnectionThatBreaksBeforeItsTurnIsMadeAgain(t *testing.T) {
	r := newRig(t)
	r.spec.src.Policy.AtOnce = 1
	r.spec.src.Policy.ReconnectTimeout, r.spec.dst.Policy.ReconnectTimeout = 60, 60
	first := r.others("0-shop")
	w := r.startWriter()
	r.start()
	r.waits(1)
	r.proxy.cut()
	r.reconnected(1)
	r.nothingSent()
	first[0].Leave()
	r.wait(r.src, record.UntilConverged)
	r.cutover()
	r.moved(w)
}

func TestWhoWaitsForItsTurnCanBeAborted(t *testing.T) {
	r := newRig(t)
	r.spec.src.Policy.AtOnce = 1
	r.others("0-shop")
	w := r.startWriter()
	r.start()
	r.waits(1)
	if s, err := recovery.Abort(context.Background(), r.src, r.srcRun); err != nil || s.State != record.Thawed && s.State != record.Failed {
		t.Fatalf("%+v, %v", s, err)
	}
	<-r.send
	<-r.receive
	r.runsOnce(w, record.Source)
	if ahead := r.others("3-observer")[0]; ahead.Ahead() != 1 {
		t.Errorf("it has gone, and others wait for it: %d", ahead.Ahead())
	}
}
