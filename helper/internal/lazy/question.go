package lazy

import (
	"encoding/binary"
	"fmt"

	"github.com/livefleet/handover/helper/internal/wire"
)

// question asks for pages of a task: a Chunk whose stream is the task, whose
// position is the address, and whose payload is the length in bytes. The answer is
// a Chunk with the same stream and position and with the bytes. Answers come in the
// order of the questions.
type question struct {
	pid        uint32
	from, size uint64
}

func (q question) frame() *wire.Frame {
	return &wire.Frame{Type: wire.Chunk, Stream: q.pid, Pos: int64(q.from), Payload: binary.LittleEndian.AppendUint64(nil, q.size)}
}

func parseQuestion(f *wire.Frame) (question, error) {
	q := question{pid: f.Stream, from: uint64(f.Pos)}
	if f.Type == wire.Chunk && len(f.Payload) == 8 {
		q.size = binary.LittleEndian.Uint64(f.Payload)
	}
	if q.size == 0 || q.size > pieceSize || q.size%PageSize != 0 || q.from%PageSize != 0 || f.Pos < 0 {
		return q, fmt.Errorf("lazy: the other side sent a %s frame of %d bytes that asks for no pages", f.Type, len(f.Payload))
	}
	return q, nil
}

// answers checks that a frame is the answer.
func (q question) answers(f *wire.Frame) error {
	if f.Type != wire.Chunk || f.Stream != q.pid || uint64(f.Pos) != q.from || uint64(len(f.Payload)) != q.size {
		return fmt.Errorf("lazy: the other side sent %d bytes at %#x of task %d, where %d at %#x of task %d were due", len(f.Payload), f.Pos, f.Stream, q.size, q.from, q.pid)
	}
	return nil
}
