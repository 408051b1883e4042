package nbd

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func open(t *testing.T, flags uint16, answer []byte, size int64) (*Disk, error) {
	return OpenDisk(Scheme+"/vda?socket="+serveWith(t, flags, answer, nil), size)
}

func TestADiskThatCannotBeWrittenIsRefused(t *testing.T) {
	for want, at := range map[string]struct {
		flags uint16
		size  int64
	}{
		"does not let it be written, zeroed and flushed": {writeable | readOnly, 4096},
		"written, zeroed and flushed":                    {canZero, 4096},
		"has 4096 bytes, and the disk to be written has": {writeable, 8192},
	} {
		if _, err := open(t, at.flags, nil, at.size); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, not %s", err, want)
		}
	}
	for _, address := range []string{Scheme + "/vda", Scheme + "host/vda?socket=/x", Scheme + "%zz"} {
		if _, err := OpenDisk(address, 4096); err == nil {
			t.Errorf("%s is no address", address)
		}
	}
	if Is("/srv/nbd+unix://") || !Is(Scheme+"/vda?socket=/x") {
		t.Error("a path is not told from an address")
	}
}

// A write counts when the server has said so, with structure or without.
func TestAWriteIsAcknowledged(t *testing.T) {
	simple := func(number uint32, cookie uint64) []byte {
		return append(append(u32(simpleMagic), u32(number)...), u64(cookie)...)
	}
	for _, at := range []struct {
		name, err string
		answer    []byte
	}{
		{"without structure", "", simple(0, 1)},
		{"with structure", "", append(reply(chunkNone, 0, 1), reply(chunkNone, flagDone, 1)...)},
		{"no room", "refused the request with error 28", simple(28, 1)},
		{"no room, with structure", "error 28: full", reply(chunkError|1, flagDone, 1, u32(28), []byte{0, 4}, []byte("full"))},
		{"of another request", "a reply to the request 2", simple(0, 2)},
		{"data", "in the reply to a write", reply(chunkData, flagDone, 1, u64(0), []byte{1})},
		{"both", "without structure in the middle", append(reply(chunkNone, 0, 1), simple(0, 1)...)},
		{"nothing", "EOF", nil},
		{"noise", "is none of NBD", []byte("HTTP/1.1 400 Bad Request")},
	} {
		t.Run(at.name, func(t *testing.T) {
			d, err := open(t, writeable, at.answer, 4096)
			if err != nil {
				t.Fatal(err)
			}
			if at.answer == nil {
				d.c.Interrupt()
			}
			defer d.Close()
			if err = d.Datasync(); at.err == "" && err != nil || at.err != "" && at.answer != nil && (err == nil || !strings.Contains(err.Error(), at.err)) || at.answer == nil && err == nil {
				t.Fatalf("%v, not %s", err, at.err)
			}
		})
	}
	d, err := open(t, writeable, nil, 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, err := d.WriteAt(make([]byte, 512), 4096); err == nil || d.Zero(0, 4608) == nil || d.Zero(-1, 1) == nil {
		t.Error("a write beyond the disk is not refused")
	}
}

// acknowledge answers each request after the handshake, and tells of its command.
func acknowledge(t *testing.T, wait func(command uint16)) (*Disk, func() []uint16) {
	t.Helper()
	here, there := net.Pipe()
	var mu sync.Mutex
	var got []uint16
	go func() {
		for {
			head := make([]byte, 28)
			if _, err := io.ReadFull(there, head); err != nil {
				return
			}
			command := binary.BigEndian.Uint16(head[6:])
			if command == cmdWrite {
				_, _ = io.CopyN(io.Discard, there, int64(binary.BigEndian.Uint32(head[24:])))
			}
			mu.Lock()
			got = append(got, command)
			mu.Unlock()
			wait(command)
			_, _ = there.Write(append(append(u32(simpleMagic), u32(0)...), head[8:16]...))
		}
	}()
	t.Cleanup(func() { _, _ = here.Close(), there.Close() })
	return &Disk{c: &Client{conn: here, size: 4096}}, func() []uint16 {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(got)
	}
}

// The last flush never has much more to wait for than that.
func TestADiskIsFlushedWhileItIsWritten(t *testing.T) {
	defer func(n int64) { flushEach = n }(flushEach)
	flushEach = 2048
	d, got := acknowledge(t, func(uint16) {})
	for range 5 {
		if _, err := d.WriteAt(make([]byte, 1024), 0); err != nil {
			t.Fatal(err)
		}
	}
	if want := []uint16{cmdWrite, cmdWrite, cmdFlush, cmdWrite, cmdWrite, cmdFlush, cmdWrite}; !slices.Equal(got(), want) {
		t.Errorf("%v, not %v", got(), want)
	}
	if d.Datasync() != nil || d.written != 0 {
		t.Error("it is not flushed in the end")
	}
}

// A flush may take longer than any other answer, and only a flush.
func TestAFlushHasItsOwnLimit(t *testing.T) {
	defer func(d time.Duration) { Patience = d }(Patience)
	Patience = 50 * time.Millisecond
	d, _ := acknowledge(t, func(uint16) { time.Sleep(200 * time.Millisecond) })
	if err := d.Datasync(); err != nil {
		t.Error(err)
	}
	if _, err := d.WriteAt(make([]byte, 512), 0); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a write that takes as long: %v", err)
	}
	if FlushPatience < 30*time.Minute {
		t.Error("a flush of some GiB may take longer")
	}
}
