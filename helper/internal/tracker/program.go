package tracker

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// The programs, in the kernel's own instructions: so few that a compiler, which
// would then have to be there when this is built, is not worth it. The kernel
// knows the types of what they are given (BTF), so they follow its pointers
// directly, which costs next to nothing; where a pointer leads nowhere, zeroes
// are read.
//
// A program finds out what was written, and calls the function mark for each
// range, which calls mark_slot for each slot of the disk. Both are global in the
// sense of BPF: the verifier looks at them once by themselves, and not again at
// each of the places and turns of a loop that call them, which makes a thousand
// instructions to verify out of a million.
//
// What programs have in common is made by the builder's methods. Those that can
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

// A slot is one tracked device to the programs: an array of words of its own.
// They are grouped into the entries of the array, because the kernel gives access
// to one entry at a time; and an entry is large, because each access costs a call.
// The first one says what is tracked and holds counts, and marks begin in it: all
// marks of a device of 1 GiB are there.
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

// seenParts is in how many parts what is seen to complete is counted, each in a
// line of its own, so that processors do not wait for each other's. Which part is
// a processor's own matters for nothing but that.
const seenParts = 8

// A slot of a device with a request queue has a second array, of one entry: the
// front. In it most writes are marked, by fast, with no call at all: the kernel
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
	// of the disk's; see builder.fast. Two disks with the same one share luck.
	fronts = 1 << 10
)

// frontOf is the place of a disk among the fronts.
func frontOf(disk uint64) uint32 { return uint32(disk+(disk>>32)*frontFactor) % fronts }

const frontFactor = 37

// The words in the map of what no slot can be named for.
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

// What mark is called for.
const (
	forRequest    = iota // one completed, and is counted
	forSubmission        // a bio is on its way to a device with a request queue
	forBio               // one completed, on a device without
)

// turns is how many events a processor remembers to have dealt with.
const turns = 256

// The value in the hash of bios is what the bio writes: for each tracked device
// that it was seen on, the disk, the first sector and the length, which is
// wholeDevice for a write without a range. A disk of 0 is none.
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

// Places on the stacks of mark and mark_slot, besides stIndex to stMask.
const (
	mkMap     = -40 // the slot at hand
	mkSectors = -48
	mkFor     = -56
	mkMask2   = -64
	mkIndex   = -72 // of the word at hand
)

// bpfMaps are what the programs of one load share.
type bpfMaps struct {
	table *ebpf.Map // disk and number → slot
	front *ebpf.Map // frontOf(disk) → front of its slot, if it has only one
	lost  *ebpf.Map // one entry: what no slot can be named for
	turns *ebpf.Map // for each processor, what it has dealt with
	bios  *ebpf.Map // bio → its owners; nil as long as no device needs it
}

// tableKey is a key of the table.
type tableKey struct {
	Disk   uint64
	Number uint64
}

// builder makes one program.
type builder struct {
	k     *kernel
	m     bpfMaps
	ins   asm.Instructions
	next  string // label for the next instruction
	marks bool   // mark is called
	bits  int    // how often or was made
}

func (b *builder) add(ins ...asm.Instruction) {
	for _, i := range ins {
		if b.next != "" {
			i = i.WithSymbol(b.next)
			b.next = ""
		}
		b.ins = append(b.ins, i)
	}
}

// label names the next instruction, which can have one name.
func (b *builder) label(name string) {
	if b.next != "" {
		panic("tracker: the labels " + b.next + " and " + name + " are in one place")
	}
	b.next = name
}

func (b *builder) load(dst asm.Register, place int16) {
	b.add(asm.LoadMem(dst, asm.RFP, place, asm.DWord))
}
func (b *builder) store(place int16, src asm.Register) {
	b.add(asm.StoreMem(asm.RFP, place, src, asm.DWord))
}

// storeImm stores a constant, by way of R0: the verifier of kernels before 6.3
// does not know what a store of an immediate leaves on the stack, and could not
// see that a loop ends.
func (b *builder) storeImm(place int16, v int32) {
	b.add(asm.Mov.Imm(asm.R0, v))
	b.store(place, asm.R0)
}

// follow reads a field of the structure that src points to.
func (b *builder) follow(dst, src asm.Register, f field) {
	size := asm.DWord
	if f.size == 4 {
		size = asm.Word
	}
	b.add(asm.LoadMem(dst, src, f.off, size))
}

// lookup finds the value for the key in place; R0 is 0 if there is none.
func (b *builder) lookup(m *ebpf.Map, place int32) {
	b.add(
		asm.LoadMapPtr(asm.R1, m.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, place),
		asm.FnMapLookupElem.Call(),
	)
}

// writeOp ends the program unless the operation in the register writes: the
// kernel gives odd numbers to those that do. It leaves the operation in stOp.
func (b *builder) writeOp(flags asm.Register) {
	b.add(
		asm.And.Imm(flags, 0xff), // REQ_OP_MASK; the rest are flags
		asm.Mov.Reg(asm.R2, flags),
		asm.And.Imm(asm.R2, 1),
		asm.JEq.Imm(asm.R2, 0, "exit"),
	)
	b.store(stOp, flags)
}

// diskKey makes the key of the disk that the register points to, in stDisk, with
// the number of its first slot; or it ends the program if it points nowhere.
func (b *builder) diskKey(disk asm.Register) {
	b.add(asm.JEq.Imm(disk, 0, "exit"))
	b.follow(asm.R1, disk, b.k.disk.major)
	b.follow(asm.R2, disk, b.k.disk.minor)
	b.add(asm.LSh.Imm(asm.R1, 32), asm.Or.Reg(asm.R1, asm.R2))
	b.store(stDisk, asm.R1)
	b.storeImm(stIndex, 0)
}

