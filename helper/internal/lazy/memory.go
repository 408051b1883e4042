package lazy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/livefleet/handover/helper/internal/precopy"
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

// Serve answers the other side's questions until the connection ends. Known is the
// memory that has gone ahead, or nil; nothing is added to it any more. Count is called for every answer.
func (m *Memory) Serve(c *wire.Conn, known *precopy.Known, count func(bytes int64)) error {
	q, file, knows, err := m.hear(c)
	if err != nil {
		return err
	}
	if knows && known != nil {
		return m.servePieces(c, q, file, known, count)
	}
	buf := make([]byte, pieceSize)
	for {
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
		if q, file, _, err = m.hear(c); err != nil {
			return err
		}
	}
}

// hear takes one question, and finds its task's memory. Knows says that the other side has the
// memory that went ahead.
func (m *Memory) hear(c *wire.Conn) (q question, file *os.File, knows bool, err error) {
	var f wire.Frame
	if err = c.Read(&f); err != nil {
		return q, nil, false, err
	}
	if q, err = parseQuestion(&f); err != nil {
		return q, nil, false, err
	}
	if file = m.files[q.pid]; file == nil {
		return q, nil, false, fmt.Errorf("lazy: pages of task %d were asked for, and there is none", q.pid)
	}
	return q, file, f.Flags&flagKnown != 0, nil
}

// servePieces reads and packs the answers in several threads, and gives them in the order of
// the questions.
func (m *Memory) servePieces(c *wire.Conn, q question, file *os.File, known *precopy.Known, count func(bytes int64)) error {
	p := packer{whole: true}
	p.pack = func(b, pages []byte, x *reading) ([]byte, int) {
		return known.EncodeAt(filepath.Dir(x.from.(*os.File).Name()), b, pages, x.at)
	}
	p.give = func(x Piece) error {
		err := c.Write(&wire.Frame{Type: wire.Chunk, Stream: x.Task, Pos: int64(x.At), Flags: flagKnown, Payload: x.Packed})
		if err == nil {
			err = c.Flush()
		}
		count(int64(x.Size))
		return err
	}
	return p.all(context.Background(), func(ctx context.Context, add func(uint32, io.ReaderAt, uint64, int) error) error {
		defer context.AfterFunc(ctx, func() { c.Interrupt(context.Cause(ctx)) })()
		for {
			if err := add(q.pid, file, q.from, int(q.size)); err != nil {
				return err
			}
			var err error
			if q, file, _, err = m.hear(c); err != nil {
				return err
			}
		}
	})
}
