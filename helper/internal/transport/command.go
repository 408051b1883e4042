package transport

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode"

	"golang.org/x/sys/unix"
)

const (
	// childGrace is how long a child has to end once its standard input is closed,
	// and again once it was asked to.
	childGrace = 10 * time.Second
	// stderrKept is how much of the end of a child's stderr is kept for the
	// error message.
	stderrKept = 4 << 10
)

// child is a running command, its standard streams the connection.
type child struct {
	runner *runner
	alone  bool // the runner is this child's, and ends with it
	pid    int
	name   string
	in     *os.File // its standard input, our writing end
	out    *os.File // its standard output, our reading end
	tail   *tailWriter
	grace  time.Duration

	done chan struct{} // closed when the child was collected
	err  error         // its end; valid after done

	once sync.Once
}

// Command starts a command and gives its standard streams as a connection. Its stderr
// goes to ours, and the last line of it into the error.
//
// Close closes the child's standard input, waits for its end, and returns its
// exit status as an error if it is not 0. A child that does not end is first
// asked to, and then killed, and that is an error too.
func Command(argv []string) (io.ReadWriteCloser, error) {
	r, err := newRunner(argv)
	if err != nil {
		return nil, err
	}
	c, err := startChild(r)
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	c.alone = true
	return c, nil
}

func startChild(r *runner) (*child, error) {
	s, err := r.start()
	if err != nil {
		return nil, err
	}
	c := &child{
		runner: r,
		pid:    s.pid,
		name:   r.name,
		in:     s.in,
		out:    s.out,
		tail:   &tailWriter{w: os.Stderr},
		grace:  childGrace,
		done:   make(chan struct{}),
	}
	silent := make(chan struct{})
	go func() {
		_, _ = io.Copy(c.tail, s.err)
		close(silent)
	}()
	go func() {
		err := <-s.ended
		// A grandchild that keeps stderr open (a multiplexing ssh does) must not
		// keep us waiting for the child.
		select {
		case <-silent:
		case <-time.After(time.Second):
		}
		s.err.Close()
		c.err = c.explain(err)
		close(c.done)
	}()
	return c, nil
}

func (c *child) explain(err error) error {
	if err == nil {
		return nil
	}
	return &endedError{fmt.Errorf("transport: the command %q ended with %w%s", c.name, err, c.lastLine())}
}

// endedError is how a child ended.
type endedError struct{ error }

func (e *endedError) Unwrap() error { return e.error }

// lastLine is the last one that it wrote to stderr, to be put behind something.
func (c *child) lastLine() string {
	said := strings.TrimSpace(c.tail.String())
	if i := strings.LastIndexByte(said, '\n'); i >= 0 {
		said = said[i+1:]
	}
	if said == "" {
		return ""
	}
	// It goes to a terminal one day, and may have come from another host.
	return ": " + strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, said)
}

// instead prefers the child's bad end, if there was one, to the error that was seen.
func (c *child) instead(err error) error {
	select {
	case <-c.done:
		if c.err != nil {
			return c.err
		}
	case <-time.After(time.Second):
	}
	return err
}

// Read reads the child's standard output. Where it ends because the child
// failed, the failure is the error, and not a plain end.
func (c *child) Read(p []byte) (int, error) {
	n, err := c.out.Read(p)
	if err == io.EOF {
		err = c.instead(err) // the streams of a child close a little before it can be collected
	}
	return n, err
}

func (c *child) Write(p []byte) (int, error) {
	n, err := c.in.Write(p)
	if errors.Is(err, unix.EPIPE) {
		err = c.instead(err)
	}
	return n, err
}

// SetDeadline is for wire.Conn's Interrupt.
func (c *child) SetDeadline(t time.Time) error {
	return errors.Join(c.in.SetDeadline(t), c.out.SetDeadline(t))
}

// hangUp closes its standard input, and ends the calls that wait.
func (c *child) hangUp() {
	c.in.Close()
	_ = c.out.SetReadDeadline(time.Unix(1, 0))
}

func (c *child) Close() error {
	var forced error
	c.once.Do(func() {
		if c.alone {
			defer func() { forced = errors.Join(forced, c.runner.Close()) }()
		}
		c.in.Close()
		defer c.out.Close()
		// A child that still has output would wait forever for a reader.
		_ = c.out.SetReadDeadline(time.Time{})
		go io.Copy(io.Discard, c.out) //nolint:errcheck // ends when out is closed
		for _, step := range []func() error{
			nil,
			func() error { return c.runner.signal(unix.SIGTERM) },
			func() error { return c.runner.signal(unix.SIGKILL) },
		} {
			if step != nil {
				_ = step() // fails only if it ended meanwhile
				forced = fmt.Errorf("transport: the command %q did not end when its input was closed and had to be stopped", c.name)
			}
			select {
			case <-c.done:
				return
			case <-time.After(c.grace):
			}
		}
		forced = fmt.Errorf("transport: the command %q cannot be killed", c.name)
	})
	select {
	case <-c.done:
		if forced == nil {
			return c.err
		}
	default:
	}
	return forced
}

// tailWriter passes on its input and remembers the end of it.
type tailWriter struct {
	w    io.Writer
	mu   sync.Mutex
	tail []byte
}

func (t *tailWriter) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tail = append(t.tail, p...)
	if over := len(t.tail) - stderrKept; over > 0 {
		t.tail = bytes.Clone(t.tail[over:])
	}
	_, _ = t.w.Write(p) // our own stderr may be closed: no reason to stop the child
	return len(p), nil
}

func (t *tailWriter) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.tail)
}

// stdio is the other end of Command: our own standard streams.
type stdio struct {
	in, out *os.File
	restore []func()
	once    sync.Once
}

// Stdio gives our own standard input and output as a connection. Nothing else
// may be written to standard output from then on.
func Stdio() (io.ReadWriteCloser, error) {
	return newStdio(os.Stdin, os.Stdout)
}

func newStdio(in, out *os.File) (*stdio, error) {
	s := &stdio{}
	for _, side := range []struct {
		from *os.File
		to   **os.File
	}{{in, &s.in}, {out, &s.out}} {
		f, restore, err := own(int(side.from.Fd()), side.from.Name())
		if err != nil {
			s.Close()
			return nil, fmt.Errorf("transport: %s: %w", side.from.Name(), err)
		}
		*side.to = f
		s.restore = append(s.restore, restore)
	}
	return s, nil
}

func (s *stdio) Read(p []byte) (int, error)  { return s.in.Read(p) }
func (s *stdio) Write(p []byte) (int, error) { return s.out.Write(p) }

func (s *stdio) SetDeadline(t time.Time) error {
	return errors.Join(s.in.SetDeadline(t), s.out.SetDeadline(t))
}

// hangUp ends the calls that wait, and says to the other end that nothing more comes.
func (s *stdio) hangUp() {
	_ = s.in.SetReadDeadline(time.Unix(1, 0))
	s.out.Close()
}

func (s *stdio) Close() error {
	var err error
	s.once.Do(func() {
		for _, f := range []*os.File{s.in, s.out} {
			if f != nil {
				if cerr := f.Close(); !errors.Is(cerr, os.ErrClosed) { // hangUp was first
					err = errors.Join(err, cerr)
				}
			}
		}
		for _, restore := range s.restore {
			restore()
		}
	})
	return err
}