// bdevKey does that for the disk of the block device in the register.
func (b *builder) bdevKey(bdev asm.Register) {
	b.add(asm.JEq.Imm(bdev, 0, "exit"))
	b.follow(bdev, bdev, b.k.bdev.disk)
	b.diskKey(bdev)
}

// tracked ends the program if the disk in stDisk has no slot, or, with bios, if it
// has a request queue.
func (b *builder) tracked(bios bool) {
	b.lookup(b.m.table, stDisk)
	b.add(asm.JEq.Imm(asm.R0, 0, "exit"))
	if bios {
		b.isBio("exit")
	}
}

// isBio goes on at no if the slot that R0 points to has a request queue.
func (b *builder) isBio(no string) {
	b.add(asm.Mov.Reg(asm.R1, asm.R0))
	b.entry(0)
	b.add(
		asm.LoadMem(asm.R1, asm.R0, slotShape*8+4, asm.Word),
		asm.And.Imm(asm.R1, flagBio),
		asm.JEq.Imm(asm.R1, 0, no),
	)
}

// entry points R0 to an entry of the slot that R1 points to.
func (b *builder) entry(n int32) {
	b.add(
		asm.StoreImm(asm.RFP, stEntry, int64(n), asm.Word),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, stEntry),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "internal"),
	)
}

// toSectors turns bytes into sectors.
func (b *builder) toSectors(r asm.Register) {
	b.add(asm.Add.Imm(r, 511), asm.RSh.Imm(r, 9))
}

// atomicOr is *(u64 *)(dst+off) |= src, for all processors. The operation is in
// the constant of the instruction as the kernel has it. cilium/ebpf up to 0.22
// keeps it in the opcode and forgets it when it writes the instruction down,
// which leaves an addition; so it is set here as well.
func atomicOr(dst, src asm.Register, off int16) asm.Instruction {
	ins := asm.OrAtomic.Mem(dst, src, asm.DWord, off)
	ins.Constant = int64(asm.Or)
	return ins
}

// or sets the bits in stMask in a word of the slot in mkMap: the index in R1.
func (b *builder) or() {
	b.bits++
	first, there := fmt.Sprintf("first%d", b.bits), fmt.Sprintf("there%d", b.bits)
	b.add(
		asm.Mov.Reg(asm.R0, asm.R6), // the first entry is at hand
		asm.JLT.Imm(asm.R1, entryWords, first),
		asm.Mov.Reg(asm.R2, asm.R1),
		asm.RSh.Imm(asm.R2, entryShift),
		asm.StoreMem(asm.RFP, stEntry, asm.R2, asm.Word),
	)
	b.store(mkIndex, asm.R1)
	b.load(asm.R1, mkMap)
	b.add(
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, stEntry),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "internal"),
	)
	b.load(asm.R1, mkIndex)
	b.add(asm.And.Imm(asm.R1, entryWords-1))
	b.label(first)
	b.add(asm.LSh.Imm(asm.R1, 3), asm.Add.Reg(asm.R0, asm.R1))
	b.load(asm.R1, stMask)
	// Most often the submission has set them, and looking is cheaper.
	b.add(
		asm.LoadMem(asm.R2, asm.R0, 0, asm.DWord),
		asm.And.Reg(asm.R2, asm.R1),
		asm.JEq.Reg(asm.R2, asm.R1, there),
		atomicOr(asm.R0, asm.R1, 0),
	)
	b.label(there)
	b.add(asm.Mov.Imm(asm.R1, 0)) // a place for the label, whatever comes next
}

