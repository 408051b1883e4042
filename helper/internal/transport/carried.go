package transport

import (
	"errors"
	"os"
	"sync"
	"time"

	"github.com/hashicorp/yamux"
)

const (
	// mostAhead is how much is read to find the connection's end behind it.
	mostAhead = 64 << 10
	// lookFor is how long a look for the end waits. It is about data that have come.
	lookFor = time.Millisecond
)

// carried is one connection.
type carried struct {
	*yamux.Stream
	trunk *trunk

	reading sync.Mutex // held by a Read and by a look for the end
	ahead   []byte     // read by such looks

	mu        sync.Mutex
	busy      int // Writes that are under way
	until     time.Time
	readUntil time.Time
	alarm     *time.Timer
}

func (c *carried) Read(p []byte) (int, error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	if n := copy(p, c.ahead); n > 0 {
		c.ahead = c.ahead[n:]
		return n, nil
	}
	n, err := c.Stream.Read(p)
	return n, c.trunk.explain(err)
}

// HungUp says whether the other end has closed the connection, also where data before
// that were not read. A Read that waits finds that itself.
func (c *carried) HungUp() bool {
	if !c.reading.TryLock() {
		return false
	}
	defer c.reading.Unlock()
	for len(c.ahead) < mostAhead {
		if err := c.look(); err != nil {
			return !errors.Is(err, yamux.ErrTimeout)
		}
	}
	return false
}

// look reads a part of the data that have come.
func (c *carried) look() error {
	if err := c.deadline(time.Now().Add(lookFor)); err != nil {
		return err
	}
	part := make([]byte, 4<<10)
	n, err := c.Stream.Read(part)
	c.ahead = append(c.ahead, part[:n]...)
	return errors.Join(err, c.deadline(time.Time{}))
}

// deadline sets one for a look, and takes it away. One of the reader's own stands.
func (c *carried) deadline(at time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.readUntil.IsZero() {
		at = c.readUntil
	}
	return c.Stream.SetReadDeadline(at)
}

// SetReadDeadline ends a Read that waits for the other end.
func (c *carried) SetReadDeadline(at time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readUntil = at
	return c.Stream.SetReadDeadline(at)
}

func (c *carried) Write(p []byte) (int, error) {
	if !c.begin() {
		return 0, os.ErrDeadlineExceeded
	}
	defer c.done()
	n, err := c.Stream.Write(p)
	if errors.Is(err, yamux.ErrConnectionWriteTimeout) { // for deadAfter
		c.trunk.giveUp()
	}
	return n, c.trunk.explain(err)
}

func (c *carried) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.until.IsZero() && !time.Now().Before(c.until) {
		return false
	}
	c.busy++
	return true
}

func (c *carried) done() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy--
}

// SetWriteDeadline ends a Write that waits for the other end. One that waits for the
// command to take it cannot be taken back, since others may come after it; if it
// lasts, the command is given up.
func (c *carried) SetWriteDeadline(at time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.until = at
	if c.alarm != nil {
		c.alarm.Stop()
		c.alarm = nil
	}
	if !at.IsZero() {
		c.alarm = time.AfterFunc(time.Until(at)+stuckAfter, func() {
			c.mu.Lock()
			busy := c.busy > 0
			c.mu.Unlock()
			if busy {
				c.trunk.giveUp()
			}
		})
	}
	return c.Stream.SetWriteDeadline(at)
}

// SetDeadline is for both ways.
func (c *carried) SetDeadline(at time.Time) error {
	return errors.Join(c.SetReadDeadline(at), c.SetWriteDeadline(at))
}

// Close ends the connection. A Write of another goroutine's that waits for the
// command is given as much time as for a deadline.
func (c *carried) Close() error {
	_ = c.SetDeadline(time.Unix(1, 0))
	stuck := time.AfterFunc(stuckAfter, c.trunk.giveUp)
	defer stuck.Stop()
	return c.Stream.Close()
}
