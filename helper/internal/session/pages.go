package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/livefleet/handover/helper/internal/precopy"
	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/wire"
)

// pagesSender sends a dump's pages while they are written.
type pagesSender struct {
	*memorySource
	tree   *folder
	known  *precopy.Known
	files  *precopy.Pages
	ended  chan struct{} // closed: no more is written
	done   chan error
	cancel context.CancelFunc

	piece           []byte
	bytes, literals int64
}

// pagesPause is between two looks at CRIU's output.
const pagesPause = 2 * time.Millisecond

// pagesSenders are of the dumps that are written side by side: one of each member.
type pagesSenders []*pagesSender

// sendPages begins to send; none where there is nothing to send so.
func (s *memorySource) sendPages(ctx context.Context) (all pagesSenders) {
	if !s.memory.pages {
		return nil
	}
	known := s.memory.known // nothing is added to it any more
	if known == nil {
		known = precopy.NewKnown(0)
	}
	for _, t := range s.trees {
		if t.Stage != record.StageDump {
			continue
		}
		p := &pagesSender{memorySource: s, tree: t, known: known, files: precopy.FollowPages(t.Path), ended: make(chan struct{}), done: make(chan error, 1)}
		run, cancel := context.WithCancel(ctx)
		p.cancel = cancel
		go func() { p.done <- p.run(run) }()
		all = append(all, p)
	}
	return all
}

// finish sends the rest when all dumps are complete. Pages sent so do not travel with
// their trees.
func (all pagesSenders) finish() (err error) {
	for _, p := range all {
		close(p.ended)
	}
	var bytes, literals int64
	for _, p := range all {
		err = errors.Join(err, p.end())
		bytes, literals = bytes+p.bytes, literals+p.literals
	}
	if err == nil && len(all) > 0 {
		all[0].Log.Emit("pages", map[string]any{"bytes": bytes, "sent": literals})
	}
	return err
}

// abandon ends them before their end, for its caller's reason; their own errors follow from
// that.
func (all pagesSenders) abandon() (err error) {
	for _, p := range all {
		p.cancel()
	}
	for _, p := range all {
		<-p.done
		err = errors.Join(err, p.files.Close())
	}
	return err
}

func (p *pagesSender) run(ctx context.Context) error {
	for end := false; ; {
		if err := p.files.More(end, p.send); err != nil {
			return err
		}
		if err := p.conn.Flush(); err != nil || end {
			return err
		}
		t := time.NewTimer(pagesPause)
		select {
		case <-p.ended:
			end = true
		case <-ctx.Done():
			t.Stop()
			return context.Cause(ctx)
		case <-t.C:
		}
		t.Stop()
	}
}

func (p *pagesSender) send(name string, data []byte, off int64) error {
	b := append(p.piece[:0], byte(len(name)))
	b = append(b, name...)
	b, literals := p.known.Encode(b, data, off)
	p.piece = b
	p.bytes += int64(len(data))
	p.literals += int64(literals)
	return p.conn.Write(&wire.Frame{Type: wire.Chunk, Stream: p.tree.stream, Flags: flagPages, Payload: b})
}

// end is for when its dump is complete.
func (p *pagesSender) end() error {
	err := <-p.done
	p.cancel()
	if err = errors.Join(err, p.files.Close()); err != nil {
		return p.explain(fmt.Errorf("session: sending the dump: %w", err))
	}
	p.tree.mirror.Apart = p.files.Has
	return nil
}
