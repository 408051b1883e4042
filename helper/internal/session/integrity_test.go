package session

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/livefleet/handover/helper/internal/ledger"
	"github.com/livefleet/handover/helper/internal/pipeline"
	"github.com/livefleet/handover/helper/internal/session/protocol"
	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/transport"
	"github.com/livefleet/handover/helper/internal/wire"
)

// The other side in these tests is the test itself, which speaks the session's
// messages by hand and damages what it is about.

const (
	differSize    = 40 * record.DefaultCluster
	differCluster = 23 // is the one that is damaged
)

func identityIn(t *testing.T, dir string) *transport.Identity {
	t.Helper()
	id, err := record.Identity(dir)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// A destination in whose memory a byte was flipped before it was written: the
// source finds the cluster and names it, and nothing has moved.
func TestTheSourceNamesWhatDiffers(t *testing.T) {
	c := newCopied(t, compressible(differSize), record.Policy{})
	ours, theirs := identityIn(t, c.src), identityIn(t, c.dst)
	l, err := transport.Listen("127.0.0.1:0", theirs, ours.Fingerprint)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	b, err := json.Marshal(record.Spec{
		Version: 1, ID: "copied", Role: record.Source, Mode: record.Copy, Peer: record.Peer{Address: l.Address(), Fingerprint: theirs.Fingerprint()},
		Volumes: []record.Vol{{Name: "data", Size: differSize, Device: c.image, Tracker: "none"}},
	})
	if err == nil {
		err = os.WriteFile(filepath.Join(c.src, record.SpecFile), b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	c.send, c.receive = make(chan error, 1), make(chan error, 1)
	go func() { c.send <- Send(context.Background(), c.src, c.src, planted) }()
	go func() { c.receive <- damagingDestination(t, l) }()
	c.wait(c.src, record.UntilConverged)
	s, serr, rerr := c.finish()
	if rerr != nil {
		t.Error(rerr)
	}
	want := fmt.Sprintf("volume data: the cluster at offset %d is on the destination not what was sent", differCluster*record.DefaultCluster)
	if serr == nil || !strings.Contains(serr.Error(), want) || s.State != record.Thawed {
		t.Errorf("%s: %v; should say %q", s.State, serr, want)
	}
}

func damagingDestination(t *testing.T, l *transport.Listener) error {
	raw, err := l.Accept(t.Context())
	if err != nil {
		return err
	}
	conn := wire.NewConn(raw)
	defer conn.Close()
	mine := ledger.New(differSize, record.DefaultCluster, t.TempDir(), 0)
	r := pipeline.NewReceiver(conn, nil, pipeline.ReceiveOptions{})
	r.Add(0, forgetful{}, mine)
	return r.Run(t.Context(), func(_ context.Context, f *wire.Frame) error {
		m, err := protocol.Parse(f, record.Source)
		if err != nil {
			return err
		}
		switch m := m.(type) {
		case *protocol.Hello:
			return protocol.Send(conn, &protocol.Welcome{Empty: true, Can: understood(), Lines: 1})
		case *protocol.Barrier:
			return protocol.Send(conn, &protocol.Synced{})
		case *protocol.Flushed:
			if len(m.Totals) != 1 || m.Totals[0] != mine.Total().String() {
				return fmt.Errorf("the source's totals are %v, and here lies %s", m.Totals, mine.Total())
			}
			if err := mine.Note(differCluster*record.DefaultCluster, bytes.Repeat([]byte{9}, record.DefaultCluster)); err != nil {
				return err
			}
			return protocol.Send(conn, &protocol.Differs{Range: &protocol.Clusters{Volume: 0, End: mine.Clusters()}})
		case *protocol.Sum:
			s, err := mine.Sum(m.Range.First, m.Range.End)
			return errors.Join(err, protocol.Send(conn, &protocol.Sum{Range: m.Range, Sum: s.String()}))
		case *protocol.Fail:
			return pipeline.ErrStop
		}
		return nil
	}, func(*wire.Frame) error { return nil })
}

// forgetful is a target that keeps nothing.
type forgetful struct{}

func (forgetful) Path() string                           { return "nowhere" }
func (forgetful) Size() int64                            { return differSize }
func (forgetful) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }
func (forgetful) Zero(_, _ int64) error                  { return nil }
func (forgetful) Discard(_, _ int64) error               { return nil }

// receiving is a destination of mode copy, with a connection to it from a source
// that the test plays.
func receiving(t *testing.T) (*copied, <-chan error, hostile) { return receivingOn(t, "") }

// receivingOn is the same on a unix socket in the session's folder, if one is named.
func receivingOn(t *testing.T, socket string) (*copied, <-chan error, hostile) {
	t.Helper()
	d := newCopied(t, nil, record.Policy{})
	listen := "127.0.0.1:0"
	if socket != "" {
		listen = "unix:" + filepath.Join(d.dst, socket)
	}
	ours, theirs := identityIn(t, d.src), identityIn(t, d.dst)
	b, err := json.Marshal(record.Spec{
		Version: 1, ID: "copied", Role: record.Destination, Mode: record.Copy, Listen: listen, Peer: record.Peer{Fingerprint: ours.Fingerprint()},
		Volumes: []record.Vol{{Name: "data", Size: differSize, Image: d.arrived}}, Policy: record.Policy{ReconnectTimeout: 1, PeerTimeout: 2},
	})
	if err == nil {
		err = os.WriteFile(filepath.Join(d.dst, record.SpecFile), b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	received := make(chan error, 1)
	go func() { received <- Receive(context.Background(), d.dst, d.dst, planted) }()
	raw, err := transport.Dial(t.Context(), wayTo(t, d.wait(d.dst, record.UntilListening).Listen), ours, theirs.Fingerprint())
	if err != nil {
		t.Fatal(err)
	}
	conn := wire.NewConn(raw)
	t.Cleanup(func() { conn.Close() })
	return d, received, hostile{raw, conn}
}

func copiedHello() *protocol.Hello {
	return &protocol.Hello{Opening: protocol.Opening{
		ID: "copied", Mode: record.Copy, Can: understood(), Volumes: []protocol.Volume{{Name: "data", Size: differSize, Cluster: record.DefaultCluster}},
	}}
}

// A source that says that it has sent what has not come: the destination does
// not go on, answers what it is asked, and keeps nothing when the source gives up.
func TestTheDestinationCompares(t *testing.T) {
	for _, c := range []struct {
		name string
		ask  *protocol.Clusters // instead of going on
		text string
	}{
		{"good", nil, ""},
		{"differs", &protocol.Clusters{Volume: 0, First: 3, End: 7}, "on the source: it differs"},
		{"a volume that there is not", &protocol.Clusters{Volume: 1}, "the sum of clusters of a volume that there is not"},
		{"clusters that there are not", &protocol.Clusters{Volume: 0, First: 3, End: 99}, "there are no clusters 3 to 99"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, received, h := receiving(t)
			conn := h.Conn
			mine := ledger.New(differSize, record.DefaultCluster, t.TempDir(), 0)
			data := bytes.Repeat([]byte{7}, record.DefaultCluster)
			if err := mine.Note(5*record.DefaultCluster, data); err != nil {
				t.Fatal(err)
			}
			say := func(m protocol.Message, answer protocol.Kind) protocol.Message {
				t.Helper()
				if err := protocol.Send(conn, m); err != nil {
					t.Fatal(err)
				}
				if answer == "" {
					return nil
				}
				var f wire.Frame
				if err := conn.Read(&f); err != nil {
					t.Fatal(err, <-received)
				}
				a, err := protocol.Parse(&f, record.Destination)
				if err != nil || a.Kind() != answer {
					t.Fatalf("%+v, %v, and not %s", a, err, answer)
				}
				return a
			}
			say(copiedHello(), "welcome")
			if c.ask == nil {
				if err := conn.Write(&wire.Frame{Type: wire.Data, Pos: 5 * record.DefaultCluster, Payload: data}); err != nil {
					t.Fatal(err)
				}
			}
			say(&protocol.Barrier{}, "synced")
			say(&protocol.Frozen{}, "")
			flushed := &protocol.Flushed{Totals: []string{mine.Total().String()}}
			if c.ask == nil {
				say(flushed, "settled")
				say(&protocol.End{}, "")
				if err := <-received; err != nil {
					t.Error(err)
				}
				return
			}
			if m := say(flushed, "differs").(*protocol.Differs); m.Range == nil || m.Range.Volume != 0 {
				t.Errorf("%+v", m)
			}
			if c.text == "on the source: it differs" {
				none := ledger.Sum{}
				if m := say(&protocol.Sum{Range: c.ask}, "sum").(*protocol.Sum); m.Sum != none.String() {
					t.Errorf("%+v", m)
				}
				say(&protocol.Fail{Reason: protocol.Reason{Why: "it differs"}}, "")
			} else {
				say(&protocol.Sum{Range: c.ask}, "")
			}
			if err := <-received; err == nil || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%v; should say %q", err, c.text)
			}
			if exists(d.arrived) {
				t.Error("the image is still there")
			}
		})
	}
}
