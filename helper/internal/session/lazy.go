package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/lazy"
	"github.com/livefleet/handover/helper/internal/precopy"
	"github.com/livefleet/handover/helper/internal/report"
	"github.com/livefleet/handover/helper/internal/session/protocol"
	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/session/recovery"
	"github.com/livefleet/handover/helper/internal/wire"
)

// With policy.lazy_pages a live workload's memory is not dumped, but follows when the
// workload runs on the destination (package lazy). Most of it goes ahead as ever: then only
// the changes since travel, and the rest is named by its place there. The run token is the
// point of no return as ever. After it, until the last page has come, part of the memory
// is on the source alone, where the tasks stand still that have it, and the workload's
// work since is on the destination alone: so if either host is lost, the workload's
// memory is.
//
// The pages come over a connection of their own, which the source makes before the freeze,
// and again for as long as it has to. A task that waits for a page keeps waiting: no page
// ever reads as another content. The destination settles when all has come, and not
// before, and so the source keeps the frozen tasks until then.
//
// The destination's process has the descriptors by which the kernel lets tasks wait. If it
// is killed they are in systemd's hands until the unit has ended, and so until the recovery
// has ended the restored tasks (endLost). Then the session stays as it is, resumed, on both
// sides: an operator has to say whether the source continues from the moment of the freeze,
// without the work since (fenced), or is reclaimed (resumed).

// canLazy is the word of a side that can do lazy pages; both have to say it.
const canLazy = "lazy"

// lender is the source's side: it answers for the frozen tasks' memory.
type lender struct {
	*link
	memory *lazy.Memory
	known  *precopy.Known // memory that has gone ahead; nil: none
	stop   context.CancelFunc
	ended  chan struct{}
	lent   int64

	mu   sync.Mutex
	conn *wire.Conn // made before it was needed
}

// lendSoon makes the connection, while the workload runs.
func lendSoon(ctx context.Context, to *link) (*lender, error) {
	if !to.Spec.Policy.LazyPages {
		return nil, nil
	}
	c, err := to.dialFetch(ctx)
	if err != nil {
		return nil, err
	}
	return &lender{link: to, conn: c}, nil
}

// dialFetch makes a connection over which the destination asks for pages.
func (s *link) dialFetch(ctx context.Context) (*wire.Conn, error) {
	c, err := s.dial(ctx, s.patience())
	if err != nil {
		return nil, err
	}
	err = s.belongs(ctx, c, &protocol.Fetch{Further: protocol.Further{ID: s.Spec.ID}})
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("session: the connection for the memory that follows: %w", err)
	}
	return c, nil
}

// lend begins to answer. No task runs any more, and none will here until it ends.
func (l *lender) lend(known *precopy.Known) error {
	if l == nil {
		return nil
	}
	l.known = known
	memory, err := lazy.OpenMemory(l.Spec.Hooks.Freeze.Cgroup.EachTask)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	l.memory, l.stop, l.ended = memory, stop, make(chan struct{})
	go func() {
		defer close(l.ended)
		l.lendOn(ctx)
	}()
	return nil
}

// lendAgain is how long after a connection broke the next is made.
const lendAgain = time.Second

func (l *lender) lendOn(ctx context.Context) {
	for said := ""; ctx.Err() == nil; {
		c, err := l.take(), error(nil)
		if c == nil {
			c, err = l.dialFetch(ctx)
		}
		if err == nil {
			end := context.AfterFunc(ctx, func() { c.Interrupt(context.Cause(ctx)) })
			err = l.options.serveMemory(l.memory, c, l.known, func(n int64) {
				l.lent += n
				l.Update(false, func(st *record.Status) { st.Fetch = &record.Fetch{Fetched: l.lent} })
			})
			end()
			c.Close()
		}
		if ctx.Err() != nil {
			return
		}
		if text := err.Error(); text != said {
			said = text
			l.Log.Emit("warning", map[string]any{"text": "the connection for the memory that follows broke, and is made again: " + text})
		}
		select {
		case <-ctx.Done():
		case <-time.After(lendAgain):
		}
	}
}

func (l *lender) take() *wire.Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.conn
	l.conn = nil
	return c
}

