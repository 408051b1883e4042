// Package blockprobe marks writes to block devices by eBPF programs on the kernel's
// block tracepoints. The package tracker states the promise of a tracker.
//
// The programs mark the clusters in the kernel, by an atomic OR into a memory-mapped
// array; Swap takes them out by atomic exchange. Nothing is queued on the way, so
// nothing can overflow. Nothing has to be set up on the device, and any number of
// trackers can watch it at once.
//
// All devices of one Open share one collection of programs and maps. A table leads from the
// disk of a write to its slots: one for each tracker, of the whole disk or of a part, with
// an array of marks of its own. Slots come and go while the programs run. A write to a disk
// without a slot costs one look into the table. The only slot of a disk with a request
// queue also has a front, which needs no table: there a write is marked, and counted,
// without a call of any function of the kernel. Writes that do not fit into it, and writes
// to a disk with several slots, are marked in the table; the marks of a slot are those of
// both.
//
// The array holds four levels of bits. On level 0 a bit is a cluster, on each
// higher level a bit is a whole word of the level below, so that any range, a
// discard of 4 GiB as well as a write of one sector, takes at most eight ORs,
// with no loop and nothing marked that was not in the range.
//
// On a device with a request queue the completion of each request marks its
// range: the tracepoint block_rq_complete names it. Discards are the exception,
// since one request may hold several ranges that do not touch; for them the
// request's bios are walked.
//
// A device without a request queue (device mapper, md, zram, a multipath NVMe
// head) has bios only, and a completed bio no longer knows where it began. So
// block_bio_queue keeps the range of each bio in a hash, and block_bio_complete
// marks it. A write bio that completes on the device and was never seen before
// (it was under way when tracking began, or came by a way that no tracepoint
// shows) marks the whole device. Some drivers, md and multipath NVMe heads among
// them, hand a bio on to the device below as it is, and then only the lower
// device's request completes: block_bio_remap sees the bio go, and the lower
// completion looks it up.
//
// The kernel skips a program that would run inside itself, when a completion
// interrupt arrives during that very program on the same processor. A mark must
// not be lost to that, so each program that marks a completion is attached three
// times. There are three contexts that can be stacked on a processor (task,
// softirq, hardirq), each is inside at most one copy at a time, and so the
// innermost always finds a copy that is free. A copy that comes to a request that
// another one has dealt with leaves at once. Kernels that let tasks be preempted
// inside a tracepoint can stack more; there, if every copy was skipped at least
// once since the last Swap, the whole device is marked.
//
// There may be completions that no program sees: one kernel was met on which the
// programs on a tracepoint are not run when its event interrupts one particular task,
// and nothing counts them as skipped. So on a device with a request queue a write is
// marked twice, when it is submitted, in its submitter's own context, and when it
// completes. The first mark alone would not do: a cluster may be read between the
// two. Therefore the sectors that were seen to complete are held against the kernel's
// own count of them (/sys/block/X/stat), and when they disagree Swap returns the
// marks of the last minute once more. unseen.go says how a device that is never quiet
// still converges.
//
// Requests that bypass the block layer's operations (SG_IO, NVMe passthrough)
// and carry data to the device say nothing of a range and mark all of it.
//
// The programs are written in C, and their compiled form is committed. Where the
// kernel's structures have their members is put in by the loader, from the running
// kernel's own BTF (CO-RE).
//
// # The files
//
// tracker.go and unseen.go are one device; collection.go and slot.go the maps and
// programs that devices share; reopen.go the same of another process, for the package
// pinned. The programs are in bpf/: layout.h is the data that they share with us
// (layout.go here), mark.h the marking, block.bpf.c the programs themselves, kernel.h
// the kernel's structures. programs.go loads them; kernel.go says first what a kernel
// lacks. turn.go takes marks where no process stays between two Swaps. probe.go tries
// all of it.
package blockprobe

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/blockmap"
	"github.com/livefleet/handover/helper/internal/tracker/blockdev"
)

