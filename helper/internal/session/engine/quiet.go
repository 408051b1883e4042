package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/network"
	"github.com/livefleet/handover/helper/internal/report"
)

// How long the workload may take to accept the connections that wait for it, while it
// runs, and how long the rest of closed connections may take to be sent, while it is
// frozen.
const (
	acceptLimit = time.Second
	drainLimit  = 100 * time.Millisecond
)

// Quiet keeps the source's network silent, in steps, and lifts the silence when
// the workload is to run on. Without a namespace it does nothing.
type Quiet struct {
	Namespace string
	Log       *report.Log
	Guard     *network.Guard
	silent    bool
	reader    *network.Reader
	telling   sync.WaitGroup
	met       []network.Connection // by the last look before the silence
	told      []network.Connection // whose peers wait for room
}

// How many peers are told that there is no room, before the silence, which waits for
// it, and after, beside the dump: each takes 5 to 20 microseconds. The others ask
// again and again.
const (
	maxToldBefore = 256
	maxTold       = 4096
)

// Learn makes ready to read the workload's connections. Without that its peers
// are not told to wait, and may ask again later than they could.
func (q *Quiet) Learn() {
	if q.Namespace == "" || q.reader != nil {
		return
	}
	var err error
	if q.reader, err = network.NewReader(); err != nil {
		q.Log.Emit("connections", map[string]any{"told": 0, "why": err.Error()})
	}
}

// tell has the peers of the workload's connections wait. Those that it does not
// reach ask again by themselves: it is no reason to end anything.
func (q *Quiet) tell(met []network.Connection, most int) {
	q.told = met[:min(len(met), most)]
	if err := network.CloseWindows(q.Namespace, q.told); err != nil {
		q.Log.Emit("warning", map[string]any{"text": err.Error()})
	}
}

// tellAgain does so once more: segments that came during the first round were
// acknowledged with an open window, and the set of connections no longer changes.
func (q *Quiet) tellAgain() {
	if q.reader == nil {
		return
	}
	met, _, err := q.reader.Read(q.Namespace)
	if err != nil {
		q.Log.Emit("warning", map[string]any{"text": err.Error()})
	} else {
		q.tell(met, maxTold)
	}
	q.Log.Emit("connections", map[string]any{"told": len(q.told), "all": len(met)})
}

// turnAway lets no new connection in, and waits until those that came before have
// been accepted: CRIU refuses to dump a listener with pending connections.
func (q *Quiet) turnAway(ctx context.Context) (err error) {
	if q.Namespace == "" {
		return nil
	}
	if q.Guard, err = network.NewGuard(q.Namespace); err != nil {
		return err
	}
	if err := q.Guard.TurnAway(); err != nil {
		return err
	}
	left, err := q.settle(ctx, acceptLimit, q.look, func(u network.Unsettled) bool { return u.Waiting+u.Opening == 0 })
	if err == nil && left.Waiting > 0 {
		err = fmt.Errorf("session: %s to be accepted by the workload, which does not accept, and CRIU cannot carry that: "+
			"try again when it does, or move it offline", left.Backlog)
	}
	return err
}

// Silence is for when the tasks are frozen: the rest of closed connections may still
// be sent, and then nothing comes or goes any more. The peers are told before: a
// segment sent into the silence is sent again after 0.2 s, however short the pause.
func (q *Quiet) Silence(ctx context.Context) error {
	if q.Namespace == "" {
		return nil
	}
	if _, err := q.settle(ctx, drainLimit, q.lookAtClosing, func(u network.Unsettled) bool { return u.Closing == 0 }); err != nil {
		return err
	}
	q.tell(q.met, maxToldBefore)
	q.silent = true
	if err := q.Guard.Silence(); err != nil {
		return err
	}
	// Beside the dump, which does not wait for it.
	q.telling.Go(q.tellAgain)
	return nil
}

func (q *Quiet) look() (network.Unsettled, error) { return network.Settled(q.Namespace) }

// lookAtClosing is the look for the pause, in which each millisecond counts. Where
// the quick look fails, the slow one is used.
func (q *Quiet) lookAtClosing() (network.Unsettled, error) {
	if q.reader != nil {
		if met, closing, err := q.reader.Read(q.Namespace); err == nil {
			q.met = met
			return network.Unsettled{Closing: closing}, nil
		}
	}
	return q.look()
}

// waiting are the connections whose peers were told to wait.
func (q *Quiet) waiting() []network.Connection {
	q.telling.Wait()
	return q.told
}