// close ends it; it may be called again, and without one.
func (l *lender) close() error {
	if l == nil {
		return nil
	}
	if c := l.take(); c != nil {
		c.Close()
	}
	if l.stop == nil {
		return nil
	}
	l.stop()
	<-l.ended
	l.stop = nil
	return l.memory.Close()
}

// lendOrphan is for a process that was started again when its predecessor was killed after
// the release: it answers for the memory until an operator says the workload's outcome.
func (s *source) lendOrphan(ctx context.Context) error {
	var err error
	if s.way, err = s.Spec.Peer.Way(); err != nil {
		return err
	}
	s.stopped.Store(true)
	s.lender = &lender{link: s.link}
	if err := s.lender.lend(nil); err != nil { // that went with the process
		return err
	}
	s.t0 = time.Now()
	text := "the process that handed the workload over was killed, and this one only lends what is left of its memory here"
	s.Log.Emit("held", map[string]any{"text": text})
	s.Update(true, func(st *record.Status) { st.Held, st.Error = true, text })
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case r := <-s.Control.Requests:
			if r.Do != record.AskResolve {
				r.Answer(errors.New(text))
				continue
			}
			// Before the answer: the caller looks at the status next, and waits for the
			// end.
			s.Update(true, func(st *record.Status) { st.Held = false })
			r.Answer(nil)
			err := s.lender.close()
			if err == nil {
				err = recovery.ResolveSource(ctx, s.Dir, s.RunDir, s.Spec, s.Journal, r.Outcome)
			}
			s.Update(true, func(st *record.Status) { st.State = s.Journal.State() })
			return err
		}
	}
}

// listenLazy waits for the tasks that CRIU is to restore with lazy pages.
func (d *destination) listenLazy() (err error) {
	if !d.Spec.Policy.LazyPages {
		return nil
	}
	r := d.Spec.Hooks.Restore
	var said time.Time
	d.fetcher, err = lazy.Listen(filepath.Dir(r.Log), r.Gate, d.options.keeper, func(p lazy.Progress) {
		d.Update(false, func(st *record.Status) { st.Fetch = fetchOf(p) })
		if time.Since(said) > time.Second {
			said = time.Now()
			d.Log.Emit("fetch", map[string]any{"bytes": p.Fetched, "total": p.Total, "sent": p.Sent, "faults": p.Faults})
		}
	})
	d.memory.fetcher = d.fetcher
	return err
}

func fetchOf(p lazy.Progress) *record.Fetch {
	return &record.Fetch{Total: int64(p.Total), Fetched: int64(p.Fetched), Sent: int64(p.Sent), Faults: int64(p.Faults)}
}

// fetch returns when all memory has come. Nothing ends it but that, or the workload's end. It tells
// how long that was since the workload runs: until then it needed both hosts.
func (d *destination) fetch(ctx context.Context, runs time.Time) (took map[string]float64, err error) {
	if d.fetcher == nil {
		return nil, nil
	}
	p, err := d.fetcher.Wait(context.WithoutCancel(ctx))
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(d.Dir, record.FetchedFile), nil, 0o600); err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	took = map[string]float64{"fetch": report.MS(time.Since(runs))}
	err = errors.Join(d.fetcher.Close(), d.memory.close())
	d.Update(true, func(st *record.Status) { st.Fetch = fetchOf(p) })
	said := map[string]any{"bytes": p.Fetched, "total": p.Total, "sent": p.Sent, "faults": p.Faults, "ms": took["fetch"]}
	if p.Plain {
		said["text"] = "a piece of the memory was not what the source has, so from there on all was sent whole"
	}
	d.Log.Emit("fetched", said)
	return took, err
}

// closeLazy releases the memory. Where not all of it has arrived, no restored task may
// continue with its part.
func (d *destination) closeLazy() error {
	if d.fetcher == nil {
		return nil
	}
	var err error
	if record.Lost(d.Dir, d.Spec) {
		if err = hooks.KillLeft(context.Background(), d.Spec.Hooks.Restore.Container); err != nil {
			return err // tasks that wait for a page keep waiting
		}
	}
	return d.fetcher.Close()
}
