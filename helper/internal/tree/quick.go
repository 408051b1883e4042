package tree

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"runtime"

	"github.com/zeebo/xxh3"
	"golang.org/x/sync/errgroup"
)

// quickly reads a file in parts, several at a time. A part of zeroes is as good as a hole: each
// other part comes with its number.
func (d *digester) quickly(h hash.Hash, f *os.File, _ string, size int64) error {
	pieces, err := extents(int(f.Fd()), size)
	if err != nil {
		return err
	}
	sums := make([]xxh3.Uint128, (size+part-1)/part)
	g, ctx := errgroup.WithContext(d.ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	next := int64(0) // the first part that is not being read
	for _, p := range pieces {
		first, end := max(next, p.off/part), min((p.off+p.length+part-1)/part, int64(len(sums)))
		for at := first; at < end; at += partsTogether {
			g.Go(func() error { return quickSums(ctx, f, sums[at:min(at+partsTogether, end)], at, size) })
		}
		next = max(next, end)
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for n, sum := range sums {
		if sum == (xxh3.Uint128{}) {
			continue
		}
		var b [24]byte
		binary.LittleEndian.PutUint64(b[:], uint64(n))
		binary.LittleEndian.PutUint64(b[8:], sum.Hi)
		binary.LittleEndian.PutUint64(b[16:], sum.Lo)
		h.Write(b[:])
	}
	return nil
}

// partsTogether are read by one after the other, into the same memory.
const partsTogether = 64

// quickSums are the digests of some parts of a file, from the number first on.
func quickSums(ctx context.Context, f *os.File, sums []xxh3.Uint128, first, size int64) error {
	buf := make([]byte, min(part, size-first*part))
	for n := range sums {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		off := (first + int64(n)) * part
		b := buf[:min(part, size-off)]
		if k, err := f.ReadAt(b, off); k < len(b) {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF // it has shrunk
			}
			return fmt.Errorf("at %d of %d bytes: %w", off+int64(k), size, err)
		}
		if !bytes.Equal(b, zeroes[:len(b)]) {
			sums[n] = xxh3.Hash128(b)
		}
	}
	return nil
}
