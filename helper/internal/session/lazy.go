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
	"github.com/livefleet/handover/helper/internal/transport"
	"github.com/livefleet/handover/helper/internal/wire"
)

// With policy.lazy_pages a live workload's memory is neither sent ahead nor dumped, but
// follows when the workload runs on the destination (package lazy). The run token is the
// point of no return as ever. After it, until the last page has come, part of the memory
// is on the source alone, where the tasks stand still that have it, and what the workload
// has done since is on the destination alone: so if either host is lost, the workload's
// memory is.
//
// The pages come over a connection of their own, which the source makes before the freeze,
// and again for as long as it has to. Whoever waits for a page waits meanwhile: nothing
// reads as what it is not. The destination settles when all has come, and not before, and
// so the source keeps the frozen tasks until then.
//
// The destination's process has the descriptors by which the kernel lets tasks wait. If it
// is killed they are in systemd's hands until the unit has ended, and so until the recovery
// has ended what was restored (endLost). Then the session stays as it is, resumed, on both
// sides: whether the source goes on from the moment of the freeze, without what was done
// since (fenced), or lets go (resumed), somebody has to say.

// canLazy is what both sides have to say that they can.
const canLazy = "lazy"

// Files of a session's folder: what CRIU is told besides, and that all has come.
const (
	criuFile    = "criu.conf"
	fetchedFile = "fetched"
)

// Fetch is how much of the memory has followed.
type Fetch struct {
	Total   int64  `json:"total"` // bytes
	Fetched int64  `json:"fetched"`
	Faults  int64  `json:"faults"` // how often a task waited for a page
	Broken  string `json:"broken,omitempty"`
}

// checkLazy is for the spec.
func (s *Spec) checkLazy() error {
	f, r := s.Hooks.Freeze, s.Hooks.Restore
	switch {
	case !s.Policy.LazyPages:
		return nil
	case s.Mode != Live:
		return fmt.Errorf("policy: lazy_pages is for the mode live: mode %s moves no memory", s.Mode)
	case s.Role == Source && (f.Cgroup == "" || f.Hold == ""):
		return errors.New("policy: lazy_pages needs the workload's cgroup, of the second version, and what stands in for CRIU: hooks.freeze has cgroup or hold missing")
	case s.Role == Destination && (r.Hold == "" || r.Container == "" || !filepath.IsAbs(r.Log)):
		return errors.New("policy: lazy_pages needs to know what stands in for CRIU, where CRIU works, and whose tasks it restores: hooks.restore has hold, log or container missing")
	}
	return nil
}

// Holder decides for what stands in for CRIU on this host.
type Holder struct {
	RunDir string
	PID    int
}

// MayStart asks the session.
func (h Holder) MayStart(imageDir string) (bool, error) {
	return Hook(h.RunDir, Call{Action: hooks.StartUp, ImageDir: imageDir, CRIU: h.PID})
}

// Lazy looks whether the session wants lazy pages.
func (h Holder) Lazy(imageDir string) (*hooks.LazyPages, error) {
	reg, err := hooks.Lookup(h.RunDir, imageDir)
	if err != nil || reg == nil {
		return nil, err
	}
	spec, err := LoadSpec(reg.Session)
	if err != nil || !spec.Policy.LazyPages {
		return nil, err
	}
	return &hooks.LazyPages{Config: filepath.Join(reg.Session, criuFile)}, nil
}

// lends says that a source in this state has memory that the destination may need.
func (s *Spec) lends(st State) bool {
	return s.Policy.LazyPages && (st == Released || st == InDoubt || st == Resumed)
}

// lender is the source's side: it answers for the frozen tasks' memory.
type lender struct {
	memory *lazy.Memory
	stop   context.CancelFunc
	ended  chan struct{}
	lent   int64

	mu   sync.Mutex
	conn *wire.Conn // made before it was needed
}

// lendSoon makes the connection, while the workload runs.
func (s *source) lendSoon(ctx context.Context) error {
	if !s.spec.Policy.LazyPages {
		return nil
	}
	c, err := s.dialFetch(ctx)
	if err != nil {
		return err
	}
	s.lender = &lender{conn: c}
	return nil
}

// dialFetch makes a connection over which the destination asks for pages.
func (s *source) dialFetch(ctx context.Context) (*wire.Conn, error) {
	c, err := s.dial(ctx, s.patience())
	if err != nil {
		return nil, err
	}
	if err = send(c, message{Kind: msgFetch, ID: s.spec.ID}); err == nil {
		err = expectFirst(ctx, c, s.spec.ID, s.patience(), msgFetch)
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("session: the connection for the memory that follows: %w", err)
	}
	return c, nil
}

// lend begins to answer. No task runs any more, and none will here until it ends.
func (s *source) lend() error {
	if !s.spec.Policy.LazyPages {
		return nil
	}
	memory, err := lazy.OpenMemory(s.spec.Hooks.Freeze.Cgroup.EachTask)
	if err != nil {
		return err
	}
	l := s.lender
	ctx, stop := context.WithCancel(context.Background())
	l.memory, l.stop, l.ended = memory, stop, make(chan struct{})
	go func() {
		defer close(l.ended)
		s.lendOn(ctx)
	}()
	return nil
}

// serveMemory is a variable so that a test can have it wait.
var serveMemory = (*lazy.Memory).Serve

