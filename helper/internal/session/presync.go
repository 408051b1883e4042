package session

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/livefleet/handover/helper/internal/passes"
	"github.com/livefleet/handover/helper/internal/pipeline"
	"github.com/livefleet/handover/helper/internal/tree"
	"github.com/livefleet/handover/helper/internal/wire"
)

// When presync has done enough. A pass that does not shrink to this part of the
// one before gains nothing: the workload writes as fast as the passes are, and
// the next one will be as long.
const shrink = 0.9

// idlePass is how often, once converged, what was written meanwhile is sent, so
// that the cutover finds little whenever it is asked for.
const idlePass = 250 * time.Millisecond

// idleShare is how many times longer than finding out what was written a pause
// between two passes is, once converged: where that is reading everything, the
// workload needs the disk, too.
const idleShare = 10

// presync sends everything while the workload runs, then what was written
// meanwhile, and so on, until a cutover is asked for. It converges, that is, it
// says that a cutover now would be a short one, when
//
//   - less than policy.target_dirty was written during the last pass, or
//   - the passes do not get shorter any more, or
//   - policy.max_passes were done.
//
// A cutover that is asked for earlier waits for that, and if policy.max_frozen is
// set, for a moment in which the forecast is within it. One that is never asked for
// ends the session, after policy.wait_timeout.
func (s *source) presync(ctx context.Context) (*request, error) {
	asked, askedAt, err := s.inTurn(ctx)
	if err != nil {
		return nil, err
	}
	defer s.queue.Leave()
	if s.spec.Mode == Live {
		s.foresee(0, 0) // by the memory alone: what is written shows later
	}
	var before int64
	var ready time.Time  // since when it only waits to be cut over
	var looked time.Time // when was looked for what is dirty
	for {
		// Only the pass numbers and sizes decide; they are in the status too.
		if err := s.presyncPass(ctx); err != nil {
			if err := s.resume(ctx, err); err != nil {
				return nil, err
			}
			continue
		}
		dirty, _, err := s.collect()
		if err != nil {
			return nil, err
		}
		var since time.Duration
		if !looked.IsZero() {
			since = time.Since(looked)
		}
		looked = time.Now()
		s.update(true, func(st *Status) { st.DirtyBytes = dirty })
		if s.spec.Mode == Live {
			s.foresee(dirty, since)
		}
		if why := s.converged(dirty, before); why != "" {
			if err := s.goAhead(ctx); err != nil {
				if err := s.resume(ctx, err); err != nil {
					return nil, err
				}
				continue
			}
			s.queue.Leave()
			s.update(true, func(st *Status) {
				if !st.Converged {
					s.log.Emit("converged", map[string]any{"why": why, "pass": s.pass, "dirty": dirty})
				}
				st.Converged, st.Why = true, why
			})
		}
		if s.isConverged() {
			f := s.foresee(dirty, since)
			if asked != nil {
				if now, err := s.goes(ctx, f, askedAt); err != nil || now {
					return asked, err
				}
			} else if ready.IsZero() {
				ready = time.Now()
			} else if time.Since(ready) > s.waitTimeout() {
				return nil, fmt.Errorf("session: nobody has asked for the cutover within %s: whoever began this move is gone", s.waitTimeout())
			}
		}
		before = dirty
		r, err := s.idle(ctx)
		if err != nil {
			if err := s.resume(ctx, err); err != nil {
				return nil, err
			}
			continue
		}
		if r != nil {
			asked, askedAt = r, time.Now()
			if s.isConverged() {
				if now, err := s.goes(ctx, s.foresee(dirty, since), askedAt); err != nil || now {
					return asked, err
				}
			}
		}
	}
}

// goes says whether the cutover that was asked for begins now. A connection that
// breaks over it is made again, and it does not.
func (s *source) goes(ctx context.Context, f forecast, askedAt time.Time) (bool, error) {
	if s.mayBrake(f) && s.memory.scans > 0 {
		if err := s.lookAtMemory(ctx); err != nil {
			return false, err
		}
		s.foreseeMemory(&f)
	}
	if now, err := s.timely(f, askedAt); err != nil || !now {
		return false, err
	}
	if err := s.catchUp(ctx); err != nil {
		return false, s.resume(ctx, err)
	}
	return true, nil
}

