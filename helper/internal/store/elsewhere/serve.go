package elsewhere

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/livefleet/handover/helper/internal/store"
	"github.com/livefleet/handover/helper/internal/wire"
)

// server is the side that has the store.
type server struct {
	conn    *wire.Conn
	store   *store.Store
	take    *store.Take
	volumes []*store.Writing
	over    bool
}

// Serve carries out the orders from the other end of the streams, until that closes them.
// One that is not finished then is given up.
func Serve(rw io.ReadWriteCloser) error {
	s := &server{conn: wire.NewConn(rw)}
	err := s.serve(rw)
	if err != nil {
		// Its last words. If nobody hears them, the store is as it was all the same.
		_ = say(s.conn, answer{Error: err.Error()})
	}
	return errors.Join(err, s.end(), rw.Close())
}

// end lets go of the store, as it is.
func (s *server) end() (err error) {
	if s.take != nil {
		err = s.take.Abandon()
	}
	if s.store != nil {
		err = errors.Join(err, s.store.Close())
	}
	return err
}

func (s *server) serve(rw io.ReadWriteCloser) error {
	var f wire.Frame
	for !s.over {
		// The other host may have lost its power: then no end of the streams is told.
		silent := time.AfterFunc(silence, func() { rw.Close() })
		err := s.conn.Read(&f)
		if heard := silent.Stop(); err != nil {
			if !heard {
				return fmt.Errorf("nothing was heard for %v, and what was begun is given up", silence)
			}
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if err := s.frame(&f); err != nil {
			return err
		}
	}
	return nil
}

func (s *server) frame(f *wire.Frame) error {
	switch f.Type {
	case wire.Data, wire.Zero:
		if int64(f.Stream) >= int64(len(s.volumes)) {
			return fmt.Errorf("data of a volume %d came, and %d were begun", f.Stream, len(s.volumes))
		}
		if w := s.volumes[f.Stream]; f.Type == wire.Zero {
			return w.Zero(f.Pos, f.Length)
		} else {
			return w.Write(f.Payload, f.Pos)
		}
	case wire.Control:
		var o order
		if err := json.Unmarshal(f.Payload, &o); err != nil {
			return err
		}
		return s.do(o)
	}
	return fmt.Errorf("a frame of type %v came to a store", f.Type)
}

// do carries an order out.
func (s *server) do(o order) error {
	work, ok := map[string]func(order) error{
		"alive": func(order) error { return nil }, "peek": s.peek, "open": s.open, "settle": s.settle, "begin": s.begin, "volume": s.volume, "sums": s.sums,
		"file": s.file, "finish": s.finish, "close": s.close, "read": s.read, "copy": s.copy, "rest": s.rest,
	}[o.Do]
	if !ok {
		return fmt.Errorf("%w (%s)", errUnknown, o.Do)
	}
	needs := map[string]bool{"settle": s.store != nil, "begin": s.store != nil && s.take == nil, "volume": s.take != nil, "file": s.take != nil, "finish": s.take != nil}
	if ready, asked := needs[o.Do]; asked && !ready {
		return fmt.Errorf("%q was asked for out of its order", o.Do)
	}
	return work(o)
}

// tell answers with bytes.
func (s *server) tell(b []byte) error {
	if err := say(s.conn, answer{Bytes: int64(len(b))}); err != nil {
		return err
	}
	return send(s.conn, int64(len(b)), bytes.NewReader(b))
}

func (s *server) tellJSON(what any) error {
	b, err := json.Marshal(what)
	if err != nil {
		return err
	}
	return s.tell(b)
}

func (s *server) peek(o order) error {
	x, err := store.Peek(o.Dir)
	if err != nil {
		return err
	}
	return s.tellJSON(x)
}

func (s *server) open(o order) (err error) {
	if s.store != nil {
		return errors.New("a store is open already")
	}
	if s.store, err = store.Open(o.Dir, o.Create); err != nil {
		return err
	}
	return s.tellJSON(s.store.Index())
}

func (s *server) settle(order) error {
	if err := s.store.Settle(); err != nil {
		return err
	}
	return s.tellJSON(s.store.Index())
}

func (s *server) begin(o order) (err error) {
	if s.take, err = s.store.Begin(o.Name, o.Description); err != nil {
		return err
	}
	return say(s.conn, answer{})
}

func (s *server) volume(o order) error {
	w, err := s.take.Volume(o.Name, o.Size, o.Full)
	if err != nil {
		return err
	}
	s.volumes = append(s.volumes, w)
	return say(s.conn, answer{Full: w.Full()})
}

func (s *server) sums(o order) error {
	if o.Stream < 0 || o.Stream >= len(s.volumes) {
		return fmt.Errorf("the sums of a volume %d were asked for, and %d were begun", o.Stream, len(s.volumes))
	}
	return s.tell(s.volumes[o.Stream].BaseSums())
}

func (s *server) file(o order) error {
	if err := s.take.File(o.Name, &stream{conn: s.conn, left: o.Size}); err != nil {
		return err
	}
	return say(s.conn, answer{})
}

func (s *server) finish(o order) error {
	if len(o.Volumes) != len(s.volumes) {
		return fmt.Errorf("%d volumes were begun, and %d end", len(s.volumes), len(o.Volumes))
	}
	for i, f := range o.Volumes {
		s.volumes[i].Found(f.How, f.Why, f.Mark)
		s.volumes[i].ReadElsewhere(f.Read)
	}
	p, err := s.take.Finish(o.Taken, o.FrozenMS)
	if err != nil {
		return err
	}
	s.take, s.volumes = nil, nil
	return s.tellJSON(p)
}

func (s *server) close(order) error {
	s.over = true
	return say(s.conn, answer{})
}

func (s *server) read(o order) (err error) {
	f, err := store.OpenFile(o.Dir, o.Point, o.Name)
	if err != nil {
		return err
	}
	b, err := io.ReadAll(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return s.tell(b)
}

func (s *server) copy(o order) error {
	b, err := store.OpenBundle(o.Dir, o.Point)
	if err != nil {
		return err
	}
	return s.tellBundle(b)
}

func (s *server) rest(o order) error {
	b, err := store.OpenRest(o.Dir, o.Known, o.Points)
	if err != nil {
		return err
	}
	return s.tellBundle(b)
}

func (s *server) tellBundle(b *store.Bundle) error {
	defer b.Close()
	if err := s.tellJSON(b.Index); err != nil {
		return err
	}
	return b.Each(func(f store.File, r io.Reader) error { return send(s.conn, f.Bytes, r) })
}
