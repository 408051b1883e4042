package session

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

// What can be asked of a running session.
const (
	askCutover = "cutover" // source: freeze and hand over
	askAbort   = "abort"   // before the release: undo
	askResolve = "resolve" // what the other side says became of it
	askStart   = "start"   // from the OCI hook: may the container start here?
)

// request is one line to the control socket; reply is the line back.
type request struct {
	Do      string `json:"do"`
	Outcome State  `json:"outcome,omitempty"` // resolve: resumed, refused or fenced
	Wave    string `json:"wave,omitempty"`    // cutover: the socket at which the sources of a wave meet
	reply   chan reply
}

type reply struct {
	OK    bool   `json:"ok"`
	Error string `json:"error,omitempty"`
}

func (r request) answer(err error) {
	if err != nil {
		r.reply <- reply{Error: err.Error()}
		return
	}
	r.reply <- reply{OK: true}
}

// control is the socket of a running session. Only root can connect to it.
type control struct {
	listener net.Listener
	mayStart func() error // answers askStart at once: it may be the session's own doing that asks
	requests chan request
	done     chan struct{}
}

func listenControl(path string, mayStart func() error) (*control, error) {
	l, err := transport.ListenUnix(path)
	if err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	c := &control{listener: l, mayStart: mayStart, requests: make(chan request), done: make(chan struct{})}
	go c.serve()
	return c, nil
}

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
	var r request
	line, err := bufio.NewReader(conn).ReadBytes('\n')
	if err != nil || json.Unmarshal(line, &r) != nil {
		return
	}
	r.reply = make(chan reply, 1)
	out := reply{Error: "the session is ending"}
	if r.Do == askStart {
		r.answer(c.mayStart())
		_ = json.NewEncoder(conn).Encode(<-r.reply)
		return
	}
	select {
	case c.requests <- r:
		select {
		case out = <-r.reply:
		case <-c.done:
		}
	case <-c.done:
	}
	_ = json.NewEncoder(conn).Encode(out)
}

var errNobody = errors.New("no process serves this session")

// ask sends a request to the process that serves the session in dir.
func ask(ctx context.Context, dir string, r request) error {
	conn, err := transport.DialUnix(ctx, filepath.Join(dir, controlFile))
	if err != nil {
		return fmt.Errorf("session: %w: %w", errNobody, err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if err := json.NewEncoder(conn).Encode(r); err != nil {
		return fmt.Errorf("session: asking for %s: %w", r.Do, cause(ctx, err))
	}
	var out reply
	if err := json.NewDecoder(conn).Decode(&out); err != nil {
		return fmt.Errorf("session: asking for %s: no answer: %w", r.Do, cause(ctx, err))
	}
	if !out.OK {
		return fmt.Errorf("session: %s: %s", r.Do, out.Error)
	}
	return nil
}

// Cutover asks the source's process to hand over now, and waits for the outcome:
// the status says what it is.
func Cutover(ctx context.Context, dir string) (*Status, error) {
	if err := ask(ctx, dir, request{Do: askCutover}); err != nil {
		return nil, err
	}
	return Wait(ctx, dir, []string{UntilEnded, UntilHeld})
}

// CheckOutcome refuses a word that is no outcome.
func CheckOutcome(outcome State) error {
	if outcome != Resumed && outcome != Refused && outcome != Fenced {
		return fmt.Errorf("session: an outcome is %s, %s or %s, not %q", Resumed, Refused, Fenced, outcome)
	}
	return nil
}

// Resolve tells a side what the other one says.
//
// To a source: resumed says that the destination has settled, refused that it
// refused or discarded, fenced that it was switched off and the source is ordered
// to go on without it. To a destination: resumed says that the source has settled
// or is done, and will never thaw; refused, that a workload in doubt does not run
// here; fenced, that the source was ordered to go on without it.
//
// Each of them is believed. A wrong word makes the workload run twice, or not at
// all.
func Resolve(ctx context.Context, dir, runDir string, outcome State) (*Status, error) {
	if err := CheckOutcome(outcome); err != nil {
		return nil, err
	}
	if s, err := Show(dir); err != nil || s.Ended {
		return s, err
	}
	err := ask(ctx, dir, request{Do: askResolve, Outcome: outcome})
	if errors.Is(err, errNobody) {
		if err := resolveOrphan(ctx, dir, runDir, outcome); err != nil {
			return nil, err
		}
		return Show(dir)
	}
	if err != nil {
		return nil, err
	}
	return Wait(ctx, dir, []string{UntilEnded})
}
