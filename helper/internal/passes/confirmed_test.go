package passes

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/livefleet/handover/helper/internal/blockmap"
	"github.com/livefleet/handover/helper/internal/codec"
	"github.com/livefleet/handover/helper/internal/image"
	"github.com/livefleet/handover/helper/internal/ledger"
	"github.com/livefleet/handover/helper/internal/pipeline"
	"github.com/livefleet/handover/helper/internal/tracker"
	"github.com/livefleet/handover/helper/internal/wire"
)

var seeds = flag.Uint64("seeds", 60, "how many copies that break again and again")

// marks is a tracker of writes that the test makes itself.
type marks struct{ m *blockmap.Map }

func (t *marks) Swap() (*blockmap.Map, error) { return t.m.Swap(), nil }
func (t *marks) InFlight() (int64, error)     { return 0, nil }
func (t *marks) Kind() string                 { return "marks" }
func (t *marks) Close() error                 { return nil }

// brittle is the source's end of a connection that takes whatever is sent, as a
// network does, and brings the other side the first bytes of it only.
type brittle struct {
	net.Conn // the other side's
	mu       sync.Mutex
	more     *sync.Cond
	queue    []byte
	cut      bool
}

var errCut = errors.New("cut")

func newBrittle(far net.Conn, most int64) *brittle {
	b := &brittle{Conn: far}
	b.more = sync.NewCond(&b.mu)
	go func() {
		for most > 0 {
			b.mu.Lock()
			for len(b.queue) == 0 && !b.cut {
				b.more.Wait()
			}
			part := b.queue[:min(int64(len(b.queue)), most, 2000)]
			b.queue = b.queue[len(part):]
			b.mu.Unlock()
			if len(part) == 0 { // closed, and all of it is through
				break
			}
			if _, err := far.Write(part); err != nil {
				break
			}
			most -= int64(len(part))
		}
		b.Close()
		far.Close()
	}()
	return b
}

func (b *brittle) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cut {
		return 0, errCut
	}
	b.queue = append(b.queue, p...)
	b.more.Signal()
	return len(p), nil
}

func (b *brittle) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cut = true
	b.more.Signal()
	return nil
}

// counted is a target that counts what is written to it.
type counted struct {
	*image.Target
	written atomic.Int64
}

func (c *counted) WriteAt(p []byte, off int64) (int, error) {
	c.written.Add(int64(len(p)))
	return c.Target.WriteAt(p, off)
}

