package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
	"unsafe"
)

// writeEvery is after how many readings the ticks are written down.
const writeEvery = 20

// tick reads a periodic timerfd, as an event loop does, and writes to path how often it
// has fired. It ends only with an error.
func tick(path string, every time.Duration) error {
	const monotonic = 1 // CLOCK_MONOTONIC
	fd, _, errno := syscall.Syscall(syscall.SYS_TIMERFD_CREATE, monotonic, 0, 0)
	if errno != 0 {
		return fmt.Errorf("timerfd_create: %w", errno)
	}
	period := syscall.NsecToTimespec(every.Nanoseconds())
	spec := [2]syscall.Timespec{period, period} // the interval, and the first time
	if _, _, errno := syscall.Syscall6(syscall.SYS_TIMERFD_SETTIME, fd, 0, uintptr(unsafe.Pointer(&spec)), 0, 0, 0); errno != 0 {
		return fmt.Errorf("timerfd_settime: %w", errno)
	}
	var ticks uint64
	buffer := make([]byte, 8)
	for n := 0; ; n++ {
		if _, err := syscall.Read(int(fd), buffer); err == syscall.EINTR {
			continue
		} else if err != nil {
			return fmt.Errorf("reading the timer: %w", err)
		}
		ticks += binary.NativeEndian.Uint64(buffer)
		if n%writeEvery == 0 {
			if err := os.WriteFile(path, strconv.AppendUint(nil, ticks, 10), 0o644); err != nil {
				return err
			}
		}
	}
}
