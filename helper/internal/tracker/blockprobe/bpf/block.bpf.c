/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The programs on the block tracepoints. The package comment of blockprobe says what
 * each of them is for. The kernel knows the types of what they are given (BTF), so
 * they follow its pointers directly; where a pointer leads nowhere, zeroes are read.
 *
 * The kernel gives odd numbers to the operations that write.
 */
#include "mark.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

char license_of_programs[] SEC("license") = "Dual MIT/GPL"; /* the kernel lends some of its helpers to such programs only */

static __always_inline u64 to_sectors(u32 bytes)
{
	return ((u64)bytes + 511) >> 9;
}

static __always_inline u32 operation(u32 flags)
{
	return flags & 0xff; /* REQ_OP_MASK; the rest are flags */
}

static __always_inline bool writes(u32 op)
{
	return op & 1;
}

static __always_inline bool ranged(u32 op)
{
	return op < 64 && ranged_ops >> op & 1;
}

/* The number of a disk as pcopy has it, or 0. No block device has the major number 0. */
static __always_inline u64 disk_of(struct gendisk *disk)
{
	return disk ? (u64)(u32)disk->major << 32 | (u32)disk->first_minor : 0;
}

static __always_inline u64 disk_of_bio(struct bio *bio)
{
	struct block_device *bdev = bio->bi_bdev;

	return bdev ? disk_of(bdev->bd_disk) : 0;
}

static __always_inline bool is_tracked(u64 disk)
{
	struct slot_key key = {disk, 0};

	return bpf_map_lookup_elem(&table, &key);
}

/* Whether a disk without a request queue is tracked. */
static __always_inline bool is_tracked_bio_based(u64 disk)
{
	struct slot_key key = {disk, 0};
	u32 zero = 0;
	void *array = bpf_map_lookup_elem(&table, &key);

	if (!array)
		return false;
	struct entry *slot = bpf_map_lookup_elem(array, &zero);
	if (!slot) {
		lose(STATUS_INTERNAL);
		return false;
	}
	return slot->word[SLOT_SHAPE] >> 32 & FLAG_BIO;
}

/*
 * Whether no other copy has dealt with this completion. What is remembered is a number
 * made of all that tells one event from another: which request of which queue, where it
 * has got to, and when it began, to the nanosecond. All of that is in the request itself
 * but for the queue's number: two of three copies do nothing else than this. Without a
 * time no event is remembered, and every copy does all of the work. So it does if an
 * interrupt between two copies brought an event of another queue that took the place:
 * then the event is counted twice.
 */
static __always_inline bool first_turn(struct request *rq, u32 bytes)
{
	const u64 factor = 0x9e3779b97f4a7c15;
	u32 zero = 0;
	struct turn_words *t = bpf_map_lookup_elem(&turns, &zero);
	u64 started = rq->start_time_ns;

	if (!t || !started)
		return true;
	u64 queue = (u32)rq->q->id, tag = (u32)rq->tag;
	u64 event = ((started ^ rq->__sector * factor) * factor ^ queue * factor) + (tag << 32 | bytes);
	/* The place is by the tag, which two requests under way of one queue do not share. */
	u64 *place = &t->word[(tag + queue * 37) & (TURNS - 1)];
	if (*place == event)
		return false;
	*place = event;
	return true;
}

/*
 * The bios of one completion, one after the other. Returns the sectors of the bio that
 * belong to it, and moves on to the next one; whole is whether the bio ends in it.
 */
static __always_inline u32 next_bio(struct bio **bio, u32 *left, bool *whole)
{
	u32 size = (*bio)->bi_iter.bi_size;

	*whole = size <= *left;
	*bio = (*bio)->bi_next;
	if (size >= *left) {
		size = *left;
		*bio = 0;
	}
	*left -= size;
	return size;
}

/* Marks the ranges of a discard, which may have been merged from some that do not touch. */
static __always_inline void mark_discard(struct request *rq, u64 disk, u32 left)
{
	struct bio *bio = rq->bio;
	bool whole;

	if (!is_tracked(disk) || !bio)
		return;
	for (int n = 0; n < BIO_WALK; n++) {
		u64 sector = bio->bi_iter.bi_sector;
		u32 size = next_bio(&bio, &left, &whole);

		mark(disk, sector, to_sectors(size), FOR_REQUEST);
		if (!bio)
			return;
	}
	mark_all(disk);
}

SEC("tp_btf/block_rq_complete")
int BPF_PROG(request_complete, struct request *rq, int error, u32 bytes)
{
	u32 op = operation(rq->cmd_flags);

	if (!writes(op) || !first_turn(rq, bytes))
		return 0;
	u64 disk = disk_of(rq->q->disk);
	if (!disk)
		return 0;
	if (ranged(op)) /* no sectors in a flush that was sent as an empty write */
		mark_range(disk, rq->__sector, to_sectors(bytes), FOR_REQUEST);
	else if (op == discard_op)
		mark_discard(rq, disk, bytes);
	else
		mark_all(disk);
	return 0;
}

SEC("tp_btf/block_bio_queue")
int BPF_PROG(bio_submitted, struct bio *bio)
{
	u64 disk = writes(operation(bio->bi_opf)) ? disk_of_bio(bio) : 0;

	if (disk)
		mark_range(disk, bio->bi_iter.bi_sector, to_sectors(bio->bi_iter.bi_size), FOR_SUBMISSION);
	return 0;
}

