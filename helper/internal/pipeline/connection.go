package pipeline

import (
	"context"
	"sync"
	"time"

	"github.com/livefleet/handover/helper/internal/wire"
)

// interruptGrace is how long a frame that is being written when the context
// ends has to get through, so that the connection stays good for a last word.
const interruptGrace = 500 * time.Millisecond

// FrameWriter is where a Sender puts frames. A *wire.Conn is one; so is a
// connection to an old peer, which says the same in another dialect.
type FrameWriter interface {
	// Write puts one frame on its way, Flush sends the waiting frames.
	Write(f *wire.Frame) error
	Flush() error
	// Interrupt ends a call that waits for the other side, and why.
	Interrupt(why error)
}

// behind says whether the connection has earlier data left to send; a connection that
// does not know may have.
func behind(conn FrameWriter) bool {
	if c, ok := conn.(interface{ Backlog() (int, bool) }); ok {
		if bytes, known := c.Backlog(); known {
			return bytes > 0
		}
	}
	return true
}

// heldUp is how long so far the other side's window was in the way, where the
// connection knows.
func heldUp(conn FrameWriter) time.Duration {
	if c, ok := conn.(interface{ HeldUp() time.Duration }); ok {
		return c.HeldUp()
	}
	return 0
}

// interruptOn ends a write that is stuck when the context ends. The grace lets
// one that is merely under way finish.
func interruptOn(ctx context.Context, conn FrameWriter) (stop func()) {
	finished := make(chan struct{})
	var once sync.Once
	context.AfterFunc(ctx, func() {
		t := time.NewTimer(interruptGrace)
		defer t.Stop()
		select {
		case <-t.C:
			conn.Interrupt(context.Cause(ctx))
		case <-finished:
		}
	})
	return func() { once.Do(func() { close(finished) }) }
}
