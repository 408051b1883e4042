package criuimage

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// core is an image of one thread with these registers.
func core(registers map[protowire.Number]uint64) []byte {
	message := func(n protowire.Number, inside []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, n, protowire.BytesType), inside)
	}
	var numbers []byte
	for n := protowire.Number(1); n <= regMode; n++ {
		numbers = protowire.AppendVarint(protowire.AppendTag(numbers, n, protowire.VarintType), registers[n])
	}
	thread := append(protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 77), message(threadRegs, numbers)...)
	return image([][]byte{append(protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 1), message(coreThread, thread)...)}, coreMagic)
}

func TestASleepGoesOnForTheTimeThatRemains(t *testing.T) {
	asleep := map[protowire.Number]uint64{regAX: Interrupted, regIP: 1000, regDI: 11, regSI: 22, regOrigAX: callNanosleep, regMode: 1}
	with := func(changes map[protowire.Number]uint64) map[protowire.Number]uint64 {
		all := maps.Clone(asleep)
		maps.Copy(all, changes)
		return all
	}
	for name, c := range map[string]struct{ registers, again map[protowire.Number]uint64 }{
		"nanosleep": {asleep, with(map[protowire.Number]uint64{regAX: callNanosleep, regIP: 998, regDI: 22})},
		"clock_nanosleep": {
			with(map[protowire.Number]uint64{regOrigAX: callClockNanosleep, regSI: 0, regDX: 33, regR10: 44}),
			with(map[protowire.Number]uint64{regOrigAX: callClockNanosleep, regSI: 0, regDX: 44, regR10: 44, regAX: callClockNanosleep, regIP: 998}),
		},
		"it asked for nothing":  {with(map[protowire.Number]uint64{regSI: 0}), nil},
		"until a point of time": {with(map[protowire.Number]uint64{regOrigAX: callClockNanosleep, regSI: 1, regR10: 44}), nil},
		"poll without end": {
			with(map[protowire.Number]uint64{regOrigAX: callPoll, regDX: 0xffffffff}),
			with(map[protowire.Number]uint64{regOrigAX: callPoll, regDX: 0xffffffff, regAX: callPoll, regIP: 998}),
		},
		"a futex until a point of time": {
			with(map[protowire.Number]uint64{regOrigAX: callFutex, regSI: 128 | futexWaitBitset, regR9: 55}),
			with(map[protowire.Number]uint64{regOrigAX: callFutex, regSI: 128 | futexWaitBitset, regR9: 55, regAX: callFutex, regIP: 998}),
		},
		"poll for a time":                 {with(map[protowire.Number]uint64{regOrigAX: callPoll, regDX: 5000}), nil},
		"a futex for a time":              {with(map[protowire.Number]uint64{regOrigAX: callFutex, regSI: 128}), nil},
		"a futex that is woken":           {with(map[protowire.Number]uint64{regOrigAX: callFutex, regSI: 1}), nil},
		"one that was interrupted before": {with(map[protowire.Number]uint64{regOrigAX: restartCall}), nil},
		"another call":                    {with(map[protowire.Number]uint64{regOrigAX: 1}), nil},
		"no call":                         {with(map[protowire.Number]uint64{regOrigAX: 1<<64 - 1}), nil},
		"it did not sleep":                {with(map[protowire.Number]uint64{regAX: 0}), nil},
		"a program of 32 bits":            {with(map[protowire.Number]uint64{regMode: 2}), nil},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "core-1.img")
		if err := os.WriteFile(path, core(c.registers), 0o640); err != nil {
			t.Fatal(err)
		}
		n, err := MendSleeps(dir)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		want, count := core(c.registers), 0
		if c.again != nil {
			want, count = core(c.again), 1
		}
		if got, _ := os.ReadFile(path); n != count || !bytes.Equal(got, want) {
			t.Errorf("%s: %d mended:\n%x\nnot\n%x", name, n, got, want)
		}
		if info, _ := os.Stat(path); info.Mode().Perm() != 0o640 {
			t.Errorf("%s: the mode is %v", name, info.Mode())
		}
	}
}

func TestABrokenCoreIsAnError(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "core-1.img"), core(nil)[:40], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := MendSleeps(dir); err == nil {
		t.Error("an image that ends within an entry is taken")
	}
}