/* Remembers what a bio writes on a device. */
static __always_inline void remember(struct bio *bio, u64 disk, u64 sector)
{
	u32 op = operation(bio->bi_opf);
	u64 key = (u64)bio, sectors = ranged(op) || op == discard_op ? to_sectors(bio->bi_iter.bi_size) : WHOLE_DEVICE;
	struct owner fresh = {disk, sector, sectors}, old = {};
	struct known known = {}, *there = bpf_map_lookup_elem(&bios, &key);

	if (there)
		known = *there;
	if (!known.owner[0].disk || known.owner[0].disk == disk) {
		old = known.owner[0];
		known.owner[0] = fresh;
	} else if (!known.owner[1].disk || known.owner[1].disk == disk) {
		old = known.owner[1];
		known.owner[1] = fresh;
	} else {
		lose(STATUS_DEEP);
		return;
	}
	/* It may have completed unseen, and the bio may be another one in the same place. */
	if (old.disk)
		mark(old.disk, old.sector, old.sectors, FOR_BIO);
	if (bpf_map_update_elem(&bios, &key, &known, BPF_ANY))
		lose(STATUS_FULL);
}

static __always_inline void mark_known(struct known *there)
{
	struct known known = *there;

	if (known.owner[0].disk)
		mark(known.owner[0].disk, known.owner[0].sector, known.owner[0].sectors, FOR_BIO);
	if (known.owner[1].disk)
		mark(known.owner[1].disk, known.owner[1].sector, known.owner[1].sectors, FOR_BIO);
}

SEC("tp_btf/block_bio_queue")
int BPF_PROG(bio_queued, struct bio *bio)
{
	u64 disk = writes(operation(bio->bi_opf)) ? disk_of_bio(bio) : 0;

	if (disk && is_tracked_bio_based(disk))
		remember(bio, disk, bio->bi_iter.bi_sector);
	return 0;
}

/* A bio goes on to another device as it is: what is left of it is remembered, on the device that hands it on, or on the one that gets it. */
SEC("tp_btf/block_bio_remap")
int BPF_PROG(bio_remapped, struct bio *bio, u32 dev, u64 from)
{
	/* A dev_t inside the kernel: 12 bits major, 20 bits minor. */
	u64 disk = (u64)(dev >> 20) << 32 | (dev & ((1 << 20) - 1)), sector = from;

	if (!writes(operation(bio->bi_opf)))
		return 0;
	if (!is_tracked_bio_based(disk)) {
		disk = disk_of_bio(bio);
		sector = bio->bi_iter.bi_sector;
		if (!disk || !is_tracked_bio_based(disk))
			return 0;
	}
	remember(bio, disk, sector);
	return 0;
}

/* Looks for a remembered bio among the parents of one. Any of them may be no bio at all; it is only compared. */
static __always_inline struct known *known_parent(u64 private, u64 *key)
{
#pragma unroll
	for (int depth = 0; depth < PARENT_DEPTH; depth++) {
		if (!private)
			return 0;
		*key = private;
		struct known *known = bpf_map_lookup_elem(&bios, key);
		if (known)
			return known;
		if (bpf_probe_read_kernel(&private, sizeof(private), (void *)(private + bpf_core_field_offset(struct bio, bi_private))))
			return 0;
	}
	return 0;
}

/* The last copy forgets the bio; copies run in the order they were attached in. */
static __always_inline int complete(struct bio *bio, bool last)
{
	u64 key = (u64)bio;
	struct known *known = bpf_map_lookup_elem(&bios, &key);

	if (known) {
		mark_known(known);
		if (last)
			bpf_map_delete_elem(&bios, &key);
		return 0;
	}
	/*
	 * A write that was not seen coming. The other half of one that was, split off by the
	 * driver, is no such thing: the whole completes after its parts, and the parts point
	 * to it.
	 */
	u64 disk = writes(operation(bio->bi_opf)) ? disk_of_bio(bio) : 0;
	if (disk && is_tracked_bio_based(disk) && !known_parent((u64)bio->bi_private, &key))
		mark_all(disk);
	return 0;
}

SEC("tp_btf/block_bio_complete")
int BPF_PROG(bio_complete, void *queue, struct bio *bio)
{
	return complete(bio, false);
}

SEC("tp_btf/block_bio_complete")
int BPF_PROG(bio_complete_last, void *queue, struct bio *bio)
{
	return complete(bio, true);
}

/* Whether no part of a bio is under way any more; the kernel counts them, the bio itself included. */
static __always_inline bool no_part_left(u64 bio)
{
	int parts;

	return !bpf_probe_read_kernel(&parts, sizeof(parts), (void *)(bio + bpf_core_field_offset(struct bio, __bi_remaining))) && (u32)parts <= 1;
}

/* Marks what bios write that a device handed on, and that complete as part of another device's request. */
static __always_inline int complete_handed_on(struct request *rq, u32 left, bool last)
{
	struct bio *bio = rq->bio;
	bool whole;

	if (!writes(operation(rq->cmd_flags)) || !bio)
		return 0;
	for (int n = 0; n < BIO_WALK; n++) {
		u64 key = (u64)bio, private = (u64)bio->bi_private;

		next_bio(&bio, &left, &whole);
		struct known *known = bpf_map_lookup_elem(&bios, &key);
		if (!known)
			known = known_parent(private, &key);
		if (known) {
			mark_known(known);
			if (last && whole && no_part_left(key))
				bpf_map_delete_elem(&bios, &key);
		}
		if (!bio)
			return 0;
	}
	lose_bios();
	return 0;
}

SEC("tp_btf/block_rq_complete")
int BPF_PROG(request_remapped, struct request *rq, int error, u32 bytes)
{
	return complete_handed_on(rq, bytes, false);
}

SEC("tp_btf/block_rq_complete")
int BPF_PROG(request_remapped_last, struct request *rq, int error, u32 bytes)
{
	return complete_handed_on(rq, bytes, true);
}