// presyncPass sends the trees, once, and what is marked.
func (s *source) presyncPass(ctx context.Context) error {
	for _, t := range s.trees {
		if t.Stage == StagePresync && t.mirror == nil {
			if err := s.sendTree(ctx, t); err != nil {
				return err
			}
		}
	}
	return s.sendPass(ctx)
}

func (s *source) isConverged() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status.Converged
}

// converged says why a cutover now would be short, or as short as it will get.
func (s *source) converged(dirty, before int64) string {
	switch {
	case dirty <= s.spec.Policy.TargetDirty:
		return fmt.Sprintf("%d bytes are left, at most %d were wanted", dirty, s.spec.Policy.TargetDirty)
	case s.pass >= 2 && float64(dirty) > shrink*float64(before) && before > 0:
		return fmt.Sprintf("the passes do not get shorter: %d bytes were written during the last one, %d during the one before", dirty, before)
	case s.pass >= s.spec.Policy.MaxPasses:
		return fmt.Sprintf("%d passes were done", s.pass)
	}
	return ""
}

// idle looks for requests between two passes. Until the session has converged
// there is no pause.
func (s *source) idle(ctx context.Context) (*request, error) {
	if !s.isConverged() {
		return s.listen(ctx, 0)
	}
	return s.listen(ctx, max(idlePass, idleShare*s.collecting))
}

// listen waits for a request, and for what may go wrong while nothing is sent.
func (s *source) listen(ctx context.Context, wait time.Duration) (*request, error) {
	t := time.NewTimer(wait)
	defer t.Stop()
	for {
		select {
		case r := <-s.control.requests:
			switch {
			case r.Do == askAbort:
				r.answer(nil)
				return nil, errAborted
			case r.Do != askCutover:
				r.answer(fmt.Errorf("the session is in presync: it can be cut over or aborted"))
				continue
			case s.deaf:
				r.answer(errors.New("a cutover was asked for already"))
				continue
			}
			s.deaf = true
			r.answer(nil)
			return &r, nil
		case <-s.lost:
			return nil, s.hungUp()
		case m := <-s.inbox:
			return nil, &refusal{fmt.Errorf("session: on the destination: %s", m.Why)}
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-t.C:
			return nil, nil
		}
	}
}

// collect takes what was written since the last time to what the next pass has
// to send: about how many bytes, and whether there is anything.
func (s *source) collect() (dirty int64, some bool, err error) {
	began := time.Now()
	if err := s.copy.Collect(); err != nil {
		return 0, false, fmt.Errorf("session: %w", err)
	}
	s.collecting = time.Since(began)
	dirty = s.copy.Dirty()
	some = dirty > 0
	for _, d := range s.directories {
		if err := d.collect(); err != nil {
			return 0, false, err
		}
		dirty += d.bytes
		some = some || d.entries > 0
	}
	return dirty, some, nil
}

