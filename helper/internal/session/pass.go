package session

import (
	"bufio"
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/livefleet/handover/helper/internal/passes"
	"github.com/livefleet/handover/helper/internal/pipeline"
	"github.com/livefleet/handover/helper/internal/report"
	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/tree"
	"github.com/livefleet/handover/helper/internal/wire"
)

// presyncPass sends the trees, once, and the marked clusters.
func (s *outgoing) presyncPass(ctx context.Context) error {
	for _, t := range s.trees {
		if t.Stage == record.StagePresync && t.mirror == nil {
			if err := s.sendTree(ctx, t); err != nil {
				return err
			}
		}
	}
	return s.sendPass(ctx)
}

// collect adds the writes since the last time to the next pass: about how many bytes,
// and whether there may be any.
func (s *outgoing) collect() (dirty int64, some bool, err error) {
	began := time.Now()
	if err := s.copy.Collect(); err != nil {
		return 0, false, fmt.Errorf("session: %w", err)
	}
	dirty = s.copy.Dirty()
	some = dirty > 0
	for _, d := range s.directories {
		if err := d.collect(!s.t0.IsZero()); err != nil {
			return 0, false, err
		}
		dirty += d.bytes
		some = some || d.due(!s.t0.IsZero())
	}
	s.collecting = time.Since(began)
	return dirty, some, nil
}

// sendPass sends everything that is marked now: images and directories side by
// side, over the one connection.
func (s *outgoing) sendPass(ctx context.Context) error {
	dirty, some, err := s.collect()
	if err != nil || !some {
		return err
	}
	s.pass++
	began := time.Now()
	s.watch(dirty, began)
	if s.t0.IsZero() { // a limit is there to spare others, and in the pause none is spared
		if err := s.share.Join(); err != nil {
			return err
		}
		defer s.share.Leave()
	}
	p := record.Pass{Pass: passes.Pass{Pass: s.pass, Bytes: dirty}}
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
	if p.Bytes+p.Sent == 0 && p.Files == 0 { // nothing had changed
		s.pass--
		s.Update(false, func(st *record.Status) { st.Pass = s.pass })
		return nil
	}
	p.MS = report.MS(time.Since(began))
	s.Log.Emit("pass", map[string]any{
		"pass": p.Pass.Pass, "bytes": p.Bytes, "sent": p.Sent, "zero": p.Zero, "payload": p.Payload, "files": p.Files, "everything": p.Everything, "ms": p.MS,
	})
	s.Update(false, func(st *record.Status) {
		st.Passes = append(st.Passes[:len(st.Passes):len(st.Passes)], p)
		st.DoneBytes, st.SentBytes = p.Bytes, s.sent+s.sentBytes()
	})
	return nil
}

// watch begins to show how far a pass comes.
func (s *outgoing) watch(bytes int64, began time.Time) {
	s.Update(false, func(st *record.Status) { st.Pass, st.PassBytes, st.DoneBytes, st.DirtyBytes = s.pass, bytes, 0, bytes })
	var done atomic.Int64
	s.count = func(n int64) {
		all := done.Add(n)
		s.Update(false, func(st *record.Status) {
			st.DoneBytes, st.SentBytes = all, s.sent+s.sentBytes()
			if t := time.Since(began).Seconds(); t > 0 {
				st.Rate = int64(float64(all) / t)
			}
		})
	}
}

// chunkSize is how much of a tree one frame carries.
const chunkSize = 256 << 10

// flagLast marks the last frame of a tree's stream.
const flagLast uint16 = 1

// sendTree sends a tree the first time whole, and then its changes.
func (s *outgoing) sendTree(ctx context.Context, t *folder) (err error) {
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
	s.Log.Emit("tree", map[string]any{"tree": t.Name, "entries": sent.Entries, "removed": sent.Removed, "bytes": sent.Bytes})
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
