package session

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"time"

	"github.com/livefleet/handover/helper/internal/blockmap"
	"github.com/livefleet/handover/helper/internal/passes"
	"github.com/livefleet/handover/helper/internal/pipeline"
	"github.com/livefleet/handover/helper/internal/transport"
	"github.com/livefleet/handover/helper/internal/tree"
	"github.com/livefleet/handover/helper/internal/wire"
)

// A connection that breaks in presync is made again. Both processes live on: the
// trackers go on marking, and what the destination has written it has. The source
// dials for as long as policy.resume_timeout says, shows that it is the process
// that began (by the digest of its run token), and hears what came; package passes
// says how both agree on that. Of a folder's stream that was under way nobody
// knows how far it got, so such a folder is sent once more, whole.
//
// From the barrier on a connection that breaks undoes the session, as any other
// failure does: then too much hangs on the order of what is said.

// line is one connection to the destination, and what comes over it.
type line struct {
	conn    *wire.Conn
	inbox   chan *message
	lost    chan struct{} // closed when the connection is gone
	lostErr error
}

// connect makes a connection and says the first word.
func (s *source) connect(ctx context.Context, limit time.Duration, first message) error {
	id, err := transport.Load(filepath.Join(s.dir, identityDir))
	if err != nil {
		return err
	}
	dialing, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c, err := transport.Dial(dialing, s.spec.Peer.Address, id, s.spec.Peer.Fingerprint)
	if err != nil {
		return err
	}
	s.line = &line{conn: wire.NewConn(c), inbox: make(chan *message, 16), lost: make(chan struct{})}
	go s.line.listen(s.confirm)
	return send(s.conn, first)
}

// listen passes the peer's messages on until the connection ends.
func (l *line) listen(confirm func(round int)) {
	defer close(l.lost)
	var f wire.Frame
	for {
		if err := l.conn.Read(&f); err != nil {
			if err == io.EOF {
				err = errors.New("the destination closed the connection")
			}
			l.lostErr = err
			return
		}
		if f.Type != wire.Control {
			l.lostErr = fmt.Errorf("the destination sent a %s frame", f.Type)
			return
		}
		m, err := parseMessage(&f)
		if err != nil {
			l.lostErr = err
			return
		}
		if m.Kind == msgRound {
			confirm(m.Round)
			continue
		}
		l.inbox <- m
	}
}

// beginRound tells the destination that a round begins. From the barrier on there
// is no resuming, and nobody needs to know.
func (s *source) beginRound(round int) error {
	if s.journal.State() != Presync {
		return nil
	}
	return send(s.conn, message{Kind: msgRound, Round: round})
}

func (s *source) confirm(round int) {
	if c := s.confirms.Load(); c != nil {
		c.Confirm(round)
	}
}

// broken waits a moment for the end of the connection, which whoever writes may
// see before whoever reads, and reports whether it is that, and nothing that the
// destination had to say.
func (s *source) broken() bool {
	t := time.NewTimer(time.Second)
	defer t.Stop()
	select {
	case <-s.lost:
		return len(s.inbox) == 0
	case <-t.C:
		return false
	}
}

// The pauses between two attempts to connect.
const (
	firstPause   = 100 * time.Millisecond
	longestPause = 5 * time.Second
)

// resume makes a connection again that broke in presync, if that is what why is
// about. What it returns is why the session ends.
func (s *source) resume(ctx context.Context, why error) error {
	var refused *refusal
	if s.journal.State() != Presync || ctx.Err() != nil || errors.Is(why, errAborted) || errors.As(why, &refused) || !s.broken() {
		return why
	}
	limit := time.Duration(s.spec.Policy.ResumeTimeout) * time.Second
	s.log.Emit("broken", map[string]any{"text": why.Error(), "seconds": s.spec.Policy.ResumeTimeout})
	s.update(true, func(st *Status) { st.Resuming = why.Error() })
	s.sent += s.conn.Sent()
	s.conn.Close()
	until := time.Now().Add(limit)
	pause := firstPause
	for {
		err := s.reconnect(ctx, time.Until(until))
		if err == nil {
			break
		}
		switch {
		case errors.As(err, &refused), errors.Is(err, errAborted), ctx.Err() != nil:
			return err
		case time.Now().Add(pause).After(until):
			return fmt.Errorf("%w; and no other could be made within %s: %w", why, limit, err)
		}
		if err := s.pause(ctx, pause); err != nil {
			return err
		}
		pause = min(2*pause, longestPause)
	}
	s.update(true, func(st *Status) { st.Resuming, st.Resumed = "", st.Resumed+1 })
	s.log.Emit("resumed", map[string]any{"dirty": s.copy.Dirty()})
	return nil
}

