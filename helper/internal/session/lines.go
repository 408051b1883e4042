package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/livefleet/handover/helper/internal/codec"
	"github.com/livefleet/handover/helper/internal/pipeline"
	"github.com/livefleet/handover/helper/internal/session/engine"
	"github.com/livefleet/handover/helper/internal/session/protocol"
	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/transport"
	"github.com/livefleet/handover/helper/internal/wire"
)

// The features that a side announces, beyond those of every version.
const (
	canCompare   = "ledger" // keep a ledger, and compare it in the end
	canReconnect = "resume" // go on over another connection when one breaks in presync
	canPages     = "pages"  // take a dump's pages while it is written, and memory ahead of it
	canPatch     = "patch"  // take pieces of a file in a folder, whose other content stays
)

// Needs are the features without which a destination ends a session of this version, by
// the kind of move: a check asks before anything is touched.
func Needs() map[string][]string {
	return map[string][]string{"live": engine.NeedsOfDump(), "lazy_pages": {canLazy}, "floating": {engine.CanFloat}}
}

// Understood are the features of this version.
func Understood() []string { return understood() }

func understood() []string {
	return append(codec.Understood(), canCompare, canReconnect, canStartFrom, canPages, canPatch, canLazy, engine.CanSettings, engine.CanOwnNetwork, engine.CanOwnLinks, engine.CanGroups, engine.CanSystem, engine.CanFloat)
}

// can reports whether the destination can do something that not every version does.
func (s *link) can(welcome *protocol.Welcome, what, otherwise string) bool {
	if slices.Contains(welcome.Can, what) {
		return true
	}
	s.Log.Emit("warning", map[string]any{"text": fmt.Sprintf("the destination's pcopy does not know %q: %s", what, otherwise)})
	return false
}

// line is the connections to the destination that belong together, and the messages
// over the first of them. Volumes are sent over all of them side by side.
type line struct {
	conn    *wire.Conn
	further []*wire.Conn
	inbox   chan protocol.Message
	lost    chan struct{} // closed when the first connection is gone
	lostErr error
}

// close closes all of them, if there are any.
func (l *line) close() {
	for _, c := range l.further {
		c.Close()
	}
	if l.conn != nil {
		l.conn.Close()
	}
}

// sentBytes is the number of bytes that have crossed all of them.
func (l *line) sentBytes() int64 {
	n := l.conn.Sent()
	for _, c := range l.further {
		n += c.Sent()
	}
	return n
}

// brokeBy reports whether an error is that one of the connections broke, and not that
// this side cut it for another reason.
func (l *line) brokeBy(why error) bool {
	for _, c := range append([]*wire.Conn{l.conn}, l.further...) {
		if err := c.SendError(); err != nil && errors.Is(why, err) {
			return true
		}
	}
	select {
	case <-l.lost:
		return errors.Is(why, l.lostErr)
	default:
		return false
	}
}

// dial makes one connection to the destination.
func (s *link) dial(ctx context.Context, limit time.Duration) (*wire.Conn, error) {
	id, err := transport.Load(filepath.Join(s.Dir, record.IdentityDir))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c, err := transport.Dial(ctx, s.way, id, s.Spec.Peer.Fingerprint)
	if err != nil {
		return nil, err
	}
	return wire.NewConn(c), nil
}

// connect makes the first connection of a line and says the first word.
func (s *link) connect(ctx context.Context, limit time.Duration, first protocol.Message) error {
	c, err := s.dial(ctx, limit)
	if err != nil {
		return err
	}
	s.line = &line{conn: c, inbox: make(chan protocol.Message, 16), lost: make(chan struct{})}
	go s.line.listen(s.confirm)
	return protocol.Send(c, first)
}

// listen passes the peer's messages on until the connection ends.
func (l *line) listen(confirm func(*protocol.Round) error) {
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
		m, err := protocol.Parse(&f, record.Destination)
		if err != nil {
			l.lostErr = err
			return
		}
		if round, ok := m.(*protocol.Round); ok {
			if err := confirm(round); err != nil {
				l.lostErr = err
				return
			}
			continue
		}
		l.inbox <- m
	}
}

