package store

import (
	"errors"
	"io"

	"github.com/livefleet/handover/helper/internal/blockmap"
	"github.com/livefleet/handover/helper/internal/image"
)

// A rollback that knows the clusters which may not be as in the current point compares
// these, and those in which the two points differ. All others are on the disk as in
// both. A gate that stands is such a change of the disk that no point has: then all is compared.

// narrow finds the clusters of a disk that can differ. Where it cannot, the reason is noted
// and all is compared: no fault of the current point keeps a disk from going back.
func (b *rollback) narrow(d *returning) error {
	if d.target == nil || d.since == nil || d.Size < gatePage {
		return nil
	}
	_, shut, err := Shut(d.target)
	if err != nil {
		return err
	}
	if shut || b.from.Restoring != "" {
		d.Why = "a rollback was begun before, and has not ended"
		return nil
	}
	m, why := d.since()
	if m != nil {
		if err := b.differing(d, m); err != nil {
			m, why = nil, err.Error()
		}
	}
	if d.Why = why; m != nil {
		d.only, d.How = m, Marks
	}
	return nil
}

// differing makes the clusters that may not be as in the current point those that may not
// be as in the one that is gone back to.
func (b *rollback) differing(d *returning, m *blockmap.Map) (err error) {
	now := b.from.Now()
	if now == nil {
		return errors.New("there is no current snapshot")
	}
	v, err := now.Volume(d.Volume)
	if err != nil {
		return err
	}
	is, err := openView(b.store.dir, b.from.chain(v.Layer))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, is.Close()) }()
	if m.Size() != d.Size || m.Cluster() != cluster || is.size != d.Size {
		return errors.New("the disk had another size")
	}
	for c, sum := range d.view.sums {
		if !is.holds(int64(c), sum) {
			m.MarkRange(int64(c)*cluster, cluster)
		}
	}
	return d.withoutHoles(m)
}

// withoutHoles leaves out the clusters that are holes and have to be zeroes. Most clusters
// that no point has looked at are such.
func (d *returning) withoutHoles(m *blockmap.Map) (err error) {
	src, err := image.OpenSource(d.Path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	for at := int64(0); at < d.Size; {
		start, end, err := src.NextData(at)
		if err != nil && err != io.EOF {
			return err
		}
		for c := (at + cluster - 1) / cluster; (c+1)*cluster <= start || start == d.Size && c*cluster < start; c++ {
			if !d.view.places[c].isData() {
				m.Clear(c * cluster)
			}
		}
		if err == io.EOF {
			return nil
		}
		at = end
	}
	return nil
}
