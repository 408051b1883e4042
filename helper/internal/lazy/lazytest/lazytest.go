// Package lazytest plays CRIU's part in lazy pages: a task whose memory stands still, a
// dump that leaves it there, and a task that is restored without it.
package lazytest

import (
	"encoding/binary"
	"fmt"
	"net"
	"unsafe"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/encoding/protowire"
)

// Where both tasks have their memory, and how much. The last page of each 64 is not in the
// dump, nor are the last 32.
const (
	Base     = 0x7e00_0000_0000
	Pages    = 1024
	PageSize = 4 << 10
	Size     = Pages * PageSize
)

func dumped(page int) bool { return page%64 != 63 && page < Pages-32 }

func content(page int) byte { return byte(page%251) + 1 }

// Want is the expected content of a page in the end.
func Want(page int) byte {
	if dumped(page) {
		return content(page)
	}
	return 0
}

// At is memory that was mapped by hand.
func At(at uintptr) []byte { return unsafe.Slice(*(**byte)(unsafe.Pointer(&at)), Size) }

// Map maps it.
func Map() ([]byte, error) {
	at, _, errno := unix.Syscall6(unix.SYS_MMAP, Base, Size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_FIXED_NOREPLACE, ^uintptr(0), 0)
	if errno != 0 {
		return nil, errno
	}
	return At(at), nil
}

// Fill is for the task that stands still.
func Fill(m []byte) {
	for page := range Pages {
		for i := page * PageSize; i < (page+1)*PageSize; i++ {
			m[i] = content(page)
		}
	}
}

// Check says of a range of pages whether each has the expected content.
func Check(m []byte, first, end int, holds func(int) byte) error {
	for n := first; n < end; n++ {
		if a, b := m[n*PageSize], m[n*PageSize+PageSize-1]; a != holds(n) || b != holds(n) {
			return fmt.Errorf("page %d begins with %d and ends with %d, and should with %d", n, a, b, holds(n))
		}
	}
	return nil
}

// HandOver hands over the memory of a restored task as CRIU does: pid is the ID that the
// task had. It returns a function that does CRIU's last step when all is restored, and
// the descriptor.
func HandOver(socket string, pid uint32) (restored func() error, fd int, err error) {
	uffd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|unix.O_NONBLOCK, 0, 0)
	if errno != 0 {
		return nil, -1, fmt.Errorf("userfaultfd: %w", errno)
	}
	api := [3]uint64{0xaa, 1<<1 | 1<<2 | 1<<3 | 1<<6, 0} // fork, remap, remove, unmap
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uffd, 0xc018aa3f, uintptr(unsafe.Pointer(&api))); errno != 0 {
		return nil, -1, fmt.Errorf("UFFDIO_API: %w", errno)
	}
	register := [4]uint64{Base, Size, 1, 0}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uffd, 0xc020aa00, uintptr(unsafe.Pointer(&register))); errno != 0 {
		return nil, -1, fmt.Errorf("UFFDIO_REGISTER: %w", errno)
	}
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return nil, -1, err
	}
	zombie := int32(-77)
	for _, id := range []uint32{uint32(zombie), pid} {
		if _, err := c.Write(binary.NativeEndian.AppendUint32(nil, id)); err != nil {
			return nil, -1, err
		}
	}
	if _, _, err := c.WriteMsgUnix([]byte{0}, unix.UnixRights(int(uffd)), nil); err != nil {
		return nil, -1, err
	}
	return func() error {
		_, err := c.Write(binary.NativeEndian.AppendUint32(nil, 0x52535446))
		return err
	}, int(uffd), nil
}

// Pagemap is that of the dump.
func Pagemap() []byte {
	b := binary.LittleEndian.AppendUint32(nil, 0x54564319)
	b = binary.LittleEndian.AppendUint32(b, 0x56084025)
	put := func(entry []byte) {
		b = append(binary.LittleEndian.AppendUint32(b, uint32(len(entry))), entry...)
	}
	put([]byte{8, 1})
	for first := 0; first < Pages; first++ {
		end := first
		for end < Pages && dumped(end) {
			end++
		}
		if end == first {
			continue
		}
		var e []byte
		for field, value := range map[protowire.Number]uint64{1: uint64(Base + first*PageSize), 2: uint64(end - first), 4: 2, 5: uint64(end - first)} {
			e = protowire.AppendVarint(protowire.AppendTag(e, field, protowire.VarintType), value)
		}
		put(e)
		first = end
	}
	return b
}
