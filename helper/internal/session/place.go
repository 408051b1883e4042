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
	var more int64
	for _, c := range s.Spec.Cgroups() {
		forked, err := c.Forked()
		if err != nil {
			return "", err
		}
		more += forked
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

// placesSender sends the memory of the frozen tasks of a part, beside their dump: its content, or
// where that lies in the memory that went ahead.
type placesSender struct {
	*memorySource
	part            record.Member
	number          int // of the part: tasks of several have the same numbers
	frozen          *lazy.Frozen
	done            chan error
	cancel          context.CancelFunc
	left            uint64 // by the dump
	bytes, literals int64
}

// placesSenders are of the parts that are dumped side by side; none where CRIU carries the memory.
type placesSenders []*placesSender

// sendPlaces begins.
func (s *source) sendPlaces(ctx context.Context) (all placesSenders) {
	if !s.placing {
		return nil
	}
	for n, part := range s.Spec.Parts() {
		p := &placesSender{memorySource: s.memorySource, part: part, number: n, done: make(chan error, 1)}
		run, cancel := context.WithCancel(ctx)
		p.cancel = cancel
		go func() { p.done <- p.run(run) }()
		all = append(all, p)
	}
	return all
}

func (p *placesSender) run(ctx context.Context) (err error) {
	if p.frozen, err = lazy.OpenFrozen(p.memory.known, p.part.Freeze.Cgroup.EachTask); err != nil {
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
	return p.conn.Write(&wire.Frame{Type: wire.Chunk, Stream: x.Task, Pos: int64(p.number), Flags: flagPlace, Payload: x.Packed})
}

// finish sends the rest, when all dumps are complete and list the pages that they have left in the tasks.
func (all placesSenders) finish(ctx context.Context) error {
	ended := make(chan error, len(all))
	for _, p := range all {
		go func() { ended <- p.end(ctx) }()
	}
	var err error
	for range all {
		err = errors.Join(err, <-ended)
	}
	var left uint64
	var bytes, literals int64
	for _, p := range all {
		left, bytes, literals = left+p.left, bytes+p.bytes, literals+p.literals
	}
	if err == nil && len(all) > 0 {
		all[0].Log.Emit("places", map[string]any{"bytes": left, "looked": bytes, "sent": literals})
	}
	return err
}

// end is for when its dump is complete.
func (p *placesSender) end(ctx context.Context) error {
	err := <-p.done
	p.cancel()
	if err == nil {
		p.left, err = p.frozen.Rest(ctx, p.part.Freeze.Gate, p.send)
	}
	if p.frozen != nil {
		err = errors.Join(err, p.frozen.Close())
	}
	if err != nil {
		return p.explain(fmt.Errorf("session: sending the memory that is placed: %w", err))
	}
	return nil
}

// abandon ends them before their end, for its caller's reason.
func (all placesSenders) abandon() (err error) {
	for _, p := range all {
		p.cancel()
	}
	for _, p := range all {
		<-p.done
		if p.frozen != nil {
			err = errors.Join(err, p.frozen.Close())
		}
	}
	return err
}

// placement is the destination's part: the memory that is to be placed.
type placement struct {
	placing bool      // the source has decided so
	parts   []*placed // none: it is not to be
}

// placed is that of one part, which has a CRIU of its own.
type placed struct {
	name   string // of the member, where there are several
	placer *lazy.Placer
	plan   *lazy.Plan // nil: nothing of it has come
}

// able are the features of this side, in this session.
func (d *incoming) able() []string {
	all := understood()
	if len(d.memory.parts) > 0 {
		all = append(all, canPlace)
	}
	return all
}

// listenPlacer waits for the tasks that CRIU may be about to restore without their memory.
func (d *destination) listenPlacer() (err error) {
	if !d.Spec.Policy.PlaceMemory {
		return nil
	}
	for _, part := range d.Spec.Parts() {
		p := &placed{name: part.Name}
		if p.placer, err = lazy.ListenPlacer(filepath.Dir(part.Restore.Log), part.Restore.Gate); err != nil {
			return err
		}
		d.memory.parts = append(d.memory.parts, p)
	}
	return nil
}

// choosePlacing follows the source.
func (d *incoming) choosePlacing(placing bool) error {
	if placing && len(d.memory.parts) == 0 {
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
	if f.Pos < 0 || f.Pos >= int64(len(d.memory.parts)) {
		return fmt.Errorf("session: the source sent memory of part %d, and there are %d", f.Pos, len(d.memory.parts))
	}
	return d.memory.planOf(d.memory.parts[f.Pos]).Add(f.Stream, f.Payload)
}

// planOf is a part's, which begins with nothing.
func (a *arrivedMemory) planOf(p *placed) *lazy.Plan {
	if p.plan == nil {
		p.plan = lazy.NewPlan(a.stock)
	}
	return p.plan
}

// complete is for when all has arrived. The restore is about to need the memory that the
// stock takes, unless it is placed from there, or memory that follows is put together with it.
func (a *arrivedMemory) complete() (err error) {
	switch {
	case a.fetcher != nil && a.stock != nil:
		a.fetcher.Know(a.stock)
		return nil
	case !a.placing:
		return a.close()
	}
	if err := a.open(); err != nil {
		return err
	}
	for _, p := range a.parts {
		err = errors.Join(err, p.says(p.placer.Begin(a.planOf(p))))
	}
	return err
}

// says puts the name of a member before an error.
func (p *placed) says(err error) error {
	if err == nil || p.name == "" {
		return err
	}
	return fmt.Errorf("%s: %w", p.name, err)
}

// placeAll returns when all memory is in its place: the restored tasks may be released. The
// stock is given back when they run (release), since that takes its time.
func (d *destination) placeAll(ctx context.Context, took map[string]float64) error {
	if !d.memory.placing {
		return nil
	}
	began := time.Now()
	var limit time.Duration
	for _, part := range d.Spec.Parts() {
		limit = max(limit, part.Restore.Limit())
	}
	limited, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it was not done within %s", limit))
	defer cancel()
	var done lazy.Placement
	for _, p := range d.memory.parts {
		own, err := p.placer.Placed(limited)
		if err != nil {
			return fmt.Errorf("session: placing the memory: %w", p.says(err))
		}
		done.Bytes, done.Tasks, done.Faults = done.Bytes+own.Bytes, done.Tasks+own.Tasks, done.Faults+own.Faults
	}
	took["place"] = report.MS(time.Since(began))
	d.Log.Emit("placed", map[string]any{"bytes": done.Bytes, "tasks": done.Tasks, "faults": done.Faults, "ms": took["place"]})
	return nil
}

// abandon lets go of the tasks that are to be refused.
func (p *placement) abandon() (err error) {
	for _, each := range p.parts {
		err = errors.Join(err, each.placer.Abandon())
	}
	return err
}

func (p *placement) close() (err error) {
	for _, each := range p.parts {
		err = errors.Join(err, each.placer.Close())
	}
	return err
}
