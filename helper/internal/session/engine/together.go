package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/network"
	"github.com/livefleet/handover/helper/internal/session/record"
)

// A workload that is several containers is frozen, dumped, restored and released as one:
// all of them are stopped before the first is dumped, all are restored and held before the
// session is prepared, and each gate gets the answer of all. Their network namespace is one,
// and something that is no member holds it on either host.

// dumps are the members' on the source.
type dumps struct {
	*record.Session
	parts []*criuDump
}

func newDumps(b *record.Session) (Freezer, error) {
	t := &dumps{Session: b}
	for i, m := range b.Spec.Members {
		d, err := newDump(b, m, record.Hooks{Freeze: m.Freeze})
		if err != nil {
			err = ofMember(m, err)
			for _, before := range t.parts {
				err = errors.Join(err, before.gate.Close())
			}
			return nil, err
		}
		if i > 0 { // the first keeps it silent for all of them
			d.quiet.Namespace = ""
		}
		t.parts = append(t.parts, d)
	}
	return t, nil
}

func ofMember(m record.Member, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", m.Name, err)
}

// each does it for all of them, side by side.
func (t *dumps) each(ctx context.Context, do func(context.Context, *criuDump) error) error {
	g, gctx := errgroup.WithContext(ctx)
	for i, d := range t.parts {
		g.Go(func() error { return ofMember(t.Spec.Members[i], do(gctx, d)) })
	}
	return g.Wait()
}

func (t *dumps) Told() []network.Connection { return t.parts[0].Told() }

func (t *dumps) Arm(ctx context.Context) error {
	if err := nothingInCommon(t.Spec); err != nil { // before anything is stopped
		return err
	}
	return t.each(ctx, func(ctx context.Context, d *criuDump) error { return d.Arm(ctx) })
}

func (t *dumps) Shut(ctx context.Context) error {
	if err := runIfGiven(ctx, t.Spec.Hooks.Still); err != nil {
		return err
	}
	return t.parts[0].Shut(ctx)
}

// Freeze stops all of them before the first is dumped: no member acts on another that is in
// its dump already. It has all of their cgroups before the first stands still.
func (t *dumps) Freeze(ctx context.Context) (at time.Time, err error) {
	for i, d := range t.parts {
		if err := d.take(ctx); err != nil {
			return time.Time{}, ofMember(t.Spec.Members[i], err)
		}
	}
	for i, d := range t.parts {
		if at, err = d.halt(ctx); err != nil {
			return time.Time{}, ofMember(t.Spec.Members[i], err)
		}
	}
	if err := t.parts[0].quiet.Silence(ctx); err != nil {
		return time.Time{}, err
	}
	for _, d := range t.parts {
		d.begin()
	}
	return at, nil
}

func (t *dumps) Dumped(ctx context.Context) (last time.Time, err error) {
	for i, d := range t.parts {
		at, err := d.Dumped(ctx)
		if err != nil {
			return at, ofMember(t.Spec.Members[i], err)
		}
		if at.After(last) {
			last = at
		}
	}
	return last, nothingInCommon(t.Spec) // none of them changes it any more
}

// Thaw lets all of them run on, whatever becomes of one. It tries again those that it has not.
func (t *dumps) Thaw(ctx context.Context) (err error) {
	for _, d := range t.parts { // none is waited for by another
		d.gate.Refuse()
	}
	t.parts = slices.DeleteFunc(t.parts, func(d *criuDump) bool {
		e := d.Thaw(ctx)
		err = errors.Join(err, e)
		return e == nil
	})
	return err
}

func (t *dumps) Reclaim(ctx context.Context) (err error) {
	for _, d := range t.parts {
		d.gate.Answer(hooks.PostDump, true)
	}
	for _, d := range t.parts {
		err = errors.Join(err, d.Reclaim(ctx))
	}
	// The namespace is silent until it is gone.
	return errors.Join(err, Reclaim(ctx, t.Spec))
}

// restores are the members' on the destination.
type restores struct {
	*record.Session
	parts []*criuRestore
}

func newRestores(b *record.Session, c *Carried) (Restorer, error) {
	t := &restores{Session: b}
	if n := b.Spec.Network; n.Silent {
		// It was there before this session, and the source's has the same addresses.
		if silent, err := network.Silent(n.Namespace); err != nil {
			return nil, err
		} else if !silent {
			return nil, fmt.Errorf("session: the network that the members of %s have in common here is not silent: remove what was prepared, and move it again", b.Spec.Workload)
		}
	}
	for _, m := range b.Spec.Members {
		g, err := hooks.OpenGate(b.RunDir, m.Restore.Gate, b.Dir)
		if err != nil {
			err = ofMember(m, err)
			for _, before := range t.parts {
				err = errors.Join(err, before.gate.Close())
			}
			return nil, err
		}
		// The first has what is carried for their network.
		t.parts = append(t.parts, &criuRestore{Session: b, Carried: c, h: record.Hooks{Restore: m.Restore}, part: m, gate: g})
		c = &Carried{}
	}
	return t, nil
}

// Its restores begin when everything is there.
func (t *restores) CanArm() bool                                   { return false }
func (t *restores) Arm(context.Context, func() error) <-chan error { return nil }
func (t *restores) Dumped()                                        {}
func (t *restores) Wants(context.Context) error                    { return nil }

func (t *restores) Restore(ctx context.Context) error {
	if err := t.parts[0].settleEarly(); err != nil {
		return err
	}
	g, gctx := errgroup.WithContext(ctx)
	for _, r := range t.parts {
		g.Go(func() error { return ofMember(r.part, r.Restore(gctx)) })
	}
	return g.Wait()
}

// Resume lets all of them run, or none.
func (t *restores) Resume(ctx context.Context) (time.Time, error) {
	for _, r := range t.parts {
		select {
		case <-r.p.Done(): // it never runs here, and the source has it still
			err := fmt.Errorf("session: %s: %w", r.part.Name, errors.Join(endedHeld(r), errors.New("none of the members is let run")))
			t.Deny()
			for _, other := range t.parts {
				err = errors.Join(err, ofMember(other.part, restoreGone(ctx, other)))
			}
			return time.Time{}, err
		default:
		}
	}
	var err error
	if t.Spec.Network.Silent {
		err = t.parts[0].speak(t.Spec.Network.Namespace)
	}
	for _, r := range t.parts {
		r.gate.Answer(hooks.PostRestore, true)
	}
	go t.parts[0].beckonWhenItRuns(t.Spec.Network.Namespace)
	var last time.Time
	for _, r := range t.parts {
		if e := r.p.Wait(ctx, r.h.Restore.Limit()); e != nil {
			err = errors.Join(err, ofMember(r.part, e))
			continue
		}
		at, e := r.ranSince()
		err = errors.Join(err, e)
		if at.After(last) {
			last = at
		}
	}
	return last, err
}

// MayHaveRun is also true where only some of them have: it is for an operator to say what
// becomes of those.
func (t *restores) MayHaveRun() bool {
	return slices.ContainsFunc(t.parts, func(r *criuRestore) bool { return r.MayHaveRun() })
}

func (t *restores) Deny() {
	for _, r := range t.parts {
		r.Deny()
	}
}

func (t *restores) Refuse(ctx context.Context) (err error) {
	t.Deny()
	for _, r := range t.parts {
		err = errors.Join(err, ofMember(r.part, r.Refuse(ctx)))
	}
	return err
}
