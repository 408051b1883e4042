package tracker

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// The programs, in the kernel's own instructions: so few that a compiler, which
// would then have to be there when this is built, is not worth it.
//
// A program finds out what was written, and calls the function mark for each
// range. mark is global in the sense of BPF: the verifier looks at it once by
// itself, and not again at each of the places and turns of a loop that call it,
// which makes a thousand instructions to verify out of a million.
//
// What programs have in common is made by the builder's methods. Those that can
// end a program jump to one of the labels of its tail: exit, all, full,
// unreadable, internal.

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

// slot is what the programs know of a device: the value in the map of devices.
// The layout is that of the kernel's side, which reads it by these offsets.
type slot struct {
	Start  uint64         // first sector on the disk
	End    uint64         // first sector behind it
	Shift  uint32         // sectors to clusters
	Part   uint32         // 1 for a partition: writes outside are others' business
	Status uint32         // index of the status word in the array of words
	Base   [levels]uint32 // index of each level's first word
	_      uint32
}

const (
	slotStart  = 0
	slotEnd    = 8
	slotShift  = 16
	slotPart   = 20
	slotStatus = 24
	slotBase   = 28
	slotSize   = 48
)

// The array of words begins with words that all devices of a load share.
const (
	wordLost     = 0 // statusBits that no device can be named for
	wordInFlight = 1 // writes in the hash of bios
	sharedWords  = 2
)

// The bits of a status word.
const (
	statusAll        = 1 << iota // the whole device is marked
	statusOutside                // a write was outside the device
	statusFull                   // a bio could not be remembered
	statusUnreadable             // a structure of the kernel could not be read
	statusInternal               // an index was outside a map
)

// The value in the hash of bios is the range that the bio writes: its first
// sector and its length, which is wholeDevice for a write without a range.
const (
	knownSector  = 0
	knownSectors = 8
	knownSize    = 16
)

// wholeDevice is longer than any bio.
const wholeDevice = -1

// Places on the stack, below the frame pointer; all of 8 bytes.
const (
	stKey     = -8  // a key for a map
	stIndex   = -16 // an index for the array of words
	stMask    = -24
	stMask2   = -32
	stSector  = -40 // the range to be marked
	stSectors = -48
	stNext    = -56 // the bio to be looked at next, or 0
	stLeft    = -64 // bytes of the completion that belong to bios not looked at
	stCount   = -72 // bios looked at
	stOp      = -80
	stPtr     = -88  // a pointer that was read
	stValue   = -104 // a value for the hash of bios
	stWhole   = -112 // 1 if the bio at hand is complete
	stArg     = -120 // the bio after this one
	stSlot    = -128 // the key of the device that is marked
	stSpan    = -256 // fields that were read at once
	spanSize  = 128
)

// maps are what the programs of one load share.
type maps struct {
	devices *ebpf.Map // disk → slot
	words   *ebpf.Map // the marks
	bios    *ebpf.Map // bio → known; nil if no device needs it
}