// settle waits for a condition of the namespace's sockets, and returns how they
// were last.
func (q *Quiet) settle(
	ctx context.Context, limit time.Duration, look func() (network.Unsettled, error), enough func(network.Unsettled) bool,
) (network.Unsettled, error) {
	for until := time.Now().Add(limit); ; {
		u, err := look()
		if err != nil || enough(u) || time.Now().After(until) {
			return u, err
		}
		select {
		case <-ctx.Done():
			return u, context.Cause(ctx)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// Lift is for when the workload runs on here. The destination's namespace may have
// been heard since, so the segment is told.
func (q *Quiet) Lift() error {
	told := q.waiting() // no message may be on its way that there is no room
	q.Guard.Close()
	q.end()
	if !q.silent {
		return nil
	}
	q.silent = false
	err := network.Announce(q.Namespace)
	if failed := network.ReopenWindows(q.Namespace, told); failed != nil {
		q.Log.Emit("warning", map[string]any{"text": failed.Error()})
	}
	return err
}

// end is for when the workload is gone from here.
func (q *Quiet) end() {
	q.telling.Wait()
	q.reader.Close()
	q.reader = nil
}

// NamespaceOf is the network namespace of a process.
func NamespaceOf(pid string) string { return "/proc/" + pid + "/ns/net" }

// inventoryImage is in each set of CRIU's images.
const inventoryImage = "inventory.img"

// SetUpNetwork is for the moment in which the engine is about to make the interfaces of
// the workload that CRIU will restore from the images in imageDir: the namespace is
// silent before the first of them is there. Where no session asked for that, a memory
// snapshot is restored if there are images: its addresses are its own, and sockets need
// them at once. A workload that is started again later on has none.
func SetUpNetwork(runDir, imageDir, namespace string) error {
	dir, err := filepath.EvalSymlinks(imageDir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("session: the directory of CRIU's images: %w", err)
	}
	reg, err := hooks.Lookup(runDir, dir)
	if err != nil {
		return err
	}
	if reg == nil || reg.Stays != nil { // the second is left by a snapshot that was killed
		if _, err := os.Lstat(filepath.Join(dir, inventoryImage)); err != nil {
			return nil //nolint:nilerr // nothing is restored
		}
		return network.SkipDetection(namespace)
	}
	if _, err := reg.Ask(hooks.NetworkSetup, namespace); err != nil {
		return fmt.Errorf("session: the network of what session %s restores: %w", reg.Session, err)
	}
	return ComeUpSilent(namespace)
}

// ComeUpSilent has a namespace that has no interface yet be silent, and its addresses be usable
// at once: sockets are restored that have them.
func ComeUpSilent(namespace string) error {
	return errors.Join(network.Silence(namespace), network.SkipDetection(namespace))
}

// announcements are the times, after the resume, at which the segment is told
// where the workload is: a frame may get lost, and a port may be slow to open.
var announcements = []time.Duration{0, 100 * time.Millisecond, 400 * time.Millisecond, time.Second}

// speak ends the silence of a restored workload's namespace. The first
// announcement is out when it returns; the others follow.
func (r *criuRestore) speak(namespace string) error {
	if err := network.Open(namespace); err != nil {
		return err
	}
	r.again(func() error { return network.Announce(namespace) })
	return nil
}

// beckon tells the peers that were told to wait that there is room, as often as the
// workload is announced: they ignore a repetition. The source has named these peers;
// the destination must not speak here for any other connection.
//
// Not before the workload runs: until shortly before that CRIU keeps a silence of its
// own, in which no neighbour is found over IPv6. A query then is repeated only after
// a second.
func (r *criuRestore) beckon(namespace string) {
	if err := network.Own(namespace, r.waiting); err != nil {
		r.Log.Emit("warning", map[string]any{"text": err.Error()})
		return
	}
	r.again(func() error { return network.ReopenWindows(namespace, r.waiting) })
}

// again says something to the segment at the times of announcements.
func (r *criuRestore) again(say func() error) { repeat(r.Log, announcements, say) }

func repeat(log *report.Log, times []time.Duration, say func() error) {
	aloud := func() {
		if err := say(); err != nil {
			log.Emit("warning", map[string]any{"text": err.Error()})
		}
	}
	for _, after := range times {
		if after == 0 {
			aloud()
		} else {
			time.AfterFunc(after, aloud)
		}
	}
}
