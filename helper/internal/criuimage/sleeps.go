package criuimage

import (
	"fmt"
	"os"
	"path/filepath"

	"google.golang.org/protobuf/encoding/protowire"
)

const coreMagic = 0x55053847

// Of core.proto: core_entry has a thread of x86 in field 2. Of core-x86.proto: that has
// the registers in field 2, and these their fields.
const (
	coreThread protowire.Number = 2
	threadRegs protowire.Number = 2

	regR10    protowire.Number = 8
	regR9     protowire.Number = 9
	regR8     protowire.Number = 10
	regAX     protowire.Number = 11
	regDX     protowire.Number = 13
	regSI     protowire.Number = 14
	regDI     protowire.Number = 15
	regOrigAX protowire.Number = 16
	regIP     protowire.Number = 17
	regMode   protowire.Number = 28
)

// MendSleeps has threads wait on that waited when they were frozen, in the dump in dir,
// and returns how many there were.
//
// The kernel goes on with a wait that was interrupted by its own record of it, which
// CRIU cannot read: it has the wait return EINTR, and programs that do not expect that
// end. So the call is made again, if it is known how: see waits. One that was interrupted
// before stays as CRIU has it: which call it was is not in the registers.
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
		again := waitAgain(numbers)
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

// argumentRegs have the arguments of a call, in their order.
var argumentRegs = [...]protowire.Number{regDI, regSI, regDX, regR10, regR8, regR9}

// waitAgain are the registers with which a thread makes its call again; nil: it does not
// wait so.
func waitAgain(r map[protowire.Number]uint64) map[protowire.Number]uint64 {
	if r[regMode] > 1 { // 2: a program of 32 bits
		return nil
	}
	call := Call{Number: r[regOrigAX], Result: r[regAX], Next: r[regIP]}
	for i, register := range argumentRegs {
		call.Args[i] = r[register]
	}
	call, ok := call.Again()
	if !ok {
		return nil
	}
	again := map[protowire.Number]uint64{regAX: call.Result, regIP: call.Next}
	for i, register := range argumentRegs {
		if call.Args[i] != r[register] {
			again[register] = call.Args[i]
		}
	}
	return again
}
