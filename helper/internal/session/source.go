// Package session moves one workload from a source to a destination: the
// passes, the barriers and the handover. Package record has the session's folder and
// its states.
//
// The rule of safety: at every instant at most one copy runs. The destination
// restores held and resumes only on the run token. The source sends the token only
// after `released` is on its disk, and after that it never thaws on its own: only on
// the destination's durable `refused`, or by an operator's order when the destination
// is fenced. helper/model is a model of this for spin.
package session

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/livefleet/handover/helper/internal/affinity"
	"github.com/livefleet/handover/helper/internal/floating"
	"github.com/livefleet/handover/helper/internal/loop"
	"github.com/livefleet/handover/helper/internal/report"
	"github.com/livefleet/handover/helper/internal/session/engine"
	"github.com/livefleet/handover/helper/internal/session/protocol"
	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/session/recovery"
	"github.com/livefleet/handover/helper/internal/session/wave"
)

// source is the sending side of one session: the order of its steps. The parts below it know each only those that they embed.
type source struct {
	*presyncer
	freezer  engine.Freezer
	tmpfs    []string        // dump folders that we mounted
	lender   *lender         // nil: the memory does not follow
	wave     *wave.Companion // nil: it is cut over alone
	placing  bool            // CRIU leaves the memory out, and it is placed
	stopped  *atomic.Bool    // the workload must not be started here, see mayStart
	settings engine.NetSettings
	threads  affinity.Threads // of the workload, that are bound to processors
	flows    []floating.Flow  // its connections through floating addresses
}

func newSource(b *record.Session, stopped *atomic.Bool, o Options) *source {
	l := &link{Session: b, line: &line{}, options: o.filled(), hearing: hearing{of: b, by: record.Source}}
	out := &outgoing{link: l, timeline: &timeline{session: b}}
	l.differs = out.nameDifference
	return &source{
		presyncer: &presyncer{limiter: &limiter{memorySource: &memorySource{outgoing: out}}},
		settings:  engine.NetSettings{Spec: b.Spec},
		stopped:   stopped,
	}
}

// Send runs the source's side of the session in dir to its end. The error says why
// the workload was not moved; the journal says the outcome.
func Send(ctx context.Context, dir, runDir string, o Options) error {
	var stopped atomic.Bool // it may be asked for before there is a source
	b, err := record.Open(dir, runDir, record.Source, func(bool) error { return mayStart(&stopped, dir) })
	if err != nil {
		return err
	}
	defer b.Close()
	s := newSource(b, &stopped, o)
	b.Heed = record.Heed{Context: ctx, HungUp: func() bool { return s.conn != nil && s.conn.HungUp() }}
	if err = s.options.lower(s.Session); err == nil {
		switch {
		case s.Spec.Lends(s.Journal.State()):
			err = s.lendOrphan(ctx)
			s.release()
			return err
		case s.Spec.Mode == record.Trial:
			err = s.try(ctx)
		default:
			err = s.run(ctx)
		}
	}
	if err != nil {
		err = s.undo(err)
	}
	s.release()
	return err
}

// run is the way of a migration, from the source.
func (s *source) run(ctx context.Context) error {
	again := s.Journal.State() == record.Presync // an earlier process of this session died
	if again {
		if err := recovery.ForgetSource(ctx, s.Dir, s.RunDir, s.Spec); err != nil {
			return err
		}
	}
	if err := s.prepare(ctx, again); err != nil {
		return err
	}
	if err := s.reach(record.Presync, ""); err != nil {
		return err
	}
	asked, err := s.presync(ctx)
	if err != nil {
		return err
	}
	if s.wave, err = wave.Join(ctx, asked.Wave, s.Spec.ID); err != nil {
		return err
	}
	defer s.wave.Leave()
	if err := s.barrier(ctx); err != nil {
		return err
	}
	if err := s.arm(ctx); err != nil {
		return err
	}
	if s.lender, err = lendSoon(ctx, s.link); err != nil {
		return err
	}
	if err := s.meet(ctx, wave.Armed); err != nil {
		return err
	}
	if err := s.freeze(ctx); err != nil {
		return err
	}
	return s.handOver(ctx)
}