// markSlot makes the function that marks a range, or everything, in one slot:
// mark_slot(disk, number, sector, sectors, why). It returns whether there may be
// a slot of the next number.
func markSlot(k *kernel, m bpfMaps) asm.Instructions {
	b := &builder{k: k, m: m}
	b.label(slotName)
	b.add(
		btf.WithFuncMetadata(asm.JEq.Imm(asm.R4, 0, "exit"), slotType),
		asm.StoreMem(asm.RFP, stDisk, asm.R1, asm.DWord),
		asm.StoreMem(asm.RFP, stIndex, asm.R2, asm.DWord),
		asm.StoreMem(asm.RFP, mkFor, asm.R5, asm.DWord),
		asm.StoreMem(asm.RFP, mkSectors, asm.R4, asm.DWord),
		asm.Mov.Reg(asm.R7, asm.R3),
		asm.Mov.Reg(asm.R8, asm.R3),
		asm.Add.Reg(asm.R8, asm.R4), // the first sector behind the range
	)
	b.lookup(m.table, stDisk)
	b.add(asm.JEq.Imm(asm.R0, 0, "exit"))
	b.store(mkMap, asm.R0)
	b.add(asm.Mov.Reg(asm.R1, asm.R0))
	b.entry(0)
	b.add(asm.Mov.Reg(asm.R6, asm.R0))
	b.load(asm.R1, mkFor)
	b.add(
		asm.LoadMem(asm.R2, asm.R6, slotShape*8+4, asm.Word),
		asm.JEq.Imm(asm.R1, forRequest, "count"),
		asm.JNE.Imm(asm.R1, forSubmission, "counted"),
		// Bios on their way to a device without a queue are another program's.
		asm.And.Imm(asm.R2, flagBio),
		asm.JNE.Imm(asm.R2, 0, "exit"),
		asm.Ja.Label("counted"),
	)
	b.label("count")
	b.count(slotSeen, mkSectors)
	b.label("counted")
	b.load(asm.R1, mkSectors)
	b.add(
		asm.JEq.Imm(asm.R1, wholeDevice, "all"),
		asm.LoadMem(asm.R1, asm.R6, slotStart*8, asm.DWord),
		asm.LoadMem(asm.R2, asm.R6, slotEnd*8, asm.DWord),
		asm.LoadMem(asm.R3, asm.R6, slotShape*8+4, asm.Word),
		asm.And.Imm(asm.R3, flagPart),
		asm.JNE.Imm(asm.R3, 0, "part"),
		asm.JGT.Reg(asm.R8, asm.R2, "outside"),
		asm.JGE.Reg(asm.R7, asm.R8, "outside"), // the sum went over
		asm.Ja.Label("relative"),
	)
	b.label("part") // what is outside is on another partition
	b.add(
		asm.JGE.Reg(asm.R7, asm.R2, "done"),
		asm.JLE.Reg(asm.R8, asm.R1, "done"),
		asm.JGE.Reg(asm.R7, asm.R1, "clipped"),
		asm.Mov.Reg(asm.R7, asm.R1),
	)
	b.label("clipped")
	b.add(
		asm.JLE.Reg(asm.R8, asm.R2, "relative"),
		asm.Mov.Reg(asm.R8, asm.R2),
	)
	b.label("relative")
	b.add(
		asm.Sub.Reg(asm.R7, asm.R1),
		asm.Sub.Reg(asm.R8, asm.R1),
		asm.Sub.Imm(asm.R8, 1),
		asm.LoadMem(asm.R3, asm.R6, slotShape*8, asm.Word),
		asm.And.Imm(asm.R3, 63),     // it is less, and the verifier likes to know
		asm.RSh.Reg(asm.R7, asm.R3), // the first cluster
		asm.RSh.Reg(asm.R8, asm.R3), // the last one
	)
	for level := range levels {
		two := fmt.Sprintf("two%d", level)
		b.add(
			asm.LoadMem(asm.R9, asm.R6, slotBases*8+int16(level)*4, asm.Word),
			// R3: the bits from the first on; R5: the bits up to the last.
			asm.Mov.Imm(asm.R3, -1),
			asm.Mov.Reg(asm.R4, asm.R7),
			asm.And.Imm(asm.R4, 63),
			asm.LSh.Reg(asm.R3, asm.R4),
			asm.Mov.Imm(asm.R5, -1),
			asm.Mov.Reg(asm.R4, asm.R8),
			asm.And.Imm(asm.R4, 63),
			asm.Xor.Imm(asm.R4, 63),
			asm.RSh.Reg(asm.R5, asm.R4),
			asm.RSh.Imm(asm.R7, 6), // the words they are in
			asm.RSh.Imm(asm.R8, 6),
			asm.JNE.Reg(asm.R7, asm.R8, two),
			asm.And.Reg(asm.R3, asm.R5),
		)
		b.store(stMask, asm.R3)
		b.add(asm.Mov.Reg(asm.R1, asm.R9), asm.Add.Reg(asm.R1, asm.R7))
		b.or()
		b.add(asm.Ja.Label("done"))
		b.label(two)
		b.store(stMask, asm.R3)
		b.store(mkMask2, asm.R5)
		b.add(asm.Mov.Reg(asm.R1, asm.R9), asm.Add.Reg(asm.R1, asm.R7))
		b.or()
		b.load(asm.R1, mkMask2)
		b.store(stMask, asm.R1)
		b.add(asm.Mov.Reg(asm.R1, asm.R9), asm.Add.Reg(asm.R1, asm.R8))
		b.or()
		// The words in between are bits of the next level.
		b.add(
			asm.Add.Imm(asm.R7, 1),
			asm.Sub.Imm(asm.R8, 1),
			asm.JGT.Reg(asm.R7, asm.R8, "done"),
		)
	}
	// Longer than any request can be: mark more rather than less.
	b.label("all")
	b.slotStatus(statusAll)
	b.add(asm.Ja.Label("done"))
	b.label("outside")
	b.slotStatus(statusOutside)

	b.label("done")
	b.add(
		asm.LoadMem(asm.R0, asm.R6, slotShape*8+4, asm.Word),
		asm.And.Imm(asm.R0, flagMore),
		asm.Return(),
	)
	b.tail()
	return b.ins
}

// markFunction makes the function that marks a range, or everything, in every
// slot of a disk: mark(disk, sector, sectors, why).
func markFunction(k *kernel, m bpfMaps) asm.Instructions {
	b := &builder{k: k, m: m}
	b.label(markName)
	b.add(
		btf.WithFuncMetadata(asm.Mov.Reg(asm.R6, asm.R1), markType),
		asm.Mov.Reg(asm.R7, asm.R2),
		asm.Mov.Reg(asm.R8, asm.R3),
		asm.StoreMem(asm.RFP, mkFor, asm.R4, asm.DWord),
		asm.Mov.Imm(asm.R9, 0),
	)
	b.label("slot")
	b.add(
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.Mov.Reg(asm.R2, asm.R9),
		asm.Mov.Reg(asm.R3, asm.R7),
		asm.Mov.Reg(asm.R4, asm.R8),
	)
	b.load(asm.R5, mkFor)
	b.add(
		asm.Call.Label(slotName),
		asm.JEq.Imm(asm.R0, 0, "exit"),
		asm.Add.Imm(asm.R9, 1),
		asm.JLT.Imm(asm.R9, slotsOfDisk, "slot"),
	)
	b.tail()
	return b.ins
}

