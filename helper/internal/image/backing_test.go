package image

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// readFrom is how many bytes were read from a loop device so far, as the kernel counts them.
func readFrom(t *testing.T, dev string) int64 {
	t.Helper()
	stat, err := os.ReadFile("/sys/block/" + filepath.Base(dev) + "/stat")
	if err != nil {
		t.Fatal(err)
	}
	sectors, err := strconv.ParseInt(strings.Fields(string(stat))[2], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return sectors * 512
}

func TestHolesOfALoopDeviceAreNotReadFromIt(t *testing.T) {
	dev := loop(t, 16*MiB, "--direct-io=on")
	want := make([]byte, 16*MiB)
	copy(want[3*MiB:], noise(MiB))
	copy(want[9*MiB+512:], noise(512))
	w, err := os.OpenFile(dev, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for _, at := range []int64{3 * MiB, 9 * MiB} {
		if _, err := w.WriteAt(want[at:at+MiB], at); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Fallocate(int(w.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 9*MiB+8192, MiB-8192); err != nil {
		t.Fatal(err)
	}
	s := source(t, dev)
	if !s.below.recent {
		t.Skip("the file system of the temporary folder is none whose holes are trusted")
	}
	before := readFrom(t, dev)
	got := bytes.Repeat([]byte{1}, 16*MiB)
	for _, size := range []int64{MiB, 512, 5*MiB + 512} { // more than the sizes, off their boundaries, too
		for at := int64(0); at < 16*MiB; at += size {
			n := min(size, 16*MiB-at)
			if _, err := s.ReadAt(got[at:at+n], at); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("in pieces of %d: it is not what was written", size)
		}
		if size == MiB {
			if read := readFrom(t, dev) - before; read > MiB+64<<10 {
				t.Errorf("%d bytes were read from the device, %d of it are data", read, MiB+8192)
			}
		}
	}
}

// What was written, given back or is still in the device's cache a moment ago is what is
// read, whoever holds the device open.
func TestReadingALoopDeviceSeesWhatWasWrittenAMomentAgo(t *testing.T) {
	for _, direct := range []string{"on", "off"} {
		t.Run("direct-io="+direct, func(t *testing.T) {
			const size = 8 * MiB
			dev := loop(t, size, "--direct-io="+direct)
			cached, err := os.OpenFile(dev, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer cached.Close()
			past, err := os.OpenFile(dev, os.O_RDWR|unix.O_DIRECT, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer past.Close()
			if _, err := cached.WriteAt(noise(4096), 5*MiB); err != nil {
				t.Fatal(err)
			}
			s := source(t, dev)
			if start, _, err := s.NextData(0); err != nil || start != 5*MiB {
				t.Errorf("data begins at %d, %v: what the device's cache held is in a hole", start, err)
			}
			want := make([]byte, size)
			copy(want[5*MiB:], noise(4096))
			r := rand.New(rand.NewPCG(1, 2))
			data, buffer := noise(256<<10), Buffer(256<<10)
			for n := range 600 {
				at := r.Int64N(size/Align) * Align
				length := min(1+r.Int64N(64), (size-at)/Align) * Align
				from := r.Int64N(int64(len(data)) - length + 1)
				var err error
				switch r.IntN(4) {
				case 0:
					clear(want[at : at+length])
					err = unix.Fallocate(int(past.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, length)
				case 1:
					copy(want[at:at+length], data[from:])
					_, err = cached.WriteAt(want[at:at+length], at)
				default:
					copy(want[at:at+length], data[from:])
					copy(buffer, want[at:at+length])
					_, err = past.WriteAt(buffer[:length], at)
				}
				if err != nil {
					t.Fatal(err)
				}
				got := Buffer(int(length))
				if _, err := s.ReadAt(got, at); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(got, want[at:at+length]) {
					t.Fatalf("step %d: %d bytes at %d are not what was written a moment ago", n, length, at)
				}
			}
		})
	}
}

// A page that is written and given back all the time is what it was or zeroes, and the
// answers about holes that do not fit together are no error.
func TestReadingALoopDeviceWhileItIsGivenBack(t *testing.T) {
	dev := loop(t, 2*MiB, "--direct-io=on")
	w, err := os.OpenFile(dev, os.O_RDWR|unix.O_DIRECT, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	page := Buffer(Align)
	copy(page, noise(Align))
	enough, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-enough:
				ended <- nil
				return
			default:
			}
			if _, err := w.WriteAt(page, MiB); err != nil {
				ended <- err
				return
			}
			if err := unix.Fallocate(int(w.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, MiB, Align); err != nil {
				ended <- err
				return
			}
		}
	}()
	s := source(t, dev)
	got := Buffer(2 * Align)
	for range 20000 {
		if n, err := s.ReadAt(got, MiB); err != nil || n != len(got) {
			t.Errorf("%d bytes, %v", n, err)
			break
		}
		if first := got[:Align]; !bytes.Equal(first, page) && len(bytes.Trim(first, "\x00")) != 0 || len(bytes.Trim(got[Align:], "\x00")) != 0 {
			t.Error("it is neither what was written nor zeroes")
			break
		}
	}
	close(enough)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

func TestWhatAStretchBeginsWith(t *testing.T) {
	const off, n = 8 * Align, 4 * Align
	for name, c := range map[string]struct {
		start, end int64
		err        error
		data       bool
		length     int
	}{
		"all of it is data":             {off, off + 2*n, nil, true, n},
		"data, then a hole":             {off, off + Align, nil, true, Align},
		"data to within a page":         {off, off + Align + 512, nil, true, 2 * Align},
		"a hole, then data":             {off + Align, off + n, nil, false, Align},
		"a hole to within a page":       {off + Align + 512, off + n, nil, false, Align},
		"data within the first page":    {off + 512, off + 1024, nil, true, Align},
		"a hole, and data behind it":    {off + 2*n, off + 3*n, nil, false, n},
		"a hole to the end":             {0, 0, io.EOF, false, n},
		"nobody knows":                  {0, 0, unix.EIO, true, n},
		"given back while it was asked": {off, off, nil, true, n},
	} {
		t.Run(name, func(t *testing.T) {
			data, length := leads(off, n, func(int64) (int64, int64, error) { return c.start, c.end, c.err })
			if data != c.data || length != c.length {
				t.Errorf("data %v, %d bytes; should be %v, %d", data, length, c.data, c.length)
			}
		})
	}
}

func TestWide(t *testing.T) {
	for _, size := range []int{1, 4096, 1 << 20, 3<<20 + 1} {
		buffers := Wide(3, size)
		for i, b := range buffers {
			if len(b) != roundUp(size) || cap(b) != len(b) || !aligned(b) {
				t.Errorf("%d: length %d, capacity %d, aligned %v", size, len(b), cap(b), aligned(b))
			}
			for j := range b {
				b[j] = byte(i + 1)
			}
		}
		for i, b := range buffers {
			if bytes.Count(b, []byte{byte(i + 1)}) != len(b) {
				t.Errorf("%d: buffer %d lies in another", size, i)
			}
		}
	}
}

// Memory that lies together is filled by one request. Whether the kernel has huge pages
// left is its own affair: that they are asked for, and what comes of those it gave.
func TestAMegabyteIsReadWithOneRequest(t *testing.T) {
	if _, err := os.Stat("/sys/kernel/mm/transparent_hugepage"); err != nil {
		t.Skip("the kernel knows no huge pages")
	}
	dev := loop(t, 8*MiB, "--direct-io=on")
	command(t, "dd", "if=/dev/urandom", "of="+dev, "bs=1M", "count=8", "oflag=direct")
	s := source(t, dev)
	requests := func() int {
		stat, err := os.ReadFile("/sys/block/" + filepath.Base(dev) + "/stat")
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.Atoi(strings.Fields(string(stat))[0])
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	buffers := Wide(8, MiB)
	for _, b := range buffers {
		clear(b)
	}
	flags, huge := mapping(t, uintptr(unsafe.Pointer(&buffers[0][0])))
	if !slices.Contains(flags, "hg") {
		t.Errorf("no huge pages are asked for: %v", flags)
	}
	before := requests()
	for i, b := range buffers {
		if _, err := s.ReadAt(b, int64(i)*MiB); err != nil {
			t.Fatal(err)
		}
	}
	n := requests() - before
	t.Logf("%d requests for 8 reads of 1 MiB into %d bytes of huge pages", n, huge)
	if huge >= 8*MiB && n > 8 {
		t.Errorf("%d requests for 8 reads of 1 MiB", n)
	}
}

// mapping is what the kernel says of the mapping that an address is in: its flags, and
// how many bytes of it are huge pages.
func mapping(t *testing.T, address uintptr) (flags []string, huge int) {
	t.Helper()
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	within := false
	for line := range strings.Lines(string(smaps)) {
		var from, to uintptr
		if n, _ := fmt.Sscanf(line, "%x-%x ", &from, &to); n == 2 {
			within = from <= address && address < to
		}
		switch name, rest, _ := strings.Cut(line, ":"); {
		case !within:
		case name == "AnonHugePages":
			if _, err := fmt.Sscanf(rest, "%d kB", &huge); err != nil {
				t.Fatal(err)
			}
			huge <<= 10
		case name == "VmFlags":
			return strings.Fields(rest), huge
		}
	}
	t.Fatalf("nothing is mapped at %#x", address)
	return nil, 0
}
