package image

import (
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mincore counts the pages of a mapping that are in memory.
func mincore(t *testing.T, m []byte) int {
	t.Helper()
	vec := make([]byte, len(m)/unix.Getpagesize())
	if _, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&m[0])), uintptr(len(m)), uintptr(unsafe.Pointer(&vec[0]))); errno != 0 {
		t.Fatal(errno)
	}
	n := 0
	for _, v := range vec {
		n += int(v & 1)
	}
	return n
}
