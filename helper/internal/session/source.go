package session

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/livefleet/handover/helper/internal/busy"
	"github.com/livefleet/handover/helper/internal/image"
	"github.com/livefleet/handover/helper/internal/loop"
	"github.com/livefleet/handover/helper/internal/passes"
	"github.com/livefleet/handover/helper/internal/pipeline"
	"github.com/livefleet/handover/helper/internal/share"
	"github.com/livefleet/handover/helper/internal/tracker"
	"github.com/livefleet/handover/helper/internal/transport"
	"github.com/livefleet/handover/helper/internal/tree"
)

// source is the sending side of one session.
type source struct {
	*base
	*line
	way       transport.Way // to the destination, for all connections
	sent      int64         // bytes that went over connections that are gone
	resumable bool          // the destination knows how to go on over another connection
	confirms  atomic.Pointer[passes.Copy]

	volumes     []*passes.Volume
	copy        *passes.Copy
	directories []*directory
	trees       []*folder
	pass        int           // how many were begun
	collecting  time.Duration // how long the last collect took
	count       func(int64)   // of the pass that is under way
	freezer     freezer
	clock       clock
	token       string
	tmpfs       []string  // dump folders that we mounted
	t0          time.Time // when the freeze began
	early       []func()  // stages from before the freeze, to be noted when it begins
	memory      ahead
	busy        busy.Meter // how busy this host's processors are
	pace        *pipeline.Pace
	share       *share.Member // of what this host may send; nil: it is not shared
	queue       *share.Member // of those who copy in turn; nil: it copies at once
	brake       brake
	lender      *lender     // nil: the memory does not follow
	wave        *companion  // nil: it is cut over alone
	deaf        bool        // a cutover was asked for: no second one
	stopped     atomic.Bool // the workload must not be started here, see mayStart
}

// folder is one tree on its way.
type folder struct {
	Tree
	stream uint32
	mirror *tree.Mirror // nil before it was sent first
	round  int          // the one in which it was sent last, to its end
}

