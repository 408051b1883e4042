package session

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/livefleet/handover/helper/internal/codec"
	"github.com/livefleet/handover/helper/internal/session/protocol"
	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/transport"
	"github.com/livefleet/handover/helper/internal/wire"
)

// hostile is a source that has the right key and says whatever it likes. It speaks
// past package wire, which would refuse to.
type hostile struct {
	raw io.ReadWriteCloser
	*wire.Conn
}

// frame is one frame with sums that are right, whatever else is in it.
func (h hostile) frame(kind wire.Type, flags uint16, stream uint32, pos, length int64, said int, payload []byte) error {
	b := make([]byte, 48, 48+len(payload))
	copy(b, "HoF\x00")
	b[4], b[5] = wire.MaxVersion, byte(kind)
	binary.LittleEndian.PutUint16(b[6:], flags)
	binary.LittleEndian.PutUint32(b[8:], stream)
	binary.LittleEndian.PutUint32(b[12:], uint32(said))
	binary.LittleEndian.PutUint64(b[16:], uint64(pos))
	binary.LittleEndian.PutUint64(b[24:], uint64(length))
	table := crc32.MakeTable(crc32.Castagnoli)
	sum := crc32.Checksum(b[:40], table)
	binary.LittleEndian.PutUint32(b[40:], sum)
	binary.LittleEndian.PutUint32(b[44:], crc32.Update(sum, table, payload))
	_, err := h.raw.Write(append(b, payload...))
	return err
}

func (h hostile) data(pos int64, payload []byte) error {
	return h.frame(wire.Data, 0, 0, pos, int64(len(payload)), len(payload), payload)
}

// Whatever a source sends, the destination writes nowhere but where it was told,
// says what was wrong, and nothing that came stays.
func TestAHostileSource(t *testing.T) {
	some := bytes.Repeat([]byte{7}, 4096)
	for name, c := range map[string]struct {
		do   func(hostile) error
		text string
	}{
		"beyond the end":             {func(h hostile) error { return h.data(differSize, some) }, "is outside"},
		"over the end":               {func(h hostile) error { return h.data(differSize-100, some) }, "is outside"},
		"a negative offset":          {func(h hostile) error { return h.data(-4096, some) }, "the impossible range"},
		"an offset that wraps":       {func(h hostile) error { return h.frame(wire.Zero, 0, 0, 1<<62, 1<<62, 0, nil) }, "the impossible range"},
		"zeroes beyond the end":      {func(h hostile) error { return h.frame(wire.Zero, 0, 0, 0, differSize+1, 0, nil) }, "is outside"},
		"discards beyond the end":    {func(h hostile) error { return h.frame(wire.Discard, 0, 0, differSize/2, differSize, 0, nil) }, "is outside"},
		"a volume that there is not": {func(h hostile) error { return h.frame(wire.Data, 0, 9, 0, 4096, 4096, some) }, "was never announced"},
		"a length that lies":         {func(h hostile) error { return h.frame(wire.Data, 0, 0, 0, 8192, 4096, some) }, "says length 8192 with 4096 bytes"},
		"a payload without end":      {func(h hostile) error { return h.frame(wire.Data, 0, 0, 0, 1<<31, 1<<31-1, some) }, "more than the 4194304 allowed"},
		"half a cluster":             {func(h hostile) error { return h.data(512, some) }, "is not of whole clusters"},
		"a type that there is not":   {func(h hostile) error { return h.frame(77, 0, 0, 0, 0, 0, nil) }, "unknown type 77"},
		"packed rubbish": {func(h hostile) error {
			return h.frame(wire.Packed, uint16(codec.Zstd), 0, 0, record.DefaultCluster, len(some), some)
		}, "offset 0"},
		"a delta of rubbish": {func(h hostile) error {
			return h.frame(wire.Packed, uint16(codec.Zstd|codec.Delta), 0, 0, record.DefaultCluster, len(some), some)
		}, "offset 0"},
		"a way of packing that there is not": {func(h hostile) error {
			return h.frame(wire.Packed, 0x40ff, 0, 0, record.DefaultCluster, len(some), some)
		}, "offset 0"},
		"a folder that there is not": {func(h hostile) error { return h.frame(wire.Chunk, 0, 3, 0, 4096, 4096, some) }, "a piece of tree 3, and there are 0 trees"},
		"a fence that is not due":    {func(h hostile) error { return h.frame(wire.Fence, 0, 0, 7, 0, 0, nil) }, "fence 7 came, and 1 was due"},
		"a message that is none":     {func(h hostile) error { return h.frame(wire.Control, 0, 0, 0, 4096, 4096, some) }, "a message that is none"},
		"a message of nobody": {func(h hostile) error {
			b := []byte(`{"kind":"format"}`)
			return h.frame(wire.Control, 0, 0, 0, int64(len(b)), len(b), b)
		}, `the unknown message "format"`},
		"a second hello":               {func(h hostile) error { return protocol.Send(h.Conn, copiedHello()) }, `the source sent "hello" while the destination is presync, which takes only`},
		"the run token":                {func(h hostile) error { return protocol.Send(h.Conn, &protocol.Run{Token: "x"}) }, `the source sent "run" while the destination is presync, which takes only`},
		"the end before the beginning": {func(h hostile) error { return protocol.Send(h.Conn, &protocol.Flushed{}) }, `the source sent "flushed" while the destination is presync, which takes only`},
		"a round that was":             {func(h hostile) error { return protocol.Send(h.Conn, &protocol.Round{Round: -3}) }, "began round -3 after round 0"},
		"another process":              {func(h hostile) error { return protocol.Send(h.Conn, &protocol.Again{ID: "copied", TokenHash: "x"}) }, "another process of the source than the one that began"},
		"no frame at all": {func(h hostile) error {
			_, err := h.raw.Write(bytes.Repeat([]byte("rm -rf /"), 1000))
			return err
		}, "where a frame should begin stand the bytes"},
		"half a frame, and gone": {func(h hostile) error {
			_, err := h.raw.Write([]byte("HoF"))
			h.raw.Close()
			return err
		}, "the source has not come back within 1s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, received, h := receiving(t)
			conn := h.Conn
			beside := filepath.Join(filepath.Dir(d.arrived), "beside")
			if err := os.WriteFile(beside, some, 0o600); err != nil {
				t.Fatal(err)
			}

			if err := protocol.Send(conn, copiedHello()); err != nil {
				t.Fatal(err)
			}
			var f wire.Frame
			if err := conn.Read(&f); err != nil {
				t.Fatal(err)
			}
			if err := h.data(0, bytes.Repeat([]byte{1}, record.DefaultCluster)); err != nil { // so far, so good
				t.Fatal(err)
			}
			if err := c.do(h); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-received:
				if err == nil || !strings.Contains(err.Error(), c.text) {
					t.Errorf("%v; should say %q", err, c.text)
				}
			case <-time.After(60 * time.Second):
				t.Fatal("the destination goes on")
			}
			if s, err := record.Show(d.dst); err != nil || s.State != record.Discarded {
				t.Errorf("%+v, %v", s, err)
			}
			if exists(d.arrived) {
				t.Error("what came is still there")
			}
			if b, err := os.ReadFile(beside); err != nil || !bytes.Equal(b, some) {
				t.Error("the file beside it was touched")
			}
		})
	}
}

