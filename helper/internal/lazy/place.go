package lazy

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Placer fills the memory of the tasks that CRIU restores with lazy pages, all of it,
// before any of them runs: from a plan that holds all the content (Begin). It is done when
// it has counted that every page of the dump lies where it belongs (Placed); until then no
// task may be let go.
//
// It fills while CRIU restores still. A page that CRIU itself needs first comes first.
//
// When its descriptors are closed, missing pages read as zeroes. So a Placer that is given
// up (Abandon), or whose process is killed, must belong to a restore that is refused: CRIU
// can go on to the point where it is held, and no task of it ever runs.
type Placer struct {
	images   string
	socket   string
	listener *net.UnixListener
	bell     int            // an eventfd: the watchers end
	jobs     chan func()    // for the workers
	ready    chan struct{}  // closed: there is a plan
	stop     chan struct{}  // closed: nothing more is placed
	held     atomic.Bool    // CRIU has registered all that it will
	users    sync.WaitGroup // of the descriptors
	accepts  sync.WaitGroup
	ending   sync.Once

	mu     sync.Mutex
	conn   *net.UnixConn
	plan   *Plan
	left   map[uint32]spans // by the dump: what every task is to get
	places map[uint32]*place
	over   bool // no descriptor is taken any more
	closed bool
	news   chan struct{} // closed, and another, when anything of this changes
	err    error
}

// place is the memory of one task that is being filled.
type place struct {
	*Placer
	fd     int
	pid    uint32
	size   uint64
	jobs   []segment
	placed atomic.Uint64
	faults atomic.Uint64

	mu    sync.Mutex
	asked map[uint64]bool // pages that were placed, or were about to be, since a task waits
}

// Placement is what was placed.
type Placement struct {
	Tasks  int
	Bytes  uint64 // in the tasks
	Faults uint64 // the number of times that CRIU waited for a page
}

// mostPlacers is how many work at once; more wait for the same locks of the kernel.
const mostPlacers = 4

// ListenPlacer waits for CRIU at a socket in its working directory. It will restore the
// dump in images.
func ListenPlacer(workDir, images string) (*Placer, error) {
	l, err := listen(workDir)
	if err != nil {
		return nil, err
	}
	p := &Placer{
		images: images, socket: filepath.Join(workDir, SocketName), listener: l, places: map[uint32]*place{},
		jobs: make(chan func()), ready: make(chan struct{}), stop: make(chan struct{}), news: make(chan struct{}),
	}
	if p.bell, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return nil, errors.Join(fmt.Errorf("lazy: %w", err), l.Close())
	}
	p.accepts.Go(p.accept)
	for range min(mostPlacers, runtime.NumCPU()) {
		p.users.Go(p.work)
	}
	return p, nil
}

// Begin is for when the dump is complete and all content has arrived, before CRIU begins
// to restore.
func (p *Placer) Begin(plan *Plan) error {
	left, err := pagemaps(p.images)
	if err != nil {
		return err
	}
	if err := plan.arrange(); err != nil {
		return err
	}
	for pid, missing := range left { // before anything is restored
		if _, err := plan.cover(pid, missing); err != nil {
			return err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.plan, p.left = plan, left
	close(p.ready)
	return nil
}

// accept takes CRIU's descriptors.
func (p *Placer) accept() {
	c, err := p.listener.AcceptUnix()
	if err != nil {
		return // it was closed
	}
	defer c.Close()
	p.mu.Lock()
	p.conn = c
	closed := p.closed
	p.mu.Unlock()
	if closed {
		return
	}
	if err = pin(c); err == nil {
		_, err = handed(c, p.begin)
	}
	if err != nil {
		p.fail(err)
	}
}

// begin takes up the memory of a task. Without a place for it nothing is filled, and its
// descriptor is closed: CRIU, which may wait for a page of it, has to come to the point
// where it is refused.
func (p *Placer) begin(pid uint32, fd int) error {
	select {
	case <-p.ready:
	case <-p.stop:
	}
	p.mu.Lock()
	s, err := p.takeUp(pid, fd)
	p.mu.Unlock()
	if s == nil {
		err = errors.Join(err, unix.Close(fd))
	}
	if err != nil {
		p.fail(fmt.Errorf("lazy: the memory of task %d: %w", pid, err))
	}
	return nil
}

// takeUp begins to fill it, if this goes on; the caller holds mu.
func (p *Placer) takeUp(pid uint32, fd int) (*place, error) {
	if p.over {
		return nil, nil
	}
	if p.places[pid] != nil {
		return nil, errors.New("CRIU handed it over twice")
	}
	jobs, err := p.plan.cover(pid, p.left[pid])
	if err != nil {
		return nil, err
	}
	s := &place{Placer: p, fd: fd, pid: pid, size: p.left[pid].bytes(), jobs: jobs, asked: map[uint64]bool{}}
	p.places[pid] = s
	p.users.Go(s.watch)
	p.users.Go(s.feed)
	p.tell()
	return s, nil
}

// tell wakes who waits for news; the caller holds mu.
func (p *Placer) tell() {
	close(p.news)
	p.news = make(chan struct{})
}

// fail notes the first error.
func (p *Placer) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = err
		p.tell()
	}
}

