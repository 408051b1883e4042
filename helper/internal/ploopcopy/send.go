// Package ploopcopy does the work of `ploop copy`, with peers that still run it: it
// sends a disk that is in use to an old receiver, and receives one from an old
// sender.
//
// The passes, the tracker and the pipeline are those of every other copy; only the
// dialect is the peer's. Sending goes like this:
//
//	track       before the first block is read
//	passes      everything, then the writes of that time, until nothing is left,
//	            or maxPasses more were done, or more was sent again than the image has
//	barrier     the peer syncs, and says so if it can
//	freeze      the caller's command; then the file system is flushed and frozen
//	drain       the rest, in maxFrozenPasses at most
//	unmark      a ploop image travels as one that is not in use
//	silent      the tracker must be empty and no write under way
//	end, thaw
//
// On any failure the file system is thawed, and where the freeze command was begun,
// the thaw command runs. There is no handover here: the operator of the old programs
// decides where the container continues.
package ploopcopy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/livefleet/handover/helper/internal/blockmap"
	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/image"
	"github.com/livefleet/handover/helper/internal/image/ploop"
	"github.com/livefleet/handover/helper/internal/loop"
	"github.com/livefleet/handover/helper/internal/passes"
	"github.com/livefleet/handover/helper/internal/pipeline"
	"github.com/livefleet/handover/helper/internal/report"
	"github.com/livefleet/handover/helper/internal/tracker"
	"github.com/livefleet/handover/helper/internal/wire"
	"github.com/livefleet/handover/helper/internal/wire/dialect"
)

// The bounds of the old programs.
const (
	maxPasses       = 10
	maxFrozenPasses = 2
)

const sector = 512

// DefaultCluster is ploop's own, and MaxCluster its largest.
const (
	DefaultCluster = 1 << 20
	MaxCluster     = 16 << 20
)

// Source is the input of a Send.
type Source struct {
	Device  string // the block device that is tracked
	Image   string // the file to read; the device itself if it is empty
	Raw     bool   // with the ploop tracker: Image is a plain file
	Tracker string // as tracker.Open has it, or passes.Untracked
	Cluster int    // of the image, in bytes
	// Fresh: the peer's file is new, so zeroes may be left out at first.
	Fresh  bool
	Freeze *hooks.Command
	Thaw   *hooks.Command // undoes Freeze when something fails afterwards
}

// Sent counts the work of a Send.
type Sent struct {
	Bytes    int64         `json:"bytes"` // of the image
	Sent     int64         `json:"sent"`  // as data, in all passes
	Passes   []passes.Pass `json:"passes"`
	FrozenMS float64       `json:"frozen_ms"`
}

// sending is one Send under way.
type sending struct {
	src    Source
	conn   dialect.Sender
	log    *report.Log
	image  *image.Source
	copy   *passes.Copy
	frozen time.Time // when the freeze command was begun
	sent   Sent
}

// Check finds the faults of a source before anything is begun.
func (s *Source) Check() error {
	if s.Device == "" {
		return errors.New("ploopcopy: no device was named")
	}
	if c := s.Cluster; c < blockmap.MinCluster || c > MaxCluster || c&(c-1) != 0 {
		return fmt.Errorf("ploopcopy: clusters of %d bytes cannot be sent: choose a power of two from %d to %d", c, blockmap.MinCluster, MaxCluster)
	}
	return nil
}

// tracked is the cluster in which writes are tracked and sent: a part of a large one
// that changes need not travel with the rest.
func (s *Source) tracked() int { return min(s.Cluster, blockmap.MaxCluster) }

// Send sends a source to an old receiver. The connection stays open.
func Send(ctx context.Context, conn dialect.Sender, src Source, log *report.Log) (_ Sent, err error) {
	if err := src.Check(); err != nil {
		return Sent{}, dialect.Fail(dialect.Parameter, err)
	}
	s := &sending{src: src, conn: conn, log: log, sent: Sent{Passes: []passes.Pass{}}}
	// A call that waits for the peer must not outlive the context.
	stop := context.AfterFunc(ctx, func() { conn.Interrupt(context.Cause(ctx)) })
	defer stop()
	if err := s.open(); err != nil {
		return s.sent, err
	}
	defer s.image.Close()
	err = s.run(ctx)
	return s.sent, errors.Join(err, s.letGo(err))
}

