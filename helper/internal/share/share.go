// Package share divides a limit of bytes a second among the copies that run on a
// host.
//
// Each copy is a member: it holds a lock on a file of its own in a folder that all of
// them know. Each member counts the locked files, and takes its part of the limit
// that it was given itself. So no process has to hand out the parts. A member that
// leaves, or whose process ends for any reason, is not counted any more, and its part
// is the others' within Lag.
//
// In the same way members can take turns: a member whose name sorts before one's own
// comes first.
package share

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Lag is how old a count may be.
const Lag = 500 * time.Millisecond

// Member is one copy. The methods of a nil Member are those of a copy that shares
// nothing.
type Member struct {
	dir  string
	name string

	mu      sync.Mutex
	file    *os.File // nil while it does not copy
	members int64
	counted time.Time
}

// New is a member of the folder, which does not copy yet. The name is unlike those
// of the others.
func New(dir, name string) (*Member, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("share: %w", err)
	}
	return &Member{dir: dir, name: name}, nil
}

// Join has the member counted.
func (m *Member) Join() error {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.file != nil {
		return nil
	}
	// A file that was removed between our opening and our locking it would not be
	// counted.
	for {
		path := filepath.Join(m.dir, m.name)
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return fmt.Errorf("share: %w", err)
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			// A counting member may have it for a moment.
			f.Close()
			if errors.Is(err, unix.EWOULDBLOCK) {
				time.Sleep(time.Millisecond)
				continue
			}
			return fmt.Errorf("share: %s: %w", path, err)
		}
		ours, err := f.Stat()
		if err != nil {
			f.Close()
			return fmt.Errorf("share: %w", err)
		}
		if there, err := os.Stat(path); err != nil || !os.SameFile(ours, there) {
			f.Close()
			continue
		}
		m.file, m.counted = f, time.Time{}
		return nil
	}
}

// Leave has it counted no more. It may join again.
func (m *Member) Leave() {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.file != nil {
		os.Remove(m.file.Name())
		m.file.Close()
		m.file = nil
	}
}

// Part is this member's part of the limit now.
func (m *Member) Part(limit int64) int64 {
	if m == nil || limit <= 0 {
		return limit
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if now := time.Now(); now.Sub(m.counted) >= Lag {
		m.members, m.counted = m.count(), now
	}
	return max(1, limit/max(1, m.members))
}

// Ahead is the number of members whose names sort before this one's. Where the folder
// is gone, and with it every place, it is 0.
func (m *Member) Ahead() int64 {
	if m == nil {
		return 0
	}
	n, err := m.joined(func(name string) bool { return name < m.name })
	if err != nil {
		return 0
	}
	return n
}

func (m *Member) count() int64 {
	n, err := m.joined(func(string) bool { return true })
	if err != nil {
		return 1
	}
	return n
}

// joined counts the members among the names that of accepts. An unreadable file
// counts: rather too slow than beyond the limit.
func (m *Member) joined(of func(name string) bool) (n int64, err error) {
	entries, err := os.ReadDir(m.dir)
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		if !of(e.Name()) {
			continue
		}
		if e.Name() == m.name {
			n++
			continue
		}
		f, err := os.OpenFile(filepath.Join(m.dir, e.Name()), os.O_RDONLY|unix.O_CLOEXEC, 0)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			n++
			continue
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) != nil {
			n++
		}
		f.Close()
	}
	return n, nil
}