// builder makes one program.
type builder struct {
	k     *kernel
	m     maps
	ins   asm.Instructions
	next  string // label for the next instruction
	marks bool   // mark is called
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

func size(n int16) asm.Size {
	if n == 4 {
		return asm.Word
	}
	return asm.DWord
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

// span is fields of one structure that were read with one call.
type span struct {
	b    *builder
	from int16
}

// readSpan reads fields that lie near each other. src is kept.
func (b *builder) readSpan(src asm.Register, fields ...field) (span, error) {
	from, to := fields[0].off, fields[0].off+fields[0].size
	for _, f := range fields {
		from, to = min(from, f.off), max(to, f.off+f.size)
	}
	from = from / 8 * 8 // so that what is aligned there is aligned on the stack
	if to-from > spanSize {
		return span{}, fmt.Errorf("fields of one structure lie %d bytes apart, and %d can be read at once", to-from, spanSize)
	}
	b.probe(stSpan, to-from, src, from, "unreadable")
	return span{b, from}, nil
}

func (s span) load(dst asm.Register, f field) {
	s.b.add(asm.LoadMem(dst, asm.RFP, stSpan+f.off-s.from, size(f.size)))
}

// lookup finds the value for the key in stKey; R0 is 0 if there is none.
func (b *builder) lookup(m *ebpf.Map) {
	b.add(
		asm.LoadMapPtr(asm.R1, m.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, stKey),
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

// diskKey makes the key of the disk that the register points to, in stKey.
func (b *builder) diskKey(disk asm.Register) error {
	s, err := b.readSpan(disk, b.k.disk.major, b.k.disk.minor)
	if err != nil {
		return err
	}
	s.load(asm.R1, b.k.disk.major)
	s.load(asm.R2, b.k.disk.minor)
	b.add(asm.LSh.Imm(asm.R1, 32), asm.Or.Reg(asm.R1, asm.R2))
	b.store(stKey, asm.R1)
	return nil
}

// bdevKey makes the key of the disk of the block device that the register points
// to, in stKey, or ends the program if it points nowhere.
func (b *builder) bdevKey(bdev asm.Register) error {
	b.add(asm.JEq.Imm(bdev, 0, "exit"))
	b.probe(stPtr, 8, bdev, b.k.bdev.disk.off, "unreadable")
	b.load(asm.R7, stPtr)
	b.add(asm.JEq.Imm(asm.R7, 0, "exit"))
	return b.diskKey(asm.R7)
}

// toSectors turns bytes into sectors.
func (b *builder) toSectors(r asm.Register) {
	b.add(asm.Add.Imm(r, 511), asm.RSh.Imm(r, 9))
}

// atomicOr is *(u64 *)dst |= src, for all processors. The operation is in the
// constant of the instruction as the kernel has it. cilium/ebpf up to 0.22 keeps
// it in the opcode and forgets it when it writes the instruction down, which
// leaves an addition; so it is set here as well.
func atomicOr(dst, src asm.Register) asm.Instruction {
	ins := asm.OrAtomic.Mem(dst, src, asm.DWord, 0)
	ins.Constant = int64(asm.Or)
	return ins
}

// or sets bits in a word: the index in R1, the bits in stMask.
func (b *builder) or() {
	b.add(
		asm.StoreMem(asm.RFP, stIndex, asm.R1, asm.Word),
		asm.LoadMapPtr(asm.R1, b.m.words.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, stIndex),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "internal"),
	)
	b.load(asm.R1, stMask)
	b.add(atomicOr(asm.R0, asm.R1))
}

// markFunction makes the function mark(disk, sector, sectors): it marks a range
// on the device with the key disk.
func markFunction(k *kernel, m maps) asm.Instructions {
	b := &builder{k: k, m: m}
	b.label(markName)
	b.add(btf.WithFuncMetadata(asm.Mov.Reg(asm.R7, asm.R2), markType))
	b.add(asm.Mov.Reg(asm.R8, asm.R3))
	b.store(stKey, asm.R1)
	b.lookup(m.devices)
	b.add(
		asm.JEq.Imm(asm.R0, 0, "exit"),
		asm.Mov.Reg(asm.R6, asm.R0),
		asm.JEq.Imm(asm.R8, 0, "exit"),
		asm.Add.Reg(asm.R8, asm.R7), // the first sector behind the range
		asm.LoadMem(asm.R1, asm.R6, slotStart, asm.DWord),
		asm.LoadMem(asm.R2, asm.R6, slotEnd, asm.DWord),
		asm.LoadMem(asm.R3, asm.R6, slotPart, asm.Word),
		asm.JNE.Imm(asm.R3, 0, "part"),
		asm.JGT.Reg(asm.R8, asm.R2, "outside"),
		asm.JGE.Reg(asm.R7, asm.R8, "outside"), // the sum went over
		asm.Ja.Label("relative"),
	)
	b.label("part") // what is outside is on another partition
	b.add(
		asm.JGE.Reg(asm.R7, asm.R2, "exit"),
		asm.JLE.Reg(asm.R8, asm.R1, "exit"),
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
		asm.LoadMem(asm.R3, asm.R6, slotShift, asm.Word),
		asm.RSh.Reg(asm.R7, asm.R3), // the first cluster
		asm.RSh.Reg(asm.R8, asm.R3), // the last one
	)
	for level := range levels {
		two := fmt.Sprintf("two%d", level)
		b.add(
			asm.LoadMem(asm.R9, asm.R6, slotBase+int16(level)*4, asm.Word),
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
		b.add(asm.Ja.Label("exit"))
		b.label(two)
		b.store(stMask, asm.R3)
		b.store(stMask2, asm.R5)
		b.add(asm.Mov.Reg(asm.R1, asm.R9), asm.Add.Reg(asm.R1, asm.R7))
		b.or()
		b.load(asm.R1, stMask2)
		b.store(stMask, asm.R1)
		b.add(asm.Mov.Reg(asm.R1, asm.R9), asm.Add.Reg(asm.R1, asm.R8))
		b.or()
		// The words in between are bits of the next level.
		b.add(
			asm.Add.Imm(asm.R7, 1),
			asm.Sub.Imm(asm.R8, 1),
			asm.JGT.Reg(asm.R7, asm.R8, "exit"),
		)
	}
	// Longer than any request can be: mark more rather than less.
	b.add(asm.Ja.Label("all"))
	b.tail()
	return b.ins
}

// How a program calls mark, and what the verifier must know of it.
const markName = "mark_range"

var (
	u64      = &btf.Int{Name: "unsigned long long", Size: 8}
	i32      = &btf.Int{Name: "int", Size: 4, Encoding: btf.Signed}
	markType = &btf.Func{Name: markName, Linkage: btf.GlobalFunc, Type: &btf.FuncProto{
		Return: i32,
		Params: []btf.FuncParam{{Name: "disk", Type: u64}, {Name: "sector", Type: u64}, {Name: "sectors", Type: u64}},
	}}
	mainType = &btf.FuncProto{
		Return: i32,
		Params: []btf.FuncParam{{Name: "ctx", Type: &btf.Pointer{Target: (*btf.Void)(nil)}}},
	}
)

// mark marks the range in stSector and stSectors on the device whose key is in
// place.
func (b *builder) mark(place int16) {
	b.load(asm.R1, place)
	b.load(asm.R2, stSector)
	b.load(asm.R3, stSectors)
	b.add(asm.Call.Label(markName))
	b.marks = true
}

// finish makes a program of what was built.
func (b *builder) finish(name string) asm.Instructions {
	b.tail()
	ins := b.ins
	if b.marks {
		ins[0] = btf.WithFuncMetadata(ins[0], &btf.Func{Name: name, Linkage: btf.GlobalFunc, Type: mainType}).WithSymbol(name)
		ins = append(ins, rename(markFunction(b.k, b.m))...)
	}
	return ins
}

// rename keeps the labels of mark apart from those of the program it is put
// behind.
func rename(ins asm.Instructions) asm.Instructions {
	for i := range ins {
		if s := ins[i].Symbol(); s != "" && s != markName {
			ins[i] = ins[i].WithSymbol(markName + "." + s)
		}
		if r := ins[i].Reference(); r != "" {
			ins[i] = ins[i].WithReference(markName + "." + r)
		}
	}
	return ins
}

// markKnown marks the range of a bio, which found has copied.
func (b *builder) markKnown() {
	b.load(asm.R1, stSectors)
	b.add(asm.JNE.Imm(asm.R1, wholeDevice, "ranged"))
	b.status(statusAll)
	b.add(asm.Ja.Label("marked"))
	b.label("ranged")
	b.mark(stSlot)
	b.label("marked")
	b.add(asm.Mov.Imm(asm.R1, 0)) // a place for the label, whatever comes next
}

// status sets a bit in the status of the device whose slot R6 points to.
func (b *builder) status(bit int32) {
	b.storeImm(stMask, bit)
	b.add(asm.LoadMem(asm.R1, asm.R6, slotStatus, asm.Word))
	b.or()
}

// tail is where the other pieces jump to when they are done with the event.
func (b *builder) tail() {
	b.label("exit")
	b.add(asm.Mov.Imm(asm.R0, 0), asm.Return())
	for _, end := range []struct {
		label string
		bit   int32
	}{{"all", statusAll}, {"outside", statusOutside}} {
		if !b.jumpsTo(end.label) {
			continue
		}
		b.label(end.label)
		b.status(end.bit)
		b.add(asm.Ja.Label("exit"))
	}
	for _, end := range []struct {
		label string
		bit   int32
	}{{"full", statusFull}, {"unreadable", statusUnreadable}} {
		if !b.jumpsTo(end.label) {
			continue
		}
		b.label(end.label)
		b.storeImm(stMask, end.bit)
		b.add(asm.Mov.Imm(asm.R1, wordLost))
		b.or()
		b.add(asm.Ja.Label("exit"))
	}
	if !b.jumpsTo("internal") {
		return
	}
	// Not through or, whose own way out this is. The first word is always there.
	b.label("internal")
	b.add(
		asm.StoreImm(asm.RFP, stIndex, wordLost, asm.Word),
		asm.LoadMapPtr(asm.R1, b.m.words.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, stIndex),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "exit"),
		asm.Mov.Imm(asm.R1, int32(statusInternal)),
		atomicOr(asm.R0, asm.R1),
		asm.Ja.Label("exit"),
	)
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

// requestComplete marks the range of a completed request, for devices with a
// request queue.
func requestComplete(k *kernel, m maps) (asm.Instructions, error) {
	b := &builder{k: k, m: m}
	b.add(
		argument(asm.R7, k.complete.rq),
		argument(asm.R8, k.complete.bytes),
		asm.Mov.Reg32(asm.R8, asm.R8), // an unsigned int; the upper half is not defined
	)
	rq, err := b.readSpan(asm.R7, k.rq.q, k.rq.cmdFlags, k.rq.sector, k.rq.bio)
	if err != nil {
		return nil, err
	}
	rq.load(asm.R1, k.rq.cmdFlags)
	b.writeOp(asm.R1)
	b.store(stLeft, asm.R8)
	rq.load(asm.R1, k.rq.sector)
	b.store(stSector, asm.R1)
	rq.load(asm.R1, k.rq.bio)
	b.store(stNext, asm.R1)
	rq.load(asm.R7, k.rq.q)
	b.probe(stPtr, 8, asm.R7, k.queue.disk.off, "unreadable")
	b.load(asm.R7, stPtr)
	b.add(asm.JEq.Imm(asm.R7, 0, "exit")) // a queue without a disk
	if err := b.diskKey(asm.R7); err != nil {
		return nil, err
	}
	b.lookup(m.devices)
	b.add(asm.JEq.Imm(asm.R0, 0, "exit"), asm.Mov.Reg(asm.R6, asm.R0))
	b.load(asm.R1, stKey)
	b.store(stSlot, asm.R1)

	b.load(asm.R1, stOp)
	for _, op := range k.ranged {
		b.add(asm.JEq.Imm(asm.R1, op, "plain"))
	}
	b.add(asm.JNE.Imm(asm.R1, k.discard, "all"))
	b.load(asm.R7, stNext)
	b.storeImm(stCount, 0)
	b.add(asm.JNE.Imm(asm.R7, 0, "walk"))

	b.label("plain")
	b.load(asm.R1, stLeft)
	b.toSectors(asm.R1) // none in a flush that was sent as an empty write
	b.store(stSectors, asm.R1)
	b.storeImm(stNext, 0)
	b.storeImm(stCount, 0)
	b.add(asm.Ja.Label("mark"))

	// A discard may have been merged from ranges that do not touch.
	b.label("walk")
	bio, err := b.readSpan(asm.R7, k.bio.next, k.bio.sector, k.bio.size)
	if err != nil {
		return nil, err
	}
	bio.load(asm.R1, k.bio.sector)
	b.store(stSector, asm.R1)
	bio.load(asm.R1, k.bio.next)
	bio.load(asm.R2, k.bio.size)
	b.load(asm.R3, stLeft)
	b.add(
		asm.JLT.Reg(asm.R2, asm.R3, "more"),
		asm.Mov.Imm(asm.R1, 0), // the completion ends in this bio
		asm.Mov.Reg(asm.R3, asm.R2),
	)
	b.label("more")
	b.store(stNext, asm.R1)
	b.add(asm.Sub.Reg(asm.R3, asm.R2))
	b.store(stLeft, asm.R3)
	b.toSectors(asm.R2)
	b.store(stSectors, asm.R2)
	// A jump to what comes next anyway: kernels before 6.9 let a loop be closed
	// by a jump only, and seen from "plain" the loop begins at "mark".
	b.add(asm.Ja.Label("mark"))

	b.label("mark")
	b.mark(stSlot)
	b.load(asm.R7, stNext)
	b.add(asm.JEq.Imm(asm.R7, 0, "exit"))
	b.load(asm.R1, stCount)
	b.add(asm.Add.Imm(asm.R1, 1), asm.JGE.Imm(asm.R1, bioWalk, "all"))
	b.store(stCount, asm.R1)
	b.add(asm.Ja.Label("walk"))

	return b.finish("request_complete"), nil
}

// bioSubmitted marks the range of a bio that is given to a device with a request
// queue, before it gets there; see the package comment on completions that no
// program sees.
func bioSubmitted(k *kernel, m maps) (asm.Instructions, error) {
	b := &builder{k: k, m: m}
	b.add(argument(asm.R9, k.queued.bio))
	bio, err := b.readSpan(asm.R9, k.bio.bdev, k.bio.opf, k.bio.sector, k.bio.size)
	if err != nil {
		return nil, err
	}
	bio.load(asm.R1, k.bio.opf)
	b.writeOp(asm.R1)
	bio.load(asm.R1, k.bio.sector)
	b.store(stSector, asm.R1)
	bio.load(asm.R1, k.bio.size)
	b.toSectors(asm.R1)
	b.store(stSectors, asm.R1)
	bio.load(asm.R7, k.bio.bdev)
	if err := b.bdevKey(asm.R7); err != nil {
		return nil, err
	}
	b.lookup(m.devices)
	b.add(asm.JEq.Imm(asm.R0, 0, "exit"))
	b.load(asm.R1, stKey)
	b.store(stSlot, asm.R1)
	b.mark(stSlot)
	return b.finish("bio_submitted"), nil
}

// remember keeps a bio's range in the hash: the bio in R9, the range in stSector
// and stSectors, its operation in stOp. It does not come back.
func (b *builder) remember() {
	b.store(stKey, asm.R9)
	b.load(asm.R1, stOp)
	for _, op := range append([]int32{b.k.discard}, b.k.ranged...) {
		b.add(asm.JEq.Imm(asm.R1, op, "ranged"))
	}
	b.storeImm(stSectors, wholeDevice)
	b.label("ranged")
	b.load(asm.R1, stSector)
	b.store(stValue+knownSector, asm.R1)
	b.load(asm.R1, stSectors)
	b.store(stValue+knownSectors, asm.R1)
	update := func(flag int32) {
		b.add(
			asm.LoadMapPtr(asm.R1, b.m.bios.FD()),
			asm.Mov.Reg(asm.R2, asm.RFP),
			asm.Add.Imm(asm.R2, stKey),
			asm.Mov.Reg(asm.R3, asm.RFP),
			asm.Add.Imm(asm.R3, stValue),
			asm.Mov.Imm(asm.R4, flag),
			asm.FnMapUpdateElem.Call(),
		)
	}
	// First as a new one, to know whether there is one more in flight.
	update(int32(ebpf.UpdateNoExist))
	b.add(asm.JNE.Imm(asm.R0, 0, "there"))
	b.inFlight(1)
	b.add(asm.Ja.Label("exit"))
	b.label("there")
	update(int32(ebpf.UpdateAny))
	b.add(asm.JNE.Imm(asm.R0, 0, "full"))
	b.add(asm.Ja.Label("exit"))
}

// inFlight changes the count of bios in the hash.
func (b *builder) inFlight(by int32) {
	b.add(
		asm.StoreImm(asm.RFP, stIndex, wordInFlight, asm.Word),
		asm.LoadMapPtr(asm.R1, b.m.words.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, stIndex),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "internal"),
		asm.Mov.Imm(asm.R1, by),
		asm.AddAtomic.Mem(asm.R0, asm.R1, asm.DWord, 0),
	)
}

// forget takes the bio in stKey out of the hash; if it is not in it any more, it
// goes on at gone.
func (b *builder) forget(gone string) {
	b.add(
		asm.LoadMapPtr(asm.R1, b.m.bios.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, stKey),
		asm.FnMapDeleteElem.Call(),
		asm.JNE.Imm(asm.R0, 0, gone),
	)
	b.inFlight(-1)
}

// ownSlot lets R6 point to the slot of the one device of this load.
func (b *builder) ownSlot(key uint64) {
	b.add(asm.LoadImm(asm.R1, int64(key), asm.DWord))
	b.store(stSlot, asm.R1)
	b.add(
		asm.LoadMapPtr(asm.R1, b.m.devices.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, stSlot),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "internal"),
		asm.Mov.Reg(asm.R6, asm.R0),
	)
}

// found copies the range that R0 points to.
func (b *builder) found() {
	b.add(asm.LoadMem(asm.R1, asm.R0, knownSector, asm.DWord))
	b.store(stSector, asm.R1)
	b.add(asm.LoadMem(asm.R1, asm.R0, knownSectors, asm.DWord))
	b.store(stSectors, asm.R1)
}

// bioQueued remembers the range of a bio that is given to the device with the
// key, a device without a request queue.
func bioQueued(k *kernel, m maps, key uint64) (asm.Instructions, error) {
	b := &builder{k: k, m: m}
	b.add(argument(asm.R9, k.queued.bio))
	bio, err := b.readSpan(asm.R9, k.bio.bdev, k.bio.opf, k.bio.sector, k.bio.size)
	if err != nil {
		return nil, err
	}
	bio.load(asm.R1, k.bio.opf)
	b.writeOp(asm.R1)
	bio.load(asm.R1, k.bio.sector)
	b.store(stSector, asm.R1)
	bio.load(asm.R1, k.bio.size)
	b.toSectors(asm.R1)
	b.store(stSectors, asm.R1)
	bio.load(asm.R7, k.bio.bdev)
	if err := b.bdevKey(asm.R7); err != nil {
		return nil, err
	}
	b.load(asm.R1, stKey)
	b.add(asm.LoadImm(asm.R2, int64(key), asm.DWord), asm.JNE.Reg(asm.R1, asm.R2, "exit"))
	b.remember()
	return b.finish("bio_queued"), nil
}

// bioRemapped remembers the range of a bio, or of what is left of it, that the
// device with the key hands on to another device, or that another hands to it.
func bioRemapped(k *kernel, m maps, key uint64) (asm.Instructions, error) {
	b := &builder{k: k, m: m}
	b.add(
		argument(asm.R9, k.remapped.bio),
		argument(asm.R7, k.remapped.dev),
		argument(asm.R8, k.remapped.from),
		asm.Mov.Reg32(asm.R7, asm.R7),
	)
	bio, err := b.readSpan(asm.R9, k.bio.bdev, k.bio.opf, k.bio.sector, k.bio.size)
	if err != nil {
		return nil, err
	}
	bio.load(asm.R1, k.bio.opf)
	b.writeOp(asm.R1)
	bio.load(asm.R1, k.bio.size)
	b.toSectors(asm.R1)
	b.store(stSectors, asm.R1)
	b.store(stSector, asm.R8)
	// From the device? A dev_t inside the kernel: 12 bits major, 20 bits minor.
	b.add(
		asm.Mov.Reg(asm.R1, asm.R7),
		asm.RSh.Imm(asm.R1, 20),
		asm.LSh.Imm(asm.R1, 32),
		asm.And.Imm(asm.R7, 1<<20-1),
		asm.Or.Reg(asm.R1, asm.R7),
		asm.LoadImm(asm.R2, int64(key), asm.DWord),
		asm.JEq.Reg(asm.R1, asm.R2, "ours"),
	)
	// To the device? Then its range is where it is going.
	bio.load(asm.R1, k.bio.sector)
	b.store(stSector, asm.R1)
	bio.load(asm.R7, k.bio.bdev)
	if err := b.bdevKey(asm.R7); err != nil {
		return nil, err
	}
	b.load(asm.R1, stKey)
	b.add(asm.LoadImm(asm.R2, int64(key), asm.DWord), asm.JNE.Reg(asm.R1, asm.R2, "exit"))
	b.label("ours")
	b.remember()
	return b.finish("bio_remapped"), nil
}

// bioComplete marks the range of a bio that completes on the device with the
// key. The last copy forgets it; copies run in the order they were attached in.
func bioComplete(k *kernel, m maps, key uint64, last bool) (asm.Instructions, error) {
	b := &builder{k: k, m: m}
	b.add(argument(asm.R9, k.done.bio))
	b.store(stKey, asm.R9)
	b.lookup(m.bios)
	b.add(asm.JEq.Imm(asm.R0, 0, "unknown"))
	b.found()
	b.ownSlot(key)
	b.markKnown()
	if last {
		b.forget("exit")
	}
	b.add(asm.Ja.Label("exit"))

	// A write that was not seen coming. The other half of one that was, split off
	// by the driver, is no such thing: the whole completes after its parts, and
	// the parts point to it.
	b.label("unknown")
	bio, err := b.readSpan(asm.R9, k.bio.bdev, k.bio.opf, k.bio.private)
	if err != nil {
		return nil, err
	}
	bio.load(asm.R1, k.bio.opf)
	b.writeOp(asm.R1)
	bio.load(asm.R1, k.bio.private)
	b.store(stNext, asm.R1)
	bio.load(asm.R7, k.bio.bdev)
	if err := b.bdevKey(asm.R7); err != nil {
		return nil, err
	}
	b.load(asm.R1, stKey)
	b.add(asm.LoadImm(asm.R2, int64(key), asm.DWord), asm.JNE.Reg(asm.R1, asm.R2, "exit"))
	b.ownSlot(key)
	b.parent("exit", "all")
	return b.finish("bio_complete"), nil
}

// parentDepth is how often a bio may have been split, and the halves again.
const parentDepth = 4

// parent looks for a remembered bio among the parents of the one whose
// bi_private is in stNext. It goes on at found, with R0 at the range and the
// parent in stKey, or at none.
func (b *builder) parent(found, none string) {
	for depth := range parentDepth {
		b.load(asm.R7, stNext)
		b.add(asm.JEq.Imm(asm.R7, 0, none))
		b.store(stKey, asm.R7)
		b.lookup(b.m.bios)
		b.add(asm.JNE.Imm(asm.R0, 0, found))
		if depth < parentDepth-1 {
			// This may be anything, and not a bio at all; it is only compared.
			b.probe(stNext, 8, asm.R7, b.k.bio.private.off, none)
		}
	}
	b.add(asm.Ja.Label(none))
}

// requestRemapped marks the ranges of bios that the device with the key handed
// on as they were, and that complete as part of another device's request. The
// last copy forgets those that are complete.
func requestRemapped(k *kernel, m maps, key uint64, last bool) (asm.Instructions, error) {
	b := &builder{k: k, m: m}
	b.add(
		argument(asm.R7, k.complete.rq),
		argument(asm.R8, k.complete.bytes),
		asm.Mov.Reg32(asm.R8, asm.R8),
	)
	b.store(stLeft, asm.R8)
	rq, err := b.readSpan(asm.R7, k.rq.cmdFlags, k.rq.bio)
	if err != nil {
		return nil, err
	}
	rq.load(asm.R1, k.rq.cmdFlags)
	b.writeOp(asm.R1)
	rq.load(asm.R9, k.rq.bio)
	b.add(asm.JEq.Imm(asm.R9, 0, "exit"))
	b.ownSlot(key)
	b.storeImm(stCount, 0)

	b.label("walk") // R9: the bio
	bio, err := b.readSpan(asm.R9, k.bio.next, k.bio.size, k.bio.private)
	if err != nil {
		return nil, err
	}
	bio.load(asm.R1, k.bio.private)
	b.store(stNext, asm.R1)
	bio.load(asm.R1, k.bio.next)
	bio.load(asm.R2, k.bio.size)
	b.load(asm.R3, stLeft)
	b.storeImm(stWhole, 1)
	b.add(
		asm.JLT.Reg(asm.R2, asm.R3, "more"),
		asm.Mov.Imm(asm.R1, 0), // the completion ends in this bio
		asm.JEq.Reg(asm.R2, asm.R3, "more"),
	)
	b.storeImm(stWhole, 0)
	b.add(asm.Mov.Reg(asm.R3, asm.R2))
	b.label("more")
	b.store(stArg, asm.R1)
	b.add(asm.Sub.Reg(asm.R3, asm.R2))
	b.store(stLeft, asm.R3)
	b.store(stKey, asm.R9)
	b.lookup(m.bios)
	b.add(asm.JNE.Imm(asm.R0, 0, "known"))
	b.parent("known", "next")

	b.label("known")
	b.found()
	b.markKnown()
	if last {
		// The bio is done with when it is complete and no part of it is still
		// under way; the kernel counts them, the bio itself included.
		b.load(asm.R1, stWhole)
		b.add(asm.JEq.Imm(asm.R1, 0, "next"))
		b.load(asm.R7, stKey)
		b.probe(stPtr, k.bio.remaining.size, asm.R7, k.bio.remaining.off, "next")
		b.add(
			asm.LoadMem(asm.R1, asm.RFP, stPtr, asm.Word),
			asm.JGT.Imm(asm.R1, 1, "next"),
		)
		b.forget("next")
	}

	b.label("next")
	b.load(asm.R9, stArg)
	b.add(asm.JEq.Imm(asm.R9, 0, "exit"))
	b.load(asm.R1, stCount)
	b.add(asm.Add.Imm(asm.R1, 1), asm.JGE.Imm(asm.R1, bioWalk, "all"))
	b.store(stCount, asm.R1)
	b.add(asm.Ja.Label("walk"))

	return b.finish("request_remapped"), nil
}