// slotStatus sets a bit in the status of the slot whose first entry is in R6.
func (b *builder) slotStatus(bit int32) {
	b.add(asm.Mov.Imm(asm.R1, bit), atomicOr(asm.R6, asm.R1, slotStatus*8))
}

// How a program calls mark, and what the verifier must know of it.
const (
	markName = "mark"
	slotName = "mark_slot"
)

var (
	u64      = &btf.Int{Name: "unsigned long long", Size: 8}
	i32      = &btf.Int{Name: "int", Size: 4, Encoding: btf.Signed}
	markType = &btf.Func{Name: markName, Linkage: btf.GlobalFunc, Type: &btf.FuncProto{
		Return: i32,
		Params: []btf.FuncParam{{Name: "disk", Type: u64}, {Name: "sector", Type: u64}, {Name: "sectors", Type: u64}, {Name: "why", Type: u64}},
	}}
	slotType = &btf.Func{Name: slotName, Linkage: btf.GlobalFunc, Type: &btf.FuncProto{
		Return: i32,
		Params: []btf.FuncParam{{Name: "disk", Type: u64}, {Name: "number", Type: u64}, {Name: "sector", Type: u64}, {Name: "sectors", Type: u64}, {Name: "why", Type: u64}},
	}}
	mainType = &btf.FuncProto{
		Return: i32,
		Params: []btf.FuncParam{{Name: "ctx", Type: &btf.Pointer{Target: (*btf.Void)(nil)}}},
	}
)

// mark marks the range in stSector and stSectors on the disk in stDisk.
func (b *builder) mark(why int32) {
	b.load(asm.R1, stDisk)
	b.load(asm.R2, stSector)
	b.load(asm.R3, stSectors)
	b.add(asm.Mov.Imm(asm.R4, why), asm.Call.Label(markName))
	b.marks = true
}

// fast does what mark does and ends the program, for a write that is within one word
// of the front of its disk's only slot. Any other goes on behind it. It leaves the
// range and the disk on the stack, and no register.
func (b *builder) fast(why int32) {
	b.load(asm.R1, stDisk)
	b.add(
		asm.Mov.Reg(asm.R2, asm.R1),
		asm.RSh.Imm(asm.R2, 32),
		asm.Mul.Imm(asm.R2, frontFactor),
		asm.Add.Reg(asm.R1, asm.R2),
		asm.And.Imm(asm.R1, fronts-1),
		asm.StoreMem(asm.RFP, stEntry, asm.R1, asm.Word),
	)
	b.lookup(b.m.front, stEntry)
	b.add(
		asm.JEq.Imm(asm.R0, 0, "slow"),
		asm.StoreImm(asm.RFP, stEntry, 0, asm.Word),
		asm.Mov.Reg(asm.R1, asm.R0),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, stEntry),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "slow"),
		asm.Mov.Reg(asm.R6, asm.R0),
		asm.LoadMem(asm.R1, asm.R6, frontDisk*8, asm.DWord),
	)
	b.load(asm.R2, stDisk)
	b.load(asm.R7, stSector)
	b.load(asm.R8, stSectors)
	b.add(
		asm.JNE.Reg(asm.R1, asm.R2, "slow"),
		asm.JEq.Imm(asm.R8, 0, "exit"),
		asm.JGT.Imm(asm.R8, 1<<23, "slow"), // the longest request; and no sum goes over
		asm.LoadMem(asm.R1, asm.R6, frontStart*8, asm.DWord),
		asm.LoadMem(asm.R2, asm.R6, frontEnd*8, asm.DWord),
		asm.JLT.Reg(asm.R7, asm.R1, "slow"),
		asm.JGE.Reg(asm.R7, asm.R2, "slow"),
		asm.Mov.Reg(asm.R3, asm.R7),
		asm.Add.Reg(asm.R3, asm.R8),
		asm.JGT.Reg(asm.R3, asm.R2, "slow"),
		asm.Sub.Reg(asm.R7, asm.R1),
		asm.Sub.Reg(asm.R3, asm.R1),
		asm.Sub.Imm(asm.R3, 1),
		asm.LoadMem(asm.R4, asm.R6, frontShift*8, asm.Word),
		asm.And.Imm(asm.R4, 63),
		asm.RSh.Reg(asm.R7, asm.R4), // the first cluster
		asm.RSh.Reg(asm.R3, asm.R4), // the last one
		// R9: the bits from the first one up to the last.
		asm.Mov.Imm(asm.R9, -1),
		asm.Mov.Reg(asm.R4, asm.R7),
		asm.And.Imm(asm.R4, 63),
		asm.LSh.Reg(asm.R9, asm.R4),
		asm.Mov.Imm(asm.R5, -1),
		asm.Mov.Reg(asm.R4, asm.R3),
		asm.And.Imm(asm.R4, 63),
		asm.Xor.Imm(asm.R4, 63),
		asm.RSh.Reg(asm.R5, asm.R4),
		asm.And.Reg(asm.R9, asm.R5),
		asm.RSh.Imm(asm.R7, 6), // the word they are in
		asm.RSh.Imm(asm.R3, 6),
		asm.JNE.Reg(asm.R7, asm.R3, "slow"),
		asm.JGE.Imm(asm.R7, frontWords-frontMarks, "slow"),
	)
	if why == forRequest {
		b.count(frontSeen, stSectors)
	}
	b.add(
		asm.LSh.Imm(asm.R7, 3),
		asm.Add.Reg(asm.R6, asm.R7),
		asm.LoadMem(asm.R1, asm.R6, frontMarks*8, asm.DWord),
		asm.And.Reg(asm.R1, asm.R9),
		asm.JEq.Reg(asm.R1, asm.R9, "exit"),
		atomicOr(asm.R6, asm.R9, frontMarks*8),
		asm.Ja.Label("exit"),
	)
	b.label("slow")
}