// Send runs the source's side of the session in dir to its end. The error says
// why the workload was not moved; the journal says what that means.
func Send(ctx context.Context, dir, runDir string) error {
	s := &source{line: &line{}}
	b, err := open(dir, runDir, Source, func() error { return s.mayStart(dir) })
	if err != nil {
		return err
	}
	defer b.close()
	s.base = b
	if err = s.lower(); err == nil {
		switch {
		case s.spec.lends(s.journal.State()):
			err = s.lendOrphan(ctx)
			s.release()
			return err
		case s.spec.Mode == Trial:
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
	again := s.journal.State() == Presync // an earlier process of this session died
	if again {
		if err := forgetSource(ctx, s.dir, s.runDir, s.spec); err != nil {
			return err
		}
	}
	if err := s.prepare(ctx, again); err != nil {
		return err
	}
	if err := s.reach(Presync, ""); err != nil {
		return err
	}
	asked, err := s.presync(ctx)
	if err != nil {
		return err
	}
	if s.wave, err = joinWave(ctx, asked.Wave, s.spec.ID); err != nil {
		return err
	}
	defer s.wave.leave()
	if err := s.barrier(ctx); err != nil {
		return err
	}
	if err := s.arm(ctx); err != nil {
		return err
	}
	if err := s.lendSoon(ctx); err != nil {
		return err
	}
	if err := s.meet(ctx, meetArmed); err != nil {
		return err
	}
	if err := s.freeze(ctx); err != nil {
		return err
	}
	return s.handOver(ctx)
}

// prepare connects, opens what is to be sent and starts the trackers. Again: for a
// session whose first process died.
func (s *source) prepare(ctx context.Context, again bool) error {
	raw := make([]byte, 16)
	if _, err := rand.Read(raw); err != nil {
		return err
	}
	s.token = hex.EncodeToString(raw)

	var err error
	if err = s.canBrake(); err != nil {
		return err
	}
	if s.freezer, err = s.prepareFreezer(); err != nil {
		return err
	}
	if s.way, err = s.spec.Peer.way(); err != nil {
		return err
	}
	kind, connect := msgHello, s.connect
	if again {
		kind, connect = msgAfresh, s.connectAgain
	}
	hello := message{
		Kind: kind, ID: s.spec.ID, Workload: s.spec.Workload, Mode: s.spec.Mode, TokenHash: tokenHash(s.token), Verify: s.spec.Policy.Verify,
		Can: understood(), Lines: s.spec.Policy.Connections, Memory: s.worthAhead(), Lazy: s.spec.Policy.LazyPages,
	}
	for i, v := range s.spec.Volumes {
		src, err := image.OpenSource(v.Device)
		if err != nil {
			return err
		}
		s.volumes = append(s.volumes, &passes.Volume{
			Name: v.Name, Device: v.Device, Mountpoint: v.Mountpoint, Tracker: v.Tracker, Cluster: v.Cluster, Stream: uint32(i), Source: src,
			SkipFree: s.spec.Policy.Free == FreeSkip,
		})
		if src.Size() != v.Size {
			return fmt.Errorf("session: volume %s: %s has %d bytes and the session was told %d: was it grown meanwhile? Start again", v.Name, v.Device, src.Size(), v.Size)
		}
		hello.Volumes = append(hello.Volumes, volumeHello{Name: v.Name, Size: v.Size, Cluster: v.Cluster})
	}
	if err := noteVolumes(s.dir, s.spec); err != nil {
		return err
	}
	for _, d := range s.spec.Directories {
		hello.Directories = append(hello.Directories, d.Name)
	}
	for i, t := range s.spec.Trees {
		s.trees = append(s.trees, &folder{Tree: t, stream: uint32(i)})
		hello.Trees = append(hello.Trees, t.Name)
	}

	if err := connect(ctx, s.patience(), hello); err != nil {
		return err
	}
	welcome, err := s.expect(ctx, s.patience(), msgWelcome)
	if err != nil {
		return err
	}
	if s.spec.Policy.LazyPages && !slices.Contains(welcome.Can, canLazy) {
		return errors.New("session: the destination's pcopy does not know lazy pages: install the same pcopy on both hosts, or move the memory before")
	}
	if err := s.settingsNeeded(welcome); err != nil {
		return err
	}
	// From here on nothing that is written is missed: the trackers run before
	// the first cluster is read.
	for _, v := range s.volumes {
		v.Empty = welcome.Empty
		s.update(false, func(st *Status) { st.TotalBytes += v.Source.Size() })
	}
	s.expectStock(welcome)
	s.resumable = s.can(welcome, canResume, "a connection that breaks ends the session")
	if s.can(welcome, canCompare, "what was sent and what was written are not compared in the end") {
		s.openLedgers()
	}
	if err := s.keepPace(); err != nil {
		return err
	}
	sender, err := s.newSender(ctx, welcome)
	if err != nil {
		return err
	}
	s.copy = passes.New(sender, s.volumes, passes.Options{Count: func(n int64) { s.count(n) }, Open: openTrackers, Begin: s.beginRound})
	s.confirms.Store(s.copy)
	kinds, err := s.copy.Track()
	for _, kind := range kinds {
		s.update(false, func(st *Status) { st.Tracker = kind })
	}
	for _, v := range s.volumes {
		s.log.Emit("survey", map[string]any{"volume": v.Name, "holes": v.Survey.Holes, "free": v.Survey.Free, "why": v.Survey.Why})
	}
	if err != nil {
		return err
	}
	if err := s.comparing(kinds); err != nil {
		return err
	}
	if err := s.confineSource(); err != nil {
		return err
	}
	if again || welcome.Compare {
		if err := s.compare(ctx); err != nil {
			return err
		}
	}
	return s.follow()
}

// comparing says what it costs that volumes are compared and not tracked, and
// refuses if that would be a longer pause than was allowed.
func (s *source) comparing(kinds map[string]string) error {
	var bytes int64
	var names, whys []string
	for _, v := range s.volumes {
		if kinds[v.Name] != tracker.Hash {
			continue
		}
		bytes += v.Source.Size()
		names = append(names, v.Name)
		if v.Comparing != "" && !slices.Contains(whys, v.Comparing) {
			whys = append(whys, v.Comparing)
		}
	}
	if len(names) == 0 {
		return nil
	}
	why := strings.Join(whys, "; ")
	if why == "" {
		why = "it was asked for"
	}
	text := fmt.Sprintf("volumes %s are compared by digest and not tracked (%s): %d bytes are read for each pass", strings.Join(names, ", "), why, bytes)
	if s.spec.Mode == Copy {
		s.log.Emit("warning", map[string]any{"text": text})
		return nil
	}
	if limit := s.spec.Policy.HashLimit; limit > 0 && bytes > limit {
		return fmt.Errorf("session: %s, also in the pause, and hash_limit allows %d: allow more, or have them tracked", text, limit)
	}
	s.log.Emit("warning", map[string]any{"text": text + ", also in the pause"})
	return nil
}

// prepareFreezer puts a tmpfs where CRIU writes its dump, so that the dump costs
// no disk, and opens the gate there.
func (s *source) prepareFreezer() (freezer, error) {
	for _, t := range s.spec.Trees {
		if t.Stage != StageDump {
			continue
		}
		if mounted, err := loop.Mounted(t.Path); err != nil {
			return nil, err
		} else if mounted {
			return nil, fmt.Errorf("session: something is mounted on %s, left by an earlier session? Unmount it", t.Path)
		}
		if err := loop.MountTmpfs(t.Path); err != nil {
			return nil, err
		}
		s.tmpfs = append(s.tmpfs, t.Path)
	}
	return newFreezer(s.base)
}

// keepPace takes up the limits: the session's own, its part of the host's, and its
// place among those who copy in turn. None holds in the pause.
func (s *source) keepPace() (err error) {
	policy := s.spec.Policy
	if policy.Shared > 0 {
		if s.share, err = share.New(filepath.Join(s.runDir, sharesDir), s.spec.ID); err != nil {
			return err
		}
	}
	if policy.AtOnce > 0 {
		// In the order in which they began.
		if s.queue, err = share.New(filepath.Join(s.runDir, turnsDir), fmt.Sprintf("%020d-%s", time.Now().UnixNano(), s.spec.ID)); err != nil {
			return err
		}
	}
	s.pace = pipeline.NewPace(func() int64 {
		own, part := policy.Limit, s.share.Part(policy.Shared)
		switch {
		case s.stopped.Load():
			return 0
		case own > 0 && (part == 0 || own < part):
			return own
		}
		return part
	})
	return nil
}

func tokenHash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// openTrackers is a variable so that a test can lose a mark on purpose.
var openTrackers = tracker.Open

// patience is how long an answer may take that needs no work.
func (s *source) patience() time.Duration {
	return time.Duration(s.spec.Policy.PeerTimeout) * time.Second
}

// expect waits for the peer's next message, which has to be one of the kinds.
func (s *source) expect(ctx context.Context, limit time.Duration, kinds ...kind) (*message, error) {
	t := time.NewTimer(limit)
	defer t.Stop()
	for {
		var m *message
		select {
		case m = <-s.inbox:
		case <-s.lost:
			select { // what came before the end still counts
			case m = <-s.inbox:
			default:
				return nil, fmt.Errorf("session: the connection to the destination is lost: %w", s.lostErr)
			}
		case r := <-s.control.requests:
			if r.Do == askAbort && !s.journal.Reached(Released) {
				r.answer(nil)
				return nil, errAborted
			}
			r.answer(fmt.Errorf("the session is %s: it is too late, or too early, for that", s.journal.State()))
			continue
		case <-t.C:
			return nil, fmt.Errorf("session: the destination has not answered within %s (waiting for %v)", limit, kinds)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		for _, k := range kinds {
			if m.Kind == k {
				s.clock.hear(m, time.Now())
				return m, nil
			}
		}
		if m.Kind == msgDiffers {
			return nil, s.nameDifference(ctx, m)
		}
		if m.Kind == msgFail || m.Kind == msgRefused {
			return nil, &refusal{fmt.Errorf("session: on the destination: %s", m.Why)}
		}
		return nil, fmt.Errorf("session: the destination said %q where %v was due", m.Kind, kinds)
	}
}

var errAborted = errors.New("session: aborted on request")

// barrier has the destination put on its disk what it has, while the workload
// still runs, so that the sync in the pause is short.
func (s *source) barrier(ctx context.Context) error {
	if err := s.reach(Barrier, ""); err != nil {
		return err
	}
	began := time.Now()
	if err := s.copy.Sync(); err != nil {
		return err
	}
	if err := s.sendPass(ctx); err != nil {
		return err
	}
	if err := send(s.conn, message{Kind: msgBarrier}); err != nil {
		return err
	}
	// A disk may have gigabytes to write: the limit is for a peer that is gone.
	if _, err := s.expect(ctx, 10*time.Minute, msgSynced); err != nil {
		return err
	}
	s.before("barrier", began, time.Now())
	if s.clock.known {
		s.log.Emit("clock", map[string]any{"ahead_ms": ms(s.clock.ahead), "within_ms": ms(s.clock.within)})
	}
	return nil
}

// freeze stops the workload and brings over what is left: the last dirty
// clusters, beside the dump of memory, and then the dump.
func (s *source) freeze(ctx context.Context) error {
	s.stopped.Store(true)
	// Before it is asked to accept who waits at its door, which it could not in time.
	if err := s.unbrake(); err != nil {
		return err
	}
	if err := s.freezer.shut(ctx); err != nil {
		return fmt.Errorf("session: before the freeze: %w", err)
	}
	s.frozenAt(time.Now())
	at, err := s.freezer.freeze(ctx)
	if err != nil {
		return fmt.Errorf("session: freezing: %w", err)
	}
	s.stage("freeze", s.t0, at)
	if err := s.reach(Frozen, ""); err != nil {
		return err
	}
	if err := send(s.conn, message{Kind: msgFrozen}); err != nil {
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
	if err := send(s.conn, message{Kind: msgFlushed, Totals: s.totals(), Told: s.freezer.told(), Reset: s.reset(), Own: s.ownNetwork(), Bound: s.threads}); err != nil {
		return err
	}
	if err := s.reach(Flushed, ""); err != nil {
		return err
	}
	if s.spec.Policy.Verify {
		return s.verify(ctx)
	}
	return nil
}

// handOver is the part that the rule of safety is about.
func (s *source) handOver(ctx context.Context) error {
	if s.spec.Mode == Copy {
		if _, err := s.expect(ctx, 10*time.Minute, msgSettled); err != nil {
			return err
		}
		return s.finish(ctx)
	}
	began := time.Now()
	m, err := s.expect(ctx, s.patience()+hooksLimit(s.spec), msgPrepared)
	if err != nil {
		return err
	}
	s.remote(m, began)
	s.stage("restore", began, time.Now())
	// No file system under a directory is frozen: only this tells that nobody else
	// wrote to it. It is the last moment at which that can be undone.
	if err := s.undisturbed(); err != nil {
		return err
	}
	if err := s.reach(Prepared, ""); err != nil {
		return err
	}
	if err := s.meet(ctx, meetPrepared); err != nil {
		return err
	}
	began = time.Now()
	if err := s.reach(Released, ""); err != nil {
		return err
	}
	s.stage("release", began, time.Now())
	began = time.Now()
	if err := send(s.conn, message{Kind: msgRun, Token: s.token}); err != nil {
		return err
	}
	return s.outcome(ctx, began)
}

// outcome waits for what the destination made of the run token.
func (s *source) outcome(ctx context.Context, began time.Time) error {
	m, err := s.expect(ctx, s.patience()+hooksLimit(s.spec), msgResumed, msgRefused, msgDoubt)
	if err != nil {
		return err
	}
	switch m.Kind {
	case msgRefused:
		if err := s.reach(Refused, m.Why); err != nil {
			return err
		}
		return fmt.Errorf("session: the destination refused: %s", m.Why)
	case msgDoubt:
		return fmt.Errorf("session: on the destination: %s", m.Why)
	}
	now := time.Now()
	// The word comes when the engine is done too; the destination knows how long
	// after the token the workload ran. What the token itself took on its way is
	// the only thing that is missing then.
	if t, ok := m.Took["running"]; ok {
		if ran := began.Add(time.Duration(t * float64(time.Millisecond))); ran.Before(now) {
			now = ran
		}
	}
	s.stage("resume", began, now)
	s.update(false, func(st *Status) { st.FrozenMS = ms(now.Sub(s.t0)) })
	if err := s.reach(Resumed, ""); err != nil {
		return err
	}
	began = time.Now()
	limit := 10 * time.Minute
	if s.lender != nil {
		limit = math.MaxInt64 // it ends when the connection does
	}
	if m, err = s.expect(ctx, limit, msgSettled, msgDoubt); err != nil {
		return err
	}
	if m.Kind == msgDoubt {
		return fmt.Errorf("session: on the destination: %s", m.Why)
	}
	if t, ok := m.Took["fetch"]; ok {
		end := began.Add(time.Duration(t * float64(time.Millisecond)))
		s.stage("fetch", began, end)
		began = end
	}
	s.stage("settle", began, time.Now())
	return s.finish(ctx)
}

// finish is for when the destination runs and has everything on its disk: what
// is frozen here can go.
func (s *source) finish(ctx context.Context) error {
	if s.spec.Mode != Copy {
		if err := s.reach(Settled, ""); err != nil {
			return err
		}
	}
	// The file systems first: tasks that die may have to write to them. None
	// of them runs again in between: CRIU has not let go of them.
	err := errors.Join(s.lender.close(), s.thawVolumes())
	// The engine unmounts what the tasks had, and what is open here would be in its way.
	err = errors.Join(err, s.closeTrees(), s.freezer.reclaim(ctx))
	if s.conn != nil {
		_ = send(s.conn, message{Kind: msgEnd}) // it knows: this only spares it a wait
	}
	why := ""
	if err != nil {
		why = fmt.Sprintf("the workload runs on the destination; clearing up here failed: %v", err)
	}
	return s.reach(Done, why)
}

// thawVolumes may come before there is anything to thaw.
func (s *source) thawVolumes() error {
	if s.copy == nil {
		return nil
	}
	return s.copy.Thaw()
}

// undo is the way back from an error, as far as the rule of safety lets it go.
func (s *source) undo(why error) error {
	ctx := context.Background() // also when what ended us was the context
	switch st := s.journal.State(); st {
	case Prepare, Presync, Barrier, Frozen, Flushed, Prepared, Refused:
		// The workload first, and then the word.
		why = s.thaw(ctx, why)
		if s.conn != nil {
			s.lastWord(s.conn, message{Kind: msgFail, Why: why.Error()})
		}
		return why
	case Released, Resumed:
		if st == Resumed {
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
	err := errors.Join(s.lender.close(), s.unbrake(), s.thawVolumes())
	if s.freezer != nil {
		err = errors.Join(err, s.freezer.thaw(ctx))
	}
	if err != nil {
		// Not thawed: no record may say so. Loud, and open to a second try.
		why = fmt.Errorf("%w; and thawing failed: %w", why, err)
		s.log.Emit("error", map[string]any{"text": why.Error()})
		s.update(true, func(st *Status) { st.Error = why.Error() })
		return why
	}
	to := Failed
	if !s.t0.IsZero() {
		to = Thawed
	}
	if err := s.reach(to, why.Error()); err != nil {
		return errors.Join(why, err)
	}
	return why
}

// doubt keeps everything frozen until somebody who has asked the destination
// says what became of it. If it is known to run there, and only its settling is
// not, then the journal takes no refused.
func (s *source) doubt(ctx context.Context, why error) error {
	text := fmt.Sprintf("%v. The workload stays frozen here until its fate is known: `pcopy session resolve` with what the destination's session says (resumed or refused)", why)
	if s.journal.State() == Released {
		if err := s.reach(InDoubt, text); err != nil {
			s.log.Emit("error", map[string]any{"text": err.Error()})
		}
	}
	s.log.Emit("held", map[string]any{"text": text})
	s.update(true, func(st *Status) { st.Held, st.Error = true, text })
	for r := range s.control.requests {
		if r.Do != askResolve {
			r.answer(errors.New(text))
			continue
		}
		if err := s.reach(r.Outcome, "resolved by an operator or a play that asked the destination"); err != nil {
			r.answer(err)
			continue
		}
		// Before the answer: who asked looks at the status next.
		s.update(true, func(st *Status) { st.Held = false })
		r.answer(nil)
		switch r.Outcome {
		case Refused:
			return s.thaw(ctx, fmt.Errorf("session: the destination refused: %w", why))
		case Fenced:
			return s.thaw(ctx, fmt.Errorf("session: an operator had the destination fenced, and it runs on here by his order: %w", why))
		}
		return s.finish(ctx)
	}
	return why
}

// closeTrees lets go of the folders that were sent.
func (s *source) closeTrees() error {
	var err error
	for _, t := range s.trees {
		if t.mirror != nil {
			err = errors.Join(err, t.mirror.Close())
			t.mirror = nil
		}
	}
	return err
}

// release gives back what the session held on this host. It runs at every end.
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
		err = errors.Join(err, loop.Unmount(dir))
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
		s.log.Emit("warning", map[string]any{"text": err.Error()})
	}
}

// stage notes a stage of the cutover.
func (s *source) stage(name string, from, to time.Time) {
	st := Stage{Stage: name, Start: ms(from.Sub(s.t0)), MS: ms(to.Sub(from))}
	s.log.Emit("stage", map[string]any{"stage": name, "start_ms": st.Start, "ms": st.MS})
	s.update(false, func(status *Status) { status.addStage(st) })
}

// remote notes the pieces that the destination measured itself; they lie one
// after the other from began.
func (s *source) remote(m *message, began time.Time) {
	for _, name := range []string{"armed", "attach", "criu_restore"} {
		if t, ok := m.Took[name]; ok {
			d := time.Duration(t * float64(time.Millisecond))
			s.stage(name, began, began.Add(d))
			began = began.Add(d)
		}
	}
}

// hooksLimit is how long the other side's commands may take; both sides have the
// same driver table, but each knows only its own commands.
func hooksLimit(s *Spec) time.Duration {
	return 2 * s.Hooks.Freeze.Limit()
}
