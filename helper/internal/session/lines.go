package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/livefleet/handover/helper/internal/codec"
	"github.com/livefleet/handover/helper/internal/pipeline"
	"github.com/livefleet/handover/helper/internal/transport"
	"github.com/livefleet/handover/helper/internal/wire"
)

// What both sides say that they can, beyond what every version does.
const canCompare = "ledger" // keep a ledger, and compare it in the end

func understood() []string { return append(codec.Understood(), canCompare) }

// dial makes one connection to the destination.
func (s *source) dial(ctx context.Context, id *transport.Identity) (*wire.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, s.patience())
	defer cancel()
	c, err := transport.Dial(ctx, s.spec.Peer.Address, id, s.spec.Peer.Fingerprint)
	if err != nil {
		return nil, err
	}
	return wire.NewConn(c), nil
}

// joinFurther makes so many further connections, over which volumes are sent
// side by side with the first. One after the other: the destination takes the
// next when it has said yes to the one before.
func (s *source) joinFurther(ctx context.Context, id *transport.Identity, n int) error {
	for range n {
		c, err := s.dial(ctx, id)
		if err != nil {
			return err
		}
		s.further = append(s.further, c)
		if err := send(c, message{Kind: msgJoin, ID: s.spec.ID}); err != nil {
			return err
		}
		if err := expectJoin(ctx, c, s.spec.ID, s.patience()); err != nil {
			return fmt.Errorf("session: a further connection to the destination: %w", err)
		}
	}
	return nil
}

// expectJoin reads the first message on a further connection.
func expectJoin(ctx context.Context, c *wire.Conn, id string, patience time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no answer within %s", patience))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { c.Interrupt(context.Cause(ctx)) })
	defer stop()
	var f wire.Frame
	if err := c.Read(&f); err != nil {
		return err
	}
	if f.Type != wire.Control {
		return fmt.Errorf("it begins with a %s frame", f.Type)
	}
	m, err := parseMessage(&f)
	if err != nil {
		return err
	}
	if m.Kind != msgJoin || m.ID != id {
		return fmt.Errorf("it begins with %q of session %q, and this is session %q", m.Kind, m.ID, id)
	}
	return nil
}

// newSender makes what sends the volumes: as the spec says, as far as the other
// side understands it.
func (s *source) newSender(welcome *message) (*pipeline.Sender, error) {
	can := func(what, otherwise string) bool {
		if slices.Contains(welcome.Can, what) {
			return true
		}
		s.log.Emit("warning", map[string]any{"text": fmt.Sprintf("the destination's pcopy does not know %q: %s", what, otherwise)})
		return false
	}
	// By Auto any of them may be chosen.
	ways := []string{s.spec.Policy.Compression}
	if ways[0] == codec.Auto {
		ways = []string{codec.LZ4.String(), codec.Zstd.String()}
	}
	compression := s.spec.Policy.Compression
	for _, way := range ways {
		if !can(way, "nothing is compressed") {
			compression = codec.Plain.String()
		}
	}
	encoder, err := codec.NewEncoder(compression)
	if err != nil {
		return nil, err
	}
	if can(canCompare, "what was sent and what was written are not compared in the end") {
		s.openLedgers()
	}
	delta := *s.spec.Policy.Delta && can(codec.DeltaName, "clusters that were sent before go whole")
	if delta {
		for _, v := range s.volumes {
			if v.History, err = codec.NewHistory(v.Cluster, codec.DefaultHistory/int64(len(s.volumes))); err != nil {
				return nil, err
			}
		}
	}
	conns := []pipeline.FrameWriter{s.conn}
	for _, c := range s.further {
		conns = append(conns, c)
	}
	s.log.Emit("sending", map[string]any{"compression": compression, "delta": delta, "connections": len(conns)})
	return pipeline.NewSender(conns, pipeline.SendOptions{Encoder: encoder})
}

// sentBytes is what has crossed all connections.
func (s *source) sentBytes() int64 {
	n := s.conn.Sent()
	for _, c := range s.further {
		n += c.Sent()
	}
	return n
}

// join waits, beside everything else, for so many further connections. The
// listener is closed when they are there: nobody else is waited for.
func (d *destination) join(ctx context.Context, n int) {
	d.joining.Add(1)
	go func() {
		defer d.joining.Done()
		defer d.listener.Close()
		for range n {
			c, err := d.listener.Accept(ctx)
			if err != nil {
				if ctx.Err() == nil {
					d.cancel(err)
				}
				return
			}
			conn := wire.NewConn(c)
			d.further = append(d.further, conn)
			patience := time.Duration(d.spec.Policy.PeerTimeout) * time.Second
			if err := expectJoin(ctx, conn, d.spec.ID, patience); err != nil {
				d.cancel(fmt.Errorf("session: a further connection from the source: %w", err))
				return
			}
			// First joined, then said: what is sent after the answer is read by it.
			d.receiver.Join(conn)
			if err := send(conn, message{Kind: msgJoin, ID: d.spec.ID}); err != nil {
				d.cancel(err)
				return
			}
		}
	}()
}

// closeFurther closes what join opened.
func (d *destination) closeFurther() {
	if d.listener != nil {
		d.listener.Close()
	}
	d.joining.Wait()
	for _, c := range d.further {
		if err := c.Close(); err != nil && !errors.Is(err, wire.ErrClosed) {
			d.log.Emit("warning", map[string]any{"text": err.Error()})
		}
	}
}
