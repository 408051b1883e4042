package session

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/lazy"
	"github.com/livefleet/handover/helper/internal/precopy"
	"github.com/livefleet/handover/helper/internal/report"
	"github.com/livefleet/handover/helper/internal/session/protocol"
	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/wire"
)

// The memory of a live workload travels in two ways, which package precopy is about:
// ahead of the dump, while the workload runs, as far as the destination has room for
// it; and in the pause as CRIU's page files, piece by piece while CRIU writes them.
//
// When presync converges all memory is sent, before it says so. When the cutover
// begins, the changes since are sent, scan by scan, and once more when both sides are
// armed.

// Flags of Chunk frames that are no piece of a tree's stream.
const (
	flagStock uint16 = 2 // memory that comes ahead; pos = its place in the stock
	flagPages uint16 = 4 // name and piece of a page file of the tree
	flagPlace uint16 = 8 // a piece of a task's memory; stream = the task
)

const (
	// Less memory than that is sent sooner than it is looked through.
	worthwhile = 16 << 20
	// The destination keeps at most so much memory sent ahead, and the source a table
	// of it that is a seventieth of that; with lazy pages a twentieth.
	mostStock = 16 << 30
	// A scan that takes longer is none for the time in which the engine waits for us.
	shortScan   = 3 * time.Second
	scansAtMost = 4
)

// ahead is the part of the memory that has gone ahead.
type ahead struct {
	known *precopy.Known
	room  int64 // that the destination has for it
	scans int   // how many were done
	fresh int64 // bytes that were new in the last one, or in the last look
	told  bool  // whether that is a change, and not all of it
	took  time.Duration
	rate  int64 // bytes a second over the link, by the scan that sent most; 0: none says anything
	late  bool  // the last one of all was done
	pages bool  // the destination takes the dump's pages while it is written
	place bool  // it can place memory
	there bool  // by the last scan, it would be placed
}

// memorySource is the source's end of the memory that goes ahead of the dump, and of the dump's pages.
type memorySource struct {
	*outgoing
	memory ahead
}

// worthAhead is how much memory there is to send ahead; nothing if it is not to be.
func (s *memorySource) worthAhead() int64 {
	if s.Spec.Mode != record.Live || len(s.Spec.Cgroups()) == 0 || !*s.Spec.Policy.Precopy {
		return 0
	}
	if size := s.memorySize(); size >= worthwhile {
		return size
	}
	return 0
}

// memoryInPause is the part of the memory that has to come over before it runs there.
func (s *memorySource) memoryInPause() int64 {
	if s.Spec.Policy.LazyPages {
		return 0
	}
	return s.memorySize()
}

// memorySize is the size of a dump of the tasks, of all members together: their present one
// if they can be asked, or the controller's earlier figure.
func (s *memorySource) memorySize() (sum int64) {
	all := s.Spec.Cgroups()
	if len(all) == 0 {
		return s.Spec.Policy.Memory
	}
	for _, c := range all {
		bytes, err := c.Memory()
		if err != nil {
			return s.Spec.Policy.Memory
		}
		sum += bytes
	}
	return sum
}

// eachTask calls do for each task that is dumped, whichever member it is of.
func (s *memorySource) eachTask(do func(proc string) error) error {
	for _, c := range s.Spec.Cgroups() {
		if err := c.EachTask(do); err != nil {
			return err
		}
	}
	return nil
}

// expectStock begins with the room that a destination announces, and with an empty
// stock.
func (s *memorySource) expectStock(welcome *protocol.Welcome) {
	s.memory = ahead{room: welcome.Stock, pages: s.can(welcome, canPages, "the dump is sent when it is complete"), place: slices.Contains(welcome.Can, canPlace)}
}

// carryAhead sends the memory that is not on the other side yet, while the workload
// runs.
func (s *memorySource) carryAhead(ctx context.Context) error {
	if s.memory.room == 0 {
		return nil
	}
	began := time.Now()
	m := &s.memory
	if m.known == nil {
		seed := make([]byte, 8)
		if _, err := rand.Read(seed); err != nil {
			return err
		}
		m.known = precopy.NewKnown(binary.LittleEndian.Uint64(seed))
		if s.Spec.Policy.LazyPages { // of memory that follows, changed pages travel as changes
			m.known.WithVersions()
		}
	}
	if err := s.share.Join(); err != nil {
		return err
	}
	defer s.share.Leave()
	if m.scans == 0 {
		s.watch(s.memorySize(), began)
	} else {
		s.count = func(int64) {}
	}
	w := &stockWriter{memorySource: s, ctx: ctx, pos: m.known.Size()}
	scan := precopy.NewScan()
	if err := s.eachTask(func(proc string) error {
		return scan.Task(proc, func(at uint64, pages []byte) error { return w.add(proc, at, pages) })
	}); err != nil && !errors.Is(err, errFull) {
		return fmt.Errorf("session: memory ahead of the dump: %w", err)
	}
	if err := w.flush(); err != nil {
		return err
	}
	m.scans++
	m.fresh, m.took, m.told = w.fresh, time.Since(began), m.scans > 1
	if w.fresh >= tellingPass {
		m.rate = max(m.rate, int64(float64(w.fresh)/m.took.Seconds()))
	}
	s.Log.Emit("memory", map[string]any{"scan": m.scans, "bytes": w.seen, "fresh": w.fresh, "full": w.full, "ms": report.MS(m.took)})
	return s.foreseePlacing()
}

// errFull ends a scan for which there is no more room.
var errFull = errors.New("session: the destination has no room for more memory ahead")

// stockWriter adds pages to the stock of the other side.
type stockWriter struct {
	*memorySource
	ctx   context.Context
	buf   []byte
	pos   int64 // of the content of buf
	seen  int64
	fresh int64
	full  bool
}

