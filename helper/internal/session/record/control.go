package record

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"

	"github.com/livefleet/handover/helper/internal/transport"
)

// The requests to a running session.
const (
	AskCutover = "cutover" // source: freeze and hand over
	AskAbort   = "abort"   // before the release: undo
	AskResolve = "resolve" // the outcome by the other side
	AskStart   = "start"   // from the OCI hook: may the container start here?
)

// Request is one line to the control socket; reply is the line back.
type Request struct {
	Do      string `json:"do"`
	Outcome State  `json:"outcome,omitempty"` // resolve: resumed, refused or fenced
	Wave    string `json:"wave,omitempty"`    // cutover: the socket at which the sources of a wave meet
	// start: the runtime restores the container, and does not make it anew.
	Restores bool `json:"restores,omitempty"`
	reply    chan reply
}

type reply struct {
	OK    bool   `json:"ok"`
	Error string `json:"error,omitempty"`
}

// Answer tells the one that asked how it ended.
func (r Request) Answer(err error) {
	if err != nil {
		r.reply <- reply{Error: err.Error()}
		return
	}
	r.reply <- reply{OK: true}
}

// control is the socket of a running session. Only root can connect to it.
type control struct {
	listener net.Listener
	mayStart func(restores bool) error // answers askStart at once: it may be the session's own doing that asks
	Requests chan Request
	done     chan struct{}
}

func listenControl(path string, mayStart func(restores bool) error) (*control, error) {
	l, err := transport.ListenUnix(path)
	if err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	c := &control{listener: l, mayStart: mayStart, Requests: make(chan Request), done: make(chan struct{})}
	go c.serve()
	return c, nil
}

// Close ends it: unanswered requests are told that the session ends.
func (c *control) Close() {
	close(c.done)
	c.listener.Close()
}

func (c *control) serve() {
	for {
		conn, err := c.listener.Accept()
		if err != nil {
			return
		}
		go c.talk(conn)
	}
}

func (c *control) talk(conn net.Conn) {
	defer conn.Close()
	var r Request
	line, err := bufio.NewReader(conn).ReadBytes('\n')
	if err != nil || json.Unmarshal(line, &r) != nil {
		return
	}
	r.reply = make(chan reply, 1)
	out := reply{Error: "the session is ending"}
	if r.Do == AskStart {
		r.Answer(c.mayStart(r.Restores))
		_ = json.NewEncoder(conn).Encode(<-r.reply)
		return
	}
	select {
	case c.Requests <- r:
		select {
		case out = <-r.reply:
		case <-c.done:
		}
	case <-c.done:
	}
	_ = json.NewEncoder(conn).Encode(out)
}

// again passes on a request that had come too early.
func (c *control) again(r Request) {
	select {
	case c.Requests <- r:
	case <-c.done:
	}
}

var ErrNobody = errors.New("no process serves this session")

// Ask sends a request to the process that serves the session in dir.
func Ask(ctx context.Context, dir string, r Request) error {
	conn, err := transport.DialUnix(ctx, filepath.Join(dir, controlFile))
	if err != nil {
		return fmt.Errorf("session: %w: %w", ErrNobody, err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if err := json.NewEncoder(conn).Encode(r); err != nil {
		return fmt.Errorf("session: asking for %s: %w", r.Do, Cause(ctx, err))
	}
	var out reply
	if err := json.NewDecoder(conn).Decode(&out); err != nil {
		return fmt.Errorf("session: asking for %s: no answer: %w", r.Do, Cause(ctx, err))
	}
	if !out.OK {
		return fmt.Errorf("session: %s: %s", r.Do, out.Error)
	}
	return nil
}