func (p *Placer) work() {
	for {
		select {
		case do := <-p.jobs:
			do()
		case <-p.stop:
			return
		}
	}
}

// feed has the workers fill it.
func (s *place) feed() {
	for _, job := range s.jobs {
		select {
		case s.Placer.jobs <- func() {
			if err := s.fill(job); err != nil {
				s.fail(fmt.Errorf("lazy: the memory of task %d: %w", s.pid, err))
			}
		}:
		case <-s.stop:
			return
		}
	}
}

// registering is how long it is waited between two looks whether CRIU has registered a
// mapping.
const registering = 100 * time.Microsecond

// put places the beginning of a segment, and says how much of it.
func (s *place) put(x segment) (int, error) {
	if x.data == nil {
		return zeroes(s.fd, x.start, x.size)
	}
	return copyIn(s.fd, x.start, x.data)
}

// fill places a segment. A part that lies in several mappings is placed in smaller ones.
func (s *place) fill(x segment) error {
	for step := x.size; x.size > 0; {
		held := s.held.Load() // before the try: what is not registered now is not then either
		n, err := s.put(x.part(x.start, x.start+step))
		switch {
		case n > 0:
			step = min(2*step, x.size)
		case err == nil || errors.Is(err, unix.EAGAIN): // the kernel has something to tell first
			err = s.pause(10 * time.Microsecond)
		case errors.Is(err, unix.EEXIST) && s.wasAsked(x.start):
			n, err = PageSize, nil
		case errors.Is(err, unix.EEXIST):
			return fmt.Errorf("at %#x lies a page that came from nowhere", x.start)
		case errors.Is(err, unix.ENOENT) && step > PageSize:
			step, err = max(step/2&^(PageSize-1), PageSize), nil
		case errors.Is(err, unix.ENOENT) && !held:
			err = s.pause(registering)
		case errors.Is(err, unix.ENOENT):
			return fmt.Errorf("CRIU has restored no memory at %#x that could be filled", x.start)
		case errors.Is(err, unix.ENOMEM):
			return fmt.Errorf("no memory is left for it, or its own limit is reached: %w", err)
		default:
			return fmt.Errorf("at %#x: %w", x.start, err)
		}
		if errors.Is(err, errStopped) {
			return nil
		}
		if n > 0 {
			s.note(uint64(n))
			x = x.part(x.start+uint64(n), x.end())
			step = min(step, x.size)
		}
	}
	return nil
}

var errStopped = errors.New("lazy: it was given up")

func (s *place) pause(d time.Duration) error {
	select {
	case <-s.stop:
		return errStopped
	case <-time.After(d):
		return nil
	}
}

// note counts.
func (s *place) note(n uint64) {
	if s.placed.Add(n) >= s.size {
		s.Placer.mu.Lock()
		s.tell()
		s.Placer.mu.Unlock()
	}
}

func (s *place) wasAsked(at uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[at]
}