const (
	// settleWait is how long Open waits for writes that began before it, on a
	// device without a request queue; see settled.
	settleWait = time.Second
	// settleAge is the age at which no write from before Open can be left: twice
	// the time after which the kernel gives up on a request.
	settleAge = time.Minute
)

// Kind is the name of this way of tracking.
const Kind = "ebpf"

// Tracker is one device of a collection.
type Tracker struct {
	dev   *blockdev.Device
	coll  *Collection
	slot  *Slot
	older []*Slot // slots that this one came after, and that are not read yet: see Turn

	mu      sync.Mutex
	closed  bool
	lost    error      // why no map can be given any more
	skipped [][]uint64 // how often each copy was skipped, at the last Swap
	all     uint64     // lostBios, at the last Swap
	settled bool       // no write from before Open is left
	untold  bool       // such a write may complete without a trace
	opened  time.Time
	before  int64 // sectors seen to be written in slots that this one came after
	unseen  unseen
}

// Open starts to track all devices, in the order given, with one collection.
func Open(devs []*blockdev.Device) (trackers []*Tracker, err error) {
	if len(devs) == 0 {
		return nil, nil
	}
	k, err := lookKernel()
	if err != nil {
		return nil, fmt.Errorf("tracker: %s: %w, or pass --tracker=hash", paths(devs), err)
	}
	defer k.letGo()
	for _, d := range devs {
		if err := k.sees(d); err != nil {
			return nil, fmt.Errorf("%w, or pass --tracker=hash", err)
		}
	}

	defer func() {
		if err != nil {
			for _, t := range trackers {
				t.Close()
			}
			trackers = nil
		}
	}()
	c, err := newCollection(k)
	if err != nil {
		return nil, explain(devs, err)
	}
	for _, d := range devs {
		t, err := c.track(d, nil)
		if err != nil {
			if len(trackers) == 0 {
				err = errors.Join(err, c.destroy())
			}
			return trackers, explain([]*blockdev.Device{d}, err)
		}
		trackers = append(trackers, t)
	}
	return trackers, settle(trackers)
}

// sees returns an error if the device can be written past all tracepoints.
func (k *kernel) sees(d *blockdev.Device) error {
	if k.rwPage && d.TakesPages() {
		return fmt.Errorf("tracker: %s: on this kernel pages can be written to %s without a trace (kernels before 6.3): use a newer kernel", d.Path, d.Name)
	}
	return nil
}

// track adds a device to the collection.
func (l *Collection) track(d *blockdev.Device, first func(*Slot) error) (*Tracker, error) {
	s, err := l.add(d, first)
	if err != nil {
		return nil, err
	}
	t := &Tracker{dev: d, coll: l, slot: s, opened: time.Now()}
	if _, err := t.allSkipped(); err != nil {
		return nil, errors.Join(err, l.remove(s))
	}
	return t, nil
}

func paths(devs []*blockdev.Device) string {
	var names []string
	for _, d := range devs {
		names = append(names, d.Path)
	}
	return strings.Join(names, ", ")
}

// explain makes the sentence that the operator reads.
func explain(devs []*blockdev.Device, err error) error {
	var errno unix.Errno
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES) && !isVerifier(err):
		errors.As(err, &errno)
		if level, rerr := os.ReadFile(lockdownFile); rerr == nil {
			if locked := lockedDown(string(level)); locked != nil {
				return fmt.Errorf("tracker: %s: %w; or pass --tracker=hash", paths(devs), locked)
			}
		}
		return fmt.Errorf("tracker: %s: the kernel refused the block tracepoints (%s): run as root, or give CAP_BPF and CAP_PERFMON, or pass --tracker=hash",
			paths(devs), unix.ErrnoName(errno))
	case errors.Is(err, unix.ENOENT):
		return fmt.Errorf("tracker: %s: this kernel has no block tracepoints (%w): use a kernel with CONFIG_TRACEPOINTS and CONFIG_BLOCK, or pass --tracker=hash", paths(devs), err)
	}
	return fmt.Errorf("tracker: %s: the kernel did not take the programs: %w: pass --tracker=hash, and report this", paths(devs), err)
}

