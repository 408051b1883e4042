package session

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"time"

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

// presync sends everything while the workload runs, then what was written
// meanwhile, and so on, until a cutover is asked for. It converges, that is, it
// says that a cutover now would be a short one, when
//
//   - less than policy.target_dirty was written during the last pass, or
//   - the passes do not get shorter any more, or
//   - policy.max_passes were done.
//
// A cutover that is asked for earlier waits for that.
func (s *source) presync(ctx context.Context) error {
	for _, t := range s.trees {
		if t.Stage == StagePresync {
			if err := s.sendTree(ctx, t); err != nil {
				return err
			}
		}
	}
	var before int64
	var asked *request
	for {
		// Only the pass numbers and sizes decide; they are in the status too.
		if err := s.sendPass(ctx); err != nil {
			return err
		}
		if err := s.collect(); err != nil {
			return err
		}
		dirty := s.dirty()
		s.update(true, func(st *Status) { st.DirtyBytes = dirty })
		if why := s.converged(dirty, before); why != "" {
			s.update(true, func(st *Status) {
				if !st.Converged {
					s.log.Emit("converged", map[string]any{"why": why, "pass": s.pass, "dirty": dirty})
				}
				st.Converged, st.Why = true, why
			})
			if asked != nil {
				return nil
			}
		}
		before = dirty
		r, err := s.idle(ctx, dirty)
		if err != nil {
			return err
		}
		if r != nil {
			asked = r
			if s.isConverged() {
				return nil
			}
		}
	}
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
func (s *source) idle(ctx context.Context, dirty int64) (*request, error) {
	wait := time.Duration(0)
	if s.isConverged() {
		wait = idlePass
	}
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
			return nil, fmt.Errorf("session: the connection to the destination is lost: %w", s.lostErr)
		case m := <-s.inbox:
			return nil, fmt.Errorf("session: on the destination: %s", m.Why)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-t.C:
			return nil, nil
		}
	}
}

// collect takes what the trackers have seen since the last time into the maps of
// what is to be sent.
func (s *source) collect() error {
	for _, v := range s.volumes {
		if v.tracker == nil {
			continue
		}
		m, err := v.tracker.Swap()
		if err != nil {
			return fmt.Errorf("session: volume %s: %w", v.Name, err)
		}
		if err := v.todo.Merge(m); err != nil {
			return fmt.Errorf("session: volume %s: %w", v.Name, err)
		}
	}
	return nil
}

func (s *source) dirty() (n int64) {
	for _, v := range s.volumes {
		n += v.todo.Bytes()
	}
	return n
}

// sendPass sends everything that is marked now. Marks that come meanwhile are
// for the next pass: a map is swapped before its clusters are read, so a cluster
// that changes while it is read is marked again.
func (s *source) sendPass(ctx context.Context) error {
	if err := s.collect(); err != nil {
		return err
	}
	total := s.dirty()
	if total == 0 {
		return nil
	}
	s.pass++
	p := Pass{Pass: s.pass, Bytes: total}
	began := time.Now()
	var done int64
	s.update(false, func(st *Status) { st.Pass, st.PassBytes, st.DoneBytes, st.DirtyBytes = s.pass, total, 0, total })
	for _, v := range s.volumes {
		m := v.todo.Swap()
		if m.Empty() {
			continue
		}
		opt := pipeline.SendOptions{SkipZero: v.empty}
		if s.t0.IsZero() { // a limit is there to spare others, and in the pause nobody is spared
			opt.Limit = s.spec.Policy.Limit
		}
		stats, err := pipeline.Send(ctx, s.conn, pipeline.Volume{Stream: v.stream, Source: v.src}, m, opt, func(n int64) {
			done += n
			s.update(false, func(st *Status) {
				st.DoneBytes = done
				st.SentBytes = s.conn.Sent()
				if t := time.Since(began).Seconds(); t > 0 {
					st.Rate = int64(float64(done) / t)
				}
			})
		})
		if err != nil {
			return s.explain(fmt.Errorf("session: volume %s: %w", v.Name, err))
		}
		v.empty = false // from the second pass on, zeroes have to be sent
		p.Sent += stats.Sent
		p.Zero += stats.Zero + stats.Skipped
	}
	p.MS = ms(time.Since(began))
	s.log.Emit("pass", map[string]any{"pass": p.Pass, "bytes": p.Bytes, "sent": p.Sent, "zero": p.Zero, "ms": p.MS})
	s.update(false, func(st *Status) {
		st.Passes = append(st.Passes[:len(st.Passes):len(st.Passes)], p)
		st.DoneBytes, st.SentBytes = total, s.conn.Sent()
	})
	return nil
}

// explain prefers what the destination had to say over the bare fact that the
// connection broke while we were sending.
func (s *source) explain(err error) error {
	t := time.NewTimer(time.Second)
	defer t.Stop()
	select {
	case m := <-s.inbox:
		if m.Kind == msgFail {
			return fmt.Errorf("session: on the destination: %s", m.Why)
		}
	case <-t.C:
	}
	return err
}

// chunkSize is how much of a tree one frame carries.
const chunkSize = 256 << 10

// flagLast marks the last frame of a tree's stream.
const flagLast uint16 = 1

// namesAtOnce bounds a message that lists paths.
const namesAtOnce = 1000

// sendTree sends a tree the first time whole, and then what has changed.
func (s *source) sendTree(ctx context.Context, t *folder) error {
	scan := tree.Take
	if s.t0.IsZero() {
		scan = tree.First // it is in use, and looked at again in the freeze
	}
	now, err := scan(t.Path)
	if err != nil {
		return err
	}
	paths := now.Paths()
	if t.sent != nil {
		var gone []string
		paths, gone = now.Changed(t.sent)
		for len(gone) > 0 {
			n := min(len(gone), namesAtOnce)
			if err := send(s.conn, message{Kind: msgGone, Tree: t.Name, Paths: gone[:n]}); err != nil {
				return err
			}
			gone = gone[n:]
		}
	}
	w := &chunkWriter{ctx: ctx, conn: s.conn, stream: t.stream}
	b := bufio.NewWriterSize(w, chunkSize)
	if err := errors.Join(now.Pack(b, paths), b.Flush()); err != nil {
		return s.explain(err)
	}
	if err := s.conn.Write(&wire.Frame{Type: wire.Chunk, Stream: t.stream, Flags: flagLast, Pos: w.pos}); err != nil {
		return err
	}
	t.sent = now
	s.log.Emit("tree", map[string]any{"tree": t.Name, "entries": len(paths), "bytes": w.pos})
	return nil
}

// chunkWriter is a byte stream as Chunk frames.
type chunkWriter struct {
	ctx    context.Context
	conn   *wire.Conn
	stream uint32
	pos    int64
}

func (w *chunkWriter) Write(p []byte) (n int, err error) {
	for n < len(p) {
		if err := w.ctx.Err(); err != nil {
			return n, context.Cause(w.ctx)
		}
		k := min(len(p)-n, wire.MaxPayload)
		if err := w.conn.Write(&wire.Frame{Type: wire.Chunk, Stream: w.stream, Pos: w.pos, Payload: p[n : n+k]}); err != nil {
			return n, err
		}
		n += k
		w.pos += int64(k)
	}
	return n, nil
}
