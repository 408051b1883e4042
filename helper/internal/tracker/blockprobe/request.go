package blockprobe

import "github.com/cilium/ebpf/asm"

// firstTurn ends the program if another copy has dealt with this event: the
// completion of so many bytes, in R8, of the request in R7. The program remembers a
// number made of everything that distinguishes events: the request, its queue, its
// progress, and its start, to the nanosecond. All of that is in the request itself
// but for the queue's number: two of three copies do nothing else than this. Without
// a time no event is remembered, and every copy does all of the work. So it does if
// an interrupt between two copies brought an event of another queue that took the
// place: then the event is counted twice.
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