// A source that calls again and again, joins without end, or says nothing, takes no
// more than its places; strangers take nothing.
func TestAHostileSourceThatCalls(t *testing.T) {
	d, received, h := receiving(t)
	conn := h.Conn
	if err := protocol.Send(conn, copiedHello()); err != nil {
		t.Fatal(err)
	}
	var f wire.Frame
	if err := conn.Read(&f); err != nil {
		t.Fatal(err)
	}
	at := d.wait(d.dst, record.UntilListening).Listen
	ours, theirs := identityIn(t, d.src), identityIn(t, d.dst)
	joined := 0
	for range record.MaxConnections + 4 {
		raw, err := transport.Dial(t.Context(), wayTo(t, at), ours, theirs.Fingerprint())
		if err != nil {
			t.Fatal(err)
		}
		c := wire.NewConn(raw)
		defer c.Close()
		if err := protocol.Send(c, &protocol.Join{Further: protocol.Further{ID: "copied"}}); err != nil {
			t.Fatal(err)
		}
		if c.Read(&f) == nil {
			joined++
		}
	}
	if joined != record.MaxConnections-1 {
		t.Errorf("%d further connections were taken, and %d may be", joined, record.MaxConnections-1)
	}
	stranger, err := transport.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		raw, err := transport.Dial(t.Context(), wayTo(t, at), stranger, theirs.Fingerprint())
		if err == nil { // TLS 1.3: only the first read tells
			if _, err = raw.Read(make([]byte, 1)); err == nil {
				t.Error("a stranger was let in")
			}
			raw.Close()
		}
	}
	// It goes on with its session all the while.

	for i := range 20 {
		if err := h.data(int64(i%40)*record.DefaultCluster, bytes.Repeat([]byte{byte(i)}, record.DefaultCluster)); err != nil {
			t.Fatal(err)
		}
	}
	if err := protocol.Send(conn, &protocol.Fail{Reason: protocol.Reason{Why: fmt.Sprintf("enough after %d", joined)}}); err != nil {
		t.Fatal(err)
	}
	if err := <-received; err == nil || !strings.Contains(err.Error(), "enough after 15") {
		t.Error(err)
	}
}