func tokenHash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// barrier has the destination sync its data, while the workload still runs, so that
// the sync in the pause is short.
func (s *source) barrier(ctx context.Context) error {
	if err := s.Reach(record.Barrier, ""); err != nil {
		return err
	}
	began := time.Now()
	if err := s.copy.Sync(); err != nil {
		return err
	}
	if err := s.sendPass(ctx); err != nil {
		return err
	}
	if err := protocol.Send(s.conn, &protocol.Barrier{}); err != nil {
		return err
	}
	// A disk may have gigabytes to write: the limit is for a peer that is gone.
	if _, err := expect[*protocol.Synced](ctx, s.link, 10*time.Minute); err != nil {
		return err
	}
	s.before("barrier", began, time.Now())
	if s.clock.known {
		s.Log.Emit("clock", map[string]any{"ahead_ms": report.MS(s.clock.ahead), "within_ms": report.MS(s.clock.within)})
	}
	return nil
}

// freeze stops the workload and brings over the rest: the last dirty clusters, beside
// the dump of memory, and then the dump.
func (s *source) freeze(ctx context.Context) error {
	s.stopped.Store(true)
	// Unthrottle first: a throttled workload could not accept its pending connections
	// in time.
	if err := s.unbrake(); err != nil {
		return err
	}
	if err := s.freezer.Shut(ctx); err != nil {
		return fmt.Errorf("session: before the freeze: %w", err)
	}
	s.frozenAt(time.Now())
	at, err := s.freezer.Freeze(ctx)
	if err != nil {
		return fmt.Errorf("session: freezing: %w", err)
	}
	s.stage("freeze", s.t0, at)
	if err := s.Reach(record.Frozen, ""); err != nil {
		return err
	}
	if err := protocol.Send(s.conn, &protocol.Frozen{}); err != nil {
		return err
	}

	dumped := make(chan struct{})
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.lastPass(gctx, dumped) })
	g.Go(func() error { return s.sendState(gctx, at, dumped) })
	if err := g.Wait(); err != nil {
		return err
	}
	if err := s.sealVolumes(ctx); err != nil {
		return err
	}
	tmpfs, err := s.digestTmpfs(ctx)
	if err != nil {
		return err
	}
	if err := protocol.Send(s.conn, &protocol.Flushed{Totals: s.totals(), Told: s.freezer.Told(), Reset: s.settings.Reset, Own: s.settings.Own(), Groups: s.settings.Groups, Bound: s.threads, Flows: s.flows, Tmpfs: tmpfs}); err != nil {
		return err
	}
	if err := s.Reach(record.Flushed, ""); err != nil {
		return err
	}
	if s.Spec.Policy.Verify {
		return s.verify(ctx)
	}
	return nil
}

// handOver is the part that the rule of safety is about.
func (s *source) handOver(ctx context.Context) error {
	if s.Spec.Mode == record.Copy {
		if _, err := expect[*protocol.Settled](ctx, s.link, 10*time.Minute); err != nil {
			return err
		}
		if err := s.turn.Leads(record.Done); err != nil {
			return err
		}
		return s.finish(ctx)
	}
	began := time.Now()
	m, err := expect[*protocol.Prepared](ctx, s.link, s.patience()+hooksLimit(s.Spec))
	if err != nil {
		return err
	}
	s.remote(m, began)
	s.stage("restore", began, time.Now())
	// No file system under a directory is frozen: only this tells that no other
	// program wrote to it. It is the last moment at which that can be undone.
	if err := s.undisturbed(); err != nil {
		return err
	}
	if err := s.reach(record.Prepared, ""); err != nil {
		return err
	}
	if err := s.meet(ctx, wave.Prepared); err != nil {
		return err
	}
	began = time.Now()
	// No failure of it can be undone any more after the release.
	if err := engine.LetGo(s.Spec); err != nil {
		return err
	}
	if err := s.Reach(record.Released, ""); err != nil {
		return err
	}
	s.stage("release", began, time.Now())
	began = time.Now()
	if err := protocol.Send(s.conn, &protocol.Run{Token: s.token}); err != nil {
		return err
	}
	return s.outcome(ctx, began)
}