// lendAgain is how long after a connection broke the next is made.
const lendAgain = time.Second

func (s *source) lendOn(ctx context.Context) {
	l := s.lender
	for said := ""; ctx.Err() == nil; {
		c, err := l.take(), error(nil)
		if c == nil {
			c, err = s.dialFetch(ctx)
		}
		if err == nil {
			end := context.AfterFunc(ctx, func() { c.Interrupt(context.Cause(ctx)) })
			err = serveMemory(l.memory, c, func(n int64) {
				l.lent += n
				s.update(false, func(st *Status) { st.Fetch = &Fetch{Fetched: l.lent} })
			})
			end()
			c.Close()
		}
		if ctx.Err() != nil {
			return
		}
		if text := err.Error(); text != said {
			said = text
			s.log.Emit("warning", map[string]any{"text": "the connection for the memory that follows broke, and is made again: " + text})
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
// the release: it answers for the memory until somebody says what became of the workload.
func (s *source) lendOrphan(ctx context.Context) error {
	var err error
	if s.way, err = s.spec.Peer.way(); err != nil {
		return err
	}
	s.stopped.Store(true)
	s.lender = &lender{}
	if err := s.lend(); err != nil {
		return err
	}
	s.t0 = time.Now()
	text := "the process that handed the workload over was killed, and this one only lends what is left of its memory here"
	s.log.Emit("held", map[string]any{"text": text})
	s.update(true, func(st *Status) { st.Held, st.Error = true, text })
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case r := <-s.control.requests:
			if r.Do != askResolve {
				r.answer(errors.New(text))
				continue
			}
			// Before the answer: who asked looks at the status next, and waits for the end.
			s.update(true, func(st *Status) { st.Held = false })
			r.answer(nil)
			err := s.lender.close()
			if err == nil {
				err = resolveSource(ctx, s.dir, s.runDir, s.spec, s.journal, r.Outcome)
			}
			s.update(true, func(st *Status) { st.State = s.journal.State() })
			return err
		}
	}
}

// keeper is who holds the descriptors beside this process: systemd, where it runs this;
// a variable so that a test can be it.
var keeper lazy.Keeper = transport.Manager{}

// listenLazy waits for what CRIU is to restore with lazy pages.
func (d *destination) listenLazy() (err error) {
	if !d.spec.Policy.LazyPages {
		return nil
	}
	r := d.spec.Hooks.Restore
	var said time.Time
	d.fetcher, err = lazy.Listen(filepath.Dir(r.Log), r.Gate, keeper, func(p lazy.Progress) {
		d.update(false, func(st *Status) { st.Fetch = fetchOf(p) })
		if time.Since(said) > time.Second {
			said = time.Now()
			d.log.Emit("fetch", map[string]any{"bytes": p.Fetched, "total": p.Total, "faults": p.Faults})
		}
	})
	return err
}

func fetchOf(p lazy.Progress) *Fetch {
	return &Fetch{Total: int64(p.Total), Fetched: int64(p.Fetched), Faults: int64(p.Faults)}
}

// fetch returns when all memory has come. Nothing ends it but that, or the workload's end.
func (d *destination) fetch(ctx context.Context) (took map[string]float64, err error) {
	if d.fetcher == nil {
		return nil, nil
	}
	began := time.Now()
	p, err := d.fetcher.Wait(context.WithoutCancel(ctx))
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(d.dir, fetchedFile), nil, 0o600); err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	err = d.fetcher.Close()
	d.update(true, func(st *Status) { st.Fetch = fetchOf(p) })
	d.log.Emit("fetched", map[string]any{"bytes": p.Fetched, "total": p.Total, "faults": p.Faults, "ms": ms(time.Since(began))})
	return map[string]float64{"fetch": ms(time.Since(began))}, err
}

// closeLazy lets go of the memory. Where not all of it has come, nothing that was restored
// may go on with what it has.
func (d *destination) closeLazy() error {
	if d.fetcher == nil {
		return nil
	}
	var err error
	if lost(d.dir, d.spec) {
		if err = hooks.KillLeft(context.Background(), d.spec.Hooks.Restore.Container); err != nil {
			return err // whoever waits for a page waits on
		}
	}
	return d.fetcher.Close()
}

// lost says that a destination's memory has not all come.
func lost(dir string, spec *Spec) bool {
	if !spec.Policy.LazyPages || spec.Role != Destination {
		return false
	}
	_, err := os.Lstat(filepath.Join(dir, fetchedFile))
	return err != nil
}

// lostText says so, and what can be done.
func lostText(spec *Spec) string {
	return fmt.Sprintf("%[1]s was ended on the destination: part of its memory was on the source still when this side stopped (lazy pages). On the source its tasks stand as they were when it was frozen. "+
		"To have it go on there from that moment, without what it did since: `pcopy session resolve --outcome fenced` for the session %[2]s on the destination, and then on the source. "+
		"To give its memory up and start it anew on the destination: `--outcome resumed` on the source, and then on the destination", spec.Workload, spec.ID)
}

// endLost ends what runs on without all of its memory, in the place of a process that is
// gone.
func endLost(ctx context.Context, dir, runDir string, spec *Spec) error {
	if err := hooks.KillLeft(ctx, spec.Hooks.Restore.Container); err != nil {
		return err
	}
	return forgetDestination(ctx, dir, runDir, spec)
}
