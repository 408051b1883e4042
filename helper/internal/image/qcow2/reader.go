package qcow2

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Reader is the tables of an image that a Writer wrote. The data are read from the
// file itself, at the places that Each tells.
type Reader struct {
	r        io.ReaderAt
	size     int64
	below    string
	l1       []uint64
	clusters int64 // of the file
}

// NewReader looks at an image in a file of length bytes.
func NewReader(r io.ReaderAt, length int64) (*Reader, error) {
	h := make([]byte, headerSize+2*maxBacking)
	n, err := r.ReadAt(h, 0)
	if err != nil && err != io.EOF {
		return nil, fmt.Errorf("qcow2: reading the header: %w", err)
	}
	h = h[:n]
	be := binary.BigEndian
	if n < headerSize || string(h[:4]) != magic {
		return nil, errors.New("qcow2: this is no qcow2 image")
	}
	for _, f := range []struct {
		name  string
		value uint64
		want  uint64
	}{
		{"version", uint64(be.Uint32(h[4:])), version},
		{"cluster_bits", uint64(be.Uint32(h[20:])), clusterBits},
		{"crypt_method", uint64(be.Uint32(h[32:])), 0},
		{"nb_snapshots", uint64(be.Uint32(h[60:])), 0},
		{"incompatible_features", be.Uint64(h[72:]), 0},
		{"refcount_order", uint64(be.Uint32(h[96:])), countOrder},
	} {
		if f.value != f.want {
			return nil, fmt.Errorf("qcow2: %s is %d, and images of pcopy have %d: convert it with qemu-img", f.name, f.value, f.want)
		}
	}
	q := &Reader{r: r, size: int64(be.Uint64(h[24:])), clusters: divUp(length, Cluster)}
	if q.size <= 0 || q.size%512 != 0 || q.size > maxSize {
		return nil, fmt.Errorf("qcow2: the header speaks of a disk of %d bytes", q.size)
	}
	at, long := be.Uint64(h[8:]), uint64(be.Uint32(h[16:]))
	if at != 0 {
		if long == 0 || long > maxBacking || at < headerSize || at > uint64(len(h)) || at+long > uint64(len(h)) {
			return nil, errors.New("qcow2: the name of the image below is not in the header")
		}
		q.below = string(h[at : at+long])
		if strings.ContainsRune(q.below, 0) {
			return nil, errors.New("qcow2: the name of the image below has a zero byte")
		}
	}
	want := divUp(divUp(q.size, Cluster), perTable)
	place := be.Uint64(h[40:])
	if int64(be.Uint32(h[36:])) != want || !q.inside(place, want*8) {
		return nil, fmt.Errorf("qcow2: the table of tables has %d entries at %d: a disk of %d bytes has %d, within the file", be.Uint32(h[36:]), place, q.size, want)
	}
	q.l1, err = q.numbers(int64(place), int(want))
	return q, err
}

// inside reports whether n bytes at a place are whole clusters' own, behind the header
// and within the file.
func (q *Reader) inside(place uint64, n int64) bool {
	return place >= Cluster && place%Cluster == 0 && place/Cluster+uint64(divUp(n, Cluster)) <= uint64(q.clusters)
}

func (q *Reader) numbers(place int64, n int) ([]uint64, error) {
	b := make([]byte, n*8)
	if k, err := q.r.ReadAt(b, place); k < len(b) {
		return nil, fmt.Errorf("qcow2: reading a table at %d: %w", place, err)
	}
	numbers := make([]uint64, n)
	for i := range numbers {
		numbers[i] = binary.BigEndian.Uint64(b[i*8:])
	}
	return numbers, nil
}

// Size is the length of the disk in bytes.
func (q *Reader) Size() int64 { return q.size }

// Below is the name of the image below; empty for none.
func (q *Reader) Below() string { return q.below }

// Each walks the clusters that the image has something of its own for, in ascending
// order. place is where the data are in the file; 0 are zeroes. An entry that a Writer
// does not write ends the walk with an error: so does a place that two clusters have.
func (q *Reader) Each(visit func(cluster, place int64) error) error {
	taken := make([]uint64, divUp(q.clusters, 64))
	take := func(e uint64) (int64, error) {
		place := e &^ copied
		if e&copied == 0 || !q.inside(place, Cluster) {
			return 0, fmt.Errorf("qcow2: a table has the entry %#x, which is nothing in a file of %d clusters", e, q.clusters)
		}
		c := place / Cluster
		if taken[c/64]&(1<<(c%64)) != 0 {
			return 0, fmt.Errorf("qcow2: the cluster at %d of the file is named twice", place)
		}
		taken[c/64] |= 1 << (c % 64)
		return int64(place), nil
	}
	disk := divUp(q.size, Cluster)
	for number, e := range q.l1 {
		if e == 0 {
			continue
		}
		at, err := take(e)
		if err != nil {
			return err
		}
		table, err := q.numbers(at, perTable)
		if err != nil {
			return err
		}
		for i, e := range table {
			cluster := int64(number)*perTable + int64(i)
			switch {
			case e == 0:
				continue
			case cluster >= disk:
				return fmt.Errorf("qcow2: a cluster behind the end of the disk has the entry %#x", e)
			case e == zeroes:
				err = visit(cluster, 0)
			default:
				if at, err = take(e); err == nil {
					err = visit(cluster, at)
				}
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}
