package lazy

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/precopy"
	"github.com/livefleet/handover/helper/internal/wire"
)

// Fetcher fills the memory of the tasks that CRIU restores.
type Fetcher struct {
	images string // the dump
	keeper Keeper
	say    func(Progress)

	socket   string
	listener *net.UnixListener
	bell     int // an eventfd: something has come

	stock   atomic.Pointer[precopy.Stock] // memory that went ahead; nil: none
	readers sync.WaitGroup                // of connections

	mu     sync.Mutex
	came   []func() error // arrived messages, for the loop to handle
	closed bool

	// All else is the loop's.
	spaces   []*space
	number   int // of the last one
	conn     *wire.Conn
	out      chan question // to be sent over it
	queue    []asked
	window   int
	size     int  // of an answer on the link, about
	over     bool // CRIU has restored all
	plain    bool // a piece was wrong: all is asked for whole
	progress Progress

	all   chan struct{} // closed: nothing is missing any more, and
	found Progress      // the progress at that time
	ended chan struct{} // closed: the loop has ended, and
	err   error         // why
}

// Keeper holds descriptors beside us, by name, and outlives us.
type Keeper interface {
	// Keep returns when the descriptor is in its hands, or on the way into them.
	Keep(name string, fd int) error
	// LetGo returns when it has closed those that it had.
	LetGo(names ...string) error
}

// asked is a question that is under way, and its space.
type asked struct {
	question
	space *space
}

// Progress is how far it has come.
type Progress struct {
	Total   uint64 // bytes that the dump left behind
	Fetched uint64 // of them have come
	Sent    uint64 // bytes over the link for that: less, where they went ahead
	Faults  uint64 // the number of times that a task waited for a page
	Plain   bool   // memory that went ahead was used no more, since a piece was wrong
}

// Listen waits for CRIU at a socket in its working directory; say hears of progress,
// often.
func Listen(workDir, images string, keeper Keeper, say func(Progress)) (*Fetcher, error) {
	l, err := listen(workDir)
	if err != nil {
		return nil, err
	}
	f := &Fetcher{socket: filepath.Join(workDir, SocketName), images: images, keeper: keeper, say: say, listener: l, window: 1, size: pieceSize, all: make(chan struct{}), ended: make(chan struct{})}
	if f.bell, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		l.Close()
		return nil, fmt.Errorf("lazy: %w", err)
	}
	go f.accept()
	go f.loop()
	return f, nil
}

// Know gives it the memory that went ahead, which has to stay until it is closed. It is for
// before CRIU begins to restore.
func (f *Fetcher) Know(stock *precopy.Stock) { f.stock.Store(stock) }

// Connect gives it a connection to the source's Memory, in the place of one that broke
// if there was one. It closes it.
func (f *Fetcher) Connect(c *wire.Conn) {
	select {
	case <-f.ended:
		c.Close()
		return
	default:
	}
	f.do(func() error {
		f.hangUp()
		f.conn, f.out = c, make(chan question, mostUnsent)
		f.readers.Go(func() { f.read(c) })
		out, plain := f.out, f.plain
		go f.write(c, out, plain)
		for _, q := range f.queue { // it is unknown which of them were heard
			f.ask(q.question)
		}
		return nil
	})
}

// hangUp ends the connection, if there is one.
func (f *Fetcher) hangUp() {
	if f.conn != nil {
		f.conn.Close()
		close(f.out)
		f.conn, f.out = nil, nil
	}
}

// write sends questions. The reader of the connection notices if it breaks; then all
// unanswered questions are asked again over the next.
func (f *Fetcher) write(c *wire.Conn, out <-chan question, plain bool) {
	var err error
	for q := range out { // none comes before CRIU restores
		flags := uint16(0)
		if f.stock.Load() != nil && !plain {
			flags = flagKnown
		}
		if err == nil {
			err = c.Write(q.frame(flags))
		}
		if err == nil && len(out) == 0 {
			err = c.Flush()
		}
	}
}

// Wait returns when nothing is missing any more, or when the tasks have ended. An error
// says that this cannot continue; tasks that wait for a page then keep waiting.
func (f *Fetcher) Wait(ctx context.Context) (Progress, error) {
	select {
	case <-f.all:
		return f.found, nil
	case <-f.ended:
		return Progress{}, f.err
	case <-ctx.Done():
		return Progress{}, context.Cause(ctx)
	}
}

