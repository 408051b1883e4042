// Package passes brings volumes over while they are being written: everything once,
// then the clusters written in that time, and so on. In the end, with the file
// systems frozen, it proves that nothing is left.
//
// A Copy is a few volumes on their way over one connection. The order that keeps
// it whole:
//
//   - Track comes before the first cluster is read;
//   - a pass takes the marks first and reads the clusters afterwards, so a cluster
//     that changes while it is read is marked again;
//   - holes and unused blocks of the file system are found after Track, and taken off
//     the map of everything only: every cluster that a tracker names is sent;
//   - zero clusters are left out on the first pass only, and only where the
//     destination is known to hold nothing but zeroes;
//   - after Freeze the file systems are asked again for their used blocks, and the
//     last pass sends those that had been left out;
//   - Silent comes after Freeze and the last pass: a mark that is found then, or
//     a write that is still under way, is an error.
package passes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/livefleet/handover/helper/internal/blockmap"
	"github.com/livefleet/handover/helper/internal/codec"
	"github.com/livefleet/handover/helper/internal/image"
	"github.com/livefleet/handover/helper/internal/ledger"
	"github.com/livefleet/handover/helper/internal/pipeline"
	"github.com/livefleet/handover/helper/internal/tracker"
)

// Untracked is the kind of tracker of a volume that does not change.
const Untracked = "none"

// Volume is one volume on its way. The caller sets the exported fields.
type Volume struct {
	Name       string
	Device     string // the block device that is tracked
	Mountpoint string // of the file system on it; empty where there is none to be frozen
	Tracker    string // the kind, as tracker.Open has it, or Untracked
	Cluster    int
	Stream     uint32 // the volume's number on the wire
	Source     *image.Source
	Ledger     *ledger.Ledger // of the sent data; nil: the destination does not compare
	History    *codec.History // nil: clusters that were sent before go whole
	Empty      bool           // the destination holds nothing but zeroes
	SkipFree   bool           // unused blocks are not sent: zeroes there

	Survey    Survey // the clusters that need not be read, once Track is done
	Comparing string // why it is compared and not tracked, if it had to be chosen

	tracker tracker.Tracker
	blank   *blockmap.Map // not read, to be made zeroes with the first pass; or nil
	left    *blockmap.Map // free when it was left out, and zeroes over there; or nil
	unused  *blockmap.Map // of left, the clusters that are still free; only where a tracker compares
	pending *blockmap.Map // the clusters that the next pass sends
	frozen  bool          // its file system is frozen by us

	freeSpace func(mountpoint, device string, free func(off, n int64)) error // of the copy's options

	ours bool // no other copy uses the ledger
}

// Pass is one walk over the dirty clusters.
type Pass struct {
	Pass    int     `json:"pass"`
	Bytes   int64   `json:"bytes"`   // that were dirty
	Sent    int64   `json:"sent"`    // that had to travel
	Zero    int64   `json:"zero"`    // that were zeroes
	Payload int64   `json:"payload"` // bytes that travelled, after packing
	MS      float64 `json:"ms"`
}

// Options are how a Copy works; the zero value is good.
type Options struct {
	// Count hears of each step how many bytes it dealt with, from one goroutine at a
	// time.
	Count func(bytes int64)
	// Open opens the trackers; tracker.Open if it is nil.
	Open func(kind string, devs []tracker.Device) ([]tracker.Tracker, error)
	// Free names the blocks that a file system does not use; image.FreeSpace if it is nil.
	Free func(mountpoint, device string, free func(off, n int64)) error
	// Begin, if it is there, tells the other side which round begins, before the
	// first frame of each; see ContinueOver.
	Begin func(round int) error
}

// Copy is volumes on their way over one connection. Its methods are called by
// one goroutine at a time.
type Copy struct {
	sender  *pipeline.Sender
	volumes []*Volume
	opt     Options
	pass    int
	fresh   bool // collected since the last Send

	mu       sync.Mutex
	round    int    // how many rounds were begun
	underWay []sent // those that may not have arrived whole
}

// New begins a copy: every cluster of every volume has to travel.
func New(sender *pipeline.Sender, volumes []*Volume, opt Options) *Copy {
	if opt.Open == nil {
		opt.Open = tracker.Open
	}
	if opt.Free == nil {
		opt.Free = image.FreeSpace
	}
	for _, v := range volumes {
		v.pending = blockmap.New(v.Source.Size(), v.Cluster)
		v.pending.MarkAll()
		v.freeSpace = opt.Free
	}
	return &Copy{sender: sender, volumes: volumes, opt: opt}
}

