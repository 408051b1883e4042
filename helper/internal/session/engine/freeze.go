// Package engine stops a workload on the source and brings it up on the destination: by CRIU, held by its
// hooks, or by plain commands. It keeps the network silent in that time, and carries the settings and the
// bound threads over. It knows the session's folder (package record), and neither the protocol nor the other
// side.
package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/network"
	"github.com/livefleet/handover/helper/internal/session/record"
)

// Freezer stops the workload on the source, keeps it stopped, and in the end
// lets it run on or be gone.
type Freezer interface {
	// Arm does everything that freezing needs and that can be done while the
	// workload runs.
	Arm(ctx context.Context) error
	// Shut returns when no new connection reaches the workload, which still runs.
	Shut(ctx context.Context) error
	// Freeze returns when no task of the workload runs any more: since when.
	Freeze(ctx context.Context) (time.Time, error)
	// Dumped returns when the state dump is complete and held.
	Dumped(ctx context.Context) (time.Time, error)
	// Thaw lets the workload run on where it stood. It may be called at any
	// time, also when freeze failed half-way, and more than once.
	Thaw(ctx context.Context) error
	// Reclaim ends the frozen tasks.
	Reclaim(ctx context.Context) error
	// Told are the connections whose peers were told to wait, when it is frozen.
	Told() []network.Connection
}

// Restorer brings the workload up on the destination, in two steps.
type Restorer interface {
	// CanArm says whether there is anything to do before the state has arrived.
	CanArm() bool
	// Arm begins the part that is possible before the state has arrived; the answer
	// comes when only that is missing. Called again it starts over; restore works
	// after a failure too. prepare is called when nothing of an earlier one is left.
	Arm(ctx context.Context, prepare func() error) <-chan error
	// Dumped says that the state has arrived; the volumes may not have.
	Dumped()
	// Wants returns when the armed restore has the state and waits for the volumes;
	// at once if nothing is armed.
	Wants(ctx context.Context) error
	// Restore returns when everything stands and nothing has run yet.
	Restore(ctx context.Context) error
	// Resume lets it run and tells since when it does. An error means that the
	// outcome is not known.
	Resume(ctx context.Context) (time.Time, error)
	// MayHaveRun reports, when resume has failed, whether anything of the
	// workload may have run here.
	MayHaveRun() bool
	// Deny refuses everything that comes from now on; an arming under way ends.
	Deny()
	// Refuse makes sure that the restored tasks never run, and waits until that is
	// so.
	Refuse(ctx context.Context) error
}

// thawLimit is how long CRIU and the driver may take to let tasks go.
const thawLimit = 60 * time.Second

// NewFreezer picks by the spec: CRIU held by its hooks, a plain command, or,
// when only bytes are copied, nothing.
func NewFreezer(b *record.Session) (Freezer, error) {
	h := b.Spec.Hooks
	if len(b.Spec.Members) > 0 {
		return newDumps(b)
	}
	if !h.Freeze.Given() {
		return idle{}, nil
	}
	if h.Freeze.Gate == "" {
		return &stopper{Session: b, h: h}, nil
	}
	d, err := newDump(b, b.Spec.Parts()[0], h)
	if err != nil { // a nil dump in a Freezer would be one to thaw
		return nil, err
	}
	return d, nil
}

// newDump is a dump of the workload, or of one member of it.
func newDump(b *record.Session, part record.Member, h record.Hooks) (*criuDump, error) {
	g, err := hooks.OpenGate(b.RunDir, h.Freeze.Gate, b.Dir)
	if err != nil {
		return nil, err
	}
	d := &criuDump{h: h, gate: g, runs: part.File(b.Dir, record.RunsFile), quiet: Quiet{Namespace: b.Spec.Network.Namespace, Log: b.Log}}
	if err := d.noteRuns(); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return d, nil
}

