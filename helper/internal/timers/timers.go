// Package timers looks whether the timers of restored tasks, which have not run yet, are as the
// dump has them.
//
// A timer that is disarmed never fires again, and a program that waits for it waits for ever.
// The kernel tells the time that a timerfd has left, and of the timers of POSIX that they are there. Of
// an interval timer (setitimer) it tells nobody but the task: CRIU arms that itself.
package timers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/criuimage"
	"github.com/livefleet/handover/helper/internal/tasks"
)

// A timer that is due at the moment in which it is asked seems to be disarmed: it is asked again.
const (
	asked    = 20
	askPause = time.Millisecond
)

// Lost are the timers that are not as they were, in words, of root, a process ID on this host,
// and of those that descend from it.
func Lost(want criuimage.Timers, root string) (lost []string, err error) {
	if len(want.Files) == 0 && len(want.POSIX) == 0 {
		return nil, nil
	}
	err = tasks.Descending(root, func(proc string) error {
		inside, err := tasks.Inside(proc)
		if err != nil {
			return err
		}
		for _, timer := range want.Files {
			if timer.Process != inside {
				continue
			}
			why, err := lostFile(proc, timer)
			if err != nil {
				return fmt.Errorf("descriptor %d of process %d: %w", timer.Descriptor, inside, err)
			}
			if why != "" {
				lost = append(lost, fmt.Sprintf("the timerfd %d of process %d %s", timer.Descriptor, inside, why))
			}
		}
		missing, err := missingPOSIX(proc, want.POSIX[inside])
		for _, number := range missing {
			lost = append(lost, fmt.Sprintf("the timer %d of process %d is not there", number, inside))
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("timers: %w", err)
	}
	return lost, nil
}

// lostFile says why a timerfd is not as it was; empty: it is.
func lostFile(proc string, want criuimage.Timer) (why string, err error) {
	process, err := strconv.Atoi(filepath.Base(proc))
	if err != nil {
		return "", err
	}
	pidfd, err := unix.PidfdOpen(process, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(pidfd)
	fd, err := unix.PidfdGetfd(pidfd, want.Descriptor, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	first, err := Ticks("/proc/thread-self", fd)
	if err != nil {
		return "", err
	}
	if want.Ticks > 0 && first == 0 {
		return "has fired, and nothing tells it any more", nil
	}
	if !want.Armed {
		return "", nil
	}
	for range asked {
		// The kernel has a periodic timer that has fired go on when it is asked, as when it is read.
		left, err := left(fd)
		if err != nil || left > 0 {
			return "", err
		}
		now, err := Ticks("/proc/thread-self", fd)
		if err != nil || now != first || !want.Periodic && now > 0 {
			return "", err
		}
		time.Sleep(askPause)
	}
	if want.Periodic {
		return "does not fire again and again any more", nil
	}
	return "is not armed any more", nil
}

// left is the time until a timerfd fires; 0: it is disarmed, or due.
func left(fd int) (time.Duration, error) {
	var spec [2]unix.Timespec // the interval, and the time until it fires
	if _, _, errno := unix.Syscall(unix.SYS_TIMERFD_GETTIME, uintptr(fd), uintptr(unsafe.Pointer(&spec)), 0); errno != 0 {
		return 0, fmt.Errorf("timerfd_gettime: %w", errno)
	}
	return time.Duration(spec[1].Nano()), nil
}

// Ticks is how often a timerfd of a process has fired and was not read.
func Ticks(proc string, descriptor int) (uint64, error) {
	text, err := os.ReadFile(filepath.Join(proc, "fdinfo", strconv.Itoa(descriptor)))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if number, ok := strings.CutPrefix(line, "ticks:"); ok {
			return strconv.ParseUint(strings.TrimSpace(number), 10, 64)
		}
	}
	return 0, errors.New("it is no timerfd")
}

// missingPOSIX are those of a process's timers that are not there.
func missingPOSIX(proc string, want []int) (missing []int, err error) {
	if len(want) == 0 {
		return nil, nil
	}
	text, err := os.ReadFile(filepath.Join(proc, "timers"))
	if err != nil {
		return nil, err
	}
	var there []int
	for line := range strings.Lines(string(text)) {
		if number, ok := strings.CutPrefix(line, "ID:"); ok {
			id, err := strconv.Atoi(strings.TrimSpace(number))
			if err != nil {
				return nil, fmt.Errorf("%s/timers: %w", proc, err)
			}
			there = append(there, id)
		}
	}
	return slices.DeleteFunc(slices.Clone(want), func(id int) bool { return slices.Contains(there, id) }), nil
}