func (s *sending) open() error {
	path, code := s.src.Image, dialect.Open
	if path == "" {
		path, code = s.src.Device, dialect.Device
	}
	var err error
	if s.src.Tracker == tracker.Ploop && !s.src.Raw {
		s.image, err = openDelta(path)
	} else {
		s.image, err = image.OpenSource(path)
	}
	if err != nil {
		return dialect.Fail(code, err)
	}
	s.sent.Bytes = s.image.Size()
	mountpoint, err := loop.MountpointOf(s.src.Device)
	if err != nil {
		s.image.Close()
		return dialect.Fail(dialect.Open, err)
	}
	if s.sent.Bytes == 0 || s.sent.Bytes%sector != 0 {
		s.image.Close()
		return dialect.Fail(dialect.Parameter, fmt.Errorf("ploopcopy: %s: %d bytes are no whole number of sectors", path, s.sent.Bytes))
	}
	sender, err := pipeline.NewSender([]pipeline.FrameWriter{s.conn}, pipeline.SendOptions{})
	if err != nil {
		s.image.Close()
		return err
	}
	s.copy = passes.New(sender, []*passes.Volume{{
		Name: s.src.Device, Device: s.src.Device, Mountpoint: mountpoint, Tracker: s.src.Tracker, Cluster: s.src.tracked(),
		Source: s.image, Empty: s.src.Fresh,
	}}, passes.Options{})
	return nil
}

// openDelta opens an image that becomes longer as its disk is written to.
func openDelta(path string) (*image.Source, error) {
	most, err := ploop.MostBytes(path)
	if err != nil {
		return nil, err
	}
	return image.OpenGrowing(path, most)
}

func (s *sending) run(ctx context.Context) error {
	if _, err := s.copy.Track(); err != nil {
		return dialect.Fail(dialect.Call, err)
	}
	if err := s.last(); err != nil {
		return err
	}
	if err := s.passes(ctx); err != nil {
		return err
	}
	if err := s.barrier(); err != nil {
		return err
	}
	if err := s.freeze(ctx); err != nil {
		return err
	}
	if err := s.drain(ctx); err != nil {
		return err
	}
	if err := s.last(); err != nil { // it may have become longer
		return err
	}
	if err := s.unmark(); err != nil {
		return err
	}
	if err := s.copy.Silent(); err != nil {
		return dialect.Fail(dialect.Loop, err)
	}
	if err := s.copy.Close(); err != nil {
		return dialect.Fail(dialect.Call, err)
	}
	return s.conn.End()
}

// last sends the end of the image: an old receiver's file ends with the last write,
// and the end may be zeroes that are left out.
func (s *sending) last() error {
	length, err := s.image.Length()
	if err != nil {
		return dialect.Fail(dialect.Read, err)
	}
	tail := image.Buffer(int(min(image.Align, length)))
	pos := length - int64(len(tail))
	return s.data(tail, pos)
}

// data reads a part of the image and sends it.
func (s *sending) data(b []byte, pos int64) error {
	if _, err := s.image.ReadAt(b, pos); err != nil {
		return dialect.Fail(dialect.Read, err)
	}
	return s.conn.Write(&wire.Frame{Type: wire.Data, Pos: pos, Length: int64(len(b)), Payload: b})
}

func (s *sending) passes(ctx context.Context) error {
	var again int64
	for {
		p, err := s.pass(ctx)
		if err != nil {
			return err
		}
		if p.Pass > 1 {
			again += p.Bytes
		}
		if err := s.copy.Collect(); err != nil {
			return dialect.Fail(dialect.Call, err)
		}
		switch {
		case s.copy.Dirty() == 0, p.Pass > maxPasses, p.Pass > 1 && again > s.sent.Bytes:
			return nil
		}
	}
}

