package blockprobe

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/livefleet/handover/helper/internal/blockmap"
)

// Marks that may have to be returned once more, because of completions that no
// program saw; the package comment says why there may be such.
//
// The kernel itself counts, for each disk, the sectors whose writing completed, in
// the same place in which it calls the programs, and these count too. As long as
// their count keeps its distance to the kernel's, all was seen. If the distance
// grows, a completion went unseen. Which one it was is not known, but its write was
// marked when it was submitted, and that was less than a minute before; so the marks
// since then are returned once more, to be read now that the write is on the device.
// If it may not have been marked, because it was submitted before tracking began, or
// because the kernel skipped the program that marks on submission, then everything is
// given.
//
// The counts are compared when ours stands still: it is read before and after the
// kernel's, and has to be the same. If it never is, nothing is known for the time
// being, and the marks are kept until it is known. In the end everything is quiet,
// and the counts are exact.
//
// On a busy device a completion may just be between the programs and the kernel's
// own count, which makes the distance seem shorter than it is; the longest of
// several tells.

// landed is how long a write may take: a write that was submitted earlier is on the
// device. The kernel's own limit for a request is 30 s.
const landed = time.Minute

// unseen keeps these marks.
type unseen struct {
	known    bool  // distance is set
	distance int64 // from our count up to the kernel's
	recent   []generation
	skipped  uint64    // how often the program on submission was skipped
	since    time.Time // when that was last seen to have grown
}

// generation holds the marks taken in some moments, while writes may have been under
// way.
type generation struct {
	began, ended time.Time
	marks        *blockmap.Map
}

// verdict is the result of a comparison of the counts.
type verdict int

const (
	dontKnow verdict = iota // the counts never stood still
	agree                   // every completion was seen
	differ                  // one was not
)

// begin compares the counts for the first time. A completion that went unseen before
// that is of no interest: nothing has been read yet.
func (t *Tracker) begin() error {
	accounted, err := t.dev.Accounted()
	if err == nil && accounted {
		_, _, err = t.compare()
	}
	return err
}

// again adds the marks of earlier maps to the map, if a write that was marked when it
// was submitted may have landed after its cluster was read, unseen.
func (t *Tracker) again(m *blockmap.Map) error {
	accounted, err := t.dev.Accounted()
	if err != nil {
		return err
	}
	quiet, v := false, differ // without the kernel's count everything is given again
	if accounted {
		if quiet, v, err = t.compare(); err != nil {
			return err
		}
	}
	skipped, err := t.coll.submissionSkipped()
	if err != nil {
		return fmt.Errorf("tracker: %s: asking the kernel how often it skipped a program: %w", t.dev.Path, err)
	}
	now := time.Now()
	if skipped != t.unseen.skipped {
		t.unseen.skipped, t.unseen.since = skipped, now
	}
	if accounted && v == differ && (!t.settled || now.Sub(t.unseen.since) < landed) {
		m.MarkAll()
	}
	return t.unseen.give(m, v, quiet, now)
}

// give adds the further marks that a map has to stand for, after a comparison, and
// keeps those that later maps may need.
func (u *unseen) give(m *blockmap.Map, v verdict, quiet bool, now time.Time) error {
	fresh := blockmap.New(m.Size(), m.Cluster())
	if err := fresh.Merge(m); err != nil {
		return err
	}
	if v == differ {
		for _, g := range u.recent {
			if err := m.Merge(g.marks); err != nil {
				return err
			}
		}
	}
	switch {
	case quiet:
		u.recent = nil // all of it has landed, and the unseen writes are in m
		return nil
	case v != dontKnow:
		u.recent = slices.DeleteFunc(u.recent, func(g generation) bool { return now.Sub(g.ended) > landed })
	}
	return u.keep(fresh, now)
}

// keep keeps the taken marks, in a few maps only: those of a quarter of a minute are
// put together.
func (u *unseen) keep(fresh *blockmap.Map, now time.Time) error {
	if fresh.Empty() {
		return nil
	}
	if n := len(u.recent); n > 0 && now.Sub(u.recent[n-1].began) < landed/4 {
		u.recent[n-1].ended = now
		return u.recent[n-1].marks.Merge(fresh)
	}
	// If nothing was known for long, there is no use in telling the oldest apart.
	if n := len(u.recent); n >= 8 {
		u.recent[1].began = u.recent[0].began
		if err := u.recent[1].marks.Merge(u.recent[0].marks); err != nil {
			return err
		}
		u.recent = u.recent[1:]
	}
	u.recent = append(u.recent, generation{now, now, fresh})
	return nil
}

// seen is how many sectors of its disk were seen to be written. The parts only grow:
// two equal sums say that none of them did in between.
func (s *Slot) seen() (sectors int64) {
	for part := range seenParts {
		sectors += int64(atomic.LoadUint64(&s.shared.words[slotSeen+part*lineWords]))
		if s.front != nil {
			sectors += int64(atomic.LoadUint64(&s.ahead.words[frontSeen+part*lineWords]))
		}
	}
	return sectors
}

// seen is how many were since tracking began, in this slot or in one before it.
func (t *Tracker) seen() int64 { return t.before + t.slot.seen() }

// submissionSkipped is how often the program that marks on submission was.
func (l *Collection) submissionSkipped() (uint64, error) {
	s, err := l.submission.Stats()
	if err != nil {
		return 0, err
	}
	return s.RecursionMisses, nil
}

// How often the counts are compared on a busy device, and how many times it is
// tried.
const (
	samples = 5
	tries   = 24
)

// compare compares the counts. quiet says that no write was under way at that
// time, not even one that still waited to be given to the device.
func (t *Tracker) compare() (quiet bool, v verdict, err error) {
	var distance int64
	for try, n := 0, 0; try < tries; try++ {
		if try > 0 {
			time.Sleep(100 * time.Microsecond)
		}
		before, err := t.activity()
		if err != nil {
			return false, dontKnow, err
		}
		seen := t.seen()
		kernel, err := t.dev.SectorsWritten()
		if err != nil {
			return false, dontKnow, err
		}
		if t.seen() != seen {
			continue
		}
		after, err := t.activity()
		if err != nil {
			return false, dontKnow, err
		}
		if before.still && after.still {
			return before.nothing && after.nothing, t.unseen.judge(kernel - seen), nil
		}
		if n == 0 || kernel-seen > distance {
			distance = kernel - seen
		}
		if n++; n == samples {
			return false, t.unseen.judge(distance), nil
		}
	}
	return false, dontKnow, nil
}

// judge interprets a distance. It is shorter than it was if the kernel did not count
// a write, or two copies of the program did.
func (u *unseen) judge(distance int64) verdict {
	if u.known && distance == u.distance {
		return agree
	}
	u.known, u.distance = true, distance
	return differ
}

// activity is a device's counters at one moment.
type activity struct {
	still   bool // it works on no write
	waits   bool // a request is known to wait to be given to it
	nothing bool // and none is known not to
}

func (t *Tracker) activity() (a activity, err error) {
	n, err := t.dev.DiskInFlight()
	if err != nil {
		return a, err
	}
	waits, known, err := t.dev.Waiting()
	return activity{still: n == 0, waits: waits, nothing: n == 0 && known && !waits}, err
}