// count adds the sectors in a place on the stack to what was seen to complete, in
// the entry that R6 points to.
func (b *builder) count(seen, sectors int16) {
	b.add(
		asm.FnGetSmpProcessorId.Call(),
		asm.And.Imm(asm.R0, seenParts-1),
		asm.LSh.Imm(asm.R0, 6), // a line
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.Add.Reg(asm.R1, asm.R0),
	)
	b.load(asm.R2, sectors)
	b.add(asm.AddAtomic.Mem(asm.R1, asm.R2, asm.DWord, seen*8))
}

// markAll marks all of the disk in stDisk.
func (b *builder) markAll() {
	b.load(asm.R1, stDisk)
	b.add(asm.Mov.Imm(asm.R2, 0), asm.Mov.Imm(asm.R3, wholeDevice), asm.Mov.Imm(asm.R4, forBio), asm.Call.Label(markName))
	b.marks = true
}

// finish makes a program of what was built.
func (b *builder) finish(name string) asm.Instructions {
	b.tail()
	ins := b.ins
	if b.marks {
		ins[0] = btf.WithFuncMetadata(ins[0], &btf.Func{Name: name, Linkage: btf.GlobalFunc, Type: mainType}).WithSymbol(name)
		ins = append(ins, rename(markName, markFunction(b.k, b.m))...)
		ins = append(ins, rename(slotName, markSlot(b.k, b.m))...)
	}
	return ins
}

// rename keeps the labels of a function apart from those of the program that it
// is put behind.
func rename(name string, ins asm.Instructions) asm.Instructions {
	function := map[string]bool{markName: true, slotName: true}
	for i := range ins {
		if s := ins[i].Symbol(); s != "" && !function[s] {
			ins[i] = ins[i].WithSymbol(name + "." + s)
		}
		if r := ins[i].Reference(); r != "" && !function[r] {
			ins[i] = ins[i].WithReference(name + "." + r)
		}
	}
	return ins
}

// tail is where the other pieces jump to when they are done with the event.
func (b *builder) tail() {
	b.label("exit")
	b.add(asm.Mov.Imm(asm.R0, 0), asm.Return())
	for _, end := range []struct {
		label string
		bit   int32
	}{{"full", statusFull}, {"deep", statusDeep}, {"internal", statusInternal}} {
		if !b.jumpsTo(end.label) {
			continue
		}
		b.label(end.label)
		b.lostEntry()
		b.add(asm.Mov.Imm(asm.R1, end.bit), atomicOr(asm.R0, asm.R1, lostStatus*8), asm.Ja.Label("exit"))
	}
	if b.jumpsTo("long") {
		b.label("long")
		b.lostEntry()
		b.add(asm.Mov.Imm(asm.R1, 1), asm.AddAtomic.Mem(asm.R0, asm.R1, asm.DWord, lostBios*8), asm.Ja.Label("exit"))
	}
}

// lostEntry points R0 to what no slot can be named for.
func (b *builder) lostEntry() {
	b.add(asm.StoreImm(asm.RFP, stEntry, 0, asm.Word))
	b.lookup(b.m.lost, stEntry)
	b.add(asm.JEq.Imm(asm.R0, 0, "exit")) // it is always there
}

func (b *builder) jumpsTo(label string) bool {
	for _, i := range b.ins {
		if i.Reference() == label {
			return true
		}
	}
	return false
}

func argument(dst asm.Register, index int) asm.Instruction {
	return asm.LoadMem(dst, asm.R1, int16(index)*8, asm.DWord)
}

// firstTurn ends the program if another copy has dealt with this event: the
// completion of so many bytes, in R8, of the request in R7. What is remembered is a
// number made of all that tells one event from another: which request of which
// queue, where it has got to, and when it began, to the nanosecond. All of that is
// in the request itself but for the queue's number: two of three copies do nothing
// else than this. Without a time no event is remembered, and every copy does all of
// the work. So it does if an interrupt between two copies brought an event of
// another queue that took the place: then the event is counted twice.
func (b *builder) firstTurn() {
	b.add(asm.StoreImm(asm.RFP, stEntry, 0, asm.Word))
	b.lookup(b.m.turns, stEntry)
	b.add(asm.JEq.Imm(asm.R0, 0, "turn"))
	b.follow(asm.R9, asm.R7, b.k.rq.start)
	b.add(asm.JEq.Imm(asm.R9, 0, "turn"), asm.LoadImm(asm.R5, 0x9e3779b97f4a7c15-1<<64, asm.DWord))
	b.follow(asm.R1, asm.R7, b.k.rq.sector)
	b.follow(asm.R2, asm.R7, b.k.rq.tag)
	b.follow(asm.R3, asm.R7, b.k.rq.q)
	b.follow(asm.R3, asm.R3, b.k.queue.id)
	b.add(
		asm.Mul.Reg(asm.R1, asm.R5),
		asm.Xor.Reg(asm.R9, asm.R1),
		asm.Mul.Reg(asm.R9, asm.R5),
		asm.Mul.Reg(asm.R5, asm.R3),
		asm.Xor.Reg(asm.R9, asm.R5),
		asm.Mov.Reg(asm.R1, asm.R2),
		asm.LSh.Imm(asm.R1, 32),
		asm.Or.Reg(asm.R1, asm.R8),
		asm.Add.Reg(asm.R9, asm.R1),
		// The place is by the tag, which two requests under way of one queue do not share.
		asm.Mul.Imm(asm.R3, 37),
		asm.Add.Reg(asm.R2, asm.R3),
		asm.And.Imm(asm.R2, turns-1),
		asm.LSh.Imm(asm.R2, 3),
		asm.Add.Reg(asm.R0, asm.R2),
		asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord),
		asm.JEq.Reg(asm.R1, asm.R9, "exit"),
		asm.StoreMem(asm.R0, 0, asm.R9, asm.DWord),
	)
	b.label("turn")
}

