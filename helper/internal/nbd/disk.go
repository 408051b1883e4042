package nbd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
)

// Scheme begins the address of an export on a unix socket, as QEMU's tools write it:
// nbd+unix:///EXPORT?socket=PATH. Behind it &bitmap=NAME may ask for a bitmap of the image.
const Scheme = "nbd+unix://"

// flags of an export
const (
	readOnly  = 1 << 1
	canFlush  = 1 << 2
	canZero   = 1 << 6
	writeable = canFlush | canZero
)

// Disk is an export that is written in place. Several goroutines may use it; one request
// is under way at a time.
type Disk struct {
	mu      sync.Mutex
	c       *Client
	bitmap  string
	written int64 // since the last flush
}

// flushEach is how many bytes are written between two flushes: the last one of a large disk
// would have all of it to wait for.
var flushEach int64 = 1 << 30

// extentsAtOnce is a length that the protocol's 32 bits hold.
const extentsAtOnce = 1 << 30

// Is reports whether a path is the address of an export.
func Is(path string) bool { return strings.HasPrefix(path, Scheme) }

// OpenDisk connects to an export that has exactly size bytes, and may be written.
func OpenDisk(address string, size int64) (*Disk, error) {
	socket, export, bitmap, err := parse(address)
	if err != nil {
		return nil, err
	}
	var contexts []string
	if bitmap != "" {
		contexts = []string{Dirty(bitmap)}
	}
	c, err := Dial(socket, export, contexts...)
	if err != nil {
		return nil, err
	}
	switch {
	case c.flags&readOnly != 0 || c.flags&writeable != writeable:
		err = fmt.Errorf("nbd: %s: the server does not let it be written, zeroed and flushed", address)
	case c.size != size:
		err = fmt.Errorf("nbd: %s: has %d bytes, and the disk to be written has %d", address, c.size, size)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return &Disk{c: c, bitmap: bitmap}, nil
}

func parse(address string) (socket, export, bitmap string, _ error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", "", "", fmt.Errorf("nbd: %w", err)
	}
	if socket = u.Query().Get("socket"); socket == "" || u.Host != "" {
		return "", "", "", fmt.Errorf("nbd: %s is no address of an export: it has the form %s/EXPORT?socket=PATH", address, Scheme)
	}
	return socket, strings.TrimPrefix(u.Path, "/"), u.Query().Get("bitmap"), nil
}

// Bitmap is the name of the bitmap that its address asks for; empty without one.
func (d *Disk) Bitmap() string { return d.bitmap }

// Written tells of each range that the bitmap has.
func (d *Disk) Written(tell func(off, n int64)) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for off := int64(0); off < d.c.size; {
		found, err := d.c.Extents(off, min(extentsAtOnce, d.c.size-off))
		if err != nil {
			return err
		}
		for _, e := range found[Dirty(d.bitmap)] {
			if e.Flags&Written != 0 {
				tell(off, e.Length)
			}
			off += e.Length
		}
	}
	return nil
}

// ReadAt reads all of p, at most MaxRead bytes.
func (d *Disk) ReadAt(p []byte, off int64) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.c.ReadAt(p, off)
}

// WriteAt writes all of p, at most MaxRead bytes.
func (d *Disk) WriteAt(p []byte, off int64) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.do(cmdWrite, off, int64(len(p)), p); err != nil {
		return 0, fmt.Errorf("nbd: writing %d bytes at %d: %w", len(p), off, err)
	}
	if d.written += int64(len(p)); d.written >= flushEach {
		return len(p), d.flush()
	}
	return len(p), nil
}

// Zero makes a range read as zeroes. The image may give the room back.
func (d *Disk) Zero(off, n int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.do(cmdZero, off, n, nil); err != nil {
		return fmt.Errorf("nbd: zeroing %d bytes at %d: %w", n, off, err)
	}
	return nil
}

// Datasync returns when everything written so far is on stable storage.
func (d *Disk) Datasync() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.flush()
}

func (d *Disk) flush() error {
	d.c.limit = FlushPatience
	defer func() { d.c.limit = 0 }()
	if err := d.do(cmdFlush, 0, 0, nil); err != nil {
		return fmt.Errorf("nbd: flushing: %w", err)
	}
	d.written = 0
	return nil
}

// Empty: it is not known to hold nothing.
func (d *Disk) Empty() bool { return false }

// Close says goodbye.
func (d *Disk) Close() error { return d.c.Close() }

// do makes a request, and waits for its end. The caller holds the disk.
func (d *Disk) do(command uint16, off, n int64, data []byte) error {
	if n > MaxRead || off < 0 || n < 0 || off > d.c.size-n {
		return errors.New("it is beyond the disk, or too much at once")
	}
	if err := d.c.write(append(d.c.request(command, off, uint32(n)), data...)); err != nil {
		return err
	}
	return d.c.acknowledged()
}

// acknowledged waits for the end of a request that brings no data. The server may answer
// with or without structure.
func (c *Client) acknowledged() error {
	magic, err := c.magic()
	if err != nil {
		return err
	}
	if magic == simpleMagic {
		return c.simple()
	}
	for {
		k, err := c.chunk()
		if err != nil {
			return err
		}
		if k.kind&chunkError != 0 {
			return c.failed(k)
		}
		if k.kind != chunkNone || k.length != 0 {
			return fmt.Errorf("a chunk of type %d with %d bytes in the reply to a write", k.kind, k.length)
		}
		if k.done {
			return nil
		}
		if magic, err = c.magic(); err != nil {
			return err
		}
		if magic != structuredMagic {
			return errors.New("a reply without structure in the middle of one with it")
		}
	}
}

// simple is the rest of a reply without structure.
func (c *Client) simple() error {
	b := make([]byte, 12)
	if err := c.read(b); err != nil {
		return err
	}
	if cookie := binary.BigEndian.Uint64(b[4:]); cookie != c.cookie {
		return fmt.Errorf("a reply to the request %d, where %d was asked", cookie, c.cookie)
	}
	if number := binary.BigEndian.Uint32(b); number != 0 {
		return fmt.Errorf("the server refused the request with error %d", number)
	}
	return nil
}
