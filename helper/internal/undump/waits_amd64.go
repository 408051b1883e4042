package undump

import (
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/criuimage"
)

// stopLimit is how long a thread that stands still may take to say so.
const stopLimit = time.Second

// userCode64 is the code segment of a program of 64 bits.
const userCode64 = 0x33

// waitOn has a thread that waited make its call again, if that is known how. A thread
// that a debugger has is left alone.
func waitOn(thread int) (r Report, err error) {
	answer := make(chan error)
	go func() {
		// The kernel lets go of what a thread of ours holds when that ends: it is not
		// unlocked, and so ends here.
		runtime.LockOSThread()
		err := unix.PtraceSeize(thread)
		if err == nil {
			r, err = makeAgain(thread)
		} else if err == unix.EPERM {
			err = nil
		}
		answer <- err
	}()
	err = <-answer
	return r, err
}

func makeAgain(thread int) (r Report, err error) {
	if err := unix.PtraceInterrupt(thread); err != nil {
		return r, fmt.Errorf("stopping it: %w", err)
	}
	if err := stopped(thread); err != nil {
		return r, err
	}
	return again(thread)
}

// again is for a thread that has stopped for us.
func again(thread int) (r Report, err error) {
	var regs unix.PtraceRegs
	if err := unix.PtraceGetRegs(thread, &regs); err != nil {
		return r, fmt.Errorf("its registers: %w", err)
	}
	call := criuimage.Call{
		Number: regs.Orig_rax, Result: regs.Rax, Next: regs.Rip,
		Args: [6]uint64{regs.Rdi, regs.Rsi, regs.Rdx, regs.R10, regs.R8, regs.R9},
	}
	if regs.Cs == userCode64 {
		// Without CRIU the kernel would go on with a sleep, by a call that does not tell
		// any more that it is one, and the next dump could not have it made again.
		if call.Result == criuimage.Restarts && call.Sleeps() {
			call.Result = criuimage.Interrupted
		}
		if again, ok := call.Again(); ok {
			regs.Orig_rax, regs.Rax, regs.Rip = ^uint64(0), again.Result, again.Next
			regs.Rdi, regs.Rsi, regs.Rdx, regs.R10, regs.R8, regs.R9 = again.Args[0], again.Args[1], again.Args[2], again.Args[3], again.Args[4], again.Args[5]
			if err := unix.PtraceSetRegs(thread, &regs); err != nil {
				return r, fmt.Errorf("its registers: %w", err)
			}
			r.Waits++
		} else if call.Lost() {
			r.Lost++
		}
	}
	return r, unix.PtraceDetach(thread)
}

// stopped returns when the thread has stopped for us.
func stopped(thread int) error {
	for until := time.Now().Add(stopLimit); ; {
		var status unix.WaitStatus
		pid, err := unix.Wait4(thread, &status, unix.WNOHANG|unix.WALL, nil)
		if err != nil && err != unix.EINTR {
			return fmt.Errorf("waiting for it to stop: %w", err)
		}
		if pid == thread {
			if !status.Stopped() {
				return unix.ESRCH // it has ended
			}
			return nil
		}
		if time.Now().After(until) {
			return fmt.Errorf("it has not stopped within %s", stopLimit)
		}
		time.Sleep(200 * time.Microsecond)
	}
}
