package lazy

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/livefleet/handover/helper/internal/tasks"
	"github.com/livefleet/handover/helper/internal/wire"
)

// Memory is that of tasks which stand still: their pages, by the ID that a task has
// in its own namespace. They may be read any number of times.
type Memory struct{ files map[uint32]*os.File }

// OpenMemory opens that of all tasks which each goes through, by their folders in
// /proc.
func OpenMemory(each func(func(proc string) error) error) (*Memory, error) {
	m := &Memory{files: map[uint32]*os.File{}}
	err := each(func(proc string) error {
		inside, err := tasks.Inside(proc)
		if err != nil {
			return err
		}
		pid := uint32(inside)
		f, err := os.Open(filepath.Join(proc, "mem"))
		if err != nil {
			return err
		}
		if m.files[pid] != nil {
			f.Close()
			return fmt.Errorf("two tasks have the ID %d in their namespaces", pid)
		}
		m.files[pid] = f
		return nil
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lazy: the frozen memory: %w", err), m.Close())
	}
	return m, nil
}

// Close closes it. It may be called while pages are served: then those are the last.
func (m *Memory) Close() (err error) {
	for _, f := range m.files {
		err = errors.Join(err, f.Close())
	}
	return err
}

// Serve answers the other side's questions until the connection ends. Count is called
// for every answer.
func (m *Memory) Serve(c *wire.Conn, count func(bytes int64)) error {
	var f wire.Frame
	buf := make([]byte, pieceSize)
	for {
		if err := c.Read(&f); err != nil {
			return err
		}
		q, err := parseQuestion(&f)
		if err != nil {
			return err
		}
		file := m.files[q.pid]
		if file == nil {
			return fmt.Errorf("lazy: pages of task %d were asked for, and there is none", q.pid)
		}
		if _, err := file.ReadAt(buf[:q.size], int64(q.from)); err != nil {
			return fmt.Errorf("lazy: %d bytes at %#x of the frozen task %d: %w", q.size, q.from, q.pid, err)
		}
		if err := c.Write(&wire.Frame{Type: wire.Chunk, Stream: q.pid, Pos: int64(q.from), Payload: buf[:q.size]}); err != nil {
			return err
		}
		if err := c.Flush(); err != nil {
			return err
		}
		count(int64(q.size))
	}
}
