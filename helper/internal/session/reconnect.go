package session

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/livefleet/handover/helper/internal/blockmap"
	"github.com/livefleet/handover/helper/internal/passes"
	"github.com/livefleet/handover/helper/internal/pipeline"
	"github.com/livefleet/handover/helper/internal/session/protocol"
	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/transport"
	"github.com/livefleet/handover/helper/internal/wire"
)

// A connection that breaks in presync is made again. Both processes live on: the
// trackers keep marking, and the destination keeps its written data. The source dials
// for as long as policy.reconnect_timeout says, shows that it is the process that began
// (by the digest of its run token), and hears which data arrived; package passes says
// how both agree on that. For a folder's stream under way its progress is unknown, so
// such a folder is sent once more, whole.
//
// From the barrier on a connection that breaks undoes the session, as any other
// failure does: then too much depends on the order of messages.

// beginRound tells the destination that a round begins. From the barrier on there is
// no reconnecting, and the destination need not know.
func (s *link) beginRound(round int) error {
	if s.Journal.State() != record.Presync || !s.reconnects {
		return nil
	}
	return protocol.Send(s.conn, &protocol.Round{Round: round})
}

// confirm takes the destination's word that a round was written. It runs beside the
// session's own steps.
func (s *link) confirm(m *protocol.Round) error {
	if _, err := protocol.Hear(record.Source, s.State(), m); err != nil {
		return err
	}
	if c := s.confirms.Load(); c != nil {
		c.Confirm(m.Round)
	}
	return nil
}

// broken reports whether an error is that a connection broke. The writer may see that
// before the reader, to which the destination may have given the reason: so it waits
// a moment.
func (s *link) broken(why error) bool {
	t := time.NewTimer(time.Second)
	defer t.Stop()
	select {
	case <-s.lost:
	case <-t.C:
	}
	return len(s.inbox) == 0 && s.brokeBy(why)
}

// The pauses between two attempts to connect.
const (
	firstPause   = 100 * time.Millisecond
	longestPause = 5 * time.Second
)