// pass sends the marked clusters; where there are none, it returns a pass of no
// bytes.
func (s *sending) pass(ctx context.Context) (passes.Pass, error) {
	p, err := s.copy.Send(ctx, nil)
	if err != nil && ctx.Err() == nil {
		err = dialect.Fail(dialect.Read, err) // the peer's errors have a status already
	}
	if err != nil || p.Bytes == 0 {
		return p, err
	}
	s.sent.Passes = append(s.sent.Passes, p)
	s.sent.Sent += p.Sent
	s.log.Emit("pass", map[string]any{"pass": p.Pass, "bytes": p.Bytes, "sent": p.Sent, "zero": p.Zero, "ms": p.MS})
	return p, nil
}

func (s *sending) barrier() error {
	began := time.Now()
	var first [4]byte
	// The image as it is now, so that a peer which writes it down changes nothing: if
	// it changes under way, the tracker has it sent again.
	b := image.Buffer(int(min(image.Align, s.sent.Bytes)))
	if _, err := s.image.ReadAt(b, 0); err != nil {
		return dialect.Fail(dialect.Read, err)
	}
	copy(first[:], b)
	if err := s.conn.Barrier(first); err != nil {
		return err
	}
	s.log.Emit("barrier", map[string]any{"ms": float64(time.Since(began).Microseconds()) / 1000})
	return nil
}

func (s *sending) freeze(ctx context.Context) error {
	s.frozen = time.Now()
	if s.src.Freeze.Given() {
		if err := s.src.Freeze.Run(ctx); err != nil {
			return dialect.Fail(dialect.System, err)
		}
	}
	if err := s.copy.Sync(); err != nil {
		return dialect.Fail(dialect.Fsync, err)
	}
	if err := s.copy.Freeze(); err != nil {
		return dialect.Fail(dialect.Call, err)
	}
	if s.src.Image != "" {
		if err := image.Datasync(s.src.Image, false); err != nil {
			return dialect.Fail(dialect.Fsync, err)
		}
	}
	s.log.Emit("frozen", nil)
	return nil
}

func (s *sending) drain(ctx context.Context) error {
	for n := 0; ; n++ {
		if err := s.copy.Collect(); err != nil {
			return dialect.Fail(dialect.Call, err)
		}
		if s.copy.Dirty() == 0 {
			return nil
		}
		if n == maxFrozenPasses {
			return dialect.Fail(dialect.Loop, fmt.Errorf("ploopcopy: %s: too many iterations on a frozen file system, aborting: something still writes to the device", s.src.Device))
		}
		if _, err := s.pass(ctx); err != nil {
			return err
		}
	}
}

// unmark sends the first sector of a ploop image once more, as that of one that is
// closed.
func (s *sending) unmark() error {
	b := image.Buffer(int(min(image.Align, s.sent.Bytes)))
	if _, err := s.image.ReadAt(b, 0); err != nil {
		return dialect.Fail(dialect.Read, err)
	}
	b = b[:sector]
	if !ploop.ClearInUse(b) {
		return nil
	}
	return s.conn.Write(&wire.Frame{Type: wire.Data, Length: sector, Payload: b})
}

// letGo undoes the freeze: always of the file system, and of the workload if why
// is an error.
func (s *sending) letGo(why error) error {
	err := errors.Join(s.copy.Thaw(), s.copy.Close())
	if !s.frozen.IsZero() {
		s.sent.FrozenMS = float64(time.Since(s.frozen).Microseconds()) / 1000
		if why != nil && s.src.Thaw.Given() {
			// Also when the context ended us.
			err = errors.Join(err, s.src.Thaw.Run(context.Background()))
		}
	}
	if err != nil {
		err = fmt.Errorf("ploopcopy: letting the source go on: %w", err)
	}
	return err
}
