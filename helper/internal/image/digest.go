package image

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"runtime"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// DigestSize is how much of each cluster's SHA-256 is kept. 128 bits are far
// more than accident can match, and the table of a 1 TiB image is half as long.
const DigestSize = 16

// Digests holds one digest for each cluster of an image.
type Digests struct {
	size    int64
	cluster int
	sums    []byte // DigestSize bytes a cluster
}

// Root stands for a whole image: equal roots, equal images.
type Root struct {
	Algorithm string `json:"algorithm"`
	Size      int64  `json:"size"`
	Cluster   int    `json:"cluster"`
	Root      string `json:"root"`
}

// digestAlgorithm names how a root is made: the SHA-256 over the image's size
// and cluster (8 bytes each, little endian) and then, in order, the first 16
// bytes of each cluster's SHA-256.
const digestAlgorithm = "sha256-clusters-16"

// extents is a Source's knowledge of its holes.
type extents interface {
	NextData(off int64) (start, end int64, err error)
}

// Digest reads size bytes of r and makes a digest of each cluster, on all cores.
// Where r knows its holes, they are not read.
func Digest(ctx context.Context, r io.ReaderAt, size int64, cluster int) (*Digests, error) {
	if size < 0 || cluster <= 0 {
		return nil, fmt.Errorf("image: an image of %d bytes in clusters of %d has no digests", size, cluster)
	}
	count := (size + int64(cluster) - 1) / int64(cluster)
	d := &Digests{size: size, cluster: cluster, sums: make([]byte, count*DigestSize)}

	// A worker takes a stretch of clusters at a time, large enough for a device
	// to read it at full speed.
	stretch := max(1, int64(1<<20/cluster))
	zero := sha256.Sum256(make([]byte, cluster))
	var next atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for range runtime.GOMAXPROCS(0) {
		g.Go(func() error {
			buf := Buffer(int(stretch) * cluster)
			for {
				first := next.Add(stretch) - stretch
				if first >= count {
					return nil
				}
				if err := ctx.Err(); err != nil {
					return err
				}
				last := min(first+stretch, count)
				off := first * int64(cluster)
				end := min(last*int64(cluster), size)
				if e, ok := r.(extents); ok {
					start, _, err := e.NextData(off)
					if err != nil && err != io.EOF {
						return err
					}
					if (err == io.EOF || start >= end) && end%int64(cluster) == 0 {
						for c := first; c < last; c++ {
							copy(d.sums[c*DigestSize:], zero[:DigestSize])
						}
						continue
					}
				}
				b := buf[:end-off]
				if n, err := r.ReadAt(b, off); n < len(b) {
					if err == nil || err == io.EOF {
						err = io.ErrUnexpectedEOF
					}
					return fmt.Errorf("image: digest at offset %d: %w", off+int64(n), err)
				}
				for c := first; c < last; c++ {
					part := b[(c-first)*int64(cluster):]
					sum := sha256.Sum256(part[:min(len(part), cluster)])
					copy(d.sums[c*DigestSize:(c+1)*DigestSize], sum[:])
				}
			}
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return d, nil
}

// Sums are the digests themselves, DigestSize bytes a cluster.
func (d *Digests) Sums() []byte { return d.sums }

// Root makes the one value that stands for all of them.
func (d *Digests) Root() Root {
	h := sha256.New()
	var head [16]byte
	binary.LittleEndian.PutUint64(head[:], uint64(d.size))
	binary.LittleEndian.PutUint64(head[8:], uint64(d.cluster))
	h.Write(head[:])
	h.Write(d.sums)
	return Root{Algorithm: digestAlgorithm, Size: d.size, Cluster: d.cluster, Root: hex.EncodeToString(h.Sum(nil))}
}

// FirstDifference returns the offset of the first cluster in which two images
// differ, and whether there is one. Images of different shape cannot be compared
// this way.
func (d *Digests) FirstDifference(o *Digests) (off int64, differ bool, err error) {
	if d.size != o.size || d.cluster != o.cluster {
		return 0, false, fmt.Errorf("image: digests of %d bytes in clusters of %d cannot be compared with those of %d in clusters of %d",
			d.size, d.cluster, o.size, o.cluster)
	}
	for i := 0; i < len(d.sums); i += DigestSize {
		if string(d.sums[i:i+DigestSize]) != string(o.sums[i:i+DigestSize]) {
			return int64(i/DigestSize) * int64(d.cluster), true, nil
		}
	}
	return 0, false, nil
}

// Equal says whether two roots stand for the same, and if not, why.
func (r Root) Equal(o Root) error {
	switch {
	case r.Algorithm != o.Algorithm || r.Cluster != o.Cluster:
		return fmt.Errorf("image: a digest by %s in clusters of %d cannot be compared with one by %s in clusters of %d", r.Algorithm, r.Cluster, o.Algorithm, o.Cluster)
	case r.Size != o.Size:
		return fmt.Errorf("image: they have %d and %d bytes", r.Size, o.Size)
	case r.Root != o.Root:
		return fmt.Errorf("image: they differ: digest %s here, %s there", r.Root, o.Root)
	}
	return nil
}
