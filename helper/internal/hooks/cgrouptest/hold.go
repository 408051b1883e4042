package cgrouptest

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Hold treats the tasks of a cgroup as CRIU does: it freezes them, becomes their
// debugger, and lets the cgroup go. They run on when release is called, or when the
// calling thread ends: it has to be locked to its goroutine.
func Hold(dir string) (release func() error, err error) {
	freeze := filepath.Join(dir, "cgroup.freeze")
	if err := os.WriteFile(freeze, []byte("1"), 0); err != nil {
		return nil, err
	}
	for events := ""; !strings.Contains(events, "frozen 1"); time.Sleep(time.Millisecond) {
		b, err := os.ReadFile(filepath.Join(dir, "cgroup.events"))
		if err != nil {
			return nil, err
		}
		events = string(b)
	}
	list, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return nil, err
	}
	var held []int
	release = func() (err error) {
		for _, pid := range held {
			err = errors.Join(err, unix.PtraceDetach(pid))
		}
		return err
	}
	for _, word := range strings.Fields(string(list)) {
		pid, err := strconv.Atoi(word)
		if err == nil {
			err = unix.PtraceSeize(pid)
		}
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ESRCH) {
			continue // it has ended
		}
		if err == nil {
			err = unix.PtraceInterrupt(pid)
		}
		if err != nil {
			return nil, err
		}
		held = append(held, pid)
	}
	if err := os.WriteFile(freeze, []byte("0"), 0); err != nil {
		return nil, err
	}
	for _, pid := range held {
		if _, err := unix.Wait4(pid, nil, unix.WALL, nil); err != nil {
			return nil, err
		}
	}
	return release, nil
}
