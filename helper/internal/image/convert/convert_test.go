package convert

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/image"
	"github.com/livefleet/handover/helper/internal/image/ploop"
)

func qemu(t *testing.T, args ...string) {
	t.Helper()
	if _, err := exec.LookPath(args[0]); err != nil {
		t.Skipf("needs %s, from qemu-utils", args[0])
	}
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// A ploop image that QEMU wrote, converted here, is the disk that QEMU converts.
func TestFromPloop(t *testing.T) {
	dir := t.TempDir()
	hds, raw := filepath.Join(dir, "root.hds"), filepath.Join(dir, "qemu.raw")
	qemu(t, "qemu-img", "create", "-q", "-f", "parallels", hds, "100M")
	qemu(t, "qemu-io", "-f", "parallels", "-c", "write -q -P 0x11 0 64k", "-c", "write -q -z 90M 3M", "-c", "write -q -P 0x22 70M 5000k", "-c", "write -q -P 0x33 99M 1M", hds)
	qemu(t, "qemu-img", "convert", "-f", "parallels", "-O", "raw", hds, raw)
	for _, format := range Formats {
		img, _, err := ploop.Open(hds, "")
		if err != nil {
			t.Fatal(err)
		}
		out := filepath.Join(dir, "out."+format)
		s, err := Convert(context.Background(), img, format, out)
		if err != nil {
			t.Fatal(err)
		}
		img.Close()
		if s.Size != 100<<20 || s.Written > 7<<20 || s.Written < 6<<20 {
			t.Errorf("%s: %+v", format, s)
		}
		qemu(t, "qemu-img", "compare", "-q", "-f", "raw", "-F", format, raw, out)
		if format == QCOW2 {
			qemu(t, "qemu-img", "check", "-q", "-f", format, out)
		}
		var st unix.Stat_t
		if err := unix.Stat(out, &st); err != nil || st.Blocks*512 > 8<<20 || st.Mode&0o777 != 0o600 {
			t.Errorf("%s: %d blocks, mode %o: %v", format, st.Blocks, st.Mode&0o777, err)
		}
	}
}

// disk is a model; its data is where it says.
type disk struct {
	b       []byte
	extents [][2]int64
	fail    int64 // reading from here on fails, if it is not 0
}

func (d *disk) Path() string { return "model" }
func (d *disk) Size() int64  { return int64(len(d.b)) }
func (d *disk) ReadAt(p []byte, off int64) (int, error) {
	if d.fail != 0 && off+int64(len(p)) > d.fail {
		return 0, errors.New("the disk is broken")
	}
	return copy(p, d.b[off:]), nil
}
func (d *disk) NextData(off int64) (int64, int64, error) {
	for _, e := range d.extents {
		if e[1] > off {
			return max(off, e[0]), e[1], nil
		}
	}
	return 0, 0, io.EOF
}

func model(seed uint64) *disk {
	rnd := rand.New(rand.NewPCG(seed, 2))
	d := &disk{b: make([]byte, (1+rnd.Int64N(8000))*512)}
	for off := rnd.Int64N(100_000); off < d.Size(); off += rnd.Int64N(400_000) + 1 {
		end := min(off+1+rnd.Int64N(300_000), d.Size())
		d.extents = append(d.extents, [2]int64{off, end})
		if rnd.IntN(3) > 0 { // else data that is zeroes
			for i := off; i < end; i++ {
				d.b[i] = byte(rnd.Uint32())
			}
		}
		off = end
	}
	return d
}

// Extents that begin and end anywhere, none of which may be lost or written twice.
func TestModels(t *testing.T) {
	dir := t.TempDir()
	for seed := range uint64(100) {
		d := model(seed)
		for _, format := range Formats {
			out := filepath.Join(dir, format)
			if _, err := Convert(context.Background(), d, format, out); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if format == QCOW2 {
				if seed >= 10 {
					os.Remove(out)
					continue // QEMU is slow to start
				}
				qemu(t, "qemu-img", "convert", "-f", "qcow2", "-O", "raw", out, out+".raw")
				os.Remove(out)
				out += ".raw"
			}
			got, err := os.ReadFile(out)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, d.b) {
				t.Errorf("seed %d: %s is another disk", seed, format)
			}
			os.Remove(out)
		}
	}
}

func TestNothingIsLeft(t *testing.T) {
	dir := t.TempDir()
	d := model(1)
	d.fail = d.Size() / 2
	gone, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("told to stop"))
	for _, format := range Formats {
		out := filepath.Join(dir, format)
		_, err := Convert(context.Background(), d, format, out)
		says(t, err, "the disk is broken")
		nothing(t, out)
		_, err = Convert(gone, model(1), format, out)
		says(t, err, "told to stop")
		nothing(t, out)
		if err := os.WriteFile(out, []byte("mine"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err = Convert(context.Background(), model(1), format, out)
		says(t, err, "exists already, and a new image never replaces a file")
		if b, _ := os.ReadFile(out); string(b) != "mine" {
			t.Error("a file that was there was changed")
		}
	}
	out := filepath.Join(dir, "vmdk")
	_, err := Convert(context.Background(), model(1), "vmdk", out)
	says(t, err, `the format "vmdk" is not one of raw, qcow2`)
	nothing(t, out)
	odd := &disk{b: make([]byte, 1000)}
	_, err = Convert(context.Background(), odd, QCOW2, out)
	says(t, err, "a disk of 1000 bytes: a whole number of sectors is needed")
	nothing(t, out)
}

func nothing(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s was left behind: %v", path, err)
	}
}

func says(t *testing.T, err error, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("%v\n  should say %q", err, text)
	}
}

var _ Disk = (*image.Source)(nil)
