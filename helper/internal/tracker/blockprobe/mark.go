package blockprobe

import (
	"fmt"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

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
	b.add(asm.Mov.Imm(asm.R1, 0)) // a place for the label
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
	b.label("part") // a write outside is on another partition
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

// How a program calls mark, and the verifier's facts about it.
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

// fast does the work of mark and ends the program, for a write that is within one
// word of the front of its disk's only slot. Any other goes on behind it. It leaves
// the range and the disk on the stack, and no register.
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

// count adds the sectors in a place on the stack to the completed ones, in the entry
// that R6 points to.
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