// outcome waits for the destination's answer to the run token.
func (s *source) outcome(ctx context.Context, began time.Time) error {
	answer, err := s.next(ctx, s.patience()+hooksLimit(s.Spec), "resumed", "refused", "doubt")
	if err != nil {
		return err
	}
	var resumed *protocol.Resumed
	switch m := answer.(type) {
	case *protocol.Refused:
		if err := s.reach(record.Refused, m.Why); err != nil {
			return err
		}
		return fmt.Errorf("session: the destination refused: %s", m.Why)
	case *protocol.Doubt:
		return onDestination(m)
	case *protocol.Resumed:
		resumed = m
	}
	now := time.Now()
	// The word comes when the engine is done too; the destination knows how long
	// after the token the workload ran. Only the time of the token on its way is
	// missing then.
	if t, ok := resumed.Took["running"]; ok {
		if ran := began.Add(time.Duration(t * float64(time.Millisecond))); ran.Before(now) {
			now = ran
		}
	}
	s.stage("resume", began, now)
	s.Update(false, func(st *record.Status) { st.FrozenMS = report.MS(now.Sub(s.t0)) })
	if err := s.reach(record.Resumed, ""); err != nil {
		return err
	}
	ran := now
	began = time.Now()
	limit := 10 * time.Minute
	if s.lender != nil {
		limit = math.MaxInt64 // it ends when the connection does
	}
	settled, err := expect[*protocol.Settled](ctx, s.link, limit)
	if err != nil {
		return err
	}
	if err := s.turn.Leads(record.Settled); err != nil {
		return err
	}
	if t, ok := settled.Took["fetch"]; ok {
		end := ran.Add(time.Duration(t * float64(time.Millisecond)))
		s.stage("fetch", ran, end)
		s.Update(false, func(st *record.Status) { st.AtRiskMS = t })
		began = end
	}
	s.stage("settle", began, time.Now())
	return s.finish(ctx)
}

// finish is for when the destination runs and has everything on its disk: the frozen
// tasks here can go.
func (s *source) finish(ctx context.Context) error {
	if s.Spec.Mode != record.Copy {
		if err := s.Reach(record.Settled, ""); err != nil {
			return err
		}
	}
	// The file systems first: tasks that die may have to write to them. None
	// of them runs again in between: CRIU has not let go of them.
	err := errors.Join(s.lender.close(), s.thawVolumes())
	// The engine unmounts the tasks' file systems, and files open here would be in its
	// way.
	err = errors.Join(err, s.closeTrees(), s.freezer.Reclaim(ctx), engine.Gone(s.Dir, s.Spec))
	if s.conn != nil {
		_ = protocol.Send(s.conn, &protocol.End{}) // it knows: this only spares it a wait
	}
	switch {
	case err == nil:
		return s.Reach(record.Done, "")
	case s.Spec.Mode == record.Copy: // nothing was held
		return s.Reach(record.Done, fmt.Sprintf("everything was copied; clearing up here failed: %v", err))
	}
	// Something is held or noted here still: not done, and a recovery tries again.
	err = fmt.Errorf("session: the workload runs on the destination; clearing up here failed: %w", err)
	s.Log.Emit("error", map[string]any{"text": err.Error()})
	s.Update(true, func(st *record.Status) { st.Error = err.Error() })
	return err
}

// undo is the way back from an error, as far as the rule of safety lets it go.
func (s *source) undo(why error) error {
	ctx := context.Background() // also when the context ended us
	switch st := s.Journal.State(); st {
	case record.Prepare, record.Presync, record.Barrier, record.Frozen, record.Flushed, record.Prepared, record.Refused:
		// The workload first, and then the word.
		why = s.thaw(ctx, why)
		if s.conn != nil {
			lastWord(s.Log, s.conn, &protocol.Fail{Reason: protocol.Reason{Why: why.Error()}})
		}
		return why
	case record.Released, record.Resumed:
		if st == record.Resumed {
			missing := "has not confirmed that everything is on its disk"
			if s.lender != nil {
				missing += ", and a part of its memory may be here alone"
			}
			why = fmt.Errorf("the destination runs the workload and %s: %w", missing, why)
		}
		return s.doubt(ctx, why)
	default:
		return why
	}
}

