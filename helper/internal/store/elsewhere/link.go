package elsewhere

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/livefleet/handover/helper/internal/store"
	"github.com/livefleet/handover/helper/internal/transport"
	"github.com/livefleet/handover/helper/internal/wire"
)

// Link is this side of a store on another host.
type Link struct {
	place Place
	rw    io.ReadWriteCloser
	conn  *wire.Conn
	index *store.Index
	beats chan struct{} // closed when no more are due
	gone  bool
}

// dial starts the other side.
func dial(p Place) (*Link, error) {
	rw, err := transport.Command(p.Command("internal", ServeWord))
	if err != nil {
		return nil, p.failed(err)
	}
	l := &Link{place: p, rw: rw, conn: wire.NewConn(rw), beats: make(chan struct{})}
	go l.beat()
	return l, nil
}

// beat says now and then that this side is there.
func (l *Link) beat() {
	for {
		select {
		case <-l.beats:
			return
		case <-time.After(beat):
			if say(l.conn, order{Do: "alive"}) != nil {
				return // the next order says why
			}
		}
	}
}

// Open takes hold of a store on another host, until Close. With create, a folder that is
// missing or empty becomes one.
func Open(p Place, create bool) (*Link, error) {
	l, err := dial(p)
	if err != nil {
		return nil, err
	}
	if err := l.load(order{Do: "open", Dir: p.Dir, Create: create}); err != nil {
		return nil, errors.Join(err, l.drop())
	}
	return l, nil
}

// Peek reads the index of a store on another host without holding it.
func Peek(p Place) (_ *store.Index, err error) {
	l, err := dial(p)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.drop()) }()
	if err := l.load(order{Do: "peek", Dir: p.Dir}); err != nil {
		return nil, err
	}
	return l.index, nil
}

func (l *Link) load(o order) error {
	b, _, err := l.ask(o)
	if err != nil {
		return err
	}
	l.index = &store.Index{}
	return json.Unmarshal(b, l.index)
}

// ask sends an order, and reads the answer with the bytes behind it.
func (l *Link) ask(o order) ([]byte, answer, error) {
	a, err := l.order(o)
	if err != nil {
		return nil, a, err
	}
	b, err := whole(l.conn, a.Bytes)
	if err != nil {
		err = l.place.failed(err)
	}
	return b, a, err
}

func (l *Link) order(o order) (answer, error) {
	if err := say(l.conn, o); err != nil {
		return answer{}, l.why(err)
	}
	return l.answer()
}

func (l *Link) answer() (a answer, err error) {
	var f wire.Frame
	if err := l.conn.Read(&f); err != nil {
		return a, l.place.failed(err)
	}
	if f.Type != wire.Control {
		return a, l.place.failed(fmt.Errorf("a frame of type %v came where an answer was due", f.Type))
	}
	if err := json.Unmarshal(f.Payload, &a); err != nil {
		return a, l.place.failed(err)
	}
	if a.Error != "" {
		return a, fmt.Errorf("%s: %s", l.place.Host, a.Error)
	}
	return a, nil
}

// write sends a frame of a volume.
func (l *Link) write(f *wire.Frame) error {
	if err := l.conn.Write(f); err != nil {
		return l.why(err)
	}
	return nil
}

// why prefers the reason that the other side has given before it ended to the error of
// writing to it.
func (l *Link) why(err error) error {
	if a, said := l.answer(); a.Error != "" {
		return said
	}
	return l.place.failed(err)
}

// Dir is the store's place.
func (l *Link) Dir() string { return l.place.String() }

// Index is the index as it was when the store was opened.
func (l *Link) Index() *store.Index { return l.index }

// Settle ends the store's note of a rollback.
func (l *Link) Settle() error { return l.load(order{Do: "settle"}) }

// Close lets go of the store.
func (l *Link) Close() error {
	if l.gone {
		return nil
	}
	_, err := l.order(order{Do: "close"})
	return errors.Join(err, l.drop())
}

