package lazy

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// space is the memory of one task, or of its threads together.
type space struct {
	fd      int
	number  int
	pid     uint32 // the task that has its pages on the source
	missing spans  // not asked for yet
	asked   spans  // they are on their way
	faults  []uint64
	gone    bool // the task has ended
}

// name is its descriptor's name at its keeper.
func (s *space) name() string { return fmt.Sprintf("uffd-%d", s.number) }

// end is for a task that has ended.
func (s *space) end() {
	s.gone, s.missing, s.asked, s.faults = true, nil, nil, nil
}

// ended says that an error means that there is no such memory any more.
func ended(err error) bool { return errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOSPC) }

// listen takes note of everything that the kernel has to tell; forked is called with the
// descriptor of a child's memory, which is as this one is now. Faults are kept.
func (s *space) listen(forked func(*space) error) error {
	for !s.gone {
		e, none, err := readEvent(s.fd)
		if err != nil {
			return fmt.Errorf("lazy: the memory of task %d: %w", s.pid, err)
		}
		if none {
			return nil
		}
		a, b, c := e.words[0], e.words[1], e.words[2]
		switch e.kind {
		case eventPagefault:
			s.faults = append(s.faults, b&^(PageSize-1))
		case eventFork:
			child := &space{fd: int(uint32(a)), pid: s.pid, missing: slices.Clone(s.missing)}
			child.missing.add(s.asked...)
			if err := forked(child); err != nil {
				return err
			}
		case eventRemap:
			s.missing.move(a, b, c)
			s.asked.move(a, b, c)
		case eventRemove, eventUnmap:
			s.missing.cut(a, b)
			s.asked.cut(a, b)
		default:
			return fmt.Errorf("lazy: the memory of task %d: the kernel tells of an event %#x, which nobody asked for", s.pid, e.kind)
		}
	}
	return nil
}

// cease is how often, and how long after the last time, a place is looked for that the
// kernel says is not there, before it is believed: it may be about to report a move,
// and says until then that it is gone.
const (
	ceaseTries = 100
	ceasePause = time.Millisecond
)

// take puts pages that have come where they belong now. Hear is called when the kernel
// has something to tell first.
func (s *space) take(q question, data []byte, hear func() error) error {
	most, tries := len(data), 0
	for !s.gone {
		i := slices.IndexFunc(s.asked, func(x span) bool { return x.from < q.from+q.size && x.from+x.size() > q.from })
		if i < 0 {
			return nil
		}
		x := s.asked[i]
		if x.from < q.from {
			x, _ = x.part(x.start+q.from-x.from, x.end)
		}
		n := min(x.size(), q.from+q.size-x.from, uint64(most))
		done, err := copyIn(s.fd, x.start, data[x.from-q.from:][:n])
		if done > 0 {
			s.asked.cut(x.start, x.start+uint64(done))
			tries = 0
			continue
		}
		switch {
		case err == nil || errors.Is(err, unix.EAGAIN):
			time.Sleep(10 * time.Microsecond)
		case errors.Is(err, unix.EEXIST): // a page of it is there
			if n > PageSize {
				most = PageSize
				continue
			}
			s.asked.cut(x.start, x.start+PageSize)
			err = wake(s.fd, x.start)
			if err != nil && !errors.Is(err, unix.ENOENT) && !ended(err) {
				return fmt.Errorf("lazy: the memory of task %d at %#x: %w", s.pid, x.start, err)
			}
			continue
		case errors.Is(err, unix.ENOENT): // it lies in more than one mapping, or in none
			if n > PageSize {
				most = PageSize
				continue
			}
			if tries++; tries > ceaseTries {
				s.asked.cut(x.start, x.start+PageSize)
				tries = 0
				continue
			}
			time.Sleep(ceasePause)
		case ended(err):
			s.end()
			return nil
		case errors.Is(err, unix.ENOMEM): // of the workload's own limit, or the host's
			time.Sleep(ceasePause)
		default:
			return fmt.Errorf("lazy: the memory of task %d at %#x: %w", s.pid, x.start, err)
		}
		if err := hear(); err != nil {
			return err
		}
	}
	return nil
}

// fault answers a task that waits for a page: the range to ask for, if any. Later says
// that the kernel has an event to report first.
func (s *space) fault(at uint64) (ask span, later bool, err error) {
	if _, asked := s.asked.at(at); asked {
		return span{}, false, nil
	}
	if x, missing := s.missing.at(at); missing {
		first := at &^ (faultSize - 1)
		ask, _ = x.part(first, first+faultSize)
		return ask, false, nil
	}
	switch err := zero(s.fd, at); {
	case err == nil:
	case errors.Is(err, unix.EEXIST):
		if err := wake(s.fd, at); err != nil && !errors.Is(err, unix.ENOENT) && !ended(err) {
			return ask, false, fmt.Errorf("lazy: the memory of task %d at %#x: %w", s.pid, at, err)
		}
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENOMEM):
		return ask, true, nil
	case errors.Is(err, unix.ENOENT): // unmapped since; that wakes its waiters
		_ = wake(s.fd, at)
	case ended(err):
		s.end()
	default:
		return ask, false, fmt.Errorf("lazy: an empty page for task %d at %#x: %w", s.pid, at, err)
	}
	return ask, false, nil
}
