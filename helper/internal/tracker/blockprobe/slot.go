package blockprobe

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/tracker/blockdev"
)

// Slot is one device in a collection: its marks, and how they are laid out.
type Slot struct {
	id     ebpf.MapID // of array; known if it was reopened
	disk   uint64
	array  *ebpf.Map
	shared shared
	base   [levels]uint32 // index of each level's first word
	length [levels]uint32 // in words

	front *ebpf.Map // nil for a device without a request queue
	ahead shared    // its memory
}

// shared is the memory of a map, shared with the kernel.
type shared struct {
	memory []byte
	words  []uint64
}

func mapMemory(m *ebpf.Map) (s shared, err error) {
	bytes := int(m.MaxEntries() * m.ValueSize())
	page := os.Getpagesize()
	s.memory, err = unix.Mmap(m.FD(), 0, (bytes+page-1)/page*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return s, fmt.Errorf("mapping the marks: %w", err)
	}
	s.words = unsafe.Slice((*uint64)(unsafe.Pointer(&s.memory[0])), bytes/8)
	return s, nil
}

func (s *shared) unmap() error {
	if s.memory == nil {
		return nil
	}
	err := unix.Munmap(s.memory)
	s.memory, s.words = nil, nil
	return err
}

// slotSpec is the array of a slot with so many words. Slots of all sizes go into one
// table.
func slotSpec(words uint64) *ebpf.MapSpec {
	return &ebpf.MapSpec{
		Name: "handover_marks", Type: ebpf.Array, KeySize: 4, ValueSize: entrySize,
		MaxEntries: uint32((words + entryWords - 1) / entryWords), Flags: unix.BPF_F_MMAPABLE | unix.BPF_F_INNER_MAP,
	}
}

// frontSpec is the front of a slot. All are of one size: see frontWords.
func frontSpec() *ebpf.MapSpec {
	return &ebpf.MapSpec{
		Name: "handover_front", Type: ebpf.Array, KeySize: 4, ValueSize: frontWords * 8, MaxEntries: 1, Flags: unix.BPF_F_MMAPABLE,
	}
}

// newSlot makes the slot of a device; nothing is marked in it, and no program marks
// in it.
func newSlot(d *blockdev.Device) (_ *Slot, err error) {
	s := &Slot{disk: d.DiskKey()}
	words := uint64(slotMarks)
	for level, n := range levelWords(d.Size(), d.Cluster) {
		s.base[level], s.length[level] = uint32(words), uint32(n)
		words += n
		if words > largestSlot {
			return nil, fmt.Errorf("the map of %s would not fit into memory: choose larger clusters", d.Path)
		}
	}
	if s.array, err = ebpf.NewMap(slotSpec(words)); err != nil {
		return nil, err
	}
	if s.shared, err = mapMemory(s.array); err != nil {
		s.array.Close()
		return nil, err
	}
	if !d.BioBased {
		if s.front, err = ebpf.NewMap(frontSpec()); err == nil {
			s.ahead, err = mapMemory(s.front)
		}
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		w := s.ahead.words
		w[frontDisk], w[frontStart], w[frontEnd] = s.disk, uint64(d.Start), uint64(d.Start+d.Sectors)
		w[frontShift] = uint64(bits.TrailingZeros(uint(d.Cluster)) - 9)
	}
	w := s.shared.words
	var flags uint64
	if d.Partition {
		flags |= flagPart
	}
	if d.BioBased {
		flags |= flagBio
	}
	w[slotDisk] = s.disk
	w[slotStart] = uint64(d.Start)
	w[slotEnd] = uint64(d.Start + d.Sectors)
	w[slotShape] = uint64(bits.TrailingZeros(uint(d.Cluster))-9) | flags<<32
	for level := range levels {
		w[slotBases+level/2] |= uint64(s.base[level]) << (32 * (level % 2))
	}
	return s, nil
}

// levelWords is how many words the levels of a map take.
func levelWords(size int64, cluster int) (words [levels]uint64) {
	n := uint64(size+int64(cluster)-1) / uint64(cluster)
	for level := range levels {
		n = (n + 63) / 64
		words[level] = n
	}
	return words
}

// Close lets go of the slot's maps.
func (s *Slot) Close() error {
	err := errors.Join(s.shared.unmap(), s.array.Close(), s.ahead.unmap())
	if s.front != nil {
		err = errors.Join(err, s.front.Close())
	}
	return err
}