// drop ends the connection. What the other side had begun comes to nothing. How its
// command ends then says nothing that an answer has not said.
func (l *Link) drop() error {
	if !l.gone {
		l.gone = true
		close(l.beats)
		_ = l.rw.Close()
	}
	return nil
}

// ReadFile brings a file that was taken along with a point.
func ReadFile(p Place, point, name string) (_ []byte, err error) {
	l, err := dial(p)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.drop()) }()
	b, _, err := l.ask(order{Do: "read", Dir: p.Dir, Point: point, Name: name})
	return b, err
}

// Copy makes a new store here of one point there.
func Copy(p Place, point, dir string) (err error) {
	l, err := dial(p)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.drop()) }()
	if err := l.load(order{Do: "copy", Dir: p.Dir, Point: point}); err != nil {
		return err
	}
	return store.Import(dir, l.index, func(f store.File) (io.Reader, error) { return &stream{conn: l.conn, left: f.Bytes}, nil })
}

// CopyHere makes a new store of one point of another on this host.
func CopyHere(from, point, dir string) error {
	b, err := store.OpenBundle(from, point)
	if err != nil {
		return err
	}
	defer b.Close()
	readers := map[string]io.Reader{}
	if err := b.Each(func(f store.File, r io.Reader) error { readers[f.Name] = r; return nil }); err != nil {
		return err
	}
	return store.Import(dir, b.Index, func(f store.File) (io.Reader, error) { return readers[f.Name], nil })
}

// Begin begins a point.
func (l *Link) Begin(name, description string) (store.Taking, error) {
	if _, err := l.order(order{Do: "begin", Name: name, Description: description}); err != nil {
		return nil, err
	}
	return &taking{link: l}, nil
}

// taking is a point that is being written there.
type taking struct {
	link    *Link
	volumes []*volume
	ended   bool
}

// Base is the parent's volume of this name, or nil where there is none.
func (t *taking) Base(name string) *store.Volume {
	now := t.link.index.Now()
	if now == nil {
		return nil
	}
	v, err := now.Volume(name)
	if err != nil {
		return nil
	}
	return v
}

// Volume begins a volume.
func (t *taking) Volume(name string, size int64, full bool) (store.VolumeWriter, error) {
	a, err := t.link.order(order{Do: "volume", Name: name, Size: size, Full: full})
	if err != nil {
		return nil, err
	}
	v := &volume{link: t.link, stream: len(t.volumes), size: size, full: a.Full, sent: map[int64]bool{}}
	t.volumes = append(t.volumes, v)
	return v, nil
}

// File takes a file along.
func (t *taking) File(name string, r io.Reader) error {
	b, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	if err := say(t.link.conn, order{Do: "file", Name: name, Size: int64(len(b))}); err != nil {
		return t.link.why(err)
	}
	if err := send(t.link.conn, int64(len(b)), bytes.NewReader(b)); err != nil {
		return t.link.why(err)
	}
	_, err = t.link.answer()
	return err
}

// Finish makes the point part of the store. It is on the other host's disk when this
// returns.
func (t *taking) Finish(taken time.Time, frozenMS float64) (*store.Point, error) {
	o := order{Do: "finish", Taken: taken, FrozenMS: frozenMS}
	for _, v := range t.volumes {
		if v.err != nil {
			return nil, v.err
		}
		o.Volumes = append(o.Volumes, v.found)
	}
	b, _, err := t.link.ask(o)
	if err != nil {
		return nil, err
	}
	t.ended = true
	p := &store.Point{}
	return p, json.Unmarshal(b, p)
}

// Abandon gives up a point that is not finished.
func (t *taking) Abandon() error {
	if t.ended {
		return nil
	}
	t.ended = true
	return t.link.drop()
}

var (
	_ store.Keeper = (*Link)(nil)
	_ store.Taking = (*taking)(nil)
	_ io.Reader    = (*stream)(nil)
)