// reconnect reconnects after a break in presync, if why is about that. It returns the
// reason why the session ends.
func (s *presyncer) reconnect(ctx context.Context, why error) error {
	var refused *refusal
	if !s.reconnects || ctx.Err() != nil || errors.Is(why, errAborted) || errors.As(why, &refused) || !s.broken(why) {
		return why
	}
	limit := time.Duration(s.Spec.Policy.ReconnectTimeout) * time.Second
	if err := s.unbrake(); err != nil { // no point in throttling while disconnected
		return errors.Join(why, err)
	}
	s.Log.Emit("broken", map[string]any{"text": why.Error(), "seconds": s.Spec.Policy.ReconnectTimeout})
	s.Update(true, func(st *record.Status) { st.Broken = why.Error() })
	s.sent += s.sentBytes()
	s.line.close()
	until := time.Now().Add(limit)
	pause := firstPause
	for {
		err := s.reconnectOnce(ctx, time.Until(until))
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
	s.Update(true, func(st *record.Status) { st.Broken, st.Reconnects = "", st.Reconnects+1 })
	s.Log.Emit("reconnected", map[string]any{"dirty": s.copy.Dirty()})
	return nil
}

// pause waits, and can be aborted.
func (s *link) pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	for {
		select {
		case r := <-s.Control.Requests:
			if r.Do == record.AskAbort {
				r.Answer(nil)
				return errAborted
			}
			r.Answer(errors.New("the connection to the destination is broken and is being made again: ask once more when it is there"))
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

// reconnectOnce makes one attempt.
func (s *presyncer) reconnectOnce(ctx context.Context, limit time.Duration) error {
	again := &protocol.Again{ID: s.Spec.ID, TokenHash: tokenHash(s.token), Lines: s.Spec.Policy.Connections}
	if err := s.connect(ctx, min(limit, s.patience()), again); err != nil {
		return err
	}
	arrived := map[uint32]*blockmap.Map{}
	for _, v := range s.volumes {
		arrived[v.Stream] = blockmap.New(v.Source.Size(), v.Cluster)
	}
	next := make([]int64, len(s.volumes)) // the words of each map come in order, and not without end
	for {
		answer, err := s.next(ctx, s.patience(), "came", "welcome")
		if err != nil {
			return s.unless(err) // it does not answer, or not to the point
		}
		if welcome, ok := answer.(*protocol.Welcome); ok {
			return s.goOn(ctx, welcome, arrived)
		}
		m := answer.(*protocol.Came)
		if m.Volume < 0 || m.Volume >= len(s.volumes) || len(m.Words)%8 != 0 || len(m.Words) == 0 || m.Word != next[m.Volume] {
			return &refusal{fmt.Errorf("session: what the destination says of word %d of volume %d makes no sense (there are %d volumes)", m.Word, m.Volume, len(s.volumes))}
		}
		next[m.Volume] += int64(len(m.Words) / 8)
		if most := (arrived[s.volumes[m.Volume].Stream].Clusters() + 63) / 64; next[m.Volume] > most {
			return &refusal{fmt.Errorf("session: the destination says that %d words of volume %d came, which has %d", next[m.Volume], m.Volume, most)}
		}
		for i := range len(m.Words) / 8 {
			arrived[s.volumes[m.Volume].Stream].OrWord(m.Word+int64(i), binary.LittleEndian.Uint64(m.Words[8*i:]))
		}
	}
}

// unless makes a refusal of an error, unless it is that a new connection broke, too:
// then there may be another attempt.
func (s *link) unless(err error) error {
	var refused *refusal
	if errors.As(err, &refused) || !s.broken(err) {
		return &refusal{err}
	}
	s.line.close()
	return err
}

// goOn goes on over the new connection.
func (s *presyncer) goOn(ctx context.Context, welcome *protocol.Welcome, arrived map[uint32]*blockmap.Map) error {
	round := welcome.Round
	sender, err := s.newSender(ctx, welcome)
	if err != nil {
		return s.unless(err)
	}
	if err := s.copy.ContinueOver(sender, round, arrived); err != nil {
		return &refusal{err}
	}
	s.expectStock(welcome) // the part under way is unknown
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
		f, err := d.Follow()
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

// receive serves one line of connections after the other: the first, and in
// presync those that come after one that broke.
func (d *destination) receive(ctx context.Context, l *transport.Listener) error {
	d.expectAll()
	d.door = d.openDoor(ctx, l)
	defer d.door.close()
	limit := time.Duration(d.Spec.Policy.ReconnectTimeout) * time.Second
	var broke error
	// If a controller died before it told the source, no source will come.
	late := time.After(d.WaitTimeout())
	for {
		var c *caller
		select {
		case c = <-d.door.lines:
		case err := <-d.door.failed:
			return record.Cause(ctx, err)
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-late:
			if broke == nil {
				return fmt.Errorf("session: the source has not connected within %s", d.WaitTimeout())
			}
			return fmt.Errorf("%w; and the source has not come back within %s", broke, limit)
		}
		if broke != nil {
			d.Update(true, func(st *record.Status) { st.Broken, st.Reconnects = "", st.Reconnects+1 })
		}
		goOn, err := d.serve(ctx, c)
		if !goOn {
			return record.Cause(ctx, err)
		}
		c.Close()
		broke, late = err, time.After(limit)
		d.Log.Emit("broken", map[string]any{"text": err.Error(), "seconds": d.Spec.Policy.ReconnectTimeout})
		d.Update(true, func(st *record.Status) { st.Broken = err.Error() })
	}
}

// expectAll begins to note arrivals, with none.
func (d *incoming) expectAll() {
	d.arrivals = passes.NewArrivals()
	for i, v := range d.Spec.Volumes {
		d.arrivals.Expect(uint32(i), v.Size, v.Cluster)
	}
}

// serve serves one line to its end, and says whether that is no reason to end the
// session.
func (d *destination) serve(ctx context.Context, c *caller) (goOn bool, err error) {
	d.conn = c.Conn
	d.receiver = pipeline.NewReceiver(c, nil, pipeline.ReceiveOptions{Arrived: d.arrivals.Mark})
	d.door.serve(c, d.receiver)
	err = d.receiver.Run(ctx, d.message, func(f *wire.Frame) error { return d.chunk(ctx, f) })
	broke := d.door.hangUp(err)
	if err == io.EOF {
		err = errors.New("session: the source closed the connection")
	}
	if err == nil || !broke || !d.reconnects || ctx.Err() != nil || d.Journal.State() != record.Presync {
		return false, err
	}
	for stream, u := range d.unpacking {
		u.w.CloseWithError(err)
		<-u.done
		delete(d.unpacking, stream)
	}
	return true, err
}

// round: everything before it was written.
func (d *incoming) round(_ context.Context, m *protocol.Round) error {
	if err := d.arrivals.Begin(m.Round); err != nil {
		return err
	}
	return protocol.Send(d.conn, &protocol.Round{Round: m.Round})
}

// wordsAtOnce is how many words of a map one message carries.
const wordsAtOnce = 32 << 10

// again: the source's process is the one that began, and its connection another.
func (d *incoming) again(_ context.Context, m *protocol.Again) error {
	if m.ID != d.Spec.ID || m.TokenHash != d.tokenHash {
		return errors.New("session: another process of the source than the one that began wants to go on, and nothing that it says of what was sent can be believed: start a new session")
	}
	d.lines = m.Lines
	d.openVolumes()
	round, came := d.arrivals.Came()
	for i := range d.Spec.Volumes {
		words := came[uint32(i)].Words()
		for at := 0; at < len(words); at += wordsAtOnce {
			part := words[at:min(at+wordsAtOnce, len(words))]
			b := make([]byte, 0, 8*len(part))
			for _, w := range part {
				b = binary.LittleEndian.AppendUint64(b, w)
			}
			if err := protocol.Send(d.conn, &protocol.Came{Volume: i, Word: int64(at), Words: b}); err != nil {
				return err
			}
		}
	}
	return d.welcome(round)
}
