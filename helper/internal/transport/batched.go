package transport

import (
	"bufio"
	"context"
	"crypto/tls"
	"net"
	"sync"
	"syscall"
	"time"
)

// batchSize is how much goes to the kernel, or comes from it, in one call.
const batchSize = 256 << 10

// secured is a TLS connection that hands its records to the kernel in batches: a
// record has 16 KiB, and a call for each of them, with a wake-up on the other
// side, costs more than encrypting it.
//
// Nothing stays behind in a batch: the data of a Write have been handed on when it
// returns.
type secured struct {
	*tls.Conn
	raw *batched
}

// secure makes a connection from raw by Client or Server, when each side has proved
// its identity.
func secure(ctx context.Context, raw net.Conn, side func(net.Conn, *tls.Config) *tls.Conn, config *tls.Config) (*secured, error) {
	raw = brief(raw)
	b := &batched{Conn: raw, r: bufio.NewReaderSize(raw, batchSize)}
	c := &secured{Conn: side(b, config), raw: b}
	if err := c.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *secured) Write(p []byte) (int, error) {
	c.raw.hold()
	n, err := c.Conn.Write(p)
	if serr := c.raw.send(); err == nil {
		err = serr
	}
	return n, err
}

// NetConn is the connection below all of it.
func (c *secured) NetConn() net.Conn {
	if s, ok := c.raw.Conn.(*short); ok {
		return s.Conn
	}
	return c.raw.Conn
}

// HeldUp is that of the socket below; see short.
func (c *secured) HeldUp() time.Duration {
	if s, ok := c.raw.Conn.(*short); ok {
		return s.HeldUp()
	}
	return 0
}

// Backlog is that of the socket below; see short.
func (c *secured) Backlog() (bytes int, known bool) {
	if s, ok := c.raw.Conn.(*short); ok {
		return s.Backlog()
	}
	return 0, false
}

// HungUp says whether the other side has closed the connection, also where data before
// that were not read.
func (c *secured) HungUp() bool {
	switch below := c.raw.Conn.(type) {
	case interface{ HungUp() bool }:
		return below.HungUp()
	case syscall.Conn:
		raw, err := below.SyscallConn()
		return err == nil && hungUp(raw)
	}
	return false
}

// batched is the connection below TLS.
type batched struct {
	net.Conn
	r *bufio.Reader

	mu      sync.Mutex // the library writes an alert while another goroutine writes data
	holding int        // Writes of data that are under way
	out     []byte
}

func (b *batched) Read(p []byte) (int, error) { return b.r.Read(p) }

func (b *batched) hold() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.holding++
}

func (b *batched) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.out = append(b.out, p...)
	if b.holding > 0 && len(b.out) < batchSize {
		return len(p), nil
	}
	return len(p), b.flush()
}

// send ends a hold.
func (b *batched) send() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.holding--
	return b.flush()
}

func (b *batched) flush() error {
	if len(b.out) == 0 {
		return nil
	}
	_, err := b.Conn.Write(b.out)
	b.out = b.out[:0]
	return err
}
