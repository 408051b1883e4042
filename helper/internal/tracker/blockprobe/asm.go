package blockprobe

import (
	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// The programs are in the kernel's own instructions: so few that a compiler, which
// would then have to be there when this is built, is not worth it. The kernel knows
// the types of their arguments (BTF), so they follow its pointers directly, which
// costs next to nothing; where a pointer leads nowhere, zeroes are read.
//
// A program finds the written ranges, and calls the function mark for each, which
// calls mark_slot for each slot of the disk. Both are global in the sense of BPF: the
// verifier looks at them once by themselves, and not again at each of the places and
// turns of a loop that call them, which makes a thousand instructions to verify out
// of a million.
//
// The builder's methods make the parts that programs have in common. Those that can
// end a program jump to one of the labels of its tail: exit, full, deep, internal,
// long. layout.go has the data that programs share with us, mark.go the marking,
// request.go and bio.go the programs for requests and for bios.

// assembler puts instructions in a row. It knows neither the maps nor the kernel's structures.
type assembler struct {
	ins  asm.Instructions
	next string // label for the next instruction
}

// builder makes one program.
type builder struct {
	assembler
	k     *kernel
	m     bpfMaps
	marks bool // mark is called
	bits  int  // how often or was made
}

func (b *assembler) add(ins ...asm.Instruction) {
	for _, i := range ins {
		if b.next != "" {
			i = i.WithSymbol(b.next)
			b.next = ""
		}
		b.ins = append(b.ins, i)
	}
}

// label names the next instruction, which can have one name.
func (b *assembler) label(name string) {
	if b.next != "" {
		panic("tracker: the labels " + b.next + " and " + name + " are in one place")
	}
	b.next = name
}

func (b *assembler) load(dst asm.Register, place int16) {
	b.add(asm.LoadMem(dst, asm.RFP, place, asm.DWord))
}

func (b *assembler) store(place int16, src asm.Register) {
	b.add(asm.StoreMem(asm.RFP, place, src, asm.DWord))
}

// storeImm stores a constant, by way of R0: the verifier of kernels before 6.3 does
// not track the value that a store of an immediate leaves on the stack, and could not
// see that a loop ends.
func (b *assembler) storeImm(place int16, v int32) {
	b.add(asm.Mov.Imm(asm.R0, v))
	b.store(place, asm.R0)
}

// follow reads a field of the structure that src points to.
func (b *assembler) follow(dst, src asm.Register, f field) {
	size := asm.DWord
	if f.size == 4 {
		size = asm.Word
	}
	b.add(asm.LoadMem(dst, src, f.off, size))
}

// lookup finds the value for the key in place; R0 is 0 if there is none.
func (b *assembler) lookup(m *ebpf.Map, place int32) {
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

// finish makes a program of the built instructions.
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

// lostEntry points R0 to the entry for losses that belong to no slot.
func (b *builder) lostEntry() {
	b.add(asm.StoreImm(asm.RFP, stEntry, 0, asm.Word))
	b.lookup(b.m.lost, stEntry)
	b.add(asm.JEq.Imm(asm.R0, 0, "exit")) // it is always there
}

func (b *assembler) jumpsTo(label string) bool {
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

// probe reads n bytes at src+off into place. If the kernel will not, it goes on
// at fail.
func (b *assembler) probe(place int16, n int16, src asm.Register, off int16, fail string) {
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