func NewRestorer(b *record.Session, c *Carried) (Restorer, error) {
	h := b.Spec.Hooks
	if len(b.Spec.Members) > 0 {
		return newRestores(b, c)
	}
	if !h.Restore.Given() || h.Restore.Gate == "" {
		return &starter{Session: b, h: h}, nil
	}
	g, err := hooks.OpenGate(b.RunDir, h.Restore.Gate, b.Dir)
	if err != nil {
		return nil, err
	}
	return &criuRestore{Session: b, Carried: c, h: h, gate: g}, nil
}

// idle is for copies: nothing is frozen.
type idle struct{}

func (idle) Arm(context.Context) error                 { return nil }
func (idle) Shut(context.Context) error                { return nil }
func (idle) Freeze(context.Context) (time.Time, error) { return time.Now(), nil }
func (idle) Told() []network.Connection                { return nil }
func (idle) Dumped(context.Context) (time.Time, error) { return time.Now(), nil }
func (idle) Thaw(context.Context) error                { return nil }
func (idle) Reclaim(context.Context) error             { return nil }

// criuDump is a command that makes CRIU dump the workload; CRIU's hooks hold it,
// first before it has frozen anything.
type criuDump struct {
	h     record.Hooks
	gate  *hooks.Gate
	runs  string // the file that says that the cgroup is not frozen by this session
	quiet Quiet
	p     *hooks.Process
	froze bool      // the cgroup, or is about to
	begun bool      // CRIU was let go on to dump
	own   io.Closer // of the cgroup, from the freeze on: no snapshot lets it go
}

func (d *criuDump) Told() []network.Connection { return d.quiet.waiting() }

func (d *criuDump) Arm(ctx context.Context) error {
	d.quiet.Learn()
	var err error
	if d.p, err = d.h.Freeze.StartEarly(); err != nil {
		return err
	}
	if _, err = d.await(ctx, hooks.PreDump); err != nil {
		return err
	}
	if err := intoMemory(d.h.Freeze.Gate); err != nil {
		return err
	}
	if d.h.Freeze.Cgroup == "" {
		return nil
	}
	d.h.Freeze.Cgroup.BringUp()
	return errors.Join(d.nameWatched(), hooks.NoteFrozen(d.h.Freeze.Gate))
}

func (d *criuDump) Shut(ctx context.Context) error { return d.quiet.turnAway(ctx) }

func (d *criuDump) Freeze(ctx context.Context) (time.Time, error) {
	if err := d.take(ctx); err != nil {
		return time.Time{}, err
	}
	at, err := d.halt(ctx)
	if err == nil {
		err = d.quiet.Silence(ctx)
	}
	if err != nil {
		return time.Time{}, err
	}
	d.begin()
	return at, nil
}

// take returns when no other process has the cgroup.
func (d *criuDump) take(ctx context.Context) error {
	if d.h.Freeze.Cgroup == "" {
		return nil
	}
	limited, cancel := d.limited(ctx)
	defer cancel()
	own, err := d.h.Freeze.Cgroup.Own(limited)
	if err != nil { // own has no file then, and a nil one in it would be closed at the thaw
		return err
	}
	d.own = own
	return nil
}

// halt returns when no task runs any more.
func (d *criuDump) halt(ctx context.Context) (at time.Time, err error) {
	if d.h.Freeze.Cgroup == "" {
		d.gate.Answer(hooks.PreDump, true)
		at, err = d.await(ctx, hooks.NetworkLock)
	} else {
		limited, cancel := d.limited(ctx)
		defer cancel()
		if err := d.stop(); err != nil {
			return time.Time{}, err
		}
		at, err = d.h.Freeze.Cgroup.Freeze(limited)
	}
	return at, err
}

// begin lets CRIU dump.
func (d *criuDump) begin() {
	d.begun = true
	d.gate.Answer(hooks.PreDump, true)
	d.gate.Answer(hooks.NetworkLock, true)
}

func (d *criuDump) Dumped(ctx context.Context) (time.Time, error) {
	at, err := d.await(ctx, hooks.PostDump)
	if err != nil || d.h.Freeze.Cgroup == "" {
		return at, err
	}
	// Should CRIU be killed from here on, its tasks stay where they are.
	limited, cancel := d.limited(ctx)
	defer cancel()
	if _, err := d.h.Freeze.Cgroup.Freeze(limited); err != nil {
		return at, err
	}
	return at, d.h.Freeze.Cgroup.Held()
}