// Close lets go of the memory. It is for when all has arrived, or when the restored
// tasks are gone: missing pages read as zeroes from then on.
func (f *Fetcher) Close() error {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return nil
	}
	f.closed = true
	f.mu.Unlock()
	err := errors.Join(f.listener.Close(), RemoveSocket(filepath.Dir(f.socket)))
	// The keeper first, while tasks are still answered: they would wait for it.
	var names []string
	told := make(chan struct{})
	f.do(func() error {
		defer close(told)
		for _, s := range f.spaces {
			names = append(names, s.name())
		}
		return nil
	})
	select {
	case <-told:
	case <-f.ended:
		for _, s := range f.spaces {
			names = append(names, s.name())
		}
	}
	err = errors.Join(err, f.keeper.LetGo(names...))
	f.do(func() error { return errClosed })
	<-f.ended
	for _, s := range f.spaces {
		err = errors.Join(err, unix.Close(s.fd))
	}
	f.hangUp()
	f.readers.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	bell := f.bell
	f.bell = -1
	return errors.Join(err, unix.Close(bell))
}

var errClosed = errors.New("lazy: it was closed before all had come")

// do has the loop do something.
func (f *Fetcher) do(what func() error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.came = append(f.came, what)
	if f.bell >= 0 {
		_, _ = unix.Write(f.bell, binary.NativeEndian.AppendUint64(nil, 1))
	}
}

// accept takes CRIU's descriptors.
func (f *Fetcher) accept() {
	c, err := f.listener.AcceptUnix()
	if err != nil {
		return // it was closed
	}
	defer c.Close()
	over, err := handed(c, f.begin)
	if err != nil {
		f.do(func() error { return err })
	} else if over {
		f.do(func() error { f.over = true; return nil })
	}
}

// begin takes up the memory of a task.
func (f *Fetcher) begin(pid uint32, fd int) error {
	missing, err := readPagemap(f.images, pid)
	if err != nil {
		return errors.Join(err, unix.Close(fd))
	}
	f.do(func() error { return f.takeUp(&space{fd: fd, pid: pid, missing: missing}) })
	return nil
}

// read passes on the source's answers. A connection that breaks, or that brings an
// answer without a question, ends nothing: there may be another. A piece is put together
// while the one before is taken.
func (f *Fetcher) read(c *wire.Conn) {
	defer c.Close()
	var frame wire.Frame
	rooms, before := [2][]byte{make([]byte, pieceSize), make([]byte, pieceSize)}, taken(nil)
	for n := 0; ; n++ {
		var a answer
		err := c.Read(&frame)
		if err == nil {
			a, err = unpack(&frame, f.stock.Load(), rooms[n%2])
		}
		if !f.goesOn(before) {
			return
		}
		if before = f.pass(c, a, err); a.pieces {
			continue
		}
		if !f.goesOn(before) { // its data lie in the frame
			return
		}
		before = nil
	}
}

// taken tells when an answer was, and whether the connection is good.
type taken chan bool

func (f *Fetcher) goesOn(t taken) bool {
	if t == nil {
		return true
	}
	select {
	case goOn := <-t:
		return goOn
	case <-f.ended:
		return false
	}
}

// pass has the loop take an answer, or the news that none comes any more.
func (f *Fetcher) pass(c *wire.Conn, a answer, broke error) taken {
	t := make(taken, 1)
	f.do(func() error {
		if f.conn != c {
			t <- false
			return nil
		}
		if broke != nil || len(f.queue) == 0 || f.queue[0].answers(a) != nil {
			f.plain = f.plain || errors.Is(broke, errWrong)
			f.hangUp()
			t <- false
			return nil
		}
		defer func() { t <- true }()
		return f.answer(a)
	})
	return t
}

// loop runs until it is closed. When all has come it goes on to answer tasks.
func (f *Fetcher) loop() {
	defer close(f.ended)
	for said := false; ; {
		if f.err = f.turn(); f.err != nil {
			return
		}
		if !said && f.complete() {
			said, f.found = true, f.progress
			close(f.all)
		}
	}
}

func (f *Fetcher) complete() bool {
	return f.over && !slices.ContainsFunc(f.spaces, func(s *space) bool { return len(s.missing)+len(s.asked) > 0 })
}

// lookAfter is how long nothing has happened before it is asked whether tasks are there
// still: one that is ended while it waits for a page says nothing, and when the source is
// gone no page comes that would tell.
const lookAfter = time.Second

