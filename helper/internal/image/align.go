package image

import (
	"unsafe"
)

// Align is what O_DIRECT wants of addresses, offsets and lengths. The kernel
// asks for the logical block size of the device, which is at most a page on all
// that we meet; a page is always enough.
const Align = 4096

// Buffer returns n bytes that begin on an Align boundary, with room for n
// rounded up to a multiple of Align.
func Buffer(n int) []byte {
	size := roundUp(n)
	b := make([]byte, size+Align)
	skip := 0
	if over := int(uintptr(unsafe.Pointer(&b[0])) % Align); over != 0 {
		skip = Align - over
	}
	return b[skip : skip+n : skip+size]
}

func roundUp(n int) int { return (n + Align - 1) / Align * Align }

func aligned(p []byte) bool {
	return len(p) > 0 && uintptr(unsafe.Pointer(&p[0]))%Align == 0
}
