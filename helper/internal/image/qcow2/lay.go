package qcow2

import (
	"encoding/binary"
	"io"
)

// File is an image that is read and written in place.
type File interface {
	io.ReaderAt
	io.WriterAt
}

// Lay makes an image that another program has written, such as QEMU, one of ours, on the
// image below: the header is written anew. Clusters of zeroes that have nothing below are
// forgotten, as a Writer does; QEMU notes each that it has found. The image must be one
// that a Reader takes, on nothing, and in a file of length bytes. Data stay in their places.
// It does not sync.
func Lay(f File, length int64, below string) error {
	q, err := NewReader(f, length)
	if err != nil {
		return err
	}
	w, err := NewLayer(f, q.size, below)
	if err != nil {
		return err
	}
	if below == "" {
		if err := q.forgetZeroes(f); err != nil {
			return err
		}
	}
	h := make([]byte, headerSize)
	if _, err := f.ReadAt(h, 0); err != nil {
		return err
	}
	be := binary.BigEndian
	l1, counts := int64(be.Uint64(h[40:])), int64(be.Uint64(h[48:]))
	_, err = f.WriteAt(w.header(len(q.l1), l1/Cluster, counts/Cluster, int64(be.Uint32(h[56:]))), 0)
	return err
}

// forgetZeroes takes the entries of zeroes out of the tables.
func (q *Reader) forgetZeroes(f io.WriterAt) error {
	for _, e := range q.l1 {
		at := int64(e &^ copied)
		if at == 0 {
			continue
		}
		table, err := q.numbers(at, perTable)
		if err != nil {
			return err
		}
		b, changed := make([]byte, Cluster), false
		for i, e := range table {
			if e == zeroes {
				e, changed = 0, true
			}
			binary.BigEndian.PutUint64(b[i*8:], e)
		}
		if !changed {
			continue
		}
		if _, err := f.WriteAt(b, at); err != nil {
			return err
		}
	}
	return nil
}
