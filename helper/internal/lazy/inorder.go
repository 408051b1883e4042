package lazy

import (
	"context"
	"fmt"
	"io"
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/livefleet/handover/helper/internal/precopy"
)

// Piece is a part of a task's memory, packed for its way (precopy.Known.Encode).
type Piece struct {
	Task     uint32
	At       uint64
	Size     int // of the pages
	Literals int // bytes of them that are in the piece
	Packed   []byte
}

// Give takes a piece, which is valid until it returns. It is never called twice at once.
type Give func(Piece) error

const (
	// mostReaders is how many threads read at once. More would wait for the memory.
	mostReaders = 4
	// readSize is the most that a thread reads at once: the pages, and the
	// piece of them, stay in a processor's own cache.
	readSize = 256 << 10
)

// readers is the number of threads.
var readers = func() int { return min(mostReaders, runtime.GOMAXPROCS(0)) }

// reading is a range of a task's memory that one thread reads and packs, and gives on when
// all before it were given.
type reading struct {
	task  uint32
	from  io.ReaderAt
	at    uint64
	size  int
	turn  <-chan struct{} // closed: it is its turn
	given chan struct{}   // closed: it was given
}

// packer reads and packs memory in several threads, and gives the pieces on in the order
// in which the memory was listed. After an error, or when the context ends, no piece is
// given any more. Of several errors the first in that order is the error.
type packer struct {
	pack  pack
	whole bool // a range of which a part cannot be read is an error; or else the part before is given
	give  Give
}

// pack appends the piece for a reading's pages, and says how many bytes of them are in it. Several
// threads call it.
type pack func(b, pages []byte, x *reading) (piece []byte, literals int)

// forPlan packs what a Plan takes. Nothing is added to known meanwhile.
func forPlan(known *precopy.Known) pack {
	return func(b, pages []byte, x *reading) ([]byte, int) { return known.Encode(b, pages, int64(x.at)) }
}

// lister calls add for each range to be read. Its context ends with the first error.
type lister func(ctx context.Context, add func(task uint32, from io.ReaderAt, at uint64, size int) error) error

// all packs the ranges that list adds.
func (p *packer) all(ctx context.Context, list lister) error {
	g, ctx := errgroup.WithContext(ctx)
	work := make(chan *reading) // no more are under way than there are threads
	g.Go(func() error {
		defer close(work)
		turn := make(chan struct{})
		close(turn)
		err := list(ctx, func(task uint32, from io.ReaderAt, at uint64, size int) error {
			for size > 0 {
				x := &reading{task, from, at, min(size, readSize), turn, make(chan struct{})}
				select {
				case work <- x:
				case <-ctx.Done():
					return context.Cause(ctx)
				}
				at, size, turn = at+uint64(x.size), size-x.size, x.given
			}
			return nil
		})
		if err != nil {
			return awaited(ctx, turn, err)
		}
		return nil
	})
	for range readers() {
		g.Go(func() error {
			pages, packed := make([]byte, readSize), []byte(nil)
			for x := range work {
				var err error
				if packed, err = p.one(ctx, x, pages[:x.size], packed[:0]); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// one reads, packs and gives on. It returns the memory that the piece was put in.
func (p *packer) one(ctx context.Context, x *reading, pages, packed []byte) ([]byte, error) {
	if ctx.Err() != nil {
		return packed, context.Cause(ctx)
	}
	// process_vm_readv is faster, and would have forked tasks share their pages no more.
	n, failed := x.from.ReadAt(pages, int64(x.at))
	if failed != nil && !p.whole {
		failed = nil // gone, or not for reading
	}
	n &^= PageSize - 1
	literals := 0
	if failed == nil && n > 0 {
		packed, literals = p.pack(packed, pages[:n], x)
	}
	if failed != nil {
		failed = fmt.Errorf("lazy: %d bytes at %#x of the frozen task %d: %w", len(pages), x.at, x.task, failed)
	}
	if err := awaited(ctx, x.turn, failed); err != nil {
		return packed, err
	}
	if n > 0 {
		if err := p.give(Piece{Task: x.task, At: x.at, Size: n, Literals: literals, Packed: packed}); err != nil {
			return packed, err
		}
	}
	close(x.given)
	return packed, nil
}

// awaited waits for a turn, and is the error then. Nothing has a turn any more when the
// context has ended.
func awaited(ctx context.Context, turn <-chan struct{}, failed error) error {
	select {
	case <-turn:
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return failed
}
