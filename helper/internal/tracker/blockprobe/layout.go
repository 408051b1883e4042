package blockprobe

import "github.com/cilium/ebpf"

// The data that the programs share with us. bpf/layout.h has the same numbers, and a
// test holds the two together.

// levels is how many levels of bits a device has; see the package comment.
// A request is at most 4 GiB long, which is 2^20 clusters of the smallest size:
// 2^14 words on level 0, 2^8 on level 1, 4 on level 2, and on level 3 that fits
// into the two words at the edges.
const levels = 4

// copies is how often each marking program is attached; see the package comment.
const copies = 3

// parentDepth is how often a bio may have been split, and the halves again.
const parentDepth = 4

// bioWalk is how many bios of one request are looked at; a request with more
// marks the whole device. Devices take at most 256 ranges in one discard.
const bioWalk = 256

// slotsOfDisk is how many trackers of one disk, whole or in parts, a
// collection can have.
const slotsOfDisk = 32

// A slot is one tracked device to the programs: an array of words of its own. They
// are grouped into the entries of the array, because the kernel gives access to one
// entry at a time; and an entry is large, because each access costs a call. The first
// one describes the tracked device and holds counts, and marks begin in it: all marks
// of a device of 1 GiB are there.
const (
	entryWords = 512
	entrySize  = entryWords * 8
	entryShift = 9 // words to entries

	slotStatus = 0 // statusBits
	slotStart  = 1 // first sector on the disk
	slotEnd    = 2 // first sector behind it
	slotShape  = 3 // low half: sectors to clusters, a shift; high half: flags
	slotBases  = 4 // two words: the index of each level's first word, 32 bits each
	slotDisk   = 6 // whose slot it is; not for the programs
	slotSeen   = 8 // sectors of the disk whose writing was seen to complete: see seenParts
	slotMarks  = slotSeen + seenParts*lineWords

	lineWords = 8 // of a processor's cache
)

// seenParts is the number of parts in which completed sectors are counted, each in a
// cache line of its own, so that processors do not wait for each other's. Which part
// is a processor's own matters for nothing but that.
const seenParts = 8

// A slot of a device with a request queue has a second array, of one entry: the
// front. In it most writes are marked, by mark_front, with no call at all: the kernel
// does not look into arrays of one fixed size by a function, and on a processor
// that is kept from guessing where a function returns to, each call costs more than
// all the rest. It holds what never changes of the slot, counts of its own, and
// level 0 of the first of its clusters (65 GiB at 64 KiB each).
const (
	frontDisk  = 0
	frontStart = 1 // as slotStart
	frontEnd   = 2
	frontShift = 3 // sectors to clusters
	frontSeen  = 8
	frontMarks = frontSeen + seenParts*lineWords
	frontWords = 1 << 14

	// fronts is how many disks can have their slot's front in use, by a number made
	// of the disk's; see mark_front. Two disks with the same one share luck.
	fronts = 1 << 10
)

// frontOf is the place of a disk among the fronts.
func frontOf(disk uint64) uint32 { return uint32(disk+(disk>>32)*frontFactor) % fronts }

const frontFactor = 37

// The words in the map of losses that belong to no slot.
const (
	lostStatus = 0 // statusBits
	lostBios   = 1 // how often all devices without a request queue had to be taken as written
)

// The flags of a slot.
const (
	flagPart = 1 << iota // a partition: writes outside are others' business
	flagBio              // a device without a request queue
	flagMore             // there may be another slot of the same disk
)

// The bits of a status word.
const (
	statusAll      = 1 << iota // the whole device is marked
	statusOutside              // a write was outside the device
	statusFull                 // a bio could not be remembered
	statusDeep                 // a bio went through too many tracked devices
	statusInternal             // an index was outside a map
)

// turns is how many events a processor remembers to have dealt with.
const turns = 256

// The value in the hash of bios is what the bio writes: for each tracked device
// that it was seen on, the disk, the first sector and the length, which is
// -1 for a write without a range. A disk of 0 is none.
const (
	ownersOfBio = 2
	knownSize   = ownersOfBio * 24
)

// bpfMaps are what the programs of one collection share.
type bpfMaps struct {
	table *ebpf.Map // disk and number → slot
	front *ebpf.Map // frontOf(disk) → front of its slot, if it has only one
	lost  *ebpf.Map // one entry: losses that belong to no slot
	turns *ebpf.Map // for each processor, the events that it has dealt with
	bios  *ebpf.Map // bio → its owners; nil as long as no device needs it
}

// tableKey is a key of the table.
type tableKey struct {
	Disk   uint64
	Number uint64
}
