package criuimage

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// numbered is a message of numbers, by their fields.
func numbered(numbers ...uint64) (b []byte) {
	for n := 0; n < len(numbers); n += 2 {
		b = protowire.AppendVarint(protowire.AppendTag(b, protowire.Number(numbers[n]), protowire.VarintType), numbers[n+1])
	}
	return b
}

// Whether a timer of a dump was armed.
func TestATimerOfADump(t *testing.T) {
	for name, c := range map[string]struct {
		entry []byte
		want  Timer
	}{
		"periodic, under way":              {file(0, 1, 0, 2, 0), Timer{Armed: true, Periodic: true}},
		"periodic, fired and not mended":   {file(1, 0, 0, 2, 0), Timer{Armed: true, Periodic: true, Ticks: 1}},
		"periodic, disarmed by its task":   {file(0, 0, 0, 2, 0), Timer{Periodic: true}},
		"once, under way":                  {file(0, 0, 5, 0, 0), Timer{Armed: true}},
		"once, fired":                      {file(1, 0, 0, 0, 0), Timer{Ticks: 1}},
		"never armed, or disarmed by hand": {file(0, 0, 0, 0, 0), Timer{}},
	} {
		dir := t.TempDir()
		for name, b := range map[string][]byte{
			"files.img":    image([][]byte{c.entry}, filesMagic),
			"ids-4.img":    image([][]byte{numbered(1, 1, 2, 9)}, idsMagic),
			"fdinfo-9.img": image([][]byte{numbered(1, 7, 4, 6)}, fdinfoMagic),
		} {
			if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		c.want.Process, c.want.Descriptor, c.want.file = 4, 6, 7
		if got, err := ReadTimers(dir); err != nil || !reflect.DeepEqual(got.Files, []Timer{c.want}) {
			t.Errorf("%s: %+v, %v", name, got.Files, err)
		}
	}
}

func TestTheTimersOfADump(t *testing.T) {
	dir := t.TempDir()
	posix := within(nil, timersPOSIX, numbered(1, 3))
	posix = within(posix, timersPOSIX, numbered(1, 5))
	for name, b := range map[string][]byte{
		"files.img":    image([][]byte{other, file(1, 0, 100, 0, 100)}, filesMagic),
		"ids-4.img":    image([][]byte{numbered(1, 1, 2, 9)}, idsMagic),
		"ids-5.img":    image([][]byte{numbered(1, 2, 2, 9)}, idsMagic), // with the same files
		"fdinfo-9.img": image([][]byte{numbered(1, 9, 4, 0), numbered(1, 7, 4, 6), numbered(1, 7, 4, 8)}, fdinfoMagic),
		"core-4.img":   image([][]byte{within(nil, coreTask, within(nil, taskTimers, posix))}, coreMagic),
		"core-6.img":   image([][]byte{numbered(1, 1)}, coreMagic), // a thread
	} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := Timers{Files: []Timer{{Process: 4, Descriptor: 6, Armed: true, Periodic: true, Ticks: 1, file: 7}}, POSIX: map[int][]int{4: {3, 5}}}
	if got, err := ReadTimers(dir); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := ReadTimers(t.TempDir()); err != nil || len(got.Files) > 0 || len(got.POSIX) > 0 {
		t.Errorf("%+v of none, %v", got, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "core-4.img"), []byte("garbled"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadTimers(dir); err == nil {
		t.Error("a garbled image is taken")
	}
}

// CRIU asked for a timer when it was due, and had not fired: it seems to be disarmed in the dump.
func TestATimerThatWasDueWhenCRIUAsked(t *testing.T) {
	for name, c := range map[string]struct {
		before, after []byte
		ticks         uint64
	}{
		"periodic":                 {file(0, 0, 0, 0, 100), file(2, 0, 100, 0, 100), 2},
		"once":                     {file(0, 0, 0, 0, 0), file(1, 0, 0, 0, 0), 1},
		"disarmed by its task":     {file(0, 0, 0, 0, 100), file(0, 0, 0, 0, 100), 0},
		"with time left":           {file(0, 1, 0, 0, 100), file(0, 1, 0, 0, 100), 3},
		"it had fired, and is so":  {file(1, 0, 0, 0, 0), file(1, 0, 0, 0, 0), 3},
		"it had fired, once a day": {file(1, 0, 0, 86400, 0), file(1, 86400, 0, 86400, 0), 3},
	} {
		dir := t.TempDir()
		for name, b := range map[string][]byte{
			"files.img":    image([][]byte{other, c.before}, filesMagic),
			"ids-4.img":    image([][]byte{numbered(1, 1, 2, 9)}, idsMagic),
			"fdinfo-9.img": image([][]byte{numbered(1, 7, 4, 6)}, fdinfoMagic),
		} {
			if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		n, err := MendTimers(dir, func(timer Timer) (uint64, error) {
			if timer.Process != 4 || timer.Descriptor != 6 {
				t.Errorf("%s: asked for is %+v", name, timer)
			}
			return c.ticks, nil
		})
		got, _ := os.ReadFile(filepath.Join(dir, "files.img"))
		if want := image([][]byte{other, c.after}, filesMagic); err != nil || !bytes.Equal(got, want) || (n == 1) == bytes.Equal(c.before, c.after) {
			t.Errorf("%s: %d mended, %v: %x and not %x", name, n, err, got, want)
		}
	}
}
