package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/yamux"
)

const (
	// greeting is the first that either end of a pair of streams says. A shell that
	// prints something before is found out by it.
	greeting = "pcopy stream 1\n"
	// streamWindow is how much may be on its way, or wait to be taken, on each of the
	// connections that share a pair of streams. ssh has the same for each channel.
	streamWindow = 2 << 20
	// carriedAtOnce bounds the connections that share a pair of streams.
	carriedAtOnce = 32
	// stuckAfter is how long a pair of streams may accept no data while some are due,
	// before it is given up.
	stuckAfter = 3 * time.Second
	// brokenGrace is how long a command has to end once its streams are useless.
	brokenGrace = time.Second
)

// streamConfig is the configuration of both ends. A pair of streams that is silent
// for too long, though the other end was asked, has broken.
func streamConfig() *yamux.Config {
	c := yamux.DefaultConfig()
	c.AcceptBacklog = 2 * carriedAtOnce // more than may be, so that more can be seen
	c.KeepAliveInterval = keepalive.Idle
	c.ConnectionWriteTimeout = deadAfter
	c.StreamOpenTimeout = deadAfter
	c.MaxStreamWindowSize = streamWindow
	c.LogOutput = io.Discard // its messages are in its errors
	return c
}

// Streams is the Way over the standard streams of a command, which has to lead to
// Carry at its end. The command is started when the first connection is made, and
// again when one is made after it has ended or its streams have broken; there is
// never more than one. When it ends early, the errors of its connections' calls say
// how, with the last line that it wrote to stderr.
//
// The command gets its words, and the environment that this process gives any other:
// none of the session's keys.
//
// Its starter is begun with the first connection, so that a process that is confined by
// then can start it again.
type Streams struct {
	argv []string

	mu     sync.Mutex
	runner *runner
	trunk  *trunk
	closed bool
}

// Over is the way over the standard streams of a command.
func Over(argv []string) *Streams { return &Streams{argv: argv} }

// String names the way in messages.
func (s *Streams) String() string {
	return fmt.Sprintf("the other end of the command %q", s.argv[0])
}

// Dial makes one connection.
func (s *Streams) Dial(ctx context.Context) (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, net.ErrClosed
	}
	if s.trunk != nil && s.trunk.broken() {
		_ = s.trunk.end() // how it broke was said by its connections
		s.trunk = nil
	}
	if s.runner == nil {
		r, err := newRunner(s.argv)
		if err != nil {
			return nil, err
		}
		s.runner = r
	}
	if s.trunk == nil {
		t, err := startTrunk(ctx, s.runner)
		if err != nil {
			return nil, err
		}
		s.trunk = t
	}
	return s.trunk.open()
}

// Close ends the command. Earlier writes have reached it.
func (s *Streams) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	var err error
	if s.trunk != nil {
		broken := s.trunk.broken()
		err = s.trunk.end()
		s.trunk = nil
		if broken {
			err = nil // said before
		}
	}
	if s.runner != nil {
		err = errors.Join(err, s.runner.Close())
		s.runner = nil
	}
	return err
}

// trunk is one run of the command, its streams divided among connections.
type trunk struct {
	child *child
	mux   *yamux.Session
	gone  chan struct{} // closed when nothing can go over it any more
	why   error         // then

	stuck, closing atomic.Bool
}

func startTrunk(ctx context.Context, r *runner) (*trunk, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	c, err := startChild(r)
	if err != nil {
		return nil, err
	}
	if err := meet(ctx, c); err != nil {
		err = c.instead(err)
		c.grace = brokenGrace
		_ = c.Close() // err says more
		return nil, err
	}
	t := &trunk{child: c, gone: make(chan struct{})}
	if t.mux, err = yamux.Client(ends{c}, streamConfig()); err != nil {
		return nil, errors.Join(fmt.Errorf("transport: %w", err), c.Close())
	}
	go t.watch()
	return t, nil
}