// Track starts the trackers, with one load of the programs for all devices of a kind,
// and finds the clusters that need not be read. It returns the kinds by volume.
func (c *Copy) Track() (map[string]string, error) {
	kinds := map[string][]*Volume{}
	for _, v := range c.volumes {
		if v.Tracker != Untracked {
			kinds[v.Tracker] = append(kinds[v.Tracker], v)
		}
	}
	found := map[string]string{}
	for kind, vs := range kinds {
		devs := make([]tracker.Device, len(vs))
		for i, v := range vs {
			if v.Ledger == nil && (kind == tracker.Hash || kind == tracker.Auto) {
				v.Ledger = ledger.New(v.Source.Size(), v.Cluster, os.TempDir(), 0)
				v.ours = true
			}
			devs[i] = tracker.Device{Path: v.Device, Cluster: v.Cluster, Sent: v.isAsSent, Size: v.Source.Size()}
		}
		ts, err := c.opt.Open(kind, devs)
		if err != nil {
			return nil, err
		}
		for i, v := range vs {
			v.tracker = ts[i]
			found[v.Name] = ts[i].Kind()
			if v.ours && found[v.Name] != tracker.Hash {
				if err := v.Ledger.Close(); err != nil {
					return nil, err
				}
				v.Ledger, v.ours = nil, false
			}
			if w, ok := ts[i].(interface{ Why() string }); ok {
				v.Comparing = w.Why()
			}
		}
	}
	for _, v := range c.volumes {
		if err := v.survey(); err != nil {
			return nil, fmt.Errorf("passes: volume %s: %w", v.Name, err)
		}
	}
	return found, nil
}

// Only has nothing travel in the first pass but the clusters of a map: the destination
// holds all others already. The map has to be taken after Track, and has to name all
// that was written until then since the destination was the same.
func (c *Copy) Only(volume string, m *blockmap.Map) error {
	for _, v := range c.volumes {
		if v.Name != volume {
			continue
		}
		v.pending, v.blank, v.left, v.unused = blockmap.New(v.Source.Size(), v.Cluster), nil, nil, nil
		return v.pending.Merge(m)
	}
	return fmt.Errorf("passes: there is no volume %s", volume)
}

// isAsSent reports whether the destination holds a cluster as it is, or its content
// is not needed.
func (v *Volume) isAsSent(off int64, data []byte) (bool, error) {
	if v.unused != nil && v.unused.Has(off) {
		return true, nil
	}
	if codec.IsZero(data) {
		return v.Ledger.Holds(off, 0)
	}
	return v.Ledger.Holds(off, ledger.Digest(data))
}

// Collect takes the trackers' marks since the last time into the maps of clusters to
// send.
func (c *Copy) Collect() error {
	for _, v := range c.volumes {
		if v.tracker == nil {
			continue
		}
		m, err := v.swap()
		if err == nil {
			err = v.pending.Merge(m)
		}
		if err != nil {
			return fmt.Errorf("passes: volume %s: %w", v.Name, err)
		}
	}
	c.fresh = true
	return nil
}

// swap takes the marks of the tracker.
func (v *Volume) swap() (*blockmap.Map, error) {
	if v.tracker.Kind() == tracker.Hash && v.left != nil {
		// Clusters that are still free need not be compared: no needed data were
		// written there. Once used, they are compared.
		used, err := v.used()
		if err != nil {
			return nil, err
		}
		v.unused = blockmap.New(v.Source.Size(), v.Cluster)
		if err := errors.Join(v.unused.Merge(v.left), v.unused.Subtract(used)); err != nil {
			return nil, err
		}
	}
	return v.tracker.Swap()
}

// Dirty is how many bytes the next pass has, as far as they are collected.
func (c *Copy) Dirty() (n int64) {
	for _, v := range c.volumes {
		n += v.pending.Bytes()
	}
	return n
}

// Passes is how many passes were begun.
func (c *Copy) Passes() int { return c.pass }