func (d *criuDump) await(ctx context.Context, action string) (time.Time, error) {
	ctx, cancel := d.limited(ctx)
	defer cancel()
	return d.gate.Await(ctx, action, d.p)
}

func (d *criuDump) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := d.h.Freeze.Limit()
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("it has not come there within %s", limit))
}

func (d *criuDump) Thaw(ctx context.Context) error {
	// Before the tasks run again, and whether they do or not: this host is silent
	// only while the other may be heard.
	heard := d.quiet.Lift()
	d.gate.Refuse()
	armed := d.p != nil
	if d.p != nil {
		if err := released(ctx, d.p, d.h.Freeze.Argv); err != nil {
			return err
		}
		d.p = nil
	}
	// CRIU leaves the cgroup as it found it: frozen.
	err := errors.Join(heard, d.runOn(), forgetWatched(d.h.Freeze), d.gate.Close())
	if d.own != nil {
		err = errors.Join(err, d.own.Close())
		d.own = nil
	}
	if armed {
		RunBeside(ctx, d.quiet.Log, d.h.Thaw)
	}
	return err
}

// released waits for the end of a command whose CRIU was refused. Its failure is
// wanted, so its status says nothing; its end does. It is never killed: CRIU's death
// in the middle would leave tasks frozen with no process to thaw them, or let
// restored ones run.
func released(ctx context.Context, p *hooks.Process, argv []string) error {
	select {
	case <-p.Done():
		return nil
	case <-time.After(thawLimit):
		return fmt.Errorf("session: CRIU was refused and `%s` has not ended within %s: tasks may still be frozen: look at CRIU's log", strings.Join(argv, " "), thawLimit)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (d *criuDump) Reclaim(ctx context.Context) error {
	d.gate.Answer(hooks.PostDump, true)
	err := d.p.Wait(ctx, thawLimit)
	// A CRIU that was killed in the meantime ends nothing, and nothing may run here
	// again.
	err = errors.Join(err, d.h.Freeze.Cgroup.Kill(ctx))
	d.quiet.end()
	return errors.Join(err, forgetWatched(d.h.Freeze), d.gate.Close(), runIfGiven(ctx, d.h.Reclaim))
}

// criuRestore is a command that makes CRIU restore the workload; its post-restore
// hook holds it before the first instruction. If the command can be armed, the
// stand-in for CRIU holds it earlier: until the state has arrived, and again at
// pre-restore until the volumes have.
type criuRestore struct {
	*record.Session
	*Carried
	h    record.Hooks
	part record.Member
	gate *hooks.Gate
	p    *hooks.Process

	mu     sync.Mutex
	last   chan struct{} // closed when the try before has come as far as it comes
	wanted int           // how often it was to be armed
	armed  int           // which of these waits for the state
	state  bool          // the state has arrived
}

func (r *criuRestore) CanArm() bool { return r.h.Restore.Hold != "" }

func (r *criuRestore) Arm(ctx context.Context, prepare func() error) <-chan error {
	r.mu.Lock()
	r.wanted++
	try := r.wanted
	// From now on the arriving state is not for an earlier arming.
	r.gate.Answer(hooks.StartUp, false)
	last, done := r.last, make(chan struct{})
	r.last = done
	r.mu.Unlock()
	answer := make(chan error, 1)
	go func() {
		defer close(done)
		if last != nil {
			<-last
		}
		answer <- r.startEarly(ctx, try, prepare)
	}()
	return answer
}

func (r *criuRestore) startEarly(ctx context.Context, try int, prepare func() error) error {
	if r.p != nil {
		if err := released(ctx, r.p, r.h.Restore.Argv); err != nil {
			return err
		}
	}
	if err := prepare(); err != nil {
		return err
	}
	r.mu.Lock()
	if try == r.wanted {
		r.gate.Again(hooks.StartUp)
	}
	r.mu.Unlock()
	p, err := r.h.Restore.StartEarly()
	if err != nil {
		return err
	}
	r.p = p
	if err = r.await(ctx, hooks.StartUp); err == nil {
		err = r.settleEarly()
	}
	if err != nil {
		// The rest of it must not come up when the state is there, and has to be gone
		// when the restore begins from its beginning.
		r.gate.Answer(hooks.StartUp, false)
		return errors.Join(err, released(context.WithoutCancel(ctx), p, r.h.Restore.Argv))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.armed = try
	r.goOn()
	return nil
}

func (r *criuRestore) Dumped() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state = true
	r.goOn()
}

// goOn lets the armed restore read the state if it has arrived; the caller holds mu.
func (r *criuRestore) goOn() {
	if r.state && r.armed == r.wanted {
		r.gate.Answer(hooks.StartUp, true)
	}
}

func (r *criuRestore) await(ctx context.Context, action string) error {
	limit := r.h.Restore.Limit()
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it has not come there within %s", limit))
	defer cancel()
	_, err := r.gate.Await(ctx, action, r.p)
	return err
}

func (r *criuRestore) isArmed() bool { return r.armed != 0 && r.armed == r.wanted }

func (r *criuRestore) Wants(ctx context.Context) error {
	if !r.isArmed() {
		return nil
	}
	return r.await(ctx, hooks.PreRestore)
}

func (r *criuRestore) Restore(ctx context.Context) error {
	if !r.isArmed() {
		var err error
		if r.p, err = r.startWhole(); err != nil {
			return err
		}
		if err := r.settleAtStart(ctx); err != nil {
			return err
		}
	}
	r.gate.Answer(hooks.PreRestore, true)
	if err := r.await(ctx, hooks.PostRestore); err != nil {
		return err
	}
	return held(r)
}

func (r *criuRestore) Resume(ctx context.Context) (time.Time, error) {
	if err := notLetRun(r); err != nil {
		r.Deny()
		return time.Time{}, errors.Join(err, restoreGone(ctx, r))
	}
	// The address first: no packet that comes before the silence ends is answered. Nothing
	// has run yet, so without it the source goes on.
	if err := comeUp(r.Session); err != nil {
		r.Deny()
		return time.Time{}, errors.Join(err, restoreGone(ctx, r))
	}
	var silent error
	if r.Spec.Network.Silent {
		silent = r.speak(NamespaceOf(r.gate.Root()))
	}
	r.gate.Answer(hooks.PostRestore, true)
	go r.beckonWhenItRuns(NamespaceOf(r.gate.Root()))
	if err := errors.Join(silent, r.p.Wait(ctx, r.h.Restore.Limit())); err != nil {
		return time.Time{}, err
	}
	at, err := r.ranSince()
	RunBeside(ctx, r.Log, r.h.Resume)
	return at, err
}

// ranSince is for when the command has ended: since when it runs.
func (r *criuRestore) ranSince() (time.Time, error) {
	at, ok := hooks.RanSince(r.h.Restore.Gate)
	if !ok {
		at = time.Now()
	}
	hooks.RemoveAside(r.h.Restore.Container)
	return at, r.gate.Close()
}

// beckonWhenItRuns is soon over: the command ends in any case.
func (r *criuRestore) beckonWhenItRuns(namespace string) {
	if len(r.waiting) == 0 {
		return
	}
	for ended := false; ; {
		if _, ok := hooks.RanSince(r.h.Restore.Gate); ok {
			r.beckon(namespace)
			return
		}
		if ended {
			return
		}
		select {
		case <-r.p.Done():
			ended = true
		case <-time.After(time.Millisecond):
		}
	}
}

func (r *criuRestore) MayHaveRun() bool { return hooks.MayHaveRun(r.h.Restore.Gate) }

func (r *criuRestore) Deny() { r.gate.Refuse() }

func (r *criuRestore) Refuse(ctx context.Context) error {
	r.Deny()
	if r.p != nil {
		if err := released(ctx, r.p, r.h.Restore.Argv); err != nil {
			return err
		}
	}
	return errors.Join(hooks.KillLeft(ctx, r.h.Restore.Container), r.gate.Close())
}
