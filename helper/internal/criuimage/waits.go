package criuimage

import (
	"math"

	"golang.org/x/sys/unix"
)

// Call is a system call of x86-64 that has ended, as the registers of its thread have it.
type Call struct {
	Number uint64
	Result uint64
	Next   uint64    // where the program goes on
	Args   [6]uint64 // in rdi, rsi, rdx, r10, r8, r9
}

// Numbers of system calls of x86-64, and how long the instruction is that makes one.
const (
	callPoll           = 7
	callNanosleep      = 35
	callFutex          = 202
	callClockNanosleep = 230
	callLength         = 2
)

const (
	futexWaitBitset = 9
	futexCommand    = 0x7f
)

// Interrupted is the result that CRIU gives a wait which the kernel would go on with by a
// record of its own: CRIU cannot read that.
const Interrupted = math.MaxUint64 - uint64(unix.EINTR) + 1

// Restarts is that result before CRIU has come: the kernel's note to itself.
const Restarts = math.MaxUint64 - 516 + 1

// waits are the calls that the kernel goes on with so, and how each is made again. A
// call that cannot be made again says false, and stays as CRIU has it.
var waits = map[uint64]func(*Call) bool{
	// The kernel has left the time that remains where the program asked for it.
	callNanosleep: func(c *Call) bool {
		c.Args[0] = c.Args[1]
		return c.Args[1] != 0
	},
	callClockNanosleep: func(c *Call) bool {
		c.Args[2] = c.Args[3]
		return c.Args[1]&unix.TIMER_ABSTIME == 0 && c.Args[3] != 0
	},
	// One without end, which is a negative time. Of any other only the kernel knows how
	// much is left, and a whole time again is one that a program may miss its own by.
	callPoll: func(c *Call) bool { return int32(c.Args[2]) < 0 },
	// One until a point of time. Any other may end at any time, for every program.
	callFutex: func(c *Call) bool { return c.Args[1]&futexCommand == futexWaitBitset },
}

// Again is the call made once more; false: it is no such wait, or it is not known how.
func (c Call) Again() (Call, bool) {
	again, ok := waits[c.Number]
	if c.Result != Interrupted || !ok || !again(&c) {
		return Call{}, false
	}
	c.Result, c.Next = c.Number, c.Next-callLength
	return c, true
}

// Sleeps says whether the call sleeps for a time that the kernel counts down for it.
func (c Call) Sleeps() bool { return c.Number == callNanosleep || c.Number == callClockNanosleep }

// restartCall is the call by which the kernel goes on with a wait: it does not tell which.
const restartCall = 219

// Lost says that a sleep, or a wait that may be one, ends early and cannot be made again.
func (c Call) Lost() bool {
	_, again := c.Again()
	return c.Result == Interrupted && !again && (c.Number == restartCall || c.Sleeps())
}
