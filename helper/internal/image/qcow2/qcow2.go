// Package qcow2 writes qcow2 images, version 3, in one go from the first byte to the
// last. Unwritten ranges read as zeroes and take no space.
//
// The file is, in clusters of 64 KiB: the header, the table of tables (L1), then
// clusters of data and, behind its data, each table (L2), and in the end the counts
// of references. Since nothing is ever freed or written twice, every cluster of the
// file is counted once, and the counts are known only when all is written. The header
// is written last: until then the file is no image.
package qcow2

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Cluster is the unit in which the image is written.
const Cluster = 64 << 10

const (
	clusterBits = 16
	headerSize  = 104
	perTable    = Cluster / 8 // entries of an L2 table
	perCounts   = Cluster / 2 // counts, of 16 bits, in a cluster
	copied      = 1 << 63     // the one reference there is
	maxSize     = 64 << 40    // then L1 has 1 MiB, far below QEMU's limit
)

// Writer writes one image.
type Writer struct {
	w       io.WriterAt
	size    int64
	l1      []uint64
	l1Place int64
	table   []uint64 // the L2 table that is being filled
	at      int64    // which one that is, -1 for none
	next    int64    // the next free cluster of the file
	last    int64    // where the disk was last written, to hold the caller to the order
	closed  bool
}

// NewWriter begins an image of a disk with size bytes. w must be empty.
func NewWriter(w io.WriterAt, size int64) (*Writer, error) {
	if size <= 0 || size%512 != 0 || size > maxSize {
		return nil, fmt.Errorf("qcow2: a disk of %d bytes: a whole number of sectors is needed, at most %d bytes", size, int64(maxSize))
	}
	q := &Writer{w: w, size: size, at: -1, l1Place: Cluster}
	q.l1 = make([]uint64, divUp(divUp(size, Cluster), perTable))
	q.next = 1 + divUp(int64(len(q.l1))*8, Cluster)
	return q, nil
}

func divUp(a, b int64) int64 { return (a + b - 1) / b }

// WriteAt writes p, which begins on a cluster and ends on one or at the end of the
// disk. Offsets only ever go up.
func (q *Writer) WriteAt(p []byte, off int64) (int, error) {
	if off < q.last || off%Cluster != 0 || off+int64(len(p)) > q.size || (len(p)%Cluster != 0 && off+int64(len(p)) != q.size) {
		return 0, fmt.Errorf("qcow2: a write of %d bytes at %d of a disk of %d: clusters of %d are written in order", len(p), off, q.size, Cluster)
	}
	q.last = off + int64(len(p))
	done := 0
	for done < len(p) {
		cluster := (off + int64(done)) / Cluster
		if err := q.turnTo(cluster / perTable); err != nil {
			return done, err
		}
		// As much as belongs to this table goes in one write.
		n := min(int64(len(p)-done), (perTable-cluster%perTable)*Cluster)
		part := p[done:][:n]
		if _, err := q.w.WriteAt(part, q.next*Cluster); err != nil {
			return done, err
		}
		for i := range divUp(n, Cluster) {
			q.table[cluster%perTable+i] = uint64(q.next*Cluster) | copied
			q.next++
		}
		done += int(n)
	}
	return done, nil
}

// turnTo puts the table away that was being filled, and begins another.
func (q *Writer) turnTo(table int64) error {
	if table == q.at {
		return nil
	}
	if err := q.putTable(); err != nil {
		return err
	}
	if q.table == nil {
		q.table = make([]uint64, perTable)
	}
	clear(q.table)
	q.at = table
	return nil
}

func (q *Writer) putTable() error {
	if q.at < 0 {
		return nil
	}
	q.l1[q.at] = uint64(q.next*Cluster) | copied
	if err := q.put(q.table, q.next*Cluster); err != nil {
		return err
	}
	q.next++
	q.at = -1
	return nil
}

// put writes numbers, big endian.
func (q *Writer) put(numbers []uint64, at int64) error {
	b := make([]byte, len(numbers)*8)
	for i, n := range numbers {
		binary.BigEndian.PutUint64(b[i*8:], n)
	}
	_, err := q.w.WriteAt(b, at)
	return err
}

// Close completes the image. It does not sync, nor does it close the writer below.
func (q *Writer) Close() error {
	if q.closed {
		return errors.New("qcow2: closed twice")
	}
	q.closed = true
	if err := q.putTable(); err != nil {
		return err
	}
	if err := q.put(q.l1, q.l1Place); err != nil {
		return err
	}

	// The counts count themselves too.
	var blocks, tables int64
	for {
		total := q.next + blocks + tables
		b := divUp(total, perCounts)
		t := divUp(b*8, Cluster)
		if b == blocks && t == tables {
			break
		}
		blocks, tables = b, t
	}
	total := q.next + blocks + tables
	counts := make([]byte, Cluster)
	entries := make([]uint64, blocks)
	for i := range blocks {
		clear(counts)
		for c := range min(perCounts, total-i*perCounts) {
			binary.BigEndian.PutUint16(counts[c*2:], 1)
		}
		place := (q.next + i) * Cluster
		entries[i] = uint64(place)
		if _, err := q.w.WriteAt(counts, place); err != nil {
			return err
		}
	}
	// The last table of counts ends with its cluster, so that the file does.
	table := make([]uint64, tables*Cluster/8)
	copy(table, entries)
	place := (q.next + blocks) * Cluster
	if err := q.put(table, place); err != nil {
		return err
	}

	h := make([]byte, Cluster)
	copy(h, "QFI\xfb")
	for _, f := range []struct {
		at    int
		value uint64
		bytes int
	}{
		{4, 3, 4}, // version
		{20, clusterBits, 4},
		{24, uint64(q.size), 8},
		{36, uint64(len(q.l1)), 4},
		{40, uint64(q.l1Place), 8},
		{48, uint64(place), 8},
		{56, uint64(tables), 4},
		{96, 4, 4}, // counts have 1<<4 bits
		{100, headerSize, 4},
	} {
		if f.bytes == 4 {
			binary.BigEndian.PutUint32(h[f.at:], uint32(f.value))
		} else {
			binary.BigEndian.PutUint64(h[f.at:], f.value)
		}
	}
	_, err := q.w.WriteAt(h, 0)
	return err
}
