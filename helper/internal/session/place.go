package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/livefleet/handover/helper/internal/lazy"
	"github.com/livefleet/handover/helper/internal/report"
	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/wire"
)

// With policy.place_memory CRIU neither reads nor writes the content of a live workload's
// private memory: its dump and its restore leave that out, as with lazy pages. Beside the
// dump the source says what lies where, by digest (lazy.Frozen): most of it has gone ahead,
// and the rest travels. The destination has it all when the dump is complete, and fills the
// tasks while CRIU restores them (lazy.Placer). It says `prepared` when every page of the
// dump was counted in its place, and not before. So nothing follows after the release, and
// the safety is that of any other move.
//
// Memory of other kinds is CRIU's as ever: shared, locked, of files, of huge pages.
//
// Where that does not pay, or is not possible, CRIU carries all memory. The source decides,
// when it arms (choosePlacing), and the destination follows.

// canPlace is the word of a destination that can place memory and was told that it may.
const canPlace = "place"

// mostForked is how much more memory the tasks may have than on the source. CRIU has
// forked tasks share their pages again, and placed pages are each task's own.
const mostForked = 64 << 20

// perFile is the memory for which CRIU has one file open in such a dump: a pipe for each MiB, which it leaves
// empty. It may need more where the memory is in many pieces, and has other files open, so that half of all is kept.
const perFile = 512 << 10

// mostOpen is how many files CRIU may have open: it raises its own limit to that.
var mostOpen = func() (int64, error) {
	text, err := os.ReadFile("/proc/sys/fs/nr_open")
	if err != nil {
		return 0, fmt.Errorf("session: %w", err)
	}
	most, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("session: fs.nr_open: %w", err)
	}
	return most, nil
}

// choosePlacing decides, and leaves a mark for the stand-in for CRIU.
func (s *source) choosePlacing() error {
	s.placing = false
	if !s.Spec.Policy.PlaceMemory {
		return nil
	}
	why, err := s.whyNotPlaced()
	if err != nil {
		return err
	}
	s.placing = why == ""
	said := map[string]any{"placed": s.placing}
	if !s.placing {
		said["text"] = "CRIU restores the memory, and it is not placed: " + why
	}
	s.Log.Emit("placing", said)
	return markPlacing(s.Session, s.placing)
}

// foreseePlacing says what choosePlacing would decide now.
func (s *memorySource) foreseePlacing() error {
	if !s.Spec.Policy.PlaceMemory {
		return nil
	}
	why, err := s.whyNotPlaced()
	s.memory.there = why == ""
	return err
}

// whyNotPlaced is the reason for CRIU's own way.
func (s *memorySource) whyNotPlaced() (string, error) {
	switch {
	case !s.memory.place:
		return "the destination's pcopy does not know how, or was not told to", nil
	case s.memory.scans == 0:
		return "none of it has gone ahead: there is little, or the destination has no room for it", nil
	}
	files, err := mostOpen()
	if err != nil {
		return "", err
	}
	if size := s.memorySize(); size/perFile > files/2 {
		return fmt.Sprintf("CRIU would hold files open for all of its %d bytes, and one program may have %d (fs.nr_open)", size, files), nil
	}
	more, err := s.Spec.Hooks.Freeze.Cgroup.Forked()
	if err != nil {
		return "", err
	}
	if most := max(mostForked, s.memorySize()/4); more > most {
		return fmt.Sprintf("its tasks share %d bytes since they were forked, and each would have its own copy on the destination", more), nil
	}
	return "", nil
}

// markPlacing leaves the mark, or removes an earlier one.
func markPlacing(b *record.Session, placing bool) error {
	path := filepath.Join(b.Dir, record.PlacingFile)
	err := os.Remove(path)
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	if err == nil && placing {
		err = os.WriteFile(path, nil, 0o600)
	}
	if err != nil {
		return fmt.Errorf("session: %w", err)
	}
	return nil
}

// placesSender sends the memory of frozen tasks, beside their dump: its content, or where
// that lies in what went ahead.
type placesSender struct {
	*memorySource
	frozen          *lazy.Frozen
	images          string
	done            chan error
	cancel          context.CancelFunc
	bytes, literals int64
}

// sendPlaces begins; nil where CRIU carries the memory.
func (s *source) sendPlaces(ctx context.Context) *placesSender {
	if !s.placing {
		return nil
	}
	p := &placesSender{memorySource: s.memorySource, images: s.Spec.Hooks.Freeze.Gate, done: make(chan error, 1)}
	ctx, p.cancel = context.WithCancel(ctx)
	go func() { p.done <- p.run(ctx) }()
	return p
}