func (w *stockWriter) add(proc string, at uint64, pages []byte) error {
	if err := w.ctx.Err(); err != nil {
		return context.Cause(w.ctx)
	}
	known := w.memory.known
	for ; len(pages) > 0; at, pages = at+precopy.PageSize, pages[precopy.PageSize:] {
		page := pages[:precopy.PageSize]
		w.seen += precopy.PageSize
		if known.Size()+precopy.PageSize > w.memory.room {
			w.full = true
			return errFull
		}
		if !known.AddAt(proc, at, page) {
			continue
		}
		w.fresh += precopy.PageSize
		if w.buf = append(w.buf, page...); len(w.buf) >= chunkSize {
			if err := w.flush(); err != nil {
				return err
			}
		}
	}
	w.count(0)
	return nil
}

func (w *stockWriter) flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	if err := w.pace.Wait(w.ctx, int64(len(w.buf))); err != nil {
		return err
	}
	if err := w.conn.Write(&wire.Frame{Type: wire.Chunk, Flags: flagStock, Pos: w.pos, Payload: w.buf}); err != nil {
		return err
	}
	w.memorySource.count(int64(len(w.buf)))
	w.pos += int64(len(w.buf))
	w.buf = w.buf[:0]
	return nil
}

// catchUp sends the changes since the last scan, and again, for as long as there is
// clearly less of them each time.
func (s *memorySource) catchUp(ctx context.Context) error {
	m := &s.memory
	for m.scans > 0 && m.scans <= scansAtMost {
		before := m.fresh
		if err := s.carryAhead(ctx); err != nil {
			return err
		}
		if m.fresh < worthwhile/4 || m.fresh > before/2 && m.scans > 2 {
			break
		}
	}
	return nil
}

// lastScan is the one when both sides are armed; some says that it was done now.
func (s *memorySource) lastScan(ctx context.Context) (some bool, err error) {
	m := &s.memory
	if m.scans == 0 || m.late || m.took > shortScan {
		return false, nil
	}
	m.late = true
	return true, s.carryAhead(ctx)
}

// arrivedMemory is the destination's part of the source's memory.
type arrivedMemory struct {
	room  int64
	stock *precopy.Stock
	files map[string]*os.File // by their paths: each member's dump has such names
	buf   []byte
	placement
	fetcher *lazy.Fetcher // nil: the memory does not follow
}

func (a *arrivedMemory) close() (err error) {
	for _, f := range a.files {
		err = errors.Join(err, f.Close())
	}
	if a.stock != nil {
		err = errors.Join(err, a.stock.Close())
	}
	a.stock, a.files, a.buf = nil, nil, nil
	for _, p := range a.parts {
		p.plan = nil
	}
	return err
}

func (a *arrivedMemory) open() (err error) {
	if a.stock == nil {
		a.stock, err = precopy.NewStock()
		a.files = map[string]*os.File{}
	}
	return err
}

// makeRoom decides how much memory may come ahead. It is kept beside the dump that
// comes later, and freed before the restore needs memory of its own, which the
// preflight has checked.
func (d *incoming) makeRoom(memory int64) error {
	d.memory.room = 0
	if memory <= 0 || memory > mostStock {
		return nil
	}
	available, err := hooks.MemoryAvailable()
	if err != nil {
		return err
	}
	// The dump, the wanted memory, and as much again for the host's other work.
	want := memory + memory/4 + worthwhile
	if room := available/2 - memory; room >= want {
		d.memory.room = want
	} else {
		d.Log.Emit("warning", map[string]any{"text": fmt.Sprintf("%d bytes of memory are available, which are not enough to take %d bytes of the workload's ahead: all of it comes in the pause", available, memory)})
	}
	return nil
}

// stock keeps memory that has come ahead.
func (d *incoming) stock(f *wire.Frame) error {
	if st := d.Journal.State(); st != record.Presync && st != record.Barrier {
		return fmt.Errorf("session: the source sent memory ahead of the dump while this side is %s", st)
	}
	if err := d.memory.open(); err != nil {
		return err
	}
	return d.memory.stock.Put(f.Payload, f.Pos, d.memory.room)
}

func decode(a *arrivedMemory, piece []byte) ([]byte, int64, error) {
	return a.stock.Decode(a.buf, piece)
}

// pages writes a piece of one of the dump's page files.
func (d *incoming) pages(t *record.Tree, f *wire.Frame) error {
	if st := d.Journal.State(); st != record.Frozen {
		return fmt.Errorf("session: the source sent pages of the dump while this side is %s", st)
	}
	if r := d.Spec.PartAt(t.Path).Restore; !r.Given() || r.Gate != t.Path {
		return fmt.Errorf("session: the source sent pages of the dump as a piece of tree %s, which is no dump", t.Name)
	}
	n := 0
	if len(f.Payload) > 0 {
		n = int(f.Payload[0])
	}
	if len(f.Payload) <= n || !precopy.IsPages(string(f.Payload[1:1+n])) {
		return errors.New("session: the source sent a piece of a file that is no page file of a dump")
	}
	if err := d.memory.open(); err != nil {
		return err
	}
	path := filepath.Join(t.Path, string(f.Payload[1:1+n]))
	if d.memory.buf == nil {
		d.memory.buf = make([]byte, 0, precopy.PieceSize)
	}
	data, off, err := d.options.decode(&d.memory, f.Payload[1+n:])
	if err != nil {
		return err
	}
	file := d.memory.files[path]
	if file == nil {
		if file, err = os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600); err != nil {
			return fmt.Errorf("session: the dump: %w", err)
		}
		d.memory.files[path] = file
	}
	if _, err := file.WriteAt(data, off); err != nil {
		return fmt.Errorf("session: the dump: %w", err)
	}
	return nil
}
