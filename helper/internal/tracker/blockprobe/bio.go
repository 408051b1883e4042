package blockprobe

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

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
		// The remembered bio may have completed on this device unseen, and this one
		// may be another in the same place.
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

// known copies the value that R6 points to in the hash of bios to the stack.
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
		b.add(asm.Mov.Imm(asm.R1, 0)) // a place for the label
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

// bioRemapped remembers the range of a bio, or of the rest of it, that a tracked
// device without a queue hands on to another device, or that another hands to it.
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

// parent looks for a remembered bio among the parents of the one whose bi_private is
// in stNext. It continues at found, with R0 at the parent's value in the hash and the
// parent in stBio, or at none.
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