// sendPass sends everything that is marked now: images and directories side by
// side, over the one connection.
func (s *source) sendPass(ctx context.Context) error {
	dirty, some, err := s.collect()
	if err != nil || !some {
		return err
	}
	s.pass++
	began := time.Now()
	s.watch(dirty, began)
	if s.t0.IsZero() { // a limit is there to spare others, and in the pause nobody is spared
		if err := s.share.Join(); err != nil {
			return err
		}
		defer s.share.Leave()
	}
	p := Pass{Pass: passes.Pass{Pass: s.pass, Bytes: dirty}}
	var images passes.Pass
	stats, why := make([]tree.Stats, len(s.directories)), make([]string, len(s.directories))
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		if images, err = s.copy.Send(gctx, s.pace); err != nil {
			return s.explain(fmt.Errorf("session: %w", err))
		}
		return nil
	})
	for i, d := range s.directories {
		g.Go(func() (err error) {
			stats[i], why[i], err = d.send(gctx, s)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	p.Sent, p.Zero, p.Payload = images.Sent, images.Zero, images.Payload
	for i, st := range stats {
		p.Files += st.Entries + st.Removed
		p.Sent += st.Bytes
		p.Payload += st.Bytes
		if why[i] != "" {
			p.Everything = why[i]
		}
	}
	p.MS = ms(time.Since(began))
	s.log.Emit("pass", map[string]any{
		"pass": p.Pass.Pass, "bytes": p.Bytes, "sent": p.Sent, "zero": p.Zero, "payload": p.Payload, "files": p.Files, "everything": p.Everything, "ms": p.MS,
	})
	s.update(false, func(st *Status) {
		st.Passes = append(st.Passes[:len(st.Passes):len(st.Passes)], p)
		st.DoneBytes, st.SentBytes = p.Bytes, s.sent+s.sentBytes()
	})
	return nil
}

// watch begins to show how far a pass comes.
func (s *source) watch(bytes int64, began time.Time) {
	s.update(false, func(st *Status) { st.Pass, st.PassBytes, st.DoneBytes, st.DirtyBytes = s.pass, bytes, 0, bytes })
	var done atomic.Int64
	s.count = func(n int64) {
		all := done.Add(n)
		s.update(false, func(st *Status) {
			st.DoneBytes, st.SentBytes = all, s.sent+s.sentBytes()
			if t := time.Since(began).Seconds(); t > 0 {
				st.Rate = int64(float64(all) / t)
			}
		})
	}
}

// hungUp is why the connection is gone: what the destination said last, if it did.
func (s *source) hungUp() error {
	select {
	case m := <-s.inbox:
		if m.Kind == msgFail {
			return &refusal{fmt.Errorf("session: on the destination: %s", m.Why)}
		}
	default:
	}
	return fmt.Errorf("session: the connection to the destination is lost: %w", s.lostErr)
}

// explain prefers what the destination had to say over the bare fact that the
// connection broke while we were sending.
func (s *source) explain(err error) error {
	t := time.NewTimer(time.Second)
	defer t.Stop()
	select {
	case m := <-s.inbox:
		if m.Kind == msgFail {
			return &refusal{fmt.Errorf("session: on the destination: %s", m.Why)}
		}
	case <-t.C:
	}
	return err
}

// chunkSize is how much of a tree one frame carries.
const chunkSize = 256 << 10

// flagLast marks the last frame of a tree's stream.
const flagLast uint16 = 1

// sendTree sends a tree the first time whole, and then what has changed.
func (s *source) sendTree(ctx context.Context, t *folder) (err error) {
	since := time.Now()
	if s.t0.IsZero() { // it is in use, and looked at again in the freeze
		if since, err = tree.WriteBack(t.Path); err != nil {
			return err
		}
	}
	if t.mirror == nil {
		if t.mirror, err = tree.Open(t.Path); err != nil {
			return err
		}
	}
	t.round = math.MaxInt // unless all of it goes out
	var sent tree.Stats
	if err := s.stream(ctx, t.stream, func(w *bufio.Writer) (err error) {
		sent, err = t.mirror.Everything(w, tree.Changes{Since: since})
		return err
	}); err != nil {
		return err
	}
	t.round = s.copy.Round()
	s.log.Emit("tree", map[string]any{"tree": t.Name, "entries": sent.Entries, "removed": sent.Removed, "bytes": sent.Bytes})
	return nil
}

// chunkWriter is a byte stream as Chunk frames.
type chunkWriter struct {
	ctx    context.Context
	conn   *wire.Conn
	pace   *pipeline.Pace
	stream uint32
	pos    int64
}

func (w *chunkWriter) Write(p []byte) (n int, err error) {
	for n < len(p) {
		if err := w.ctx.Err(); err != nil {
			return n, context.Cause(w.ctx)
		}
		k := min(len(p)-n, wire.MaxPayload)
		if err := w.pace.Wait(w.ctx, int64(k)); err != nil {
			return n, err
		}
		if err := w.conn.Write(&wire.Frame{Type: wire.Chunk, Stream: w.stream, Pos: w.pos, Payload: p[n : n+k]}); err != nil {
			return n, err
		}
		n += k
		w.pos += int64(k)
	}
	return n, nil
}