// pause waits, and can be aborted.
func (s *source) pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	for {
		select {
		case r := <-s.control.requests:
			if r.Do == askAbort {
				r.answer(nil)
				return errAborted
			}
			r.answer(errors.New("the connection to the destination is broken and is being made again: ask once more when it is there"))
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-t.C:
			return nil
		}
	}
}

// refusal is an error that another connection does not mend.
type refusal struct{ error }

func (r *refusal) Unwrap() error { return r.error }

// reconnect makes one attempt.
func (s *source) reconnect(ctx context.Context, limit time.Duration) error {
	if err := s.connect(ctx, min(limit, s.patience()), message{Kind: msgAgain, ID: s.spec.ID, TokenHash: tokenHash(s.token)}); err != nil {
		return err
	}
	arrived := map[uint32]*blockmap.Map{}
	for _, v := range s.volumes {
		arrived[v.Stream] = blockmap.New(v.Source.Size(), v.Cluster)
	}
	for {
		m, err := s.expect(ctx, s.patience(), msgCame, msgWelcome)
		if err != nil {
			if s.broken() {
				s.conn.Close()
				return err
			}
			return &refusal{err} // it does not answer, or not to the point
		}
		if m.Kind == msgWelcome {
			return s.goOn(m, arrived)
		}
		if m.Volume < 0 || m.Volume >= len(s.volumes) || len(m.Words)%8 != 0 {
			return &refusal{fmt.Errorf("session: the destination speaks of volume %d, and there are %d", m.Volume, len(s.volumes))}
		}
		for i := range len(m.Words) / 8 {
			arrived[s.volumes[m.Volume].Stream].OrWord(m.Word+int64(i), binary.LittleEndian.Uint64(m.Words[8*i:]))
		}
	}
}

// goOn goes on over the new connection.
func (s *source) goOn(welcome *message, arrived map[uint32]*blockmap.Map) error {
	round := welcome.Round
	sender, err := s.newSender(welcome)
	if err != nil {
		return &refusal{err}
	}
	if err := s.copy.Resume(sender, round, arrived); err != nil {
		return &refusal{err}
	}
	for _, t := range s.trees {
		if t.mirror != nil && t.round >= round {
			if err := t.mirror.Close(); err != nil {
				return &refusal{err}
			}
			t.mirror = nil
		}
	}
	for i, d := range s.directories {
		if d.follower.First() || d.round < round {
			continue
		}
		f, err := tree.Follow(d.Path)
		if err != nil {
			return &refusal{fmt.Errorf("session: volume %s: %w", d.Name, err)}
		}
		err = d.follower.Close()
		s.directories[i].follower, s.directories[i].entries, s.directories[i].bytes = f, 1, d.Size
		if err != nil {
			return &refusal{err}
		}
	}
	return nil
}