func isVerifier(err error) bool {
	var v *ebpf.VerifierError
	return errors.As(err, &v)
}

// Kind is Kind.
func (t *Tracker) Kind() string { return Kind }

// settle waits a little until no write from before Open is left, where such a write
// could go unseen. A request tells its range itself when it completes, and an unknown
// bio marks all when it completes on the device. But where the driver hands bios on
// as they are, one from before Open may complete below without a trace: as long as
// there may be such a one, Swap marks the whole device. And for a completion that no
// program sees a request has to have been seen when it was submitted: so if one went
// unseen, Swap does the same.
func settle(trackers []*Tracker) error {
	end := time.Now().Add(settleWait)
	for _, t := range trackers {
		t.untold = t.dev.HandsOnBios()
		needed := !t.dev.BioBased || t.untold
		for t.settled = !needed || t.idle(); !t.settled && time.Now().Before(end); t.settled = t.idle() {
			time.Sleep(time.Millisecond)
		}
		if !t.dev.BioBased {
			if err := t.begin(); err != nil {
				return err
			}
		}
	}
	return nil
}

// idle reports whether the kernel is sure that no write is under way.
func (t *Tracker) idle() bool {
	accounted, err := t.dev.Accounted()
	if err != nil || !accounted {
		return false
	}
	n, err := t.dev.InFlight()
	if err != nil || n != 0 || t.dev.BioBased {
		return err == nil && n == 0
	}
	a, err := t.activity()
	return err == nil && a.still && !a.waits
}

// Swap takes the marks; see the package tracker.
func (t *Tracker) Swap() (*blockmap.Map, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, fmt.Errorf("tracker: %s: the tracker is closed", t.dev.Path)
	}
	if t.lost == nil {
		t.lost = t.dev.CheckUnchanged()
	}
	if t.lost != nil {
		return nil, t.lost
	}
	m := blockmap.New(t.dev.Size(), t.dev.Cluster)
	t.slot.take(m)
	if t.lost = t.complete(m); t.lost != nil {
		return nil, t.lost
	}
	return m, nil
}

// complete adds the further clusters that the taken marks have to stand for, or says
// why they cannot.
func (t *Tracker) complete(m *blockmap.Map) error {
	// First the words, then the status that says whether they are complete: a loss
	// while the words were taken is then known at once.
	status := &t.slot.shared.words[slotStatus]
	own := atomic.LoadUint64(status)
	if own&statusAll != 0 {
		// A bit that is set between the load and the And was set by a write that
		// this map, marked whole, stands for too.
		atomic.AndUint64(status, ^uint64(statusAll))
		m.MarkAll()
	}
	if err := t.reason(own | atomic.LoadUint64(&t.coll.lost.words[lostStatus])); err != nil {
		return err
	}
	skipped, err := t.allSkipped()
	if err != nil {
		return err
	}
	if all := atomic.LoadUint64(&t.coll.lost.words[lostBios]); t.dev.BioBased && all != t.all {
		t.all, skipped = all, true
	}
	if skipped || t.untold && !t.settled {
		m.MarkAll()
	}
	if !t.dev.BioBased {
		if err := t.again(m); err != nil {
			return err
		}
	}
	if !t.settled { // this map stands for the time before; the next need not
		t.settled = time.Since(t.opened) > settleAge || t.idle()
	}
	return nil
}

// take takes the marks out of the kernel's hands.
func (s *Slot) take(m *blockmap.Map) {
	s.each(m, func(word *uint64) uint64 { return atomic.SwapUint64(word, 0) })
}

// look copies the marks and leaves them where they are.
func (s *Slot) look(m *blockmap.Map) { s.each(m, atomic.LoadUint64) }