// turn waits for an event, and handles it.
func (f *Fetcher) turn() error {
	fds := []unix.PollFd{{Fd: int32(f.bell), Events: unix.POLLIN}}
	timeout := -1
	for _, s := range f.spaces {
		fds = append(fds, unix.PollFd{Fd: int32(s.fd), Events: unix.POLLIN})
		if len(s.faults) > 0 {
			timeout = 1
		} else if timeout < 0 {
			timeout = int(lookAfter.Milliseconds())
		}
	}
	happened, err := unix.Poll(fds, timeout)
	if err != nil && !errors.Is(err, unix.EINTR) {
		return fmt.Errorf("lazy: %w", err)
	}
	if happened == 0 {
		for _, s := range f.spaces {
			if !alive(s.fd) {
				s.end()
			}
		}
	}
	// The kernel's events come first: they may concern arrived pages.
	if err := f.hear(); err != nil {
		return err
	}
	_, _ = unix.Read(f.bell, make([]byte, 8))
	f.mu.Lock()
	came := f.came
	f.came = nil
	f.mu.Unlock()
	for _, do := range came {
		if err := do(); err != nil {
			return err
		}
	}
	for _, s := range f.spaces {
		if err := f.answerFaults(s); err != nil {
			return err
		}
	}
	if err := f.reap(); err != nil {
		return err
	}
	f.askAhead()
	return nil
}

// hear notes the kernel's events of all tasks.
func (f *Fetcher) hear() error {
	for i := 0; i < len(f.spaces); i++ { // a child that is found is heard, too
		if err := f.spaces[i].listen(f.takeUp); err != nil {
			return err
		}
	}
	return nil
}

// takeUp takes up the memory of one more task.
func (f *Fetcher) takeUp(s *space) error {
	unix.CloseOnExec(s.fd)
	f.number++
	s.number = f.number
	f.spaces = append(f.spaces, s)
	f.progress.Total += s.missing.bytes()
	return f.keeper.Keep(s.name(), s.fd)
}

// reap forgets tasks that have ended.
func (f *Fetcher) reap() (err error) {
	f.spaces = slices.DeleteFunc(f.spaces, func(s *space) bool {
		if s.gone {
			err = errors.Join(err, unix.Close(s.fd))
			go f.keeper.LetGo(s.name()) //nolint:errcheck // kept too long, it costs nothing
		}
		return s.gone
	})
	return err
}

// answerFaults answers tasks that wait.
func (f *Fetcher) answerFaults(s *space) error {
	faults := s.faults
	s.faults = nil
	for _, at := range faults {
		ask, later, err := s.fault(at)
		switch {
		case err != nil:
			return err
		case later:
			s.faults = append(s.faults, at)
		case ask.size() > 0:
			f.progress.Faults++
			f.window = 1
			if f.most() > mostQuestions { // it is answered soon also behind these
				f.window = mostQuestions
			}
			f.want(s, ask)
		}
	}
	return nil
}

// askAhead asks for pages that no task waits for yet.
func (f *Fetcher) askAhead() {
	for f.over && f.conn != nil && len(f.queue) < f.window {
		i := slices.IndexFunc(f.spaces, func(s *space) bool { return len(s.missing) > 0 })
		if i < 0 {
			return
		}
		first := f.spaces[i].missing[0]
		x, _ := first.part(first.start, first.start+pieceSize)
		f.want(f.spaces[i], x)
	}
}

// sizeShare is the share of one answer in the size of the last ones.
const sizeShare = 8

// most is how many questions may be under way when no task waits.
func (f *Fetcher) most() int {
	return min(max(mostQuestions*pieceSize/max(f.size, 1), mostQuestions), mostSmall)
}

// want asks for a part of the missing pages.
func (f *Fetcher) want(s *space, x span) {
	s.missing.cut(x.start, x.end)
	s.asked.add(x)
	q := question{s.pid, x.from, x.size()}
	f.queue = append(f.queue, asked{q, s})
	f.ask(q)
}

// ask sends a question, if there is a connection.
func (f *Fetcher) ask(q question) {
	if f.conn == nil {
		return
	}
	select {
	case f.out <- q:
	default: // no one reads there
		f.hangUp()
	}
}

// answer takes the answer to the oldest question.
func (f *Fetcher) answer(a answer) error {
	q := f.queue[0]
	f.queue = f.queue[1:]
	if err := q.space.take(q.question, a.data, f.hear); err != nil {
		return err
	}
	f.size += (a.sent - f.size) / sizeShare
	f.window = min(f.window+1, f.most())
	f.progress.Fetched += q.size
	f.progress.Sent += uint64(a.sent)
	f.progress.Plain = f.plain
	f.say(f.progress)
	return nil
}
