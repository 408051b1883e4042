package network

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// Probe finds out whether this kernel can keep a namespace silent, by doing it, in a
// namespace of its own that goes at once.
func Probe() error {
	failed := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: see inside
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			failed <- fmt.Errorf("network: making a namespace: %w", err)
			return
		}
		failed <- tryGuard(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()))
	}()
	return <-failed
}

func tryGuard(path string) error {
	g, err := NewGuard(path)
	if err != nil {
		return err
	}
	defer g.Close()
	if err := g.TurnAway(); err != nil {
		return err
	}
	return g.Silence()
}
