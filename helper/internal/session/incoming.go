package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/livefleet/handover/helper/internal/ledger"
	"github.com/livefleet/handover/helper/internal/passes"
	"github.com/livefleet/handover/helper/internal/pipeline"
	"github.com/livefleet/handover/helper/internal/session/protocol"
	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/tree"
	"github.com/livefleet/handover/helper/internal/wire"
)

// incoming is the traffic of one line's connections, with this side's answers.
type incoming struct {
	*places
	hearing
	conn       *wire.Conn
	receiver   *pipeline.Receiver
	arrivals   *passes.Arrivals
	ledgers    []*ledger.Ledger // of the written data, by volume; empty if the source keeps none
	lines      int              // how many connections the source wants
	reconnects bool             // it knows how to go on over another connection
	empty      bool             // the images held nothing but zeroes at first
	compares   bool             // the source hears of their content first
	unpacking  map[uint32]*unpacking
	late       map[string][]string // folder → its entries that came after the barrier
	memory     arrivedMemory
	tokenHash  string
	verifies   bool                                        // the source wants the digests of all that has come
	said       int64                                       // of the message that is being answered, and
	heard      int64                                       // when it came
	changed    func(context.Context, *record.Tree, string) // is called for the first entry of a tree that was laid down or removed
}

// unpacking is one tree's stream on its way to the disk.
type unpacking struct {
	w       *io.PipeWriter
	done    chan error
	late    bool     // after the barrier, which has synced all earlier data
	laid    []string // by this stream, if it is late; to be read after done, as is changed
	changed string   // the first one that was laid down or removed
}

// welcome says that this side is ready, and which round is under way.
func (d *incoming) welcome(round int) error {
	return protocol.Send(d.conn, &protocol.Welcome{
		Answer: protocol.Answer{Echo: d.said, Heard: d.heard}, Round: round, Empty: d.empty && round == 0, Compare: d.compares, Can: d.able(), Stock: d.memory.room, Lines: min(max(d.lines, 1), record.MaxConnections),
	})
}

// agree compares the source's hello with our spec.
func (d *incoming) agree(m *protocol.Opening) error {
	if m.ID != d.Spec.ID || m.Workload != d.Spec.Workload || m.Mode != d.Spec.Mode {
		return fmt.Errorf("session: the source is about to send %s (session %s, %s), and this side waits for %s (session %s, %s)",
			m.Workload, m.ID, m.Mode, d.Spec.Workload, d.Spec.ID, d.Spec.Mode)
	}
	if len(m.Volumes) != len(d.Spec.Volumes) || len(m.Directories) != len(d.Spec.Directories) || len(m.Trees) != len(d.Spec.Trees) {
		return fmt.Errorf("session: the source has %d volumes, %d directories and %d trees, this side expects %d, %d and %d",
			len(m.Volumes), len(m.Directories), len(m.Trees), len(d.Spec.Volumes), len(d.Spec.Directories), len(d.Spec.Trees))
	}
	if m.Lazy != d.Spec.Policy.LazyPages {
		return fmt.Errorf("session: whether the memory follows when the workload runs (lazy_pages) is %t on the source and %t here", m.Lazy, d.Spec.Policy.LazyPages)
	}
	for i, v := range d.Spec.Volumes {
		if h := m.Volumes[i]; h.Name != v.Name || h.Size != v.Size || h.Cluster != v.Cluster {
			return fmt.Errorf("session: volume %d is %s (%d bytes, clusters of %d) on the source and %s (%d, %d) here", i, h.Name, h.Size, h.Cluster, v.Name, v.Size, v.Cluster)
		}
	}
	for i, v := range d.Spec.Directories {
		if m.Directories[i] != v.Name {
			return fmt.Errorf("session: directory %d is %s on the source and %s here", i, m.Directories[i], v.Name)
		}
	}
	for i, t := range d.Spec.Trees {
		if m.Trees[i] != t.Name {
			return fmt.Errorf("session: tree %d is %s on the source and %s here", i, m.Trees[i], t.Name)
		}
	}
	d.tokenHash, d.verifies, d.lines, d.reconnects = m.TokenHash, m.Verify, m.Lines, slices.Contains(m.Can, canReconnect)
	return nil
}

func (d *incoming) tree(stream uint32) (*record.Tree, error) {
	trees, n := d.Spec.Trees, int64(stream)
	if n < int64(len(trees)) {
		return &trees[n], nil
	}
	if n -= int64(len(trees)); n < int64(len(d.Spec.Directories)) {
		v := d.Spec.Directories[n]
		return v.Tree(), nil
	}
	return nil, fmt.Errorf("session: the source sent a piece of tree %d, and there are %d trees and %d directories", stream, len(trees), len(d.Spec.Directories))
}

// chunk handles one piece of a tree.
func (d *incoming) chunk(ctx context.Context, f *wire.Frame) error {
	switch { // of no tree
	case f.Flags&flagStock != 0:
		return d.stock(f)
	case f.Flags&flagPlace != 0:
		return d.place(f)
	}
	t, err := d.tree(f.Stream)
	if err != nil {
		return err
	}
	if f.Flags&flagPages != 0 {
		return d.pages(t, f)
	}
	if st := d.Journal.State(); st != record.Presync && st != record.Barrier && st != record.Frozen {
		return fmt.Errorf("session: the source sent a piece of tree %s while this side is %s", t.Name, st)
	}
	u := d.unpacking[f.Stream]
	if u == nil {
		r, w := io.Pipe()
		u = &unpacking{w: w, done: make(chan error, 1), late: d.Journal.State() != record.Presync}
		d.unpacking[f.Stream] = u
		go func() {
			err := tree.UnpackOnly(t.Path, t.Only(), r, func(name string, seen bool) {
				if seen && u.changed == "" {
					u.changed = name
				}
				if u.late {
					u.laid = append(u.laid, name)
				}
			})
			r.CloseWithError(err) // a writer that waits gets the reason
			u.done <- err
		}()
	}
	last := f.Flags&flagLast != 0
	if err := d.arrive(f.Stream, len(f.Payload), last); err != nil {
		return err
	}
	if len(f.Payload) > 0 {
		if _, err := u.w.Write(f.Payload); err != nil {
			return err
		}
	}
	if !last {
		return nil
	}
	u.w.Close()
	delete(d.unpacking, f.Stream)
	if err := <-u.done; err != nil {
		return err
	}
	d.late[t.Path] = append(d.late[t.Path], u.laid...)
	if u.changed != "" {
		d.changed(ctx, t, u.changed)
	}
	return nil
}

// syncLate syncs the trees' data received since the freeze.
func (d *incoming) syncLate() (err error) {
	for path, names := range d.late {
		err = errors.Join(err, tree.Sync(path, names))
	}
	return err
}