func (p *placesSender) run(ctx context.Context) (err error) {
	if p.frozen, err = lazy.OpenFrozen(p.memory.known, p.Spec.Hooks.Freeze.Cgroup.EachTask); err != nil {
		return err
	}
	began := time.Now()
	err = p.frozen.Beside(ctx, p.send)
	p.Log.Emit("beside", map[string]any{"bytes": p.bytes, "sent": p.literals, "ms": report.MS(time.Since(began))})
	return errors.Join(err, p.conn.Flush())
}

func (p *placesSender) send(x lazy.Piece) error {
	p.bytes += int64(x.Size)
	p.literals += int64(x.Literals)
	return p.conn.Write(&wire.Frame{Type: wire.Chunk, Stream: x.Task, Flags: flagPlace, Payload: x.Packed})
}

// finish sends the rest, when the dump is complete and says what it has left in the tasks.
func (p *placesSender) finish(ctx context.Context) error {
	if p == nil {
		return nil
	}
	err := <-p.done
	p.cancel()
	var left uint64
	if err == nil {
		left, err = p.frozen.Rest(ctx, p.images, p.send)
	}
	if p.frozen != nil {
		err = errors.Join(err, p.frozen.Close())
	}
	if err != nil {
		return p.explain(fmt.Errorf("session: sending the memory that is placed: %w", err))
	}
	p.Log.Emit("places", map[string]any{"bytes": left, "looked": p.bytes, "sent": p.literals})
	return nil
}

// abandon ends it before its end, for its caller's reason.
func (p *placesSender) abandon() error {
	if p == nil {
		return nil
	}
	p.cancel()
	<-p.done
	if p.frozen == nil {
		return nil
	}
	return p.frozen.Close()
}

// placement is the destination's part: the memory that is to be placed.
type placement struct {
	placing bool         // the source has decided so
	placer  *lazy.Placer // nil: it is not to be
	plan    *lazy.Plan
}

// able are the features of this side, in this session.
func (d *incoming) able() []string {
	all := understood()
	if d.memory.placer != nil {
		all = append(all, canPlace)
	}
	return all
}

// listenPlacer waits for the tasks that CRIU may be about to restore without their memory.
func (d *destination) listenPlacer() (err error) {
	if d.Spec.Policy.PlaceMemory {
		r := d.Spec.Hooks.Restore
		d.memory.placer, err = lazy.ListenPlacer(filepath.Dir(r.Log), r.Gate)
	}
	return err
}

// choosePlacing follows the source.
func (d *incoming) choosePlacing(placing bool) error {
	if placing && d.memory.placer == nil {
		return errors.New("session: the source dumps without the memory's content, and this side was not told to place it: give both sides the same place_memory")
	}
	d.memory.placing = placing
	if !d.Spec.Policy.PlaceMemory {
		return nil
	}
	return markPlacing(d.Session, placing)
}

// place takes up a piece of a task's memory.
func (d *incoming) place(f *wire.Frame) error {
	if st := d.Journal.State(); st != record.Frozen || !d.memory.placing {
		return fmt.Errorf("session: the source sent memory to be placed while this side is %s", st)
	}
	if err := d.memory.open(); err != nil {
		return err
	}
	if d.memory.plan == nil {
		d.memory.plan = lazy.NewPlan(d.memory.stock)
	}
	return d.memory.plan.Add(f.Stream, f.Payload)
}

// complete is for when all has arrived. The restore is about to need the memory that the
// stock takes, unless it is placed from there.
func (a *arrivedMemory) complete() error {
	if !a.placing {
		return a.close()
	}
	if err := a.open(); err != nil {
		return err
	}
	if a.plan == nil {
		a.plan = lazy.NewPlan(a.stock)
	}
	return a.placer.Begin(a.plan)
}

// placeAll returns when all memory is in its place: the restored tasks may be released. The
// stock is given back when they run (release), since that takes its time.
func (d *destination) placeAll(ctx context.Context, took map[string]float64) error {
	if !d.memory.placing {
		return nil
	}
	began := time.Now()
	limit := d.Spec.Hooks.Restore.Limit()
	limited, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it was not done within %s", limit))
	defer cancel()
	done, err := d.memory.placer.Placed(limited)
	if err != nil {
		return fmt.Errorf("session: placing the memory: %w", err)
	}
	took["place"] = report.MS(time.Since(began))
	d.Log.Emit("placed", map[string]any{"bytes": done.Bytes, "tasks": done.Tasks, "faults": done.Faults, "ms": took["place"]})
	return nil
}

// abandon lets go of the tasks that are to be refused.
func (p *placement) abandon() error {
	if p.placer == nil {
		return nil
	}
	return p.placer.Abandon()
}

func (p *placement) close() error {
	if p.placer == nil {
		return nil
	}
	return p.placer.Close()
}