// requestComplete marks the range of a completed request, for devices with a
// request queue.
func requestComplete(k *kernel, m bpfMaps) asm.Instructions {
	b := &builder{k: k, m: m}
	b.add(
		argument(asm.R7, k.complete.rq),
		argument(asm.R8, k.complete.bytes),
		asm.Mov.Reg32(asm.R8, asm.R8), // an unsigned int; the upper half is not defined
	)
	b.follow(asm.R1, asm.R7, k.rq.cmdFlags)
	b.writeOp(asm.R1)
	b.firstTurn()
	b.follow(asm.R1, asm.R7, k.rq.q)
	b.follow(asm.R9, asm.R1, k.queue.disk) // none, if the queue has no disk
	b.diskKey(asm.R9)

	b.load(asm.R1, stOp)
	for _, op := range k.ranged {
		b.add(asm.JEq.Imm(asm.R1, op, "plain"))
	}
	b.add(asm.JNE.Imm(asm.R1, k.discard, "all"))
	b.tracked(false)
	b.store(stLeft, asm.R8)
	b.storeImm(stCount, 0)
	b.follow(asm.R7, asm.R7, k.rq.bio)
	b.add(asm.JNE.Imm(asm.R7, 0, "walk"), asm.Ja.Label("exit"))

	b.label("plain")
	b.toSectors(asm.R8) // none in a flush that was sent as an empty write
	b.store(stSectors, asm.R8)
	b.follow(asm.R1, asm.R7, k.rq.sector)
	b.store(stSector, asm.R1)
	b.fast(forRequest)
	b.mark(forRequest)
	b.add(asm.Ja.Label("exit"))

	// A discard may have been merged from ranges that do not touch.
	b.label("walk")
	b.follow(asm.R1, asm.R7, k.bio.sector)
	b.store(stSector, asm.R1)
	b.follow(asm.R2, asm.R7, k.bio.size)
	b.follow(asm.R7, asm.R7, k.bio.next)
	b.load(asm.R3, stLeft)
	b.add(
		asm.JLT.Reg(asm.R2, asm.R3, "more"),
		asm.Mov.Imm(asm.R7, 0), // the completion ends in this bio
		asm.Mov.Reg(asm.R2, asm.R3),
	)
	b.label("more")
	b.add(asm.Sub.Reg(asm.R3, asm.R2))
	b.store(stLeft, asm.R3)
	b.toSectors(asm.R2)
	b.store(stSectors, asm.R2)
	b.mark(forRequest)
	b.add(asm.JEq.Imm(asm.R7, 0, "exit"))
	b.load(asm.R1, stCount)
	b.add(asm.Add.Imm(asm.R1, 1), asm.JGE.Imm(asm.R1, bioWalk, "all"))
	b.store(stCount, asm.R1)
	b.add(asm.Ja.Label("walk"))

	b.label("all")
	b.markAll()
	return b.finish("request_complete")
}

// bioSubmitted marks the range of a bio that is given to a device with a request
// queue, before it gets there; see the package comment on completions that no
// program sees.
func bioSubmitted(k *kernel, m bpfMaps) asm.Instructions {
	b := &builder{k: k, m: m}
	b.submitted()
	b.fast(forSubmission)
	b.mark(forSubmission)
	return b.finish("bio_submitted")
}

// submitted begins a program about a bio that is given to a device: the bio in
// R9, its range and its disk on the stack.
func (b *builder) submitted() {
	b.add(argument(asm.R9, b.k.queued.bio))
	b.follow(asm.R1, asm.R9, b.k.bio.opf)
	b.writeOp(asm.R1)
	b.bioRange()
	b.follow(asm.R7, asm.R9, b.k.bio.bdev)
	b.bdevKey(asm.R7)
}

// bioRange reads the range of the bio in R9.
func (b *builder) bioRange() {
	b.follow(asm.R1, asm.R9, b.k.bio.sector)
	b.store(stSector, asm.R1)
	b.follow(asm.R1, asm.R9, b.k.bio.size)
	b.toSectors(asm.R1)
	b.store(stSectors, asm.R1)
}

