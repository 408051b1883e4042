package store

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/livefleet/handover/helper/internal/codec"
	"github.com/livefleet/handover/helper/internal/image/qcow2"
)

// cluster is the unit of storing.
const cluster = qcow2.Cluster

// sum is the beginning of the SHA-256 of a cluster, as package image has it: 128 bits
// are far more than accident can match. A last cluster that is short counts as filled
// up with zeroes.
type sum [16]byte

func sumOf(b []byte) (s sum) {
	whole := sha256.Sum256(b)
	copy(s[:], whole[:])
	return s
}

// SumSize is the length of a sum, and Cluster that of the piece that it is of.
const (
	SumSize = len(sum{})
	Cluster = cluster
)

// SumOf is the sum of a cluster's content. A last one that is short counts as filled up
// with zeroes, and zeroes have the sum of nothing.
func SumOf(p []byte) [SumSize]byte {
	if codec.IsZero(p) {
		return sum{}
	}
	if len(p) < cluster {
		p = append(make([]byte, 0, cluster), p...)[:cluster]
	}
	return sumOf(p)
}

// entry is a cluster that a layer has something of its own for.
type entry struct {
	cluster int64
	zero    bool // it reads as zeroes, whatever is below
	sum     sum  // of its data
}

// A file of sums belongs to a layer. It has an entry for each of its clusters, in the
// order of the disk; the image's own tables have to name the same ones. All numbers
// are little endian.
//
//	offset  size  field
//	     0     8  magic: "HANDSUMS"
//	     8     4  version: 1
//	    12     4  size of a cluster in bytes: 65536
//	    16     8  n, the number of entries
//	    24   24n  the entries: the number of the cluster (bit 63 is set where it was
//	              zeroed), and the sum of its data
const (
	sumsMagic  = "HANDSUMS"
	sumsHeader = 24
	entrySize  = 24
	zeroed     = 1 << 63
)

func encodeSums(entries []entry) []byte {
	b := make([]byte, sumsHeader, sumsHeader+len(entries)*entrySize)
	copy(b, sumsMagic)
	le := binary.LittleEndian
	le.PutUint32(b[8:], 1)
	le.PutUint32(b[12:], cluster)
	le.PutUint64(b[16:], uint64(len(entries)))
	for _, e := range entries {
		number := uint64(e.cluster)
		if e.zero {
			number |= zeroed
		}
		b = append(le.AppendUint64(b, number), e.sum[:]...)
	}
	return b
}

func parseSums(b []byte) ([]entry, error) {
	le := binary.LittleEndian
	if len(b) < sumsHeader || string(b[:8]) != sumsMagic {
		return nil, errors.New("these are no sums of pcopy")
	}
	if v, c := le.Uint32(b[8:]), le.Uint32(b[12:]); v != 1 || c != cluster {
		return nil, fmt.Errorf("sums of version %d, of clusters of %d bytes, and this pcopy understands 1 and %d", v, c, cluster)
	}
	n := le.Uint64(b[16:])
	b = b[sumsHeader:]
	if len(b)%entrySize != 0 || n != uint64(len(b)/entrySize) {
		return nil, fmt.Errorf("the header speaks of %d sums, and %d bytes follow", n, len(b))
	}
	entries := make([]entry, n)
	for i := range entries {
		number := le.Uint64(b[i*entrySize:])
		e := entry{cluster: int64(number &^ zeroed), zero: number&zeroed != 0}
		copy(e.sum[:], b[i*entrySize+8:])
		if i > 0 && e.cluster <= entries[i-1].cluster || e.zero && e.sum != (sum{}) {
			return nil, fmt.Errorf("the entry of cluster %d is not in its place", e.cluster)
		}
		entries[i] = e
	}
	return entries, nil
}

// fileOf describes bytes as a file.
func fileOf(name string, b []byte) File {
	s := sha256.Sum256(b)
	return File{Name: name, Bytes: int64(len(b)), SHA256: hex.EncodeToString(s[:])}
}

// digest reads a file as a whole.
func digest(path string) (File, error) {
	f, err := os.Open(path)
	if err != nil {
		return File{}, fmt.Errorf("store: %w", err)
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.CopyBuffer(h, f, make([]byte, 1<<20))
	if err != nil {
		return File{}, fmt.Errorf("store: %w", err)
	}
	return File{Bytes: n, SHA256: hex.EncodeToString(h.Sum(nil))}, nil
}
