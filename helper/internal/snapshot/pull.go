package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/livefleet/handover/helper/internal/nbd"
	"github.com/livefleet/handover/helper/internal/store"
)

// Pull is a point of disks that QEMU serves as they were at one moment, such as those of
// a libvirt backup. So there are no passes and no freeze here: the moment has been.
type Pull struct {
	Store       string    `json:"store"`
	Name        string    `json:"name"`
	Description string    `json:"description"`
	Taken       time.Time `json:"taken"`
	FrozenMS    float64   `json:"frozen_ms"` // how long the guest's file systems stood still
	Disks       []Served  `json:"disks"`
	Files       []Place   `json:"files"` // taken along
}

// Served is one disk.
type Served struct {
	Name   string `json:"name"`
	Socket string `json:"socket"`
	Export string `json:"export"`
	// Bitmap has all that was written since the checkpoint Since. Without it everything
	// is read, and Why has the reason.
	Bitmap string `json:"bitmap"`
	Since  string `json:"since"`
	Why    string `json:"why"`
	// Checkpoint was made at the moment of this point; empty: there is none.
	Checkpoint string `json:"checkpoint"`
}

// A stretch of a disk is asked for at once, and read in blocks.
const (
	askedAtOnce = 1 << 30
	readAtOnce  = 1 << 20
)

// PullInto takes a point from served disks.
func PullInto(ctx context.Context, r Pull) (_ *Taken, err error) {
	if len(r.Disks) == 0 {
		return nil, errors.New("snapshot: there is no disk to pull: name each")
	}
	if r.Taken.IsZero() {
		return nil, errors.New("snapshot: the moment is missing that the disks are of")
	}
	p := &part{Part: Part{Store: r.Store, Name: r.Name, Description: r.Description, Files: r.Files}}
	for _, d := range r.Disks {
		p.Volumes = append(p.Volumes, Place{Name: d.Name})
	}
	// Before the store is opened, which takes disks without a gate for whole ones.
	disks, err := reach(r.Disks)
	defer func() { err = errors.Join(err, hangUp(disks)) }()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	if err := p.open(); err != nil {
		return nil, err
	}
	for i, d := range r.Disks {
		if err := d.pull(ctx, disks[i], p.take); err != nil {
			return nil, fmt.Errorf("snapshot: the disk %s: %w", d.Name, err)
		}
	}
	for _, f := range p.Files {
		if err := p.along(f); err != nil {
			return nil, err
		}
	}
	point, err := p.take.Finish(r.Taken, r.FrozenMS)
	if err != nil {
		return nil, err
	}
	return &Taken{Point: point, Store: p.store.Dir()}, nil
}

// reach connects to all disks, and sees that no rollback has left one of them half written.
func reach(disks []Served) (clients []*nbd.Client, _ error) {
	for _, d := range disks {
		contexts := []string{nbd.Allocation}
		if d.Bitmap != "" {
			contexts = append(contexts, nbd.Dirty(d.Bitmap))
		}
		c, err := nbd.Dial(d.Socket, d.Export, contexts...)
		if err != nil {
			return clients, fmt.Errorf("snapshot: the disk %s: %w", d.Name, err)
		}
		clients = append(clients, c)
		point, shut, err := store.Shut(io.NewSectionReader(c, 0, c.Size()))
		if err == nil && shut {
			err = fmt.Errorf("a rollback of it to the snapshot %s was begun, and has not ended: run it again", point)
		}
		if err != nil {
			return clients, fmt.Errorf("snapshot: the disk %s: %w", d.Name, err)
		}
	}
	return clients, nil
}

func hangUp(clients []*nbd.Client) (err error) {
	for _, c := range clients {
		err = errors.Join(err, c.Close())
	}
	return err
}

// pull brings one disk into the store.
func (d *Served) pull(ctx context.Context, c *nbd.Client, take store.Taking) error {
	bitmap, why := d.reaches(take.Base(d.Name))
	defer context.AfterFunc(ctx, c.Interrupt)()
	w, err := take.Volume(d.Name, c.Size(), false)
	if err != nil {
		return err
	}
	var mark *store.Mark
	if d.Checkpoint != "" {
		mark = &store.Mark{Tracker: d.Checkpoint}
	}
	switch {
	case w.Full():
		// The parent has another size, or there is none: the bitmap is not enough.
		bitmap = ""
		w.Found(store.Full, "", mark)
	case bitmap == "":
		w.Found(store.Digests, why, mark)
	default:
		w.Found(store.Marks, "", mark)
	}
	return transfer(ctx, c, w, bitmap)
}