// Send sends everything that is marked now, as fast as the pace lets it; nil is as
// fast as it goes. Later marks are for the next pass. Where nothing is marked there
// is no pass, and the result is empty. It collects first, unless Collect was called
// since the last time.
func (c *Copy) Send(ctx context.Context, pace *pipeline.Pace) (Pass, error) {
	if !c.fresh { // twice would be a whole read more where a tracker compares
		if err := c.Collect(); err != nil {
			return Pass{}, err
		}
	}
	c.fresh = false
	if err := c.blanks(ctx); err != nil {
		return Pass{}, err
	}
	total := c.Dirty()
	if total == 0 {
		return Pass{}, nil
	}
	c.pass++
	p := Pass{Pass: c.pass, Bytes: total}
	began := time.Now()
	if err := c.begin(ctx); err != nil {
		return p, err
	}
	for _, v := range c.volumes {
		m := v.pending.Swap()
		if m.Empty() {
			continue
		}
		if err := v.goes(m); err != nil {
			return p, err
		}
		c.remember(v.Stream, m)
		pass := pipeline.Pass{SkipZero: v.Empty, Pace: pace, Count: c.opt.Count}
		stats, err := c.sender.Send(ctx, v.vol(), m, pass)
		if err != nil {
			return p, fmt.Errorf("passes: volume %s: %w", v.Name, err)
		}
		v.Empty = false // from the second pass on, zeroes have to be sent
		p.Sent += stats.Sent
		p.Zero += stats.Zero + stats.Skipped
		p.Payload += stats.Payload
	}
	p.MS = float64(time.Since(began).Microseconds()) / 1000
	return p, nil
}

// vol is the volume as the pipeline knows it.
func (v *Volume) vol() pipeline.Volume {
	return pipeline.Volume{Stream: v.Stream, Source: v.Source, Ledger: v.Ledger, History: v.History}
}

// blanks makes the clusters that are not read zero on the destination, once. It comes
// before all data: later writes go behind it, and stay.
func (c *Copy) blanks(ctx context.Context) error {
	for _, v := range c.volumes {
		if v.blank == nil {
			continue
		}
		if err := c.begin(ctx); err != nil {
			return err
		}
		blank := v.blank
		v.blank = nil
		c.remember(v.Stream, blank)
		if err := c.sender.Zeroes(ctx, v.vol(), blank); err != nil {
			return fmt.Errorf("passes: volume %s: %w", v.Name, err)
		}
	}
	return nil
}

// Sync writes out the file systems' dirty pages.
func (c *Copy) Sync() error {
	for _, v := range c.volumes {
		if v.Mountpoint != "" {
			if err := image.Syncfs(v.Mountpoint); err != nil {
				return err
			}
		}
	}
	return nil
}

// Freeze freezes the file systems that it has not frozen yet, and waits for the writes
// before that where the tracker needs it.
func (c *Copy) Freeze() error {
	for _, v := range c.volumes {
		if v.frozen {
			continue
		}
		if v.Mountpoint != "" {
			if err := image.Freeze(v.Mountpoint); err != nil {
				return err
			}
			v.frozen = true
		}
		if settler, ok := v.tracker.(tracker.Settler); ok {
			if err := settler.Settle(); err != nil {
				return err
			}
		}
		if err := v.recheck(); err != nil {
			return fmt.Errorf("passes: volume %s: %w", v.Name, err)
		}
	}
	return nil
}

// Silent demands that nothing was written since the last pass and that no write
// is under way.
func (c *Copy) Silent() error {
	for _, v := range c.volumes {
		if v.tracker == nil {
			continue
		}
		n, err := v.tracker.InFlight()
		if err != nil {
			return err
		}
		if n != 0 {
			return fmt.Errorf("passes: volume %s: %d writes to %s are still under way although it is frozen: something writes to the device past its file system", v.Name, n, v.Device)
		}
		m, err := v.swap()
		if err != nil {
			return err
		}
		if !m.Empty() {
			return fmt.Errorf("passes: volume %s: %d bytes of %s were written although it is frozen: something writes to the device past its file system", v.Name, m.Bytes(), v.Device)
		}
	}
	return nil
}

// Thaw lets the file systems that Freeze froze go on. It may be called again.
func (c *Copy) Thaw() (err error) {
	for _, v := range c.volumes {
		if v.frozen {
			if e := image.Thaw(v.Mountpoint); e != nil {
				err = errors.Join(err, e)
				continue
			}
			v.frozen = false
		}
	}
	return err
}

// Close ends the tracking. The sources stay the caller's.
func (c *Copy) Close() (err error) {
	for _, v := range c.volumes {
		if v.tracker != nil {
			err = errors.Join(err, v.tracker.Close())
			v.tracker = nil
		}
		if v.ours {
			err = errors.Join(err, v.Ledger.Close())
			v.Ledger, v.ours = nil, false
		}
	}
	return err
}
