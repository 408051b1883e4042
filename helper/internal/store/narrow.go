package store

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/blockmap"
	"github.com/livefleet/handover/helper/internal/nbd"
)

// A rollback that knows the clusters which may not be as in the current point compares
// these, and writes those in which the two points differ. All others are on the disk as in
// both.
//
// It does not rely on that alone. Some of the clusters in which the points differ are read
// before they are written, and have to be as in the current point. Of a disk that QEMU
// serves so have some in which they do not differ: its marks are in the image, which may be
// that of another disk. If one is not, the disk was written without a mark, and all is
// compared.

// narrowed are the clusters of a disk that can differ.
type narrowed struct {
	doubt   *blockmap.Map // the disk may have anything
	differs *blockmap.Map // the disk is as the current point, and the other is not
	tried   *blockmap.Map // some that are read, and have to be as in the current point
	was     []sum         // of the current point
}

// mostTried is how many clusters are read to see that the marks are whole.
const mostTried = 64

// notAsCurrent is the error of a cluster that was written without a mark.
type notAsCurrent struct{ off int64 }

func (e notAsCurrent) Error() string {
	return fmt.Sprintf("the cluster at %d is not as in the current snapshot, and has no mark", e.off)
}

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
	served, _ := d.target.(*nbd.Disk)
	doubt, why := d.since(served)
	if doubt != nil {
		if d.only, err = b.differing(d, doubt); err != nil {
			d.only, why = nil, err.Error()
		}
	}
	if d.Why = why; d.only != nil {
		d.How = Marks
	}
	return nil
}

// differing adds the clusters in which the two points differ.
func (b *rollback) differing(d *returning, doubt *blockmap.Map) (_ *narrowed, err error) {
	now := b.from.Now()
	if now == nil {
		return nil, errors.New("there is no current snapshot")
	}
	v, err := now.Volume(d.Volume)
	if err != nil {
		return nil, err
	}
	is, err := openView(b.store.dir, b.from.chain(v.Layer))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, is.Close()) }()
	if doubt.Size() != d.Size || doubt.Cluster() != cluster || is.size != d.Size {
		return nil, errors.New("the disk had another size")
	}
	n := &narrowed{doubt: doubt, differs: blockmap.New(d.Size, cluster), tried: blockmap.New(d.Size, cluster), was: is.sums}
	for c, sum := range d.view.sums {
		if !is.holds(int64(c), sum) {
			n.differs.MarkRange(int64(c)*cluster, cluster)
		}
	}
	if err := n.differs.Subtract(doubt); err != nil {
		return nil, err
	}
	n.try(n.differs)
	if !nbd.Is(d.Path) {
		return n, d.withoutHoles(doubt)
	}
	same := blockmap.New(d.Size, cluster)
	for c, place := range is.places {
		if place.isData() {
			same.MarkRange(int64(c)*cluster, cluster)
		}
	}
	if err := errors.Join(same.Subtract(doubt), same.Subtract(n.differs)); err != nil {
		return nil, err
	}
	n.try(same)
	return n, nil // no snapshot of it leaves anything out
}

// try has some of the clusters read, over all of the disk.
func (n *narrowed) try(clusters *blockmap.Map) {
	step, at := clusters.Count()/mostTried+1, int64(0)
	for off := range clusters.Runs(cluster) {
		if at%step == 0 {
			n.tried.MarkRange(off, cluster)
		}
		at++
	}
}

// withoutHoles leaves out the clusters that are holes and have to be zeroes. Most clusters
// that a snapshot has left out are such.
func (d *returning) withoutHoles(doubt *blockmap.Map) error {
	f, err := os.Open(d.Path)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	defer f.Close()
	for at := int64(0); at < d.Size; {
		data, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		switch {
		case err == unix.ENXIO:
			data = clustersOf(d.Size) * cluster
		case err == unix.EINVAL || err == unix.EOPNOTSUPP:
			return nil // the file system tells of none
		case err != nil:
			return fmt.Errorf("store: %s: looking for data from %d on: %w", d.Path, at, err)
		}
		for c := (at + cluster - 1) / cluster; (c+1)*cluster <= data; c++ {
			if !d.view.places[c].isData() {
				doubt.Clear(c * cluster)
			}
		}
		if at = data; at < d.Size {
			if at, err = unix.Seek(int(f.Fd()), data, unix.SEEK_HOLE); err != nil {
				return fmt.Errorf("store: %s: looking for a hole from %d on: %w", d.Path, data, err)
			}
		}
	}
	return nil
}

// known reports whether it is known of a cluster, without a look at the disk, that it
// differs or that it does not.
func (n *narrowed) known(off int64) (differs, known bool) {
	if n == nil || n.doubt.Has(off) || n.tried.Has(off) {
		return false, false
	}
	return n.differs.Has(off), true
}

// isStrange reports whether a cluster has something that it cannot have.
func (n *narrowed) isStrange(off int64, has sum) bool {
	return n != nil && n.tried.Has(off) && has != n.was[off/cluster]
}