// receive serves one connection after the other: the first, and in presync those
// that come after one that broke.
func (d *destination) receive(ctx context.Context, l *transport.Listener) error {
	d.expectAll()
	c, err := l.Accept(ctx)
	if err != nil {
		return cause(ctx, err)
	}
	for {
		next := make(chan net.Conn, 1)
		accepting, stop := context.WithCancel(ctx)
		accepted := make(chan struct{})
		conn := wire.NewConn(c)
		go func() {
			defer close(accepted)
			for {
				c, err := l.Accept(accepting)
				if err != nil {
					return
				}
				if d.journal.State() != Presync {
					c.Close() // there is nothing to resume
					continue
				}
				// Its other end has given the old one up, whether we know it or not.
				next <- c
				conn.Interrupt(errReplaced)
				return
			}
		}()
		broke, err := d.serve(ctx, conn)
		if err == nil || !broke || ctx.Err() != nil || d.journal.State() != Presync {
			stop()
			<-accepted
			if len(next) > 0 {
				(<-next).Close()
			}
			return cause(ctx, err)
		}
		conn.Close()
		limit := time.Duration(d.spec.Policy.ResumeTimeout) * time.Second
		d.log.Emit("broken", map[string]any{"text": err.Error(), "seconds": d.spec.Policy.ResumeTimeout})
		d.update(true, func(st *Status) { st.Resuming = err.Error() })
		t := time.NewTimer(limit)
		select {
		case <-accepted:
		case <-t.C:
		}
		t.Stop()
		stop()
		<-accepted
		select {
		case c = <-next:
		default:
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return fmt.Errorf("%w; and the source has not come back within %s", err, limit)
		}
		d.update(true, func(st *Status) { st.Resuming, st.Resumed = "", st.Resumed+1 })
	}
}

// expectAll begins to note what comes, with nothing.
func (d *destination) expectAll() {
	d.arrivals, d.streams = passes.NewArrivals(), map[uint32]pipeline.Target{}
	for i, t := range d.targets {
		d.streams[uint32(i)] = d.arrivals.Target(uint32(i), t, d.spec.Volumes[i].Cluster)
	}
}

var errReplaced = errors.New("session: the source has made another connection")

// serve serves one connection to its end, and says whether the connection is what
// ended it.
func (d *destination) serve(ctx context.Context, conn *wire.Conn) (broke bool, err error) {
	d.conn = conn
	reader := &lineReader{Conn: conn}
	d.receiver = pipeline.NewReceiver(reader, nil, pipeline.ReceiveOptions{})
	for stream, t := range d.streams {
		d.receiver.Add(stream, t)
	}
	err = d.receiver.Run(ctx, d.message, d.chunk)
	broke = err != nil && reader.err != nil && errors.Is(err, reader.err)
	if broke {
		for stream, u := range d.unpacking {
			u.w.CloseWithError(err)
			<-u.done
			delete(d.unpacking, stream)
		}
	}
	if err == io.EOF {
		err = errors.New("session: the source closed the connection")
	}
	return broke, err
}

// lineReader remembers how the connection ended, if it is that which ended.
type lineReader struct {
	*wire.Conn
	err error
}

func (r *lineReader) Read(f *wire.Frame) error {
	err := r.Conn.Read(f)
	if err != nil && !errors.Is(err, wire.ErrCorrupt) && !errors.Is(err, wire.ErrVersion) {
		r.err = err
	}
	return err
}

// round: everything before it was written.
func (d *destination) round(_ context.Context, m *message) error {
	if err := d.arrivals.Begin(m.Round); err != nil {
		return err
	}
	return send(d.conn, message{Kind: msgRound, Round: m.Round})
}

// wordsAtOnce is how many words of a map one message carries.
const wordsAtOnce = 32 << 10

// again: the source's process is the one that began, and its connection another.
func (d *destination) again(_ context.Context, m *message) error {
	if m.ID != d.spec.ID || m.TokenHash != d.tokenHash {
		return errors.New("session: another process of the source than the one that began wants to go on, and nothing that it says of what was sent can be believed: start a new session")
	}
	round, came := d.arrivals.Came()
	for i := range d.spec.Volumes {
		words := came[uint32(i)].Words()
		for at := 0; at < len(words); at += wordsAtOnce {
			part := words[at:min(at+wordsAtOnce, len(words))]
			b := make([]byte, 0, 8*len(part))
			for _, w := range part {
				b = binary.LittleEndian.AppendUint64(b, w)
			}
			if err := send(d.conn, message{Kind: msgCame, Volume: i, Word: int64(at), Words: b}); err != nil {
				return err
			}
		}
	}
	return d.welcome(round)
}