func (s *Slot) each(m *blockmap.Map, get func(word *uint64) uint64) {
	if s.front != nil {
		words := s.ahead.words[frontMarks:]
		for i := range words[:min(len(words), int(s.length[0]))] {
			if atomic.LoadUint64(&words[i]) != 0 {
				m.OrWord(int64(i), get(&words[i]))
			}
		}
	}
	for level := range levels {
		span := int64(1) << (6 * max(0, level-1)) // words of level 0 that a bit stands for
		words := s.shared.words[s.base[level]:][:s.length[level]]
		for i := range words {
			if atomic.LoadUint64(&words[i]) == 0 {
				continue
			}
			set := get(&words[i])
			if level == 0 {
				m.OrWord(int64(i), set)
				continue
			}
			for ; set != 0; set &= set - 1 {
				first := (int64(i)*64 + int64(bits.TrailingZeros64(set))) * span
				for n := range span {
					m.OrWord(first+n, ^uint64(0))
				}
			}
		}
	}
}

// reason puts a status into words.
func (t *Tracker) reason(status uint64) error {
	switch {
	case status&statusOutside != 0:
		return blockdev.Lost("tracker: %s: a write was completed outside the %d bytes that the device had when tracking began: it was resized, start the session again", t.dev.Path, t.dev.Size())
	case status&statusFull != 0:
		return blockdev.Lost("tracker: %s: a write could not be tracked: more than %d were under way at once: start the session again under less load, or pass --tracker=hash", t.dev.Path, biosAtOnce)
	case status&statusDeep != 0:
		return blockdev.Lost("tracker: %s: a write could not be tracked: it went through more than %d of the tracked devices: track the uppermost of them only, or pass --tracker=hash", t.dev.Path, ownersOfBio)
	case status&statusInternal != 0:
		return blockdev.Lost("tracker: %s: a write could not be tracked: it fell outside the tracker's map: pass --tracker=hash, and report this", t.dev.Path)
	}
	return nil
}

// allSkipped reports whether an event may have found none of the copies free
// since it was last asked.
func (t *Tracker) allSkipped() (bool, error) {
	if !t.coll.preemptible {
		return false, nil
	}
	now := make([][]uint64, len(t.coll.copies))
	for i, group := range t.coll.copies {
		for _, p := range group {
			s, err := p.Stats()
			if err != nil {
				return false, fmt.Errorf("tracker: %s: asking the kernel how often it skipped a program: %w", t.dev.Path, err)
			}
			now[i] = append(now[i], s.RecursionMisses)
		}
	}
	before := t.skipped
	t.skipped = now
	return before == nil || skippedByAll(before, now), nil
}

// skippedByAll reports whether there is a group of which every copy was skipped
// more often than before; a group that is new counts from none.
func skippedByAll(before, now [][]uint64) bool {
	for i := range now {
		every := true
		for k := range now[i] {
			var was uint64
			if i < len(before) {
				was = before[i][k]
			}
			every = every && now[i][k] > was
		}
		if every {
			return true
		}
	}
	return false
}

// InFlight counts the writes under way.
func (t *Tracker) InFlight() (int64, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return 0, fmt.Errorf("tracker: %s: the tracker is closed", t.dev.Path)
	}
	accounted, err := t.dev.Accounted()
	if err != nil {
		return 0, err
	}
	switch {
	case accounted:
		return t.dev.InFlight()
	case t.dev.BioBased: // our own knowledge is as good
		known, err := t.coll.underWay(t.dev.DiskKey())
		return int64(len(known)), err
	}
	return 0, t.dev.NotAccounted()
}

// Close ends the tracking.
func (t *Tracker) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil
	}
	t.closed = true
	if err := t.coll.remove(t.slot); err != nil {
		return fmt.Errorf("tracker: %s: %w", t.dev.Path, err)
	}
	return nil
}
