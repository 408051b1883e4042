package tracker

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
)

const (
	// settleWait is how long Open waits for writes that began before it, on a
	// device without a request queue; see settled.
	settleWait = time.Second
	// settleAge is the age at which no write from before Open can be left: twice
	// the time after which the kernel gives up on a request.
	settleAge = time.Minute
)

// ebpfTracker is one device of a load.
type ebpfTracker struct {
	dev  *device
	load *load
	slot *slot

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

func openEBPF(devs []Device) (trackers []Tracker, err error) {
	if len(devs) == 0 {
		return nil, nil
	}
	looked := make([]*device, len(devs))
	for i, d := range devs {
		if looked[i], err = lookDevice(d); err != nil {
			return nil, err
		}
	}
	k, err := lookKernel()
	if err != nil {
		return nil, fmt.Errorf("tracker: %s: %w, or pass --tracker=hash", paths(looked), err)
	}
	for _, d := range looked {
		if k.rwPage && d.takesPages() {
			return nil, fmt.Errorf("tracker: %s: on this kernel pages can be written to %s without a trace (kernels before 6.3): use a newer kernel, or pass --tracker=hash", d.path, d.name)
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
	l, err := newLoad(k)
	if err != nil {
		return nil, explain(looked, err)
	}
	for _, d := range looked {
		t, err := l.track(d, nil)
		if err != nil {
			if len(trackers) == 0 {
				err = errors.Join(err, l.destroy())
			}
			return trackers, explain([]*device{d}, err)
		}
		trackers = append(trackers, t)
	}
	return trackers, settle(trackers)
}

// track adds a device to the load.
func (l *load) track(d *device, first func(*slot) error) (*ebpfTracker, error) {
	s, err := l.add(d, first)
	if err != nil {
		return nil, err
	}
	t := &ebpfTracker{dev: d, load: l, slot: s, opened: time.Now()}
	if _, err := t.allSkipped(); err != nil {
		return nil, errors.Join(err, l.remove(s))
	}
	return t, nil
}

func paths(devs []*device) string {
	var names []string
	for _, d := range devs {
		names = append(names, d.path)
	}
	return strings.Join(names, ", ")
}

// explain makes the sentence that the operator reads.
func explain(devs []*device, err error) error {
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

func (t *ebpfTracker) Kind() string { return "ebpf" }

// settle waits a little until no write from before Open is left, where such a
// write could go unseen. A request tells its range itself when it completes, and
// a bio that nobody knows marks all when it completes on the device. But where
// the driver hands bios on as they are, one from before Open may complete below
// without a trace: as long as there may be such a one, Swap marks the whole
// device. And for a completion that no program sees a request has to have been
// seen when it was submitted: so if one went unseen, Swap does the same.
func settle(trackers []Tracker) error {
	end := time.Now().Add(settleWait)
	for _, tr := range trackers {
		t := tr.(*ebpfTracker)
		t.untold = t.dev.handsOn()
		needed := !t.dev.bio || t.untold
		for t.settled = !needed || t.idle(); !t.settled && time.Now().Before(end); t.settled = t.idle() {
			time.Sleep(time.Millisecond)
		}
		if !t.dev.bio {
			if err := t.begin(); err != nil {
				return err
			}
		}
	}
	return nil
}

// idle reports whether the kernel is sure that no write is under way.
func (t *ebpfTracker) idle() bool {
	accounted, err := t.dev.accounted()
	if err != nil || !accounted {
		return false
	}
	n, err := t.dev.inFlight(t.dev.sys)
	if err != nil || n != 0 || t.dev.bio {
		return err == nil && n == 0
	}
	a, err := t.activity()
	return err == nil && a.still && !a.waits
}

func (t *ebpfTracker) Swap() (*blockmap.Map, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, fmt.Errorf("tracker: %s: the tracker is closed", t.dev.path)
	}
	if t.lost == nil {
		t.lost = t.dev.unchanged()
	}
	if t.lost != nil {
		return nil, t.lost
	}
	m := blockmap.New(t.dev.size(), t.dev.cluster)
	t.slot.take(m)
	if t.lost = t.complete(m); t.lost != nil {
		return nil, t.lost
	}
	return m, nil
}

// complete adds to the marks that were just taken what else they have to stand
// for, or says why they cannot.
func (t *ebpfTracker) complete(m *blockmap.Map) error {
	// First the words, then what says whether they are complete: what was lost
	// while the words were taken is then known at once.
	status := &t.slot.shared.words[slotStatus]
	own := atomic.LoadUint64(status)
	if own&statusAll != 0 {
		// A bit that is set between the load and the And was set by a write that
		// this map, marked whole, stands for too.
		atomic.AndUint64(status, ^uint64(statusAll))
		m.MarkAll()
	}
	if err := t.reason(own | atomic.LoadUint64(&t.load.lost.words[lostStatus])); err != nil {
		return err
	}
	skipped, err := t.allSkipped()
	if err != nil {
		return err
	}
	if all := atomic.LoadUint64(&t.load.lost.words[lostBios]); t.dev.bio && all != t.all {
		t.all, skipped = all, true
	}
	if skipped || t.untold && !t.settled {
		m.MarkAll()
	}
	if !t.dev.bio {
		if err := t.again(m); err != nil {
			return err
		}
	}
	if !t.settled { // this map stands for what came before; the next need not
		t.settled = time.Since(t.opened) > settleAge || t.idle()
	}
	return nil
}

// take takes the marks out of the kernel's hands.
func (s *slot) take(m *blockmap.Map) {
	s.each(m, func(word *uint64) uint64 { return atomic.SwapUint64(word, 0) })
}

// look copies the marks and leaves them where they are.
func (s *slot) look(m *blockmap.Map) { s.each(m, atomic.LoadUint64) }

func (s *slot) each(m *blockmap.Map, get func(word *uint64) uint64) {
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

// reason says what a status means.
func (t *ebpfTracker) reason(status uint64) error {
	switch {
	case status&statusOutside != 0:
		return lost("tracker: %s: a write was completed outside the %d bytes that the device had when tracking began: it was resized, start the session again", t.dev.path, t.dev.size())
	case status&statusFull != 0:
		return lost("tracker: %s: a write could not be tracked: more than %d were under way at once: start the session again under less load, or pass --tracker=hash", t.dev.path, biosAtOnce)
	case status&statusDeep != 0:
		return lost("tracker: %s: a write could not be tracked: it went through more than %d of the tracked devices: track the uppermost of them only, or pass --tracker=hash", t.dev.path, ownersOfBio)
	case status&statusInternal != 0:
		return lost("tracker: %s: a write could not be tracked: it fell outside the tracker's map: pass --tracker=hash, and report this", t.dev.path)
	}
	return nil
}

// allSkipped reports whether an event may have found none of the copies free
// since it was last asked.
func (t *ebpfTracker) allSkipped() (bool, error) {
	if !t.load.preemptible {
		return false, nil
	}
	now := make([][]uint64, len(t.load.copies))
	for i, group := range t.load.copies {
		for _, p := range group {
			s, err := p.Stats()
			if err != nil {
				return false, fmt.Errorf("tracker: %s: asking the kernel how often it skipped a program: %w", t.dev.path, err)
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

func (t *ebpfTracker) InFlight() (int64, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return 0, fmt.Errorf("tracker: %s: the tracker is closed", t.dev.path)
	}
	accounted, err := t.dev.accounted()
	if err != nil {
		return 0, err
	}
	switch {
	case accounted:
		return t.dev.inFlight(t.dev.sys)
	case t.dev.bio: // what we know ourselves is as good
		known, err := t.load.underWay(t.dev.key())
		return int64(len(known)), err
	}
	return 0, t.dev.uncounted()
}

func (t *ebpfTracker) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil
	}
	t.closed = true
	if err := t.load.remove(t.slot); err != nil {
		return fmt.Errorf("tracker: %s: %w", t.dev.path, err)
	}
	return nil
}
