package blockprobe

import (
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/livefleet/handover/helper/internal/blockmap"
	"github.com/livefleet/handover/helper/internal/tracker/blockdev"
)

// How marks are taken when no process stays: the programs are turned to a new slot,
// and the ones before it are read, as often as need be, until they are closed.

// Memory is a tracker's memory, to be written down from one process to the next.
type Memory struct {
	Settled           bool       `json:"settled"`
	Untold            bool       `json:"untold"`
	Skipped           [][]uint64 `json:"skipped,omitempty"`
	Bios              uint64     `json:"bios"`
	Known             bool       `json:"known"`
	Distance          int64      `json:"distance"`
	Seen              int64      `json:"seen"` // of the slots that are gone
	SubmissionSkipped uint64     `json:"submission_skipped"`
	SubmissionSince   time.Time  `json:"submission_since"`
}

// Memory returns this tracker's memory.
func (t *Tracker) Memory() Memory {
	return Memory{
		Settled: t.settled, Untold: t.untold, Skipped: t.skipped, Bios: t.all, Seen: t.before,
		Known: t.unseen.known, Distance: t.unseen.distance, SubmissionSkipped: t.unseen.skipped, SubmissionSince: t.unseen.since,
	}
}

// Slot is where the programs mark for the tracker.
func (t *Tracker) Slot() *Slot { return t.slot }

// Opened is when tracking began.
func (t *Tracker) Opened() time.Time { return t.opened }

// Resume makes a tracker of its slots, oldest first, and of its memory. There are
// several if a process was killed while it took marks.
func (l *Collection) Resume(d *blockdev.Device, slots []*Slot, opened time.Time, m Memory) (*Tracker, error) {
	last := len(slots) - 1
	t := &Tracker{
		dev: d, coll: l, opened: opened, slot: slots[last], older: slices.Clone(slots[:last]),
		settled: m.Settled, untold: m.Untold, skipped: m.Skipped, all: m.Bios, before: m.Seen,
		unseen: unseen{known: m.Known, distance: m.Distance, skipped: m.SubmissionSkipped, since: m.SubmissionSince},
	}
	for _, s := range slots {
		if err := t.reason(atomic.LoadUint64(&s.shared.words[slotStatus]) | atomic.LoadUint64(&l.lost.words[lostStatus])); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// Peek returns the marks of all slots and leaves them where they are.
func (t *Tracker) Peek() (*blockmap.Map, error) {
	m := blockmap.New(t.dev.Size(), t.dev.Cluster)
	readSlots(m, append(slices.Clone(t.older), t.slot))
	if skipped, err := t.allSkipped(); err != nil {
		return nil, err
	} else if skipped || t.untold && !t.settled {
		m.MarkAll()
	}
	return m, nil
}

// readSlots adds the marks of slots to a map.
func readSlots(m *blockmap.Map, slots []*Slot) {
	all := false
	for _, s := range slots {
		s.look(m)
		all = all || atomic.LoadUint64(&s.shared.words[slotStatus])&statusAll != 0
	}
	if all {
		m.MarkAll()
	}
}

// Turn has the programs mark in a new slot. name is called with it before they know
// it. When Turn returns, the slots before do not change any more. A slot that comes
// with an error is in use all the same; after an error without one, name has to be
// undone.
func (t *Tracker) Turn(name func(*Slot) error) (*Slot, error) {
	live := t.slot
	if n := len(t.older); !t.coll.Live(live) && n > 0 {
		live = t.older[n-1] // a process was killed before the programs were turned
	}
	if !t.coll.Live(live) {
		return nil, blockdev.Lost("tracker: %s: the programs do not mark for it any more", t.dev.Path)
	}
	fresh, err := t.coll.replace(t.dev, live, name)
	if err != nil {
		return fresh, err
	}
	t.older = append(t.older, t.slot)
	for _, s := range t.older {
		t.before += s.seen()
	}
	t.slot = fresh
	return fresh, nil
}

// replace puts a new slot in the place of another one.
func (l *Collection) replace(d *blockdev.Device, old *Slot, name func(*Slot) error) (_ *Slot, err error) {
	fresh, err := newSlot(d)
	if err != nil {
		return nil, err
	}
	fresh.shared.words[slotShape] |= old.shared.words[slotShape] & (flagMore << 32)
	slots := l.disks[old.disk]
	number := slices.Index(slots, old)
	if err = name(fresh); err == nil {
		err = l.hideFront(old.disk)
	}
	if err == nil {
		err = l.put(fresh, number)
	}
	if err != nil {
		return nil, errors.Join(err, fresh.Close())
	}
	slots[number] = fresh
	return fresh, l.showFront(fresh.disk)
}

// ReadOlder returns the marks of the slots that Turn left behind. last is the doubt
// that it returned the last time, if it did, and taken is when that was. doubt is its
// input the next time: writes that were under way, and may complete unseen (see
// unseen.go).
func (t *Tracker) ReadOlder(last *blockmap.Map, taken time.Time) (marks, doubt *blockmap.Map, err error) {
	// A moment in which nothing is under way spares the doubt.
	for end := time.Now().Add(settleWait); !t.dev.BioBased && !t.idle() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	marks = blockmap.New(t.dev.Size(), t.dev.Cluster)
	readSlots(marks, t.older)
	if last != nil {
		t.unseen.recent = []generation{{taken, taken, last}}
	}
	if err := t.complete(marks); err != nil {
		return nil, nil, err
	}
	for _, g := range t.unseen.recent {
		if doubt == nil {
			doubt = blockmap.New(t.dev.Size(), t.dev.Cluster)
		}
		if err := doubt.Merge(g.marks); err != nil {
			return nil, nil, err
		}
	}
	return marks, doubt, nil
}
