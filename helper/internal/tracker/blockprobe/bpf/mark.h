/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Marking a range of a disk.
 *
 * mark and mark_slot are global functions: the verifier looks at them once by
 * themselves, and not again at each of the places and turns of a loop that call them,
 * which makes a few thousand instructions to verify out of a million.
 */
#pragma once

#include <stdbool.h>

#include "layout.h"

/* What mark is called for. */
enum {
	FOR_REQUEST,    /* one completed, and is counted */
	FOR_SUBMISSION, /* a bio is on its way to a device with a request queue */
	FOR_BIO,        /* one completed, on a device without */
};

/* Keeps the compiler from checking one register and using another. */
#define PINNED(variable) asm volatile("" : "+r"(variable))

static __always_inline void set_status(u64 *word, u64 status)
{
	__sync_fetch_and_or(word, status);
}

/* Says that something was lost that no slot can be named for. */
static __always_inline void lose(u64 status)
{
	u32 zero = 0;
	struct lost_words *l = bpf_map_lookup_elem(&lost, &zero);

	if (l)
		set_status(&l->word[LOST_STATUS], status);
}

/* All devices without a request queue are to be taken as written. */
static __always_inline void lose_bios(void)
{
	u32 zero = 0;
	struct lost_words *l = bpf_map_lookup_elem(&lost, &zero);

	if (l)
		__sync_fetch_and_add(&l->word[LOST_BIOS], 1);
}

/* Most often the submission has set the bits, and looking is cheaper. */
static __always_inline void set_bits(u64 *word, u64 bits)
{
	if ((*word & bits) != bits)
		__sync_fetch_and_or(word, bits);
}

static __always_inline void count(u64 *seen, u64 sectors)
{
	u32 part = bpf_get_smp_processor_id() & (SEEN_PARTS - 1);

	__sync_fetch_and_add(&seen[part * LINE_WORDS], sectors);
}

/* The bits of a word from a cluster's on, and up to a cluster's. */
static __always_inline u64 bits_from(u64 cluster)
{
	return ~0ULL << (cluster & 63);
}

static __always_inline u64 bits_upto(u64 cluster)
{
	return ~0ULL >> (~cluster & 63);
}

/* Sets bits in one word of a slot, whose first entry is at hand. */
static __always_inline bool set_in_slot(void *array, struct entry *first, u32 index, u64 bits)
{
	struct entry *entry = first;

	if (index >= ENTRY_WORDS) {
		u32 at = index >> ENTRY_SHIFT;

		entry = bpf_map_lookup_elem(array, &at);
		if (!entry) {
			lose(STATUS_INTERNAL);
			return false;
		}
	}
	set_bits(&entry->word[index & (ENTRY_WORDS - 1)], bits);
	return true;
}

/* Marks a range, or everything, in one slot. Returns whether the disk may have a slot of the next number. */
__noinline int mark_slot(u64 disk, u64 number, u64 sector, u64 sectors, u64 why)
{
	struct slot_key key = {disk, number};
	u32 zero = 0;

	if (!sectors)
		return 0;
	void *array = bpf_map_lookup_elem(&table, &key);
	if (!array)
		return 0;
	struct entry *slot = bpf_map_lookup_elem(array, &zero);
	if (!slot) {
		lose(STATUS_INTERNAL);
		return 0;
	}
	u32 flags = slot->word[SLOT_SHAPE] >> 32;
	/* Bios on their way to a device without a queue are another program's. */
	if (why == FOR_SUBMISSION && flags & FLAG_BIO)
		return 0;
	if (why == FOR_REQUEST)
		count(&slot->word[SLOT_SEEN], sectors);
	if (sectors == WHOLE_DEVICE)
		goto all;

	u64 start = slot->word[SLOT_START], end = slot->word[SLOT_END], behind = sector + sectors;
	if (flags & FLAG_PART) {
		if (sector >= end || behind <= start)
			goto done; /* on another partition */
		if (sector < start)
			sector = start;
		if (behind > end)
			behind = end;
	} else if (behind > end || sector >= behind) {
		set_status(&slot->word[SLOT_STATUS], STATUS_OUTSIDE);
		goto done;
	}

	u32 shift = slot->word[SLOT_SHAPE] & 63;
	u64 first = (sector - start) >> shift, last = (behind - start - 1) >> shift;
#pragma unroll
	for (int level = 0; level < LEVELS; level++) {
		u32 base = slot->word[SLOT_BASES + level / 2] >> (32 * (level % 2));
		u64 low = bits_from(first), high = bits_upto(last);

		first >>= 6; /* the words they are in */
		last >>= 6;
		if (first == last) {
			set_in_slot(array, slot, base + first, low & high);
			goto done;
		}
		if (!set_in_slot(array, slot, base + first, low) || !set_in_slot(array, slot, base + last, high))
			return 0;
		/* The words in between are bits of the next level. */
		if (++first > --last)
			goto done;
	}
	/* Longer than any request can be: mark more rather than less. */
all:
	set_status(&slot->word[SLOT_STATUS], STATUS_ALL);
done:
	return slot->word[SLOT_SHAPE] >> 32 & FLAG_MORE;
}

/* Marks a range, or everything, in every slot of a disk. */
__noinline int mark(u64 disk, u64 sector, u64 sectors, u64 why)
{
	for (u64 number = 0; number < SLOTS_OF_DISK; number++)
		if (!mark_slot(disk, number, sector, sectors, why))
			break;
	return 0;
}

/*
 * Marks a write that is within one word of the front of its disk's only slot, with no
 * call of any function of the kernel: arrays of one fixed size are looked into by
 * instructions. Returns false for any other.
 */
static __always_inline bool mark_front(u64 disk, u64 sector, u64 sectors, int why)
{
	u32 place = (disk + (disk >> 32) * FRONT_FACTOR) & (FRONTS - 1), zero = 0;
	void *array = bpf_map_lookup_elem(&front, &place);

	if (!array)
		return false;
	struct front_words *f = bpf_map_lookup_elem(array, &zero);
	if (!f || f->word[FRONT_DISK] != disk)
		return false;
	if (!sectors)
		return true;
	u64 start = f->word[FRONT_START], end = f->word[FRONT_END], behind = sector + sectors;
	if (sectors > 1 << 23 || sector < start || sector >= end || behind > end)
		return false; /* 4 GiB are the longest request; and no sum goes over */

	u32 shift = f->word[FRONT_SHIFT] & 63;
	u64 first = (sector - start) >> shift, last = (behind - start - 1) >> shift;
	u64 bits = bits_from(first) & bits_upto(last), word = first >> 6;
	if (word != last >> 6)
		return false;
	PINNED(word);
	if (word >= FRONT_WORDS - FRONT_MARKS)
		return false;
	PINNED(word);
	if (why == FOR_REQUEST)
		count(&f->word[FRONT_SEEN], sectors);
	set_bits(&f->word[FRONT_MARKS + word], bits);
	return true;
}

static __always_inline void mark_range(u64 disk, u64 sector, u64 sectors, int why)
{
	if (!mark_front(disk, sector, sectors, why))
		mark(disk, sector, sectors, why);
}

static __always_inline void mark_all(u64 disk)
{
	mark(disk, 0, WHOLE_DEVICE, FOR_BIO);
}
