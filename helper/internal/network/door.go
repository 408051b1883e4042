package network

import (
	"context"
	"fmt"
	"time"
)

// doorLook is the time between two looks at the pending connections.
const doorLook = 2 * time.Millisecond

// BehindShutDoor runs f while no new connection comes in to the namespace at path, and
// not before those that came earlier have been accepted: a dump refuses a listener
// with pending connections. The door opens when f returns, or with this process. They
// may take so long to be accepted as limit says.
func BehindShutDoor(ctx context.Context, path string, limit time.Duration, f func() error) error {
	g, err := NewGuard(path)
	if err != nil {
		return err
	}
	defer g.Close()
	if err := g.TurnAway(); err != nil {
		return err
	}
	for until := time.Now().Add(limit); ; {
		u, err := Settled(path)
		if err != nil {
			return err
		}
		if u.Waiting+u.Opening == 0 {
			return f()
		}
		if time.Now().After(until) {
			if u.Waiting == 0 { // a handshake that its client has given up
				return f()
			}
			return fmt.Errorf("network: %s to be accepted by the workload, which does not accept, and CRIU cannot carry that: try again when it does", u.Backlog)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(doorLook):
		}
	}
}
