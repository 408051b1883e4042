package criuimage

import (
	"fmt"
	"math"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/encoding/protowire"
)

const coreMagic = 0x55053847

// Of core.proto: core_entry has a thread of x86 in field 2. Of core-x86.proto: that has
// the registers in field 2, and these their fields.
const (
	coreThread protowire.Number = 2
	threadRegs protowire.Number = 2

	regR10    protowire.Number = 8
	regAX     protowire.Number = 11
	regDX     protowire.Number = 13
	regSI     protowire.Number = 14
	regDI     protowire.Number = 15
	regOrigAX protowire.Number = 16
	regIP     protowire.Number = 17
	regMode   protowire.Number = 28
)

// Numbers of system calls of x86-64, and how long the instruction is that makes one.
const (
	callNanosleep      = 35
	callClockNanosleep = 230
	callLength         = 2
)

// interrupted is the result that CRIU gives a call which only the kernel, by its own
// state, could continue.
const interrupted = math.MaxUint64 - uint64(unix.EINTR) + 1

// MendSleeps has threads sleep on that slept when they were frozen, in the dump in dir,
// and returns how many there were.
//
// The kernel goes on with a sleep that was interrupted by its own record of it, which
// CRIU cannot read: it has the sleep return EINTR, and programs that do not expect that
// end. But the kernel has left the time that remains where the program asked for it. The
// call is made again with that. A sleep that asked for nothing stays as CRIU has it,
// and so does one that was interrupted before: which call it was is not in the registers.
func MendSleeps(dir string) (int, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "core-*.img"))
	if err != nil {
		return 0, fmt.Errorf("criuimage: %w", err)
	}
	all := 0
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			return all, fmt.Errorf("criuimage: %w", err)
		}
		changed, n, err := mendSleeps(b)
		if err == nil && n > 0 {
			err = replaceFile(path, changed)
		}
		if err != nil {
			return all, fmt.Errorf("criuimage: %s: %w", path, err)
		}
		all += n
	}
	return all, nil
}

func mendSleeps(b []byte) (changed []byte, mended int, err error) {
	cores, err := entries(b, coreMagic)
	if err != nil {
		return nil, 0, err
	}
	mend := func(n protowire.Number, registers []byte) ([]byte, error) {
		if n != threadRegs {
			return registers, nil
		}
		numbers, err := varints(registers)
		again := sleepAgain(numbers)
		if err != nil || again == nil {
			return registers, err
		}
		mended++
		return setVarints(registers, again)
	}
	for i, core := range cores {
		cores[i], err = rewrite(core, func(n protowire.Number, thread []byte) ([]byte, error) {
			if n != coreThread {
				return thread, nil
			}
			return rewrite(thread, mend)
		})
		if err != nil {
			return nil, 0, fmt.Errorf("entry %d: %w", i, err)
		}
	}
	return image(cores, coreMagic), mended, nil
}

// sleepAgain are the registers with which a thread makes its sleep again for the time
// that remains; nil: it does not sleep so.
func sleepAgain(r map[protowire.Number]uint64) map[protowire.Number]uint64 {
	if r[regAX] != interrupted || r[regMode] > 1 { // 2: a program of 32 bits
		return nil
	}
	again := map[protowire.Number]uint64{regAX: r[regOrigAX], regIP: r[regIP] - callLength}
	switch {
	case r[regOrigAX] == callNanosleep && r[regSI] != 0:
		again[regDI] = r[regSI]
	case r[regOrigAX] == callClockNanosleep && r[regSI]&unix.TIMER_ABSTIME == 0 && r[regR10] != 0:
		again[regDX] = r[regR10]
	default:
		return nil
	}
	return again
}