// A copy over connections that break again and again, at any byte, is the source
// in the end; and nothing that arrived is sent once more.
func TestContinueOver(t *testing.T) {
	const cluster, size = 4096, 200*4096 + 1234
	for seed := range *seeds {
		r, noise := rand.New(rand.NewPCG(seed, 1)), rand.NewChaCha8([32]byte{byte(seed)})
		dir := t.TempDir()
		content := make([]byte, size)
		var due int64 // bytes that have to travel
		for off := 0; off < size; off += cluster {
			if r.IntN(3) == 0 {
				continue // zeroes, at first
			}
			end := min(off+cluster, size)
			due += int64(end - off)
			noise.Read(content[off:end])
		}
		path := filepath.Join(dir, "source")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		src, err := image.OpenSource(path)
		if err != nil {
			t.Fatal(err)
		}
		plain, err := image.CreateTarget(filepath.Join(dir, "target"), size)
		if err != nil {
			t.Fatal(err)
		}
		dst := &counted{Target: plain}
		tr := &marks{blockmap.New(size, cluster)}
		write := func() {
			off := r.Int64N(size - cluster)
			b := make([]byte, 1+r.IntN(cluster))
			if r.IntN(2) == 0 { // a whole cluster becomes zero
				off, b = off/cluster*cluster, make([]byte, cluster)
			} else {
				noise.Read(b)
			}
			copy(content[off:], b)
			if _, err := file.WriteAt(b, off); err != nil {
				t.Fatal(err)
			}
			tr.m.MarkRange(off, int64(len(b)))
			due += int64((int(off)+len(b)-1)/cluster-int(off)/cluster+1) * cluster
		}

		arrivals := NewArrivals()
		arrivals.Expect(7, size, cluster)
		volume := &Volume{Name: "v", Tracker: "marks", Cluster: cluster, Stream: 7, Source: src, Empty: true, Ledger: ledger.New(size, cluster, dir, 0)}
		written := ledger.New(size, cluster, dir, 0)
		var conns []*wire.Conn
		var c *Copy
		begin := func(pass int) error {
			return conns[0].Write(&wire.Frame{Type: wire.Control, Payload: binary.LittleEndian.AppendUint64(nil, uint64(pass))})
		}
		// connect makes connections that break, and the side that receives.
		connect := func() (*pipeline.Sender, *sync.WaitGroup) {
			var near []pipeline.FrameWriter
			var far []*wire.Conn
			conns = nil
			for range 1 + seed%3 {
				here, there := net.Pipe()
				conns = append(conns, wire.NewConn(newBrittle(here, r.Int64N(400_000))))
				near, far = append(near, conns[len(conns)-1]), append(far, wire.NewConn(there))
			}
			sender, err := pipeline.NewSender(near, pipeline.SendOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if volume.History, err = codec.NewHistory(cluster, 1<<20); err != nil {
				t.Fatal(err)
			}
			receiver := pipeline.NewReceiver(far[0], nil, pipeline.ReceiveOptions{Arrived: arrivals.Mark})
			receiver.Add(7, dst, written)
			for _, f := range far[1:] {
				receiver.Join(f)
			}
			var ended sync.WaitGroup
			ended.Add(1)
			go func() {
				defer ended.Done()
				_ = receiver.Run(context.Background(), func(_ context.Context, f *wire.Frame) error {
					pass := int(binary.LittleEndian.Uint64(f.Payload))
					if err := arrivals.Begin(pass); err != nil {
						return err
					}
					if seed%2 == 0 { // the word may be lost, too
						c.Confirm(pass)
					}
					return nil
				}, nil)
				for _, f := range far {
					f.Close()
				}
			}()
			return sender, &ended
		}
		hangUp := func() {
			for _, c := range conns {
				c.Close()
			}
		}
		sender, ended := connect()
		c = New(sender, []*Volume{volume}, Options{
			Open:  func(string, []tracker.Device) ([]tracker.Tracker, error) { return []tracker.Tracker{tr}, nil },
			Begin: begin,
		})
		if _, err := c.Track(); err != nil {
			t.Fatal(err)
		}
		breaks := 0
		for n := 0; n < 6; {
			for range 3 {
				write()
			}
			_, err := c.Send(context.Background(), nil)
			if err == nil {
				n++
				continue
			}
			breaks++
			hangUp()
			ended.Wait()
			write()
			sender, ended = connect()
			pass, came := arrivals.Came()
			if err := c.ContinueOver(sender, pass, came); err != nil {
				t.Fatal(err)
			}
		}
		hangUp()
		ended.Wait()
		got, err := os.ReadFile(filepath.Join(dir, "target"))
		if err != nil {
			t.Fatal(err)
		}
		// The last pass may still have been on its way when the end came.
		pass, came := arrivals.Came()
		if err := c.ContinueOver(nil, pass, came); err != nil {
			t.Fatal(err)
		}
		if err := c.Collect(); err != nil {
			t.Fatal(err)
		}
		for off, n := range volume.pending.Runs(0) {
			copy(got[off:off+n], content[off:])
		}
		if !bytes.Equal(got, content) {
			t.Fatalf("seed %d: after %d breaks the copy differs", seed, breaks)
		}
		if off, differs, err := written.Check(dst); differs || err != nil {
			t.Errorf("seed %d: the destination's ledger differs at %d from what was written (%v)", seed, off, err)
		}
		if dst.written.Load() > due {
			t.Errorf("seed %d: %d bytes were written with %d breaks, and %d had to be", seed, dst.written.Load(), breaks, due)
		}
		for _, f := range []interface{ Close() error }{src, file, plain} {
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
