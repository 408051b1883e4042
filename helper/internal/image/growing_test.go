package image

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

func TestCreateGrowing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "image")
	tg, err := CreateGrowing(path, 8*MiB)
	if err != nil {
		t.Fatal(err)
	}
	defer tg.Close()
	if !tg.Empty() {
		t.Error("a new file is empty")
	}
	length := func() int64 {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	if length() != 0 {
		t.Errorf("%d bytes before anything was written", length())
	}
	if _, err := tg.WriteAt([]byte("data"), 1000); err != nil || length() != 1004 {
		t.Error(length(), err)
	}
	if err := tg.Zero(MiB, MiB); err != nil || length() != 2*MiB {
		t.Errorf("zeroes behind the end make it longer: %d, %v", length(), err)
	}
	if blocks(t, path) > 16 {
		t.Errorf("zeroes behind the end take %d blocks", blocks(t, path))
	}
	if err := tg.Zero(0, 4096); err != nil || length() != 2*MiB {
		t.Errorf("zeroes before the end leave it: %d, %v", length(), err)
	}
	_, err = tg.WriteAt(make([]byte, 2), 8*MiB-1)
	says(t, err, "is outside the image of 8388608 bytes")
	says(t, tg.Zero(8*MiB, 1), "is outside the image of 8388608 bytes")
	if length() != 2*MiB {
		t.Errorf("a refused range made it %d bytes long", length())
	}
	if _, err := CreateGrowing(path, MiB); err == nil {
		t.Error("an existing file was taken")
	}
}

// Writers and zeroes race for the end of the file; it must never become shorter.
func TestGrowingAgainstModel(t *testing.T) {
	const size = 4 * MiB
	const part = size / 4
	path := filepath.Join(t.TempDir(), "image")
	tg, err := CreateGrowing(path, size)
	if err != nil {
		t.Fatal(err)
	}
	defer tg.Close()
	want := make([]byte, size)
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			rnd := rand.New(rand.NewPCG(uint64(w), 7))
			content := noise(64 << 10)
			for i := range 200 {
				off := int64(w)*part + rnd.Int64N(part)
				n := rnd.Int64N(min(int64(len(content)), int64(w+1)*part-off) + 1)
				var err error
				if i%2 == 0 {
					err = tg.Zero(off, n)
					clear(want[off : off+n])
				} else {
					_, err = tg.WriteAt(content[:n], off)
					copy(want[off:], content[:n])
				}
				if err != nil {
					t.Error(err)
				}
			}
		}()
	}
	wg.Wait()
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want[:len(got)]) || len(bytes.Trim(want[len(got):], "\x00")) != 0 {
		t.Error("the file is not what was written to it")
	}
}

// A loop device keeps the file below it sparse.
func TestZeroOnADevicePunchesTheFileBelow(t *testing.T) {
	dev := loop(t, 4*MiB)
	below, err := os.ReadFile("/sys/block/" + filepath.Base(dev) + "/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	path := string(bytes.TrimSpace(below))
	tg, err := OpenTarget(dev, 4*MiB)
	if err != nil {
		t.Fatal(err)
	}
	defer tg.Close()
	if _, err := tg.WriteAt(noise(4*MiB), 0); err != nil {
		t.Fatal(err)
	}
	if err := tg.Datasync(); err != nil {
		t.Fatal(err)
	}
	before := blocks(t, path)
	if err := tg.Zero(MiB, 2*MiB); err != nil {
		t.Fatal(err)
	}
	if after := blocks(t, path); after > before-2*MiB/512 {
		t.Errorf("%d blocks below the device before, %d after 2 MiB were made zero", before, after)
	}
	got := make([]byte, 4*MiB)
	if _, err := source(t, dev).ReadAt(got, 0); err != nil {
		t.Fatal(err)
	}
	want := noise(4 * MiB)
	clear(want[MiB : 3*MiB])
	if !bytes.Equal(got, want) {
		t.Error("the device is not what was written to it")
	}
}

// What a file does not have yet is zeroes, and data once it has it.
func TestOpenGrowing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "image")
	first := bytes.Repeat([]byte{1}, 5000)
	if err := os.WriteFile(path, first, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := OpenGrowing(path, 3*MiB+512)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	want := append(bytes.Clone(first), make([]byte, 3*MiB+512-5000)...)
	check := func() {
		t.Helper()
		for _, at := range []int64{0, 4096, 8192, MiB, 3 * MiB} {
			b := Buffer(int(min(MiB, s.Size()-at)))
			fill(b, 9)
			if n, err := s.ReadAt(b, at); n != len(b) || err != nil || !bytes.Equal(b, want[at:at+int64(n)]) {
				t.Errorf("at %d: %d, %v", at, n, err)
			}
		}
	}
	check()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte("more"), MiB+4095); err != nil {
		t.Fatal(err)
	}
	copy(want[MiB+4095:], "more")
	check()
	if n, err := s.Length(); n != MiB+4099 || err != nil {
		t.Error(n, err)
	}
	_, err = OpenGrowing(path, MiB)
	says(t, err, "grows up to 1048576 at most")
}

func fill(b []byte, v byte) {
	for i := range b {
		b[i] = v
	}
}
