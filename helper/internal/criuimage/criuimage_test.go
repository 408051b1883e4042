package criuimage

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// file is a file_entry with a timerfd in it, as CRIU writes one.
func file(ticks, seconds, nanos, everySecond, everyNano uint64) []byte {
	var timer []byte
	for n, v := range []uint64{1: 7, 2: 2, 4: 1, 5: ticks, 6: 0, 7: seconds, 8: nanos, 9: everySecond, 10: everyNano} {
		if n == 3 { // its owner, a message
			timer = protowire.AppendBytes(protowire.AppendTag(timer, 3, protowire.BytesType), []byte{8, 0})
		} else if n > 0 {
			timer = protowire.AppendVarint(protowire.AppendTag(timer, protowire.Number(n), protowire.VarintType), v)
		}
	}
	entry := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 17)
	entry = protowire.AppendVarint(protowire.AppendTag(entry, 2, protowire.VarintType), 7)
	return protowire.AppendBytes(protowire.AppendTag(entry, fileTimer, protowire.BytesType), timer)
}

// other is an entry of another kind, with a message and numbers in it.
var other = protowire.AppendBytes(protowire.AppendTag([]byte{8, 1, 16, 9}, 2, protowire.BytesType), []byte{8, 3})

func TestPeriodicTimersThatFiredInTheFreezeAreArmed(t *testing.T) {
	for name, c := range map[string]struct{ before, after []byte }{
		"fired, and never read":       {file(1, 0, 0, 0, 100_000_000), file(1, 0, 100_000_000, 0, 100_000_000)},
		"fired, every two seconds":    {file(1, 0, 0, 2, 5), file(1, 2, 5, 2, 5)},
		"under way":                   {file(0, 0, 70_000, 0, 100_000_000), file(0, 0, 70_000, 0, 100_000_000)},
		"under way, with ticks":       {file(3, 1, 0, 2, 0), file(3, 1, 0, 2, 0)},
		"once, and fired":             {file(1, 0, 0, 0, 0), file(1, 0, 0, 0, 0)},
		"disarmed, with its interval": {file(0, 0, 0, 1, 0), file(0, 0, 0, 1, 0)},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "files.img")
		if err := os.WriteFile(path, image([][]byte{other, c.before, other}, filesMagic), 0o640); err != nil {
			t.Fatal(err)
		}
		n, err := MendTimers(dir, nil)
		if want := !bytes.Equal(c.before, c.after); err != nil || (n == 1) != want {
			t.Errorf("%s: %d mended, %v", name, n, err)
		}
		got, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(got, image([][]byte{other, c.after, other}, filesMagic)) {
			t.Errorf("%s: %x, %v", name, got, err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
		if n, err := MendTimers(dir, nil); n != 0 || err != nil {
			t.Errorf("%s, once more: %d, %v", name, n, err)
		}
	}
}

// A timer whose message lacks the time that is left means zero, as any field of protobuf does.
func TestATimerWithoutItsTimeIsArmed(t *testing.T) {
	var timer []byte
	for _, field := range []protowire.Number{timerTicks, everyNanos} {
		timer = protowire.AppendVarint(protowire.AppendTag(timer, field, protowire.VarintType), 9)
	}
	entry := protowire.AppendBytes(protowire.AppendTag(nil, fileTimer, protowire.BytesType), timer)
	changed, n, err := mendTimers(image([][]byte{entry}, filesMagic), nil)
	if err != nil || n != 1 {
		t.Fatalf("%d mended, %v", n, err)
	}
	if _, n, err := mendTimers(changed, nil); err != nil || n != 0 {
		t.Errorf("once more: %d, %v", n, err)
	}
}

func TestADumpWithoutFilesHasNoTimers(t *testing.T) {
	if n, err := MendTimers(t.TempDir(), nil); n != 0 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}

func FuzzMendTimers(f *testing.F) {
	good := image([][]byte{other, file(1, 0, 0, 0, 100)}, filesMagic)
	for _, b := range [][]byte{nil, good, good[:9], good[:len(good)-3], image([][]byte{{0xff}}, filesMagic)} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		changed, n, err := mendTimers(bytes.Clone(b), nil)
		if err != nil {
			return
		}
		if n == 0 && len(b) >= 8 {
			again, m, err := mendTimers(changed, nil)
			if err != nil || m != 0 || !bytes.Equal(again, changed) {
				t.Errorf("%x becomes %x, and then %x, %v", b, changed, again, err)
			}
		}
		if _, m, err := mendTimers(changed, nil); err != nil || m != 0 {
			t.Errorf("mended, %d are left, %v", m, err)
		}
	})
}
