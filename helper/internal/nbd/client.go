// Package nbd reads and writes disks that QEMU serves over a unix socket: the export of a
// libvirt backup, which is a guest's disk as it was at one moment, or an image at rest.
//
// It speaks the fixed newstyle handshake, structured replies and metadata contexts of
// https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md.
// A context tells of the disk in extents: where it has data (base:allocation), and
// where it was written since a checkpoint (qemu:dirty-bitmap:NAME).
//
// One request is under way at a time, so one goroutine uses a client.
package nbd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"
)

// Allocation is the context of the data; an extent with the flag Zero reads as zeroes.
const (
	Allocation = "base:allocation"
	Zero       = 1 << 1
)

// Dirty is the context of a bitmap; an extent with the flag Written is in it.
func Dirty(bitmap string) string { return "qemu:dirty-bitmap:" + bitmap }

// Written is the flag of an extent of a bitmap.
const Written = 1 << 0

// Patience is how long a server may take for one answer.
var Patience = 2 * time.Minute

// FlushPatience is the same for a flush, which waits for all that the server's page cache
// has of the disk.
var FlushPatience = 30 * time.Minute

// Extent is a part of the disk, right after the one before it.
type Extent struct {
	Length int64
	Flags  uint32
}

// Client is a connection to one export.
type Client struct {
	conn     net.Conn
	size     int64
	flags    uint16 // of the export
	contexts map[uint32]string
	cookie   uint64
	limit    time.Duration // of the request that is under way; 0: Patience

	interrupted atomic.Bool
}

var errInterrupted = errors.New("it was interrupted")

// Dial connects to an export, and demands that it has all the contexts.
func Dial(socket, export string, contexts ...string) (_ *Client, err error) {
	conn, err := net.DialTimeout("unix", socket, Patience)
	if err != nil {
		return nil, fmt.Errorf("nbd: %w", err)
	}
	c := &Client{conn: conn, contexts: map[uint32]string{}}
	defer func() {
		if err != nil {
			err = fmt.Errorf("nbd: the export %s at %s: %w", export, socket, errors.Join(err, conn.Close()))
		}
	}()
	if err := c.greet(); err != nil {
		return nil, err
	}
	if err := c.negotiate(export, contexts); err != nil {
		return nil, err
	}
	return c, nil
}

// Size is the disk's, in bytes.
func (c *Client) Size() int64 { return c.size }

// Close says goodbye. Whether that arrives changes nothing that was read.
func (c *Client) Close() error {
	if c.interrupted.Load() {
		return nil
	}
	_ = c.send(cmdDisconnect, 0, 0)
	return c.conn.Close()
}

// Interrupt ends the wait of another goroutine.
func (c *Client) Interrupt() {
	c.interrupted.Store(true)
	_ = c.conn.Close()
}

const (
	cmdRead       = 0
	cmdWrite      = 1
	cmdDisconnect = 2
	cmdFlush      = 3
	cmdZero       = 6
	cmdStatus     = 7

	requestMagic    = 0x25609513
	structuredMagic = 0x668e33ef
	simpleMagic     = 0x67446698

	chunkNone   = 0
	chunkData   = 1
	chunkHole   = 2
	chunkStatus = 5
	chunkError  = 1 << 15
	flagDone    = 1 << 0

	// MaxRead is the longest read that every server takes.
	MaxRead = 32 << 20
	// The longest chunk that is believed: a read's data and its offset, or some ten thousand extents.
	maxChunk = MaxRead + 8
)

func (c *Client) send(command uint16, off int64, n uint32) error {
	return c.write(c.request(command, off, n))
}

func (c *Client) request(command uint16, off int64, n uint32) []byte {
	c.cookie++
	b := make([]byte, 28)
	binary.BigEndian.PutUint32(b, requestMagic)
	binary.BigEndian.PutUint16(b[6:], command)
	binary.BigEndian.PutUint64(b[8:], c.cookie)
	binary.BigEndian.PutUint64(b[16:], uint64(off))
	binary.BigEndian.PutUint32(b[24:], n)
	return b
}

// chunk is a part of a reply. Its payload has still to be read.
type chunk struct {
	kind   uint16
	done   bool
	length uint32
}

func (c *Client) next() (k chunk, _ error) {
	magic, err := c.magic()
	if err != nil {
		return k, err
	}
	if magic == simpleMagic {
		return k, errors.New("a reply without structure, though structured ones were agreed on")
	}
	return c.chunk()
}

// magic is the beginning of a reply.
func (c *Client) magic() (uint32, error) {
	b := make([]byte, 4)
	if err := c.read(b); err != nil {
		return 0, err
	}
	magic := binary.BigEndian.Uint32(b)
	if magic != simpleMagic && magic != structuredMagic {
		return 0, fmt.Errorf("a reply begins with %#x, and is none of NBD", magic)
	}
	return magic, nil
}

// chunk is the rest of a chunk's head.
func (c *Client) chunk() (k chunk, _ error) {
	b := make([]byte, 20)
	if err := c.read(b[4:]); err != nil {
		return k, err
	}
	if cookie := binary.BigEndian.Uint64(b[8:]); cookie != c.cookie {
		return k, fmt.Errorf("a reply to the request %d, where %d was asked", cookie, c.cookie)
	}
	k = chunk{kind: binary.BigEndian.Uint16(b[6:]), done: binary.BigEndian.Uint16(b[4:])&flagDone != 0, length: binary.BigEndian.Uint32(b[16:])}
	if k.length > maxChunk {
		return k, fmt.Errorf("a reply of %d bytes, which is too long", k.length)
	}
	return k, nil
}

