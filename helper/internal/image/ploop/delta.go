package ploop

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// layer is one file of a chain.
type layer interface {
	// find returns where the file has the bytes of the disk from off on, and how
	// many of the n are there without a break. With here false the layer does not
	// have them.
	find(off, n int64) (at, length int64, here bool)
	io.ReaderAt
	name() string
	size() int64
	Close() error
}

// delta is an open image file whose header and table are sound.
type delta struct {
	io.ReaderAt
	path  string
	head  header
	table []uint32
}

func (d *delta) name() string { return d.path }
func (d *delta) size() int64  { return d.head.size }
func (d *delta) Close() error {
	if c, ok := d.ReaderAt.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

func (d *delta) place(cluster int64) int64 {
	unit := int64(sector)
	if d.head.version == 2 {
		unit = d.head.cluster
	}
	return int64(d.table[cluster]) * unit
}

func (d *delta) find(off, n int64) (at, length int64, here bool) {
	cluster, within := off/d.head.cluster, off%d.head.cluster
	if off >= d.head.size {
		return 0, n, false
	}
	n = min(n, d.head.cluster-within, d.head.size-off)
	place := d.place(cluster)
	return place + within, n, place != 0
}

// opener opens a file for reading.
type opener func(flags int) (*os.File, error)

func byPath(path string) opener {
	return func(flags int) (*os.File, error) { return os.OpenFile(path, flags, 0) }
}

// openFile opens a file that may hold a layer. The open does not wait on a FIFO.
func openFile(open opener) (*os.File, int64, error) {
	f, err := open(os.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK)
	if err != nil {
		return nil, 0, cause(err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("this is no regular file, and a ploop image is one")
	}
	if err != nil {
		f.Close()
		return nil, 0, cause(err)
	}
	return f, info.Size(), nil
}

func cause(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// inspect reads the header and the table of an image file and holds them against each
// other and against the file. Faults go into found; the delta is of use only if no
// error is among them.
func inspect(f io.ReaderAt, fileSize int64, path string, found *findings) *delta {
	d := &delta{ReaderAt: f, path: path}
	b := make([]byte, headerSize)
	if fileSize < headerSize {
		found.add(Error, "%s: the file is cut off: it has %d bytes, and a header alone has %d", path, fileSize, headerSize)
		return d
	}
	if _, err := f.ReadAt(b, 0); err != nil {
		found.add(Error, "%s: reading the header: %v", path, cause(err))
		return d
	}
	var err error
	if d.head, err = parseHeader(b, fileSize); err != nil {
		found.add(Error, "%s: %v", path, err)
		return d
	}
	if d.head.inUse {
		found.add(Warning, "%s: the image is in use, or was not closed", path)
	}
	if err := d.readTable(); err != nil {
		found.add(Error, "%s: reading the table: %v", path, cause(err))
		return d
	}
	d.checkTable(fileSize, found)
	return d
}

// readTable reads the entries that the disk needs; there may be more.
func (d *delta) readTable() error {
	d.table = make([]uint32, d.head.clusters())
	r := io.NewSectionReader(d, headerSize, int64(len(d.table))*entrySize)
	b := make([]byte, 64<<10)
	for i := 0; i < len(d.table); {
		part := b[:min(len(b), (len(d.table)-i)*entrySize)]
		if _, err := io.ReadFull(r, part); err != nil {
			return err
		}
		for ; len(part) > 0; part, i = part[entrySize:], i+1 {
			d.table[i] = binary.LittleEndian.Uint32(part)
		}
	}
	return nil
}

// checkTable demands that every place is one in the file, that it belongs to one
// cluster only, and looks for places that belong to none.
func (d *delta) checkTable(fileSize int64, found *findings) {
	h := d.head
	if h.data > fileSize {
		if d.allocated() > 0 || h.version == 2 {
			found.add(Error, "%s: the file is cut off: its clusters begin at %d, and the file ends at %d", d.path, h.data, fileSize)
			return
		}
	}
	places := max(0, fileSize-h.data) / h.cluster // whole ones
	if places > maxEntries*2 {
		found.add(Error, "%s: the file has %d bytes, far more than its table can speak of", d.path, fileSize)
		return
	}
	owner := make([]uint64, (places+63)/64)
	take := func(place int64) (taken bool) {
		i := (place - h.data) / h.cluster
		taken = owner[i/64]&(1<<(i%64)) != 0
		owner[i/64] |= 1 << (i % 64)
		return taken
	}
	var used, doubles int64
	if h.ext != 0 {
		if err := d.placeable(h.ext, fileSize); err != nil {
			found.add(Error, "%s: the format extension %v", d.path, err)
		} else {
			take(h.ext)
			used++
		}
	}
	for c := range d.table {
		place := d.place(int64(c))
		if place == 0 {
			continue
		}
		if err := d.placeable(place, fileSize); err != nil {
			found.add(Error, "%s: cluster %d %v", d.path, c, err)
			continue
		}
		if take(place) {
			doubles++
			found.add(Error, "%s: cluster %d is at %d, where another one is: two extents overlap", d.path, c, place)
			continue
		}
		used++
	}
	// Clusters of the extension itself are not looked up, so with one nothing is
	// said to be lost.
	if lost := places - used; lost > 0 && h.ext == 0 && doubles == 0 {
		found.add(Leak, "%s: %d clusters of the file (%d bytes) belong to nothing", d.path, lost, lost*h.cluster)
	}
}

// placeable says why no cluster can be at a place, or nil if one can.
func (d *delta) placeable(place, fileSize int64) error {
	switch {
	case place < d.head.data:
		return fmt.Errorf("is at %d, before the first cluster, which is at %d", place, d.head.data)
	case (place-d.head.data)%d.head.cluster != 0:
		return fmt.Errorf("is at %d, between two clusters (they begin at %d and have %d bytes)", place, d.head.data, d.head.cluster)
	case place > fileSize-d.head.cluster:
		return fmt.Errorf("is at %d and ends behind the end of the file, which has %d bytes: it is cut off, or the table is damaged", place, fileSize)
	}
	return nil
}

// allocated is how many clusters the delta has.
func (d *delta) allocated() (n int64) {
	for _, e := range d.table {
		if e != 0 {
			n++
		}
	}
	return n
}

// plain is a raw file at the bottom of a chain.
type plain struct {
	*os.File
	path string
	n    int64
}

func (p *plain) name() string { return p.path }
func (p *plain) size() int64  { return p.n }

func (p *plain) find(off, n int64) (at, length int64, here bool) {
	if off >= p.n {
		return 0, n, false
	}
	end := min(off+n, p.n)
	switch start, err := unix.Seek(int(p.Fd()), off, unix.SEEK_DATA); {
	case err == unix.ENXIO:
		return 0, end - off, false
	case err != nil:
		return off, end - off, true // it cannot tell: read it
	case start > off:
		return 0, min(start, end) - off, false
	}
	if hole, err := unix.Seek(int(p.Fd()), off, unix.SEEK_HOLE); err == nil {
		end = min(end, hole)
	}
	return off, end - off, true
}