// reaches is the bitmap, if it has all that was written since the parent.
func (d *Served) reaches(base *store.Volume) (bitmap, why string) {
	switch {
	case d.Bitmap == "":
		return "", d.Why
	case base == nil:
		return "", ""
	case base.Mark == nil || base.Mark.Tracker != d.Since:
		return "", fmt.Sprintf("the checkpoint %s is not that of the backup before", d.Since)
	}
	return d.Bitmap, ""
}

// block is a part of the disk that was read.
type block struct {
	off  int64
	n    int64
	data []byte // nil: zeroes
}

// transfer reads and writes side by side.
func transfer(ctx context.Context, c *nbd.Client, w store.VolumeWriter, bitmap string) error {
	blocks := make(chan block, 4)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer close(blocks)
		return readAll(c, bitmap, func(b block) error {
			select {
			case blocks <- b:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
	})
	g.Go(func() error {
		for b := range blocks {
			err := error(nil)
			if b.data == nil {
				err = w.Zero(b.off, b.n)
			} else {
				err = w.Write(b.data, b.off)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	return g.Wait()
}

// readAll reads the clusters of the bitmap, or all, in the order of the disk.
func readAll(c *nbd.Client, bitmap string, give func(block) error) error {
	for off := int64(0); off < c.Size(); {
		asked := min(askedAtOnce, c.Size()-off)
		found, err := c.Extents(off, asked)
		if err != nil {
			return err
		}
		wanted, end := clustersOf(off, c.Size(), found, bitmap)
		for _, r := range wanted {
			if err := readRun(c, r, min(end, r.off+r.n), give); err != nil {
				return err
			}
		}
		off = end
	}
	return nil
}

// run is clusters side by side, all zeroes or not.
type run struct {
	off, n int64
	zero   bool
}

// clustersOf cuts extents into runs of whole clusters, up to an end that all contexts
// reach. A cluster is read if any of its bytes was written, and zero if all of its are.
func clustersOf(off, size int64, found map[string][]nbd.Extent, bitmap string) (runs []run, end int64) {
	end = off + lengthOf(found[nbd.Allocation])
	if bitmap != "" {
		end = min(end, off+lengthOf(found[nbd.Dirty(bitmap)]))
	}
	if end < size {
		// Of a cluster that is known in part it is not known that it can be left out.
		if end = end / cluster * cluster; end == off {
			end = min(off+cluster, size)
			return []run{{off: off, n: end - off}}, end
		}
	}
	zero := spansOf(off, found[nbd.Allocation], nbd.Zero)
	dirty := []run{{off: off, n: end - off}}
	if bitmap != "" {
		dirty = spansOf(off, found[nbd.Dirty(bitmap)], nbd.Written)
	}
	for _, d := range dirty {
		from, to := d.off/cluster*cluster, (d.off+d.n+cluster-1)/cluster*cluster
		if len(runs) > 0 {
			last := runs[len(runs)-1]
			from = max(from, last.off+last.n)
		}
		for at := from; at < min(to, end); {
			next, isZero := piece(at, min(to, end), zero)
			if n := len(runs); n > 0 && runs[n-1].zero == isZero && runs[n-1].off+runs[n-1].n == at {
				runs[n-1].n += next - at
			} else {
				runs = append(runs, run{at, next - at, isZero})
			}
			at = next
		}
	}
	return runs, end
}

// piece is the end of the clusters from a place on that are all zero, or none wholly.
func piece(at, to int64, zero []run) (next int64, isZero bool) {
	for _, z := range zero {
		from, until := (z.off+cluster-1)/cluster*cluster, (z.off+z.n)/cluster*cluster
		if z.off+z.n >= to {
			until = to
		}
		if until <= at || until <= from {
			continue
		}
		if from <= at {
			return min(until, to), true
		}
		return min(from, to), false
	}
	return to, false
}

// spansOf are the extents with a flag, by their places.
func spansOf(off int64, extents []nbd.Extent, flag uint32) (spans []run) {
	for _, e := range extents {
		if n := len(spans); e.Flags&flag != 0 && n > 0 && spans[n-1].off+spans[n-1].n == off {
			spans[n-1].n += e.Length
		} else if e.Flags&flag != 0 {
			spans = append(spans, run{off: off, n: e.Length})
		}
		off += e.Length
	}
	return spans
}

func lengthOf(extents []nbd.Extent) (n int64) {
	for _, e := range extents {
		n += e.Length
	}
	return n
}

// readRun reads a run in blocks.
func readRun(c *nbd.Client, r run, end int64, give func(block) error) error {
	if r.zero {
		return give(block{off: r.off, n: end - r.off})
	}
	for off := r.off; off < end; off += readAtOnce {
		data := make([]byte, min(readAtOnce, end-off))
		if _, err := c.ReadAt(data, off); err != nil {
			return err
		}
		if err := give(block{off: off, n: int64(len(data)), data: data}); err != nil {
			return err
		}
	}
	return nil
}