// joinFurther makes so many further connections, over which volumes are sent
// side by side with the first. One after the other: the destination takes the
// next when it has said yes to the one before.
func (s *link) joinFurther(ctx context.Context, n int) error {
	for range min(n, record.MaxConnections-1) {
		c, err := s.dial(ctx, s.patience())
		if err != nil {
			return err
		}
		s.further = append(s.further, c)
		if err := s.belongs(ctx, c, &protocol.Join{Further: protocol.Further{ID: s.Spec.ID}}); err != nil {
			return fmt.Errorf("session: a further connection to the destination: %w", err)
		}
	}
	return nil
}

// first is a message that begins a further connection.
type first interface {
	protocol.Message
	Session() string
}

// belongs says that a connection is a further one of this session, and waits for the
// destination to say the same.
func (s *link) belongs(ctx context.Context, c *wire.Conn, m first) error {
	if err := protocol.Send(c, m); err != nil {
		return err
	}
	var f wire.Frame
	if err := readFirst(ctx, c, &f, s.patience()); err != nil {
		return err
	}
	answer := begins(&f, s.Spec.ID, record.Destination)
	if answer == nil || answer.Kind() != m.Kind() {
		return fmt.Errorf("it begins with a %s frame that does not say that it belongs to session %q", f.Type, s.Spec.ID)
	}
	return protocol.HearFirst(record.Source, s.State(), answer)
}

// readFirst reads the first frame on a connection, for which the other side has
// not longer than patience.
func readFirst(ctx context.Context, c *wire.Conn, f *wire.Frame, patience time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("nothing came within %s", patience))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { c.Interrupt(context.Cause(ctx)) })
	defer stop()
	return c.Read(f)
}

// begins is the message of a first frame that begins a further connection of a session;
// nil, if the frame has none.
func begins(f *wire.Frame, id string, by record.Role) first {
	if f.Type != wire.Control {
		return nil
	}
	m, err := protocol.Parse(f, by)
	if err != nil {
		return nil
	}
	if m, ok := m.(first); ok && m.Session() == id {
		return m
	}
	return nil
}

// newSender makes the further connections, and the sender of volumes over all of
// them: as the spec says, as far as the other side understands it. No delta may be
// about data that were sent over earlier connections.
func (s *outgoing) newSender(ctx context.Context, welcome *protocol.Welcome) (*pipeline.Sender, error) {
	if err := s.joinFurther(ctx, welcome.Lines-1); err != nil {
		return nil, err
	}
	// By Auto any of them may be chosen.
	ways := []string{s.Spec.Policy.Compression}
	if ways[0] == codec.Auto {
		ways = []string{codec.LZ4.String(), codec.Zstd.String()}
	}
	compression := s.Spec.Policy.Compression
	for _, way := range ways {
		if !s.can(welcome, way, "nothing is compressed") {
			compression = codec.Plain.String()
		}
	}
	encoder, err := codec.NewEncoder(compression)
	if err != nil {
		return nil, err
	}
	delta := *s.Spec.Policy.Delta && s.can(welcome, codec.DeltaName, "clusters that were sent before go whole")
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
	s.Log.Emit("sending", map[string]any{"to": s.way.String(), "compression": compression, "delta": delta, "connections": len(conns)})
	return pipeline.NewSender(conns, pipeline.SendOptions{Encoder: encoder})
}

// caller is a connection that has come, and its first message.
type caller struct {
	*wire.Conn
	first    wire.Frame
	firstErr error // why there is no first frame
	take     func(size int) ([]byte, error)
	said     bool  // the first frame was passed on
	lost     error // how the connection ended, if it is that which ended
}

// TakeMemory is for the first frame, too.
func (c *caller) TakeMemory(take func(size int) ([]byte, error)) {
	c.take = take
	c.Conn.TakeMemory(take)
}

// Read begins with the first frame, which was read before.
func (c *caller) Read(f *wire.Frame) error {
	if !c.said {
		c.said = true
		if c.firstErr != nil {
			return c.ended(c.firstErr)
		}
		*f = c.first
		if size := len(c.first.Payload); size > 0 {
			b, err := c.take(size)
			if err != nil {
				return err
			}
			f.Payload = b[:copy(b, c.first.Payload)]
		}
		return nil
	}
	return c.ended(c.Conn.Read(f))
}

// ended remembers how the connection ended. A damaged one, or one of another version,
// did not break.
func (c *caller) ended(err error) error {
	if err != nil && !errors.Is(err, wire.ErrCorrupt) && !errors.Is(err, wire.ErrVersion) {
		c.lost = err
	}
	return err
}

