// Package qcow2 writes and reads qcow2 images, version 3, of clusters of 64 KiB.
//
// A Writer writes an image into a new file, in any order. Ranges that were never
// written read as zeroes, or as the image below where one is named, and take no space.
//
// The file is, in clusters: the header, the data in the order in which they came, the
// tables (L2, then the table of tables, L1), and the counts of references. The header
// is written last: until then the file is no image. Every table is in memory until
// then, 128 bytes for each MiB that was written.
//
// A Reader reads what a Writer writes, and refuses everything else that the format
// knows: it is for images of our own.
package qcow2

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
)

// Cluster is the unit in which the image is written.
const Cluster = 64 << 10

const (
	magic       = "QFI\xfb"
	version     = 3
	clusterBits = 16
	headerSize  = 104
	countOrder  = 4           // counts have 1<<4 bits
	perTable    = Cluster / 8 // entries of an L2 table
	perCounts   = Cluster / 2 // counts in a cluster
	copied      = 1 << 63     // the one reference there is
	zeroes      = 1           // the cluster reads as zeroes, whatever is below
	maxSize     = 64 << 40    // then L1 has 1 MiB, far below QEMU's limit

	endOfExtensions  = 0
	backingExtension = 0xe2792aca // the format of the image below
	backingFormat    = "qcow2"
	maxBacking       = 1023
)

// Writer writes one image.
type Writer struct {
	w      io.WriterAt
	size   int64
	below  string             // the name of the image below; empty for none
	tables map[int64][]uint64 // L2 tables, by number
	free   []int64            // clusters of the file that hold nothing any more
	next   int64              // the first cluster behind the end of the file
	closed bool
}

// NewWriter begins an image of a disk with size bytes. w must be empty.
func NewWriter(w io.WriterAt, size int64) (*Writer, error) { return NewLayer(w, size, "") }

// NewLayer begins an image that reads as another one where nothing is written to it.
// below is the name of that one's file, as it is to be found from this one's folder.
func NewLayer(w io.WriterAt, size int64, below string) (*Writer, error) {
	if size <= 0 || size%512 != 0 || size > maxSize {
		return nil, fmt.Errorf("qcow2: a disk of %d bytes: a whole number of sectors is needed, at most %d bytes", size, int64(maxSize))
	}
	if len(below) > maxBacking {
		return nil, fmt.Errorf("qcow2: the name of the image below has %d bytes, and at most %d fit", len(below), maxBacking)
	}
	return &Writer{w: w, size: size, below: below, tables: map[int64][]uint64{}, next: 1}, nil
}

func divUp(a, b int64) int64 { return (a + b - 1) / b }

// check refuses a range that is not of whole clusters. The last cluster of the disk
// may be short.
func (q *Writer) check(off, n int64) error {
	if off < 0 || n < 0 || off%Cluster != 0 || n > q.size-off || (n%Cluster != 0 && off+n != q.size) {
		return fmt.Errorf("qcow2: a range of %d bytes at %d of a disk of %d: whole clusters of %d are needed", n, off, q.size, Cluster)
	}
	return nil
}

// entry is the place of a cluster's entry.
func (q *Writer) entry(cluster int64) *uint64 {
	table := q.tables[cluster/perTable]
	if table == nil {
		table = make([]uint64, perTable)
		q.tables[cluster/perTable] = table
	}
	return &table[cluster%perTable]
}

// WriteAt writes p, which begins on a cluster and ends on one or at the end of the
// disk.
func (q *Writer) WriteAt(p []byte, off int64) (int, error) {
	if err := q.check(off, int64(len(p))); err != nil {
		return 0, err
	}
	done := 0
	for done < len(p) {
		first := (off + int64(done)) / Cluster
		place, n := q.places(first, divUp(int64(len(p)-done), Cluster))
		part := p[done:min(int64(len(p)), int64(done)+n*Cluster)]
		done += len(part)
		if over := len(part) % Cluster; over != 0 {
			// What the file held here before must not be read behind the disk's end.
			part = append(slices.Clone(part), make([]byte, Cluster-over)...)
		}
		if _, err := q.w.WriteAt(part, place*Cluster); err != nil {
			return done, err
		}
	}
	return done, nil
}

// places finds a place for the clusters from first on, n at most: as many of them as
// lie side by side.
func (q *Writer) places(first, n int64) (place, found int64) {
	e := q.entry(first)
	switch {
	case *e&^(copied|zeroes) != 0: // written before: in the same place
		return int64(*e&^(copied|zeroes)) / Cluster, 1
	case len(q.free) > 0:
		place, q.free = q.free[len(q.free)-1], q.free[:len(q.free)-1]
		*e = uint64(place*Cluster) | copied
		return place, 1
	}
	place = q.next
	for found < n {
		e := q.entry(first + found)
		if *e&^(copied|zeroes) != 0 {
			break
		}
		*e = uint64(q.next*Cluster) | copied
		q.next++
		found++
	}
	return place, found
}

