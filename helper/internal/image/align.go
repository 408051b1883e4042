package image

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Align is O_DIRECT's demand on addresses, offsets and lengths. The kernel asks for
// the logical block size of the device, which is at most a page on all that we meet;
// a page is always enough.
const Align = 4096

// hugePage is the size of a huge page on the machines we run on.
const hugePage = 2 << 20

// Wide returns n buffers of size bytes each, side by side and aligned, in huge pages
// where the kernel has some to spare. A request to a device names the memory that it
// fills in at most 128 segments, which is the default of block/blk-settings.c: single
// pages from here and there make that 512 KiB, and a read of 1 MiB three requests;
// pages that lie together make it one. Where a disk is limited by its requests, that
// is how much faster it is read. The memory is only there once it is used.
func Wide(n, size int) [][]byte {
	size = roundUp(size)
	b := make([]byte, n*size+hugePage)
	b = b[offBoundary(b, hugePage):]
	b = b[:n*size]
	if whole := len(b) / hugePage * hugePage; whole > 0 {
		// Best effort: without it everything works as before.
		_ = unix.Madvise(b[:whole], unix.MADV_HUGEPAGE)
	}
	buffers := make([][]byte, n)
	for i := range buffers {
		buffers[i] = b[i*size : (i+1)*size : (i+1)*size]
	}
	return buffers
}

// offBoundary is how far it is from the beginning of b to the next multiple of size.
func offBoundary(b []byte, size int) int {
	over := int(uintptr(unsafe.Pointer(&b[0])) % uintptr(size))
	return (size - over) % size
}

// Buffer returns n bytes that begin on an Align boundary, with room for n
// rounded up to a multiple of Align.
func Buffer(n int) []byte {
	size := roundUp(n)
	b := make([]byte, size+Align)
	skip := offBoundary(b, Align)
	return b[skip : skip+n : skip+size]
}

func roundUp(n int) int { return (n + Align - 1) / Align * Align }

func aligned(p []byte) bool {
	return len(p) > 0 && uintptr(unsafe.Pointer(&p[0]))%Align == 0
}
