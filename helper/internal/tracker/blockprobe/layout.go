package blockprobe

import "github.com/cilium/ebpf"

// The programs, in the kernel's own instructions: so few that a compiler, which would
// then have to be there when this is built, is not worth it. The kernel knows the
// types of their arguments (BTF), so they follow its pointers directly, which costs
// next to nothing; where a pointer leads nowhere, zeroes are read.
//
// A program finds the written ranges, and calls the function mark for each, which
// calls mark_slot for each slot of the disk. Both are global in the sense of BPF: the
// verifier looks at them once by themselves, and not again at each of the places and
// turns of a loop that call them, which makes a thousand instructions to verify out
// of a million.
//
// The builder's methods make the parts that programs have in common. Those that can
// end a program jump to one of the labels of its tail: exit, full, deep, internal,
// long.

// levels is how many levels of bits a device has; see the package comment.
// A request is at most 4 GiB long, which is 2^20 clusters of the smallest size:
// 2^14 words on level 0, 2^8 on level 1, 4 on level 2, and on level 3 that fits
// into the two words at the edges.
const levels = 4

// copies is how often each marking program is attached; see the package comment.
const copies = 3

// bioWalk is how many bios of one request are looked at; a request with more
// marks the whole device. Devices take at most 256 ranges in one discard.
const bioWalk = 256

// slotsOfDisk is how many trackers of one disk, whole or in parts, a load can
// have.
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
// front. In it most writes are marked, by fast, with no call at all: the kernel does
// not look into arrays of one fixed size by a function, and on a processor that is
// kept from guessing where a function returns to, each call costs more than all the
// rest. It holds the constant part of the slot, counts of its own, and level 0 of the
// first of its clusters (65 GiB at 64 KiB each).
const (
	frontDisk  = 0
	frontStart = 1 // as slotStart
	frontEnd   = 2
	frontShift = 3 // sectors to clusters
	frontSeen  = 8
	frontMarks = frontSeen + seenParts*lineWords
	frontWords = 1 << 14

	// fronts is how many disks can have their slot's front in use, by a number made
	// of the disk's; see builder.fast. Two disks with the same one share luck.
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

// The reasons to call mark.
const (
	forRequest    = iota // one completed, and is counted
	forSubmission        // a bio is on its way to a device with a request queue
	forBio               // one completed, on a device without
)

// turns is how many events a processor remembers to have dealt with.
const turns = 256

// The value in the hash of bios is the bio's range: for each tracked device that it
// was seen on, the disk, the first sector and the length, which is wholeDevice for a
// write without a range. A disk of 0 is none.
const (
	ownersOfBio = 2
	ownerSize   = 24
	ownerDisk   = 0
	ownerSector = 8
	ownerLength = 16
	knownSize   = ownersOfBio * ownerSize
)

// wholeDevice is longer than any bio.
const wholeDevice = -1

// Places on a program's stack, below the frame pointer; all of 8 bytes.
const (
	stIndex   = -8  // with the one below a key for the table: the slot's number
	stDisk    = -16 // and the disk
	stEntry   = -24 // a key for a slot's array
	stMask    = -32
	stSector  = -40 // the range to be marked
	stSectors = -48
	stNext    = -56 // the bio to be looked at next, or 0
	stLeft    = -64 // bytes of the completion that belong to bios not looked at
	stCount   = -72 // bios looked at
	stOp      = -80
	stPtr     = -88  // a pointer that was read
	stBio     = -96  // a key for the hash of bios
	stWhole   = -104 // 1 if the bio at hand is complete
	stValue   = -112 - knownSize
)

// Places on the stacks of mark and mark_slot, in addition to stIndex to stMask.
const (
	mkMap     = -40 // the slot at hand
	mkSectors = -48
	mkFor     = -56
	mkMask2   = -64
	mkIndex   = -72 // of the word at hand
)

// bpfMaps are the maps that the programs of one load share.
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