// meet says the greeting and hears the other end's.
func meet(ctx context.Context, c *child) error {
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	err := greet(c)
	if !stop() {
		return fmt.Errorf("transport: the command %q has not come to the other side in time: %w%s", c.name, context.Cause(ctx), c.lastLine())
	}
	if err != nil {
		return fmt.Errorf("transport: the command %q: %w", c.name, err)
	}
	return nil
}

// greet says the greeting, and hears that of the other end.
func greet(rw io.ReadWriter) error {
	if _, err := io.WriteString(rw, greeting); err != nil {
		return err
	}
	heard := make([]byte, len(greeting))
	for n := 0; n < len(heard); {
		m, err := rw.Read(heard[n:])
		n += m
		// At once: another program's output may be shorter.
		if string(heard[:n]) != greeting[:n] {
			return fmt.Errorf("%w: it began with %q: does the login there print something, or is another version installed?", errNoStream, heard[:n])
		}
		if err != nil && n < len(heard) {
			return err
		}
	}
	return nil
}

var errNoStream = errors.New("what came is nothing that `pcopy stream` says")

// watch waits for the end. The far end has no connections to make.
func (t *trunk) watch() {
	defer close(t.gone)
	s, err := t.mux.Accept()
	if err == nil {
		s.Close()
		err = errors.New("it made a connection of its own")
	}
	t.mux.Close() // every waiting call returns
	err = whyShut(t.mux, err)
	c := t.child
	switch {
	case t.closing.Load():
		t.why = net.ErrClosed
	case t.stuck.Load():
		t.why = fmt.Errorf("transport: the command %q takes nothing any more%s", c.name, c.lastLine())
	case errors.As(err, new(*endedError)):
		t.why = err
	case errors.Is(err, io.EOF), errors.Is(err, syscall.EPIPE):
		t.why = c.instead(fmt.Errorf("transport: the command %q ended early, though with status 0%s", c.name, c.lastLine()))
	case errors.Is(err, yamux.ErrKeepAliveTimeout), errors.Is(err, yamux.ErrSessionShutdown):
		t.why = fmt.Errorf("transport: the other end of the command %q does not answer any more%s", c.name, c.lastLine())
	default:
		t.why = fmt.Errorf("transport: the command %q: %w: %w", c.name, errNoStream, err)
	}
}

// whyShut is why yamux ended, where a call that happened to be under way was only told
// that it has.
func whyShut(mux *yamux.Session, err error) error {
	for range 2 * carriedAtOnce { // accepted streams may come first
		if !errors.Is(err, yamux.ErrSessionShutdown) {
			break
		}
		_, err = mux.AcceptStream()
	}
	return err
}

func (t *trunk) broken() bool { return t.mux.IsClosed() }

// end waits for the command's end.
func (t *trunk) end() error {
	if t.broken() {
		t.child.grace = brokenGrace
	} else {
		t.closing.Store(true)
		t.mux.Close()
	}
	<-t.gone
	return t.child.Close()
}

// giveUp is for when the command takes nothing any more.
func (t *trunk) giveUp() {
	t.stuck.Store(true)
	t.mux.Close()
}

func (t *trunk) open() (net.Conn, error) {
	s, err := t.mux.OpenStream()
	if err != nil {
		return nil, t.explain(err)
	}
	return &carried{Stream: s, trunk: t}, nil
}

// explain prefers the reason why all the connections ended to the error that one of
// them saw.
func (t *trunk) explain(err error) error {
	if err == nil || !t.broken() {
		return err
	}
	<-t.gone
	return t.why
}

// streamPair is two streams that can be given up without waiting for their other
// ends.
type streamPair interface {
	io.ReadWriter
	SetDeadline(time.Time) error
	hangUp()
}

// ends is such a pair for yamux, whose Close waits for the Read and the Write that are
// under way, and for nothing else.
type ends struct{ streamPair }

func (e ends) Close() error {
	e.hangUp()
	return nil
}