// remember keeps a bio's range in the hash: the bio in R9, the disk in stDisk,
// the range in stSector and stSectors, the operation in stOp. It does not come
// back.
func (b *builder) remember() {
	b.store(stBio, asm.R9)
	b.load(asm.R1, stOp)
	for _, op := range append([]int32{b.k.discard}, b.k.ranged...) {
		b.add(asm.JEq.Imm(asm.R1, op, "ranged"))
	}
	b.storeImm(stSectors, wholeDevice)
	b.label("ranged")
	b.lookup(b.m.bios, stBio)
	b.add(asm.JNE.Imm(asm.R0, 0, "there"))
	for off := int16(0); off < knownSize; off += 8 {
		b.storeImm(stValue+off, 0)
	}
	b.add(asm.Ja.Label("own0"))

	b.label("there")
	b.add(asm.Mov.Reg(asm.R6, asm.R0))
	b.known()
	b.load(asm.R2, stDisk)
	for owner := range int16(ownersOfBio) {
		b.load(asm.R1, stValue+owner*ownerSize+ownerDisk)
		b.add(
			asm.JEq.Imm(asm.R1, 0, fmt.Sprintf("own%d", owner)),
			asm.JEq.Reg(asm.R1, asm.R2, fmt.Sprintf("again%d", owner)),
		)
	}
	b.add(asm.Ja.Label("deep"))
	for owner := range int16(ownersOfBio) {
		// What the bio was remembered with on this device may have completed
		// unseen, and the bio may be another one in the same place.
		at := stValue + owner*ownerSize
		b.label(fmt.Sprintf("again%d", owner))
		b.add(asm.LoadMem(asm.R2, asm.RFP, at+ownerSector, asm.DWord), asm.LoadMem(asm.R3, asm.RFP, at+ownerLength, asm.DWord), asm.Mov.Imm(asm.R4, forBio), asm.Call.Label(markName))
		b.label(fmt.Sprintf("own%d", owner))
		for _, from := range [][2]int16{{ownerDisk, stDisk}, {ownerSector, stSector}, {ownerLength, stSectors}} {
			b.load(asm.R1, from[1])
			b.store(at+from[0], asm.R1)
		}
		b.add(asm.Ja.Label("keep"))
	}
	b.marks = true
	b.label("keep")
	b.add(
		asm.LoadMapPtr(asm.R1, b.m.bios.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, stBio),
		asm.Mov.Reg(asm.R3, asm.RFP),
		asm.Add.Imm(asm.R3, int32(stValue)),
		asm.Mov.Imm(asm.R4, int32(ebpf.UpdateAny)),
		asm.FnMapUpdateElem.Call(),
		asm.JNE.Imm(asm.R0, 0, "full"),
	)
	b.add(asm.Ja.Label("exit"))
}

// known copies what R6 points to in the hash of bios to the stack.
func (b *builder) known() {
	for off := int16(0); off < knownSize; off += 8 {
		b.add(asm.LoadMem(asm.R1, asm.R6, off, asm.DWord))
		b.store(stValue+off, asm.R1)
	}
}

// markKnown marks the range of the bio that R0 points to, on every device that
// it is known of.
func (b *builder) markKnown() {
	b.add(asm.Mov.Reg(asm.R6, asm.R0))
	b.known()
	for owner := range int16(ownersOfBio) {
		at := stValue + owner*ownerSize
		none := fmt.Sprintf("none%d", owner)
		b.load(asm.R1, at+ownerDisk)
		b.add(asm.JEq.Imm(asm.R1, 0, none))
		b.load(asm.R2, at+ownerSector)
		b.load(asm.R3, at+ownerLength)
		b.add(asm.Mov.Imm(asm.R4, forBio), asm.Call.Label(markName))
		b.label(none)
		b.add(asm.Mov.Imm(asm.R1, 0)) // a place for the label, whatever comes next
	}
	b.marks = true
}

// forget takes the bio in stBio out of the hash.
func (b *builder) forget() {
	b.add(
		asm.LoadMapPtr(asm.R1, b.m.bios.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, stBio),
		asm.FnMapDeleteElem.Call(),
	)
}

// bioQueued remembers the range of a bio that is given to a tracked device
// without a request queue.
func bioQueued(k *kernel, m bpfMaps) asm.Instructions {
	b := &builder{k: k, m: m}
	b.submitted()
	b.tracked(true)
	b.remember()
	return b.finish("bio_queued")
}

// bioRemapped remembers the range of a bio, or of what is left of it, that a
// tracked device without a queue hands on to another device, or that another
// hands to it.
func bioRemapped(k *kernel, m bpfMaps) asm.Instructions {
	b := &builder{k: k, m: m}
	b.add(
		argument(asm.R9, k.remapped.bio),
		argument(asm.R7, k.remapped.dev),
		argument(asm.R8, k.remapped.from),
		asm.Mov.Reg32(asm.R7, asm.R7),
	)
	b.follow(asm.R1, asm.R9, k.bio.opf)
	b.writeOp(asm.R1)
	b.bioRange()
	// From such a device? A dev_t inside the kernel: 12 bits major, 20 bits minor.
	b.add(
		asm.Mov.Reg(asm.R1, asm.R7),
		asm.RSh.Imm(asm.R1, 20),
		asm.LSh.Imm(asm.R1, 32),
		asm.And.Imm(asm.R7, 1<<20-1),
		asm.Or.Reg(asm.R1, asm.R7),
	)
	b.store(stDisk, asm.R1)
	b.storeImm(stIndex, 0)
	b.lookup(b.m.table, stDisk)
	b.add(asm.JEq.Imm(asm.R0, 0, "to"))
	b.isBio("to")
	b.store(stSector, asm.R8)
	b.add(asm.Ja.Label("ours"))
	// To such a device? Then its range is where it is going.
	b.label("to")
	b.follow(asm.R7, asm.R9, k.bio.bdev)
	b.bdevKey(asm.R7)
	b.tracked(true)
	b.label("ours")
	b.remember()
	return b.finish("bio_remapped")
}