// door takes connections for as long as there may come some: the first of a line,
// and those that join it.
type door struct {
	d      *destination
	l      *transport.Listener
	ctx    context.Context
	cancel context.CancelFunc
	ended  sync.WaitGroup
	places chan struct{} // one for each that has not identified itself yet
	lines  chan *caller  // a line's first; one that was not taken yet is replaced
	failed chan error    // why no connection can come any more

	mu      sync.Mutex
	current *caller            // the line that is being served
	into    *pipeline.Receiver // the connections that join it
	joined  []*caller
}

func (d *destination) openDoor(ctx context.Context, l *transport.Listener) *door {
	o := &door{d: d, l: l, places: make(chan struct{}, record.MaxConnections), lines: make(chan *caller, 1), failed: make(chan error, 1)}
	o.ctx, o.cancel = context.WithCancel(ctx)
	o.ended.Add(1)
	go o.keep()
	return o
}

func (o *door) keep() {
	defer o.ended.Done()
	for {
		select {
		case o.places <- struct{}{}:
		case <-o.ctx.Done():
			return
		}
		c, err := o.l.Accept(o.ctx)
		if err != nil {
			o.failed <- err
			return
		}
		o.ended.Add(1)
		go func() {
			defer o.ended.Done()
			defer func() { <-o.places }()
			o.greet(&caller{Conn: wire.NewConn(c)})
		}()
	}
}

// greet finds out the kind of a connection.
func (o *door) greet(c *caller) {
	patience := time.Duration(o.d.Spec.Policy.PeerTimeout) * time.Second
	c.firstErr = readFirst(o.ctx, c.Conn, &c.first, patience)
	if c.firstErr == nil && o.takeFurther(c) {
		return
	}
	st := o.d.Journal.State()
	if st != record.Prepare && (st != record.Presync || c.firstErr != nil) {
		c.Close() // there is nothing to resume
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	select {
	case old := <-o.lines:
		old.Close()
	default:
	}
	o.lines <- c
	if o.current != nil {
		// Its other end has given the old one up, whether we know it or not.
		o.current.Interrupt(errReplaced)
	}
}

// takeFurther takes a connection if it is a further one, or closes it if none is due.
func (o *door) takeFurther(c *caller) bool {
	m := begins(&c.first, o.d.Spec.ID, record.Source)
	if m == nil {
		return false
	}
	if err := protocol.HearFirst(record.Destination, o.d.State(), m); err != nil {
		o.d.Log.Emit("warning", map[string]any{"text": err.Error()})
		c.Close()
		return true
	}
	if _, ok := m.(*protocol.Join); ok {
		o.join(c)
		return true
	}
	if o.d.fetcher == nil {
		return false
	}
	if err := protocol.Send(c.Conn, &protocol.Fetch{Further: protocol.Further{ID: o.d.Spec.ID}}); err != nil {
		c.Close()
		return true
	}
	o.d.fetcher.Connect(c.Conn)
	return true
}

var errReplaced = errors.New("session: the source has made another connection")

// join gives a further connection to the line that is being served.
func (o *door) join(c *caller) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.into == nil || len(o.joined) >= record.MaxConnections-1 {
		c.Close()
		return
	}
	c.said = true
	o.joined = append(o.joined, c)
	// First joined, then said: data sent after the answer are read by it.
	o.into.Join(c)
	if err := protocol.Send(c.Conn, &protocol.Join{Further: protocol.Further{ID: o.d.Spec.ID}}); err != nil {
		o.current.Interrupt(err)
	}
}

// serve joins further connections to this line.
func (o *door) serve(c *caller, into *pipeline.Receiver) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.current, o.into = c, into
}

// hangUp ends the line that was served, and says whether an error is that one of its
// connections broke.
func (o *door) hangUp(why error) (broke bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, c := range append(o.joined, o.current) {
		broke = broke || c.lost != nil && errors.Is(why, c.lost)
	}
	for _, c := range o.joined {
		c.Close()
	}
	o.current, o.into, o.joined = nil, nil, nil
	return broke
}

// close accepts no further connection.
func (o *door) close() {
	o.cancel()
	o.ended.Wait()
	o.l.Close()
	select {
	case c := <-o.lines:
		c.Close()
	default:
	}
}