// Zero has a range of whole clusters read as zeroes. Forget has it read as the image
// below does. What was written there is given up.
func (q *Writer) Zero(off, n int64) error { return q.set(off, n, zeroes) }

// Forget takes back what was written to a range of whole clusters.
func (q *Writer) Forget(off, n int64) error { return q.set(off, n, 0) }

func (q *Writer) set(off, n int64, to uint64) error {
	if err := q.check(off, n); err != nil {
		return err
	}
	if q.below == "" {
		to = 0
	}
	for cluster := off / Cluster; cluster < divUp(off+n, Cluster); {
		if to == 0 && q.tables[cluster/perTable] == nil {
			cluster = (cluster/perTable + 1) * perTable
			continue
		}
		e := q.entry(cluster)
		if place := int64(*e&^(copied|zeroes)) / Cluster; place != 0 {
			q.free = append(q.free, place)
		}
		*e = to
		cluster++
	}
	return nil
}

// Entries walks the clusters that the image has something of its own for, in ascending
// order: data, or zeroes over the image below.
func (q *Writer) Entries(yield func(cluster int64, zero bool) bool) {
	for _, number := range slices.Sorted(maps.Keys(q.tables)) {
		for i, e := range q.tables[number] {
			if e != 0 && !yield(number*perTable+int64(i), e == zeroes) {
				return
			}
		}
	}
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
	l1 := make([]uint64, divUp(divUp(q.size, Cluster), perTable))
	for _, number := range slices.Sorted(maps.Keys(q.tables)) {
		table := q.tables[number]
		if !slices.ContainsFunc(table, func(e uint64) bool { return e != 0 }) {
			continue
		}
		l1[number] = uint64(q.next*Cluster) | copied
		if err := q.put(table, q.next*Cluster); err != nil {
			return err
		}
		q.next++
	}
	l1Place := q.next
	q.next += divUp(int64(len(l1))*8, Cluster)
	if err := q.put(l1, l1Place*Cluster); err != nil {
		return err
	}
	counts, clusters, err := q.counts()
	if err != nil {
		return err
	}
	_, err = q.w.WriteAt(q.header(len(l1), l1Place, counts, clusters), 0)
	return err
}

// counts writes the counts of references, and returns the place of their table and its
// length, in clusters.
func (q *Writer) counts() (place, clusters int64, err error) {
	// The counts count themselves too.
	var blocks, tables int64
	for {
		b := divUp(q.next+blocks+tables, perCounts)
		t := divUp(b*8, Cluster)
		if b == blocks && t == tables {
			break
		}
		blocks, tables = b, t
	}
	total := q.next + blocks + tables
	slices.Sort(q.free)
	unused := q.free
	counts := make([]byte, Cluster)
	// The last table of counts ends with its cluster, so that the file does.
	table := make([]uint64, tables*Cluster/8)
	for i := range blocks {
		clear(counts)
		for c := range min(perCounts, total-i*perCounts) {
			if len(unused) > 0 && unused[0] == i*perCounts+c {
				unused = unused[1:]
				continue
			}
			binary.BigEndian.PutUint16(counts[c*2:], 1)
		}
		at := (q.next + i) * Cluster
		table[i] = uint64(at)
		if _, err := q.w.WriteAt(counts, at); err != nil {
			return 0, 0, err
		}
	}
	place = q.next + blocks
	return place, tables, q.put(table, place*Cluster)
}

// header is the first cluster of the file.
func (q *Writer) header(l1 int, l1Place, counts, clusters int64) []byte {
	h := make([]byte, Cluster)
	be := binary.BigEndian
	copy(h, magic)
	be.PutUint32(h[4:], version)
	be.PutUint32(h[20:], clusterBits)
	be.PutUint64(h[24:], uint64(q.size))
	be.PutUint32(h[36:], uint32(l1))
	be.PutUint64(h[40:], uint64(l1Place*Cluster))
	be.PutUint64(h[48:], uint64(counts*Cluster))
	be.PutUint32(h[56:], uint32(clusters))
	be.PutUint32(h[96:], countOrder)
	be.PutUint32(h[100:], headerSize)
	if q.below == "" {
		return h
	}
	at := headerSize
	be.PutUint32(h[at:], backingExtension)
	be.PutUint32(h[at+4:], uint32(len(backingFormat)))
	copy(h[at+8:], backingFormat)
	at += 8 + (len(backingFormat)+7)/8*8 + 8 // and the end of the extensions, which is zeroes
	be.PutUint64(h[8:], uint64(at))
	be.PutUint32(h[16:], uint32(len(q.below)))
	copy(h[at:], q.below)
	return h
}
