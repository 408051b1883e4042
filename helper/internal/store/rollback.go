package store

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/blockmap"
	"github.com/livefleet/handover/helper/internal/image"
	"github.com/livefleet/handover/helper/internal/nbd"
)

// rollback writes the disks of a workload in place. At every instant, also after a kill
// or a loss of power, they are as before, as at the point, or shut by a gate: then the
// same rollback once more, or one to another point, makes them whole.
type rollback struct {
	store *Store
	point *Point
	from  *Index // as it was before
	disks []*returning
}

// Disk is a disk of a workload, and its content at the point.
type Disk struct {
	View *View
	Path string
	// Since finds the clusters that may not be as in the current point; without a map why
	// has the reason. It is asked right before the first write, with the disk if QEMU
	// serves it. nil: all may differ.
	Since func(served *nbd.Disk) (m *blockmap.Map, why string)
}

// returning is a disk that goes back.
type returning struct {
	*Restored
	view   *View
	since  func(served *nbd.Disk) (m *blockmap.Map, why string)
	target target    // nil: a file that does not exist yet
	only   *narrowed // nil: all clusters can differ
}

// Rollback makes disks that nothing uses those of a point, which is the current one
// afterwards. Everything is looked at before anything is written.
//
// around, if it is there, is given the writing: the workload's folders go back beside
// it. Until that has returned, nothing may start the workload.
func (s *Store) Rollback(ctx context.Context, point *Point, disks []Disk, around func(write func() error) error) (_ []*Restored, err error) {
	b := &rollback{store: s, point: point, from: s.index}
	defer func() { err = errors.Join(err, b.close()) }()
	for _, d := range disks {
		if err := b.open(d); err != nil {
			return nil, err
		}
	}
	if err := b.room(); err != nil {
		return nil, err
	}
	if err := s.change(func(x *Index) { x.Restoring, x.Restored = point.ID, false }); err != nil {
		return nil, err
	}
	write := func() error { return b.write(ctx) }
	if around != nil {
		err = around(write)
	} else {
		err = write()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: nothing can start on the disks until the rollback has ended: run it again, or one to another snapshot", err)
	}
	done := []*Restored{}
	for _, d := range b.disks {
		done = append(done, d.Restored)
	}
	return done, s.Settle()
}

func (b *rollback) open(disk Disk) (err error) {
	d := &returning{Restored: restoredTo(disk.View, disk.Path), view: disk.View, since: disk.Since}
	b.disks = append(b.disks, d)
	d.target, err = openDisk(d.Path, d.view.size)
	if d.target == nil {
		d.How = Full
	}
	return err
}

// room demands that a file system has room for all data that its images have no blocks for.
func (b *rollback) room() error {
	need, free, first := map[uint64]int64{}, map[uint64]int64{}, map[uint64]string{}
	for _, d := range b.disks {
		var st unix.Stat_t
		// Of a disk that QEMU serves it is not known where its room comes from.
		file, ok := d.target.(*image.Target)
		if !ok || unix.Stat(d.Path, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
			continue
		}
		left, err := file.Free()
		if err != nil {
			return err
		}
		free[st.Dev], first[st.Dev] = left, d.Path
		need[st.Dev] += max(0, d.view.Data()-st.Blocks*512)
	}
	for dev, n := range need {
		if n > free[dev] {
			return fmt.Errorf("store: %s: the disks of the snapshot need %d MiB more there, and %d MiB are free: free %d MiB", first[dev], n>>20, free[dev]>>20, (n-free[dev])>>20+1)
		}
	}
	return nil
}

func (b *rollback) write(ctx context.Context) error {
	for _, d := range b.disks {
		if err := b.narrow(d); err != nil {
			return err
		}
	}
	for _, d := range b.disks {
		if err := b.shut(d); err != nil {
			return err
		}
	}
	for _, d := range b.disks {
		if err := b.fill(ctx, d); err != nil {
			return err
		}
	}
	// From here on it is known that disks without a gate are those of the point.
	if err := b.store.change(func(x *Index) { x.Restored = true }); err != nil {
		return err
	}
	for _, d := range b.disks {
		if err := b.unshut(d); err != nil {
			return err
		}
	}
	return nil
}

// shut puts the gate up.
func (b *rollback) shut(d *returning) error {
	if d.target == nil {
		return nil
	}
	if d.Size < gatePage {
		return fmt.Errorf("store: %s has %d bytes, which is too small for a disk", d.Path, d.Size)
	}
	return b.put(d, gateFor(b.point.ID), 0)
}

// put writes, and has it on the disk.
func (b *rollback) put(d *returning, p []byte, off int64) error {
	if err := b.store.disk.step("write", d.Path); err != nil {
		return err
	}
	if _, err := d.target.WriteAt(p, off); err != nil {
		return err
	}
	return b.sync(d)
}

func (b *rollback) sync(d *returning) error {
	if err := b.store.disk.step("fsync", d.Path); err != nil {
		return err
	}
	return d.target.Datasync()
}

// fill writes everything but the beginning.
func (b *rollback) fill(ctx context.Context, d *returning) error {
	if err := b.store.disk.step("write", d.Path); err != nil {
		return err
	}
	if d.target == nil {
		return d.view.writeNew(ctx, d.Path, d.Restored)
	}
	err := d.view.write(ctx, d.target, d.Restored, shutClusters*cluster, d.only)
	var strange notAsCurrent
	if errors.As(err, &strange) {
		d.How, d.Why = Digests, strange.Error()
		err = d.view.write(ctx, d.target, d.Restored, shutClusters*cluster, nil)
	}
	if err != nil {
		return err
	}
	return b.sync(d)
}

// unshut writes the beginning, and the page that the gate stands in last.
func (b *rollback) unshut(d *returning) error {
	if d.target == nil {
		return nil
	}
	head := image.Buffer(int(min(shutClusters*cluster, (d.Size+cluster-1)/cluster*cluster)))
	for at := 0; at < len(head); at += cluster {
		if err := d.view.cluster(int64(at/cluster), head[at:at+cluster]); err != nil {
			return err
		}
	}
	head = head[:min(int64(len(head)), d.Size)]
	d.Written += int64(len(head))
	if err := b.put(d, head[gatePage:], gatePage); err != nil {
		return err
	}
	return b.put(d, head[:gatePage], 0)
}

func (b *rollback) close() (err error) {
	for _, d := range b.disks {
		if d.target != nil {
			err = errors.Join(err, d.target.Close())
		}
	}
	return err
}

// Settle ends what is noted of a rollback whose disks have no gate any more: a process
// was killed before the first gate stood, or after the last had gone. No tracker has
// marked the difference: the next snapshot compares digests.
func (s *Store) Settle() error {
	return s.change(func(x *Index) {
		p := x.point(x.Restoring)
		if p != nil && x.Restored {
			x.Current = p.ID
			for i := range p.Volumes {
				p.Volumes[i].Mark = nil
			}
		}
		x.Restoring, x.Restored = "", false
	})
}
