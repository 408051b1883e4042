// Package convert writes a disk into a new file, raw or qcow2.
//
// The new file is there as a whole and on the disk, or it is not there at all. It is
// as sparse as the disk is empty: holes of the disk, and blocks of zeroes, take no
// space.
package convert

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/livefleet/handover/helper/internal/codec"
	"github.com/livefleet/handover/helper/internal/image"
	"github.com/livefleet/handover/helper/internal/image/qcow2"
)

// Disk is the input of a conversion.
type Disk interface {
	Path() string
	Size() int64
	io.ReaderAt
	NextData(off int64) (start, end int64, err error)
}

// The formats that can be written.
const (
	Raw   = "raw"
	QCOW2 = "qcow2"
)

// Formats lists them.
var Formats = []string{Raw, QCOW2}

// unit is the length that is written or left out as a whole.
const unit = qcow2.Cluster

// stretch is how much is read at a time.
const stretch = 16 * unit

// Stats counts the work done.
type Stats struct {
	Format  string `json:"format"`
	Path    string `json:"path"`
	Size    int64  `json:"size"`
	Written int64  `json:"written"` // bytes of the disk that are not zeroes
}

// output is a new file that is being written.
type output interface {
	io.WriterAt
	finish() error
}

type rawOutput struct{ *image.Target }

func (r rawOutput) finish() error { return r.Datasync() }

type qcowOutput struct {
	*qcow2.Writer
	t *image.Target
}

func (q qcowOutput) finish() error {
	if err := q.Close(); err != nil {
		return err
	}
	return q.t.Datasync()
}

// Convert writes the disk to path, which must not exist. If it fails, or the
// context ends, nothing is left there.
func Convert(ctx context.Context, disk Disk, format, path string) (_ Stats, err error) {
	if !slices.Contains(Formats, format) {
		return Stats{}, fmt.Errorf("convert: the format %q is not one of %s", format, strings.Join(Formats, ", "))
	}
	var t *image.Target
	var out output
	if format == Raw {
		if t, err = image.CreateTarget(path, disk.Size()); err != nil {
			return Stats{}, err
		}
		out = rawOutput{t}
	} else {
		if t, err = image.CreateGrowing(path, math.MaxInt64); err != nil {
			return Stats{}, err
		}
		q, qerr := qcow2.NewWriter(t, disk.Size())
		out, err = qcowOutput{q, t}, qerr
	}
	s := Stats{Format: format, Path: path, Size: disk.Size()}
	if err == nil {
		s.Written, err = write(ctx, disk, out)
	}
	if err == nil {
		err = out.finish()
	}
	err = errors.Join(err, t.Close())
	if err != nil {
		if rerr := os.Remove(path); rerr != nil {
			err = fmt.Errorf("%w; and what was written so far could not be removed: %w", err, rerr)
		}
		return Stats{}, err
	}
	return s, nil
}

// write copies the units that are not zero, in ascending order.
func write(ctx context.Context, disk Disk, out io.WriterAt) (written int64, err error) {
	buf := image.Buffer(stretch)
	for off := int64(0); off < disk.Size(); {
		start, end, err := disk.NextData(off)
		if err == io.EOF {
			break
		}
		if err != nil {
			return written, err
		}
		// Whole units: the rest of the first was looked at, or is zeroes.
		start = max(off, start/unit*unit)
		end = min((end+unit-1)/unit*unit, disk.Size())
		for off = start; off < end; {
			if err := ctx.Err(); err != nil {
				return written, fmt.Errorf("convert: %s: %w", disk.Path(), context.Cause(ctx))
			}
			b := buf[:min(stretch, end-off)]
			if n, err := disk.ReadAt(b, off); n < len(b) {
				return written, fmt.Errorf("convert: %s: %d of %d bytes at offset %d: %w", disk.Path(), n, len(b), off, err)
			}
			for len(b) > 0 {
				n := dataLen(b)
				if n > 0 {
					if _, err := out.WriteAt(b[:n], off); err != nil {
						return written, err
					}
					written += int64(n)
				} else {
					n = min(unit, len(b))
				}
				b, off = b[n:], off+int64(n)
			}
		}
	}
	return written, nil
}

// dataLen is how much of b, in whole units, comes before the first unit of zeroes.
func dataLen(b []byte) int {
	n := 0
	for n < len(b) {
		next := min(n+unit, len(b))
		if codec.IsZero(b[n:next]) {
			break
		}
		n = next
	}
	return n
}