// thaw lets the workload run on here.
func (s *source) thaw(ctx context.Context, why error) error {
	s.stopped.Store(false)
	err := errors.Join(s.lender.close(), s.unbrake(), s.thawVolumes(), engine.GoOn(s.Session))
	if s.freezer != nil {
		err = errors.Join(err, s.freezer.Thaw(ctx))
	}
	if err != nil {
		// Not thawed: no record may say so. Loud, and open to a second try.
		why = fmt.Errorf("%w; and thawing failed: %w", why, err)
		s.Log.Emit("error", map[string]any{"text": why.Error()})
		s.Update(true, func(st *record.Status) { st.Error = why.Error() })
		return why
	}
	to := record.Failed
	if !s.t0.IsZero() {
		to = record.Thawed
	}
	if err := s.Reach(to, why.Error()); err != nil {
		return errors.Join(why, err)
	}
	return why
}

// doubt keeps everything frozen until an operator who has asked the destination says
// the outcome. If it is known to run there, and only its settling is not, then the
// journal takes no refused.
func (s *source) doubt(ctx context.Context, why error) error {
	text := fmt.Sprintf("%v. The workload stays frozen here until its fate is known: `pcopy session resolve` with what the destination's session says (resumed or refused)", why)
	if s.Journal.State() == record.Released {
		if err := s.Reach(record.InDoubt, text); err != nil {
			s.Log.Emit("error", map[string]any{"text": err.Error()})
		}
	}
	s.Log.Emit("held", map[string]any{"text": text})
	s.Update(true, func(st *record.Status) { st.Held, st.Error = true, text })
	for r := range s.Control.Requests {
		if r.Do != record.AskResolve {
			r.Answer(errors.New(text))
			continue
		}
		if err := s.Reach(r.Outcome, "resolved by an operator or a play that asked the destination"); err != nil {
			r.Answer(err)
			continue
		}
		// Before the answer: the caller looks at the status next.
		s.Update(true, func(st *record.Status) { st.Held = false })
		r.Answer(nil)
		switch r.Outcome {
		case record.Refused:
			return s.thaw(ctx, fmt.Errorf("session: the destination refused: %w", why))
		case record.Fenced:
			return s.thaw(ctx, fmt.Errorf("session: an operator had the destination fenced, and it runs on here by his order: %w", why))
		}
		return s.finish(ctx)
	}
	return why
}

// release frees the session's resources on this host. It runs at every end.
func (s *source) release() {
	var err error
	if s.copy != nil {
		err = s.copy.Close()
	}
	for _, v := range s.volumes {
		err = errors.Join(err, v.Source.Close())
	}
	for _, d := range s.directories {
		err = errors.Join(err, d.follower.Close())
	}
	err = errors.Join(err, s.closeTrees(), s.lender.close())
	for _, dir := range s.tmpfs {
		err = errors.Join(err, loop.RemoveTmpfs(dir))
	}
	for _, v := range s.volumes {
		if v.Ledger != nil {
			err = errors.Join(err, v.Ledger.Close())
		}
	}
	s.line.close()
	if s.way != nil {
		err = errors.Join(err, s.way.Close())
	}
	if err != nil {
		s.Log.Emit("warning", map[string]any{"text": err.Error()})
	}
}

// hooksLimit is how long the other side's commands may take; both sides have the
// same driver table, but each knows only its own commands.
func hooksLimit(s *record.Spec) time.Duration {
	limit := time.Duration(0)
	for _, part := range s.Parts() {
		limit += 2 * part.Freeze.Limit()
	}
	return limit
}

// mayStart is the answer of the process that serves a source: not from the moment
// in which it stops the workload, until it thaws it.
func mayStart(stopped *atomic.Bool, dir string) error {
	if stopped.Load() {
		return errors.New("the workload is being handed over to the other host")
	}
	spec, err := record.LoadSpec(dir)
	if err != nil {
		return err
	}
	return record.InPlace(dir, spec)
}
