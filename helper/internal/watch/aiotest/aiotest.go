// Package aiotest writes to files by the kernel's old asynchronous I/O (io_submit), of
// which fanotify has no event.
package aiotest

import (
	"os"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// control is a struct iocb, as in linux/aio_abi.h.
type control struct {
	data       uint64
	key, flags uint32
	opcode     uint16
	priority   int16
	fd         uint32
	buf, bytes uint64
	offset     int64
	_          uint64
	_, _       uint32
}

const pwrite = 1 // IOCB_CMD_PWRITE

// New sets asynchronous I/O up, until the test's end. The test is skipped where the kernel
// has none.
func New(t *testing.T) (write func(f *os.File, data []byte)) {
	t.Helper()
	var context uintptr
	if _, _, e := unix.Syscall(unix.SYS_IO_SETUP, 1, uintptr(unsafe.Pointer(&context)), 0); e != 0 {
		t.Skipf("this kernel has no asynchronous I/O: %v", e)
	}
	t.Cleanup(func() { _, _, _ = unix.Syscall(unix.SYS_IO_DESTROY, context, 0, 0) })
	return func(f *os.File, data []byte) {
		t.Helper()
		one := &control{opcode: pwrite, fd: uint32(f.Fd()), buf: uint64(uintptr(unsafe.Pointer(&data[0]))), bytes: uint64(len(data))}
		list := uintptr(unsafe.Pointer(one))
		if n, _, e := unix.Syscall(unix.SYS_IO_SUBMIT, context, 1, uintptr(unsafe.Pointer(&list))); n != 1 {
			t.Fatalf("io_submit: %v", e)
		}
		runtime.KeepAlive(data)
		runtime.KeepAlive(one)
	}
}