// bioComplete marks the range of a bio that completes on a tracked device without
// a request queue. The last copy forgets it; copies run in the order they were
// attached in.
func bioComplete(k *kernel, m bpfMaps, last bool) asm.Instructions {
	b := &builder{k: k, m: m}
	b.add(argument(asm.R9, k.done.bio))
	b.store(stBio, asm.R9)
	b.lookup(m.bios, stBio)
	b.add(asm.JEq.Imm(asm.R0, 0, "unknown"))
	b.markKnown()
	if last {
		b.forget()
	}
	b.add(asm.Ja.Label("exit"))

	// A write that was not seen coming. The other half of one that was, split off
	// by the driver, is no such thing: the whole completes after its parts, and
	// the parts point to it.
	b.label("unknown")
	b.follow(asm.R1, asm.R9, k.bio.opf)
	b.writeOp(asm.R1)
	b.follow(asm.R1, asm.R9, k.bio.private)
	b.store(stNext, asm.R1)
	b.follow(asm.R7, asm.R9, k.bio.bdev)
	b.bdevKey(asm.R7)
	b.tracked(true)
	b.parent("exit", "all")
	b.label("all")
	b.markAll()
	return b.finish("bio_complete")
}

// parentDepth is how often a bio may have been split, and the halves again.
const parentDepth = 4

// parent looks for a remembered bio among the parents of the one whose
// bi_private is in stNext. It goes on at found, with R0 at what is known of the
// parent and the parent in stBio, or at none.
func (b *builder) parent(found, none string) {
	for depth := range parentDepth {
		b.load(asm.R7, stNext)
		b.add(asm.JEq.Imm(asm.R7, 0, none))
		b.store(stBio, asm.R7)
		b.lookup(b.m.bios, stBio)
		b.add(asm.JNE.Imm(asm.R0, 0, found))
		if depth < parentDepth-1 {
			// This may be anything, and not a bio at all; it is only compared.
			b.probe(stNext, 8, asm.R7, b.k.bio.private.off, none)
		}
	}
	b.add(asm.Ja.Label(none))
}

// probe reads n bytes at src+off into place. If the kernel will not, it goes on
// at fail.
func (b *builder) probe(place int16, n int16, src asm.Register, off int16, fail string) {
	b.add(
		asm.Mov.Reg(asm.R3, src),
		asm.Add.Imm(asm.R3, int32(off)),
		asm.Mov.Reg(asm.R1, asm.RFP),
		asm.Add.Imm(asm.R1, int32(place)),
		asm.Mov.Imm(asm.R2, int32(n)),
		asm.FnProbeReadKernel.Call(),
		asm.JNE.Imm(asm.R0, 0, fail),
	)
}

// requestRemapped marks the ranges of bios that a tracked device without a queue
// handed on as they were, and that complete as part of another device's request.
// The last copy forgets those that are complete.
func requestRemapped(k *kernel, m bpfMaps, last bool) asm.Instructions {
	b := &builder{k: k, m: m}
	b.add(
		argument(asm.R7, k.complete.rq),
		argument(asm.R8, k.complete.bytes),
		asm.Mov.Reg32(asm.R8, asm.R8),
	)
	b.store(stLeft, asm.R8)
	b.follow(asm.R1, asm.R7, k.rq.cmdFlags)
	b.writeOp(asm.R1)
	b.follow(asm.R9, asm.R7, k.rq.bio)
	b.add(asm.JEq.Imm(asm.R9, 0, "exit"))
	b.storeImm(stCount, 0)

	b.label("walk") // R9: the bio
	b.store(stBio, asm.R9)
	b.follow(asm.R1, asm.R9, k.bio.private)
	b.store(stNext, asm.R1)
	b.follow(asm.R2, asm.R9, k.bio.size)
	b.follow(asm.R9, asm.R9, k.bio.next)
	b.load(asm.R3, stLeft)
	b.storeImm(stWhole, 1)
	b.add(
		asm.JLT.Reg(asm.R2, asm.R3, "more"),
		asm.Mov.Imm(asm.R9, 0), // the completion ends in this bio
		asm.JEq.Reg(asm.R2, asm.R3, "more"),
	)
	b.storeImm(stWhole, 0)
	b.add(asm.Mov.Reg(asm.R2, asm.R3))
	b.label("more")
	b.add(asm.Sub.Reg(asm.R3, asm.R2))
	b.store(stLeft, asm.R3)
	b.lookup(m.bios, stBio)
	b.add(asm.JNE.Imm(asm.R0, 0, "known"))
	b.parent("known", "next")

	b.label("known")
	b.markKnown()
	if last {
		// The bio is done with when it is complete and no part of it is still
		// under way; the kernel counts them, the bio itself included.
		b.load(asm.R1, stWhole)
		b.add(asm.JEq.Imm(asm.R1, 0, "next"))
		b.load(asm.R7, stBio)
		b.probe(stPtr, k.bio.remaining.size, asm.R7, k.bio.remaining.off, "next")
		b.add(
			asm.LoadMem(asm.R1, asm.RFP, stPtr, asm.Word),
			asm.JGT.Imm(asm.R1, 1, "next"),
		)
		b.forget()
	}

	b.label("next")
	b.add(asm.JEq.Imm(asm.R9, 0, "exit"))
	b.load(asm.R1, stCount)
	b.add(asm.Add.Imm(asm.R1, 1), asm.JGE.Imm(asm.R1, bioWalk, "long"))
	b.store(stCount, asm.R1)
	b.add(asm.Ja.Label("walk"))
	return b.finish("request_remapped")
}