// failed is the error of an error chunk.
func (c *Client) failed(k chunk) error {
	b := make([]byte, k.length)
	if err := c.read(b); err != nil {
		return err
	}
	if len(b) < 6 {
		return errors.New("an error without a number")
	}
	text := ""
	if n := int(binary.BigEndian.Uint16(b[4:])); n > 0 && 6+n <= len(b) {
		text = ": " + string(b[6:6+n])
	}
	return fmt.Errorf("the server refused the request with error %d%s", binary.BigEndian.Uint32(b), text)
}

// ReadAt reads all of p, at most MaxRead bytes.
func (c *Client) ReadAt(p []byte, off int64) (int, error) {
	if err := c.readAt(p, off); err != nil {
		return 0, fmt.Errorf("nbd: reading %d bytes at %d: %w", len(p), off, err)
	}
	return len(p), nil
}

func (c *Client) readAt(p []byte, off int64) error {
	if len(p) > MaxRead || off < 0 || off+int64(len(p)) > c.size {
		return errors.New("it is beyond the disk, or too much at once")
	}
	if err := c.send(cmdRead, off, uint32(len(p))); err != nil {
		return err
	}
	had := int64(0)
	for {
		k, err := c.next()
		if err != nil {
			return err
		}
		n, err := c.part(k, p, off)
		if err != nil {
			return err
		}
		if had += n; k.done {
			break
		}
	}
	// Each byte comes once: a reply that leaves bytes out would be zeroes of ours.
	if had != int64(len(p)) {
		return fmt.Errorf("the reply has %d bytes: %w", had, io.ErrUnexpectedEOF)
	}
	return nil
}

// part is one chunk of a read.
func (c *Client) part(k chunk, p []byte, off int64) (int64, error) {
	if k.kind&chunkError != 0 {
		return 0, c.failed(k)
	}
	b := make([]byte, 12)
	head := 0
	switch {
	case k.kind == chunkNone && k.length == 0:
		return 0, nil
	case k.kind == chunkData && k.length > 8:
		head = 8
	case k.kind == chunkHole && k.length == 12:
		head = 12
	default:
		return 0, fmt.Errorf("a chunk of type %d with %d bytes in the reply to a read", k.kind, k.length)
	}
	if err := c.read(b[:head]); err != nil {
		return 0, err
	}
	at, n := int64(binary.BigEndian.Uint64(b))-off, int64(k.length)-8
	if k.kind == chunkHole {
		n = int64(binary.BigEndian.Uint32(b[8:]))
	}
	if at < 0 || n < 1 || at > int64(len(p)) || n > int64(len(p))-at {
		return 0, errors.New("the reply has bytes that were not asked for")
	}
	if k.kind == chunkHole {
		clear(p[at : at+n])
		return n, nil
	}
	return n, c.read(p[at : at+n])
}

// Extents tells of a part of the disk in each context, from off on. A context's list may
// end before the part does, and has at least one extent.
func (c *Client) Extents(off, n int64) (map[string][]Extent, error) {
	found, err := c.extents(off, n)
	if err != nil {
		return nil, fmt.Errorf("nbd: the extents of %d bytes at %d: %w", n, off, err)
	}
	return found, nil
}

func (c *Client) extents(off, n int64) (map[string][]Extent, error) {
	if n < 1 || n > 1<<31 || off < 0 || off+n > c.size {
		return nil, errors.New("it is beyond the disk, or too much at once")
	}
	if err := c.send(cmdStatus, off, uint32(n)); err != nil {
		return nil, err
	}
	found := map[string][]Extent{}
	for {
		k, err := c.next()
		if err != nil {
			return nil, err
		}
		if err := c.status(k, n, found); err != nil {
			return nil, err
		}
		if k.done {
			break
		}
	}
	for _, name := range c.contexts {
		if len(found[name]) == 0 {
			return nil, fmt.Errorf("the server says nothing of %s", name)
		}
	}
	return found, nil
}

// status is one chunk of extents.
func (c *Client) status(k chunk, n int64, found map[string][]Extent) error {
	if k.kind&chunkError != 0 {
		return c.failed(k)
	}
	if k.kind == chunkNone && k.length == 0 {
		return nil
	}
	if k.kind != chunkStatus || k.length < 12 || (k.length-4)%8 != 0 {
		return fmt.Errorf("a chunk of type %d with %d bytes in the reply about extents", k.kind, k.length)
	}
	b := make([]byte, k.length)
	if err := c.read(b); err != nil {
		return err
	}
	name, ok := c.contexts[binary.BigEndian.Uint32(b)]
	if !ok || found[name] != nil {
		return errors.New("the server tells of a context that was not asked for, or twice of one")
	}
	left := n
	for b = b[4:]; len(b) > 0 && left > 0; b = b[8:] {
		// The last may reach beyond the part.
		length := min(int64(binary.BigEndian.Uint32(b)), left)
		if length == 0 {
			return errors.New("an extent has no length")
		}
		found[name] = append(found[name], Extent{length, binary.BigEndian.Uint32(b[4:])})
		left -= length
	}
	return nil
}

func (c *Client) write(b []byte) error {
	if err := c.patient(); err != nil {
		return err
	}
	_, err := c.conn.Write(b)
	return err
}

func (c *Client) read(b []byte) error {
	if err := c.patient(); err != nil {
		return err
	}
	_, err := io.ReadFull(c.conn, b)
	return err
}
