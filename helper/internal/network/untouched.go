package network

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// InUntouched runs f in a network namespace that is made for it, and goes with it. The
// rules for Inside's f hold for this one.
func InUntouched(f func() error) error {
	failed := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		home, err := os.Open("/proc/thread-self/ns/net")
		if err == nil {
			defer home.Close()
			err = unix.Unshare(unix.CLONE_NEWNET)
		}
		if err != nil {
			runtime.UnlockOSThread()
			failed <- fmt.Errorf("network: a namespace to try something in: %w", err)
			return
		}
		err = f()
		if e := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); e != nil {
			err = errors.Join(err, fmt.Errorf("network: back from the namespace to try something in: %w", e)) // the thread ends with this
		} else {
			runtime.UnlockOSThread()
		}
		failed <- err
	}()
	return <-failed
}