// watch answers what waits for a page.
func (s *place) watch() {
	for {
		fds := []unix.PollFd{{Fd: int32(s.bell), Events: unix.POLLIN}, {Fd: int32(s.fd), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, -1); err != nil && !errors.Is(err, unix.EINTR) {
			s.fail(fmt.Errorf("lazy: %w", err))
			return
		}
		if fds[0].Revents != 0 {
			return
		}
		e, none, err := readEvent(s.fd)
		switch {
		case err != nil:
			s.fail(fmt.Errorf("lazy: the memory of task %d: %w", s.pid, err))
			return
		case none:
		case e.kind != eventPagefault: // it is not to do anything yet
			s.fail(fmt.Errorf("lazy: the memory of task %d was changed while it was filled (event %#x)", s.pid, e.kind))
		default:
			s.answer(e.words[1] &^ (PageSize - 1))
		}
	}
}

// answer places the page that is waited for: its content, or, where the dump has none, an
// empty one.
func (s *place) answer(at uint64) {
	s.faults.Add(1)
	i, found := slices.BinarySearchFunc(s.jobs, at, func(x segment, at uint64) int {
		switch {
		case x.end() <= at:
			return -1
		case x.start > at:
			return 1
		}
		return 0
	})
	page := segment{start: at, size: PageSize}
	if found {
		page = s.jobs[i].part(at, at+PageSize)
		s.mu.Lock()
		s.asked[at] = true
		s.mu.Unlock()
	}
	for {
		n, err := s.put(page)
		switch {
		case n > 0:
			return
		case errors.Is(err, unix.EEXIST): // a worker was faster
			err = wake(s.fd, at)
			if err != nil && !errors.Is(err, unix.ENOENT) && !ended(err) {
				s.fail(fmt.Errorf("lazy: the memory of task %d at %#x: %w", s.pid, at, err))
			}
			return
		case err != nil && !errors.Is(err, unix.EAGAIN):
			s.fail(fmt.Errorf("lazy: a page for task %d at %#x: %w", s.pid, at, err))
			return
		}
		if s.pause(10*time.Microsecond) != nil {
			return
		}
	}
}

// Placed is for when CRIU is held with all restored. It returns when every page that the
// dump left behind lies in its task, and then has let go of the tasks' memory: nothing can
// be missing any more. After an error the tasks must not be let go.
func (p *Placer) Placed(ctx context.Context) (Placement, error) {
	p.held.Store(true)
	for {
		done, missing, news, err := p.look()
		if err != nil {
			return done, err
		}
		if missing == "" {
			return done, p.Abandon()
		}
		select {
		case <-news:
		case <-p.stop:
			return done, errStopped
		case <-ctx.Done():
			return done, fmt.Errorf("lazy: %s: %w", missing, context.Cause(ctx))
		}
	}
}

// look counts.
func (p *Placer) look() (done Placement, missing string, news chan struct{}, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left == nil {
		return done, "", nil, errors.New("lazy: memory was to be placed, and none has come")
	}
	for pid, left := range p.left {
		s := p.places[pid]
		if s == nil {
			missing = fmt.Sprintf("CRIU has not handed over the memory of task %d", pid)
			continue
		}
		n := s.placed.Load()
		if done.Bytes += n; n != left.bytes() {
			missing = fmt.Sprintf("%d bytes of %d of the memory of task %d are placed", n, left.bytes(), pid)
		}
	}
	for _, s := range p.places {
		done.Faults += s.faults.Load()
	}
	done.Tasks = len(p.left)
	return done, missing, p.news, p.err
}

// Abandon lets go of the memory. Missing pages read as zeroes from then on, so if any are,
// the restore must have been refused before. It may be called again.
func (p *Placer) Abandon() (err error) {
	p.ending.Do(func() {
		p.mu.Lock()
		p.over = true
		p.mu.Unlock()
		close(p.stop)
		_, err = unix.Write(p.bell, binary.NativeEndian.AppendUint64(nil, 1))
		p.users.Wait()
		for _, s := range p.places {
			err = errors.Join(err, unix.Close(s.fd))
		}
	})
	return err
}

// Close ends all that is left of it, when CRIU has ended, or will say no more than its last
// word, which finds a reader all the same.
func (p *Placer) Close() error {
	err := errors.Join(p.Abandon(), RemoveSocket(filepath.Dir(p.socket)))
	p.mu.Lock()
	c, bell := p.conn, p.bell
	p.bell, p.closed = -1, true
	p.mu.Unlock()
	if bell < 0 {
		return nil
	}
	err = errors.Join(err, p.listener.Close(), unix.Close(bell))
	if c != nil {
		_ = c.Close() // CRIU may have gone before
	}
	p.accepts.Wait()
	return err
}
