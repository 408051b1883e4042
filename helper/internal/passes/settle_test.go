package passes

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/livefleet/handover/helper/internal/blockmap"
	"github.com/livefleet/handover/helper/internal/image"
	"github.com/livefleet/handover/helper/internal/pipeline"
	"github.com/livefleet/handover/helper/internal/tracker"
)

// late has a write that it marks only when it is asked to settle.
type late struct {
	marks *blockmap.Map
	fails error
}

func (l *late) Swap() (*blockmap.Map, error) { return l.marks.Swap(), nil }
func (l *late) InFlight() (int64, error)     { return 0, nil }
func (l *late) Kind() string                 { return "late" }
func (l *late) Close() error                 { return nil }
func (l *late) Settle() error {
	l.marks.MarkRange(cluster, 1)
	return l.fails
}

// The freeze waits for writes that the tracker's kernel has accepted and not made; where
// that fails, so does the freeze.
func TestTheFreezeSettles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(path, make([]byte, 4*cluster), 0o600); err != nil {
		t.Fatal(err)
	}
	src, err := image.OpenSource(path)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	sender, err := pipeline.NewSender([]pipeline.FrameWriter{&far{b: make([]byte, 4*cluster)}}, pipeline.SendOptions{})
	if err != nil {
		t.Fatal(err)
	}
	l := &late{marks: blockmap.New(4*cluster, cluster)}
	c := New(sender, []*Volume{{Name: "disk", Device: path, Tracker: "late", Cluster: cluster, Source: src}}, Options{
		Open: func(string, []tracker.Device) ([]tracker.Tracker, error) { return []tracker.Tracker{l}, nil },
	})
	if _, err := c.Track(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Send(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.Freeze(), c.Collect()); err != nil {
		t.Fatal(err)
	}
	if c.Dirty() != cluster {
		t.Errorf("%d bytes are dirty, and the last write was to a cluster of %d", c.Dirty(), cluster)
	}
	l.fails = errors.New("the disk is broken")
	if err := c.Freeze(); !errors.Is(err, l.fails) {
		t.Errorf("a freeze whose last writes failed: %v", err)
	}
}
