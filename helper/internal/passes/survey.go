package passes

import (
	"context"
	"errors"
	"io"

	"github.com/livefleet/handover/helper/internal/blockmap"
	"github.com/livefleet/handover/helper/internal/image"
)

// The clusters that need not be read are found once, when the trackers run and before
// anything is sent: holes, and unused blocks of the file system.
//
// Both answers are about a moment after the trackers began. A cluster that was free
// or a hole at that moment, and holds needed data at the end, was written in between,
// by way of the device. So a tracker has named it, and every cluster that a tracker
// names is sent. That is why the answers are only ever taken off the map of
// everything, and never off a map that came from a tracker: those marks may be about
// writes that came after the answer.
//
// A free cluster that was left out is zeroes on the destination, and has its old
// content on the source. left is the map of these clusters. When the file systems are
// frozen they are asked once more. Clusters that are no longer free are sent, whether
// a tracker named them or not: so the end does not depend on the reasoning above
// alone. A comparison of both sides counts the clusters in left as zeroes.

// Survey counts the bytes that need not be read.
type Survey struct {
	Holes int64  `json:"holes"` // bytes that no file below holds
	Free  int64  `json:"free"`  // of the rest, bytes that the file system does not use
	Why   string `json:"why,omitempty"`
}

// survey takes the clusters that need not be read off the map of everything.
func (v *Volume) survey() error {
	blank := blockmap.New(v.Source.Size(), v.Cluster)
	for at := int64(0); at < v.Source.Size(); {
		start, end, err := v.Source.NextData(at)
		if err != nil && err != io.EOF {
			return err
		}
		blank.MarkWithin(at, start-at) // at the end, start is the size
		if err == io.EOF {
			break
		}
		at = end
	}
	v.Survey.Holes = blank.Bytes()
	if v.SkipFree && v.tracker != nil && v.Mountpoint != "" {
		left, err := v.free()
		switch {
		case errors.Is(err, image.ErrNoFreeMap):
			v.Survey.Why = err.Error()
		case err != nil:
			return err
		default:
			// A hole is zeroes on both sides: nothing is left out there. But a write
			// whose data are not needed may fill it, so it stays a free cluster.
			v.left = left
			if err := blank.Merge(left); err != nil {
				return err
			}
			v.Survey.Free = blank.Bytes() - v.Survey.Holes
		}
	}
	if !v.Empty {
		v.blank = blank
	}
	return v.pending.Subtract(blank)
}

// free is which clusters the file system does not use at all, now.
func (v *Volume) free() (*blockmap.Map, error) {
	m := blockmap.New(v.Source.Size(), v.Cluster)
	return m, v.freeSpace(v.Mountpoint, v.Device, m.MarkWithin)
}

// recheck has clusters sent after all that were left out as free, and no longer are.
func (v *Volume) recheck() error {
	if v.left == nil || v.left.Empty() {
		return nil
	}
	used, err := v.used()
	if err != nil {
		return err
	}
	return v.pending.Merge(used)
}

// used is the map of clusters that were left out as free, and no longer are.
func (v *Volume) used() (*blockmap.Map, error) {
	now, err := v.free()
	if err != nil {
		return nil, err
	}
	used := blockmap.New(v.Source.Size(), v.Cluster)
	return used, errors.Join(used.Merge(v.left), used.Subtract(now))
}

// goes notes that the clusters of a map are sent as they are.
func (v *Volume) goes(m *blockmap.Map) error {
	if v.left == nil {
		return nil
	}
	return v.left.Subtract(m)
}

// Left is how many bytes were left out because the file system does not use them.
func (v *Volume) Left() int64 {
	if v.left == nil {
		return 0
	}
	return v.left.Bytes()
}

// LeftOut is the map of these; nil: there are none. The source may hold anything there.
func (v *Volume) LeftOut() *blockmap.Map { return v.left }

// Digest makes a digest of each cluster of the frozen source, as the destination has
// to hold it: clusters that were left out as free are zeroes there.
func (v *Volume) Digest(ctx context.Context) (*image.Digests, error) {
	if v.left == nil || v.left.Empty() {
		return image.Digest(ctx, v.Source, v.Source.Size(), v.Cluster)
	}
	return image.Digest(ctx, masked{v.Source, v.left}, v.Source.Size(), v.Cluster)
}

// masked is a source whose marked clusters are zeroes.
type masked struct {
	src  *image.Source
	zero *blockmap.Map
}

func (m masked) ReadAt(p []byte, off int64) (int, error) {
	n, err := m.src.ReadAt(p, off)
	cluster := int64(m.zero.Cluster())
	for at := off / cluster * cluster; at < off+int64(n); at += cluster {
		if m.zero.Has(at) {
			clear(p[max(0, at-off):min(int64(n), at+cluster-off)])
		}
	}
	return n, err
}

// NextData leaves out holes; masked clusters that are no holes are read and cleared.
func (m masked) NextData(off int64) (start, end int64, err error) { return m.src.NextData(off) }
