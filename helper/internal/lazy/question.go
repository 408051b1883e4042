package lazy

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/livefleet/handover/helper/internal/precopy"
	"github.com/livefleet/handover/helper/internal/wire"
)

// question asks for pages of a task: a Chunk whose stream is the task, whose
// position is the address, and whose payload is the length in bytes. The answer is
// a Chunk with the same stream and position and with the bytes. Answers come in the
// order of the questions.
//
// A question with flagKnown is asked by a side that has the memory that went ahead. The
// answer may have flagKnown, too: then it is a piece (precopy.Known.EncodeAt). All
// questions over one connection are of one kind.
type question struct {
	pid        uint32
	from, size uint64
}

const flagKnown uint16 = 1

func (q question) frame(flags uint16) *wire.Frame {
	return &wire.Frame{Type: wire.Chunk, Stream: q.pid, Pos: int64(q.from), Flags: flags, Payload: binary.LittleEndian.AppendUint64(nil, q.size)}
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

// answer is one that came.
type answer struct {
	pid    uint32
	from   uint64
	data   []byte
	sent   int // bytes of it over the link
	pieces bool
}

// errWrong: a piece that is not the source's memory.
var errWrong = errors.New("lazy: an answer has another content than the source")

// unpack takes an answer out of a frame, and puts a piece together in room. Data is valid as
// long as both.
func unpack(f *wire.Frame, stock *precopy.Stock, room []byte) (a answer, err error) {
	if f.Type != wire.Chunk {
		return a, fmt.Errorf("lazy: the other side sent a %s frame, which is no answer", f.Type)
	}
	a = answer{pid: f.Stream, from: uint64(f.Pos), data: f.Payload, sent: len(f.Payload), pieces: f.Flags&flagKnown != 0}
	if !a.pieces {
		return a, nil
	}
	if stock == nil {
		return a, errors.New("lazy: the other side sent a piece, and nothing has come ahead")
	}
	off := int64(0)
	if a.data, off, err = stock.Decode(room, f.Payload); err != nil || off != f.Pos {
		return a, errors.Join(errWrong, err)
	}
	return a, nil
}

// answers checks that it is the answer.
func (q question) answers(a answer) error {
	if a.pid != q.pid || a.from != q.from || uint64(len(a.data)) != q.size {
		return fmt.Errorf("lazy: the other side sent %d bytes at %#x of task %d, where %d at %#x of task %d were due", len(a.data), a.from, a.pid, q.size, q.from, q.pid)
	}
	return nil
}
