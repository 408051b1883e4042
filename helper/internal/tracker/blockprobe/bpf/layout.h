/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The maps that the programs share with pcopy. layout.go has the same numbers, and
 * says what they mean; a test holds the two together.
 */
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "kernel.h"

enum layout {
	LEVELS = 4,
	BIO_WALK = 256,
	SLOTS_OF_DISK = 32,

	ENTRY_WORDS = 512,
	ENTRY_SHIFT = 9,
	SLOT_STATUS = 0,
	SLOT_START = 1,
	SLOT_END = 2,
	SLOT_SHAPE = 3,
	SLOT_BASES = 4,
	SLOT_SEEN = 8,
	SEEN_PARTS = 8,
	LINE_WORDS = 8,

	FRONT_DISK = 0,
	FRONT_START = 1,
	FRONT_END = 2,
	FRONT_SHIFT = 3,
	FRONT_SEEN = 8,
	FRONT_MARKS = 72,
	FRONT_WORDS = 1 << 14,
	FRONTS = 1 << 10,
	FRONT_FACTOR = 37,

	LOST_STATUS = 0,
	LOST_BIOS = 1,

	FLAG_PART = 1 << 0,
	FLAG_BIO = 1 << 1,
	FLAG_MORE = 1 << 2,

	STATUS_ALL = 1 << 0,
	STATUS_OUTSIDE = 1 << 1,
	STATUS_FULL = 1 << 2,
	STATUS_DEEP = 1 << 3,
	STATUS_INTERNAL = 1 << 4,

	TURNS = 256,
	OWNERS_OF_BIO = 2,
	PARENT_DEPTH = 4,
	SLOTS_AT_ONCE = 1 << 10,
	BIOS_AT_ONCE = 1 << 16,
};

/* Longer than any bio: a write without a range. */
#define WHOLE_DEVICE ((u64)-1)

struct slot_key {
	u64 disk, number;
};

struct entry {
	u64 word[ENTRY_WORDS];
};

struct front_words {
	u64 word[FRONT_WORDS];
};

struct lost_words {
	u64 word[LINE_WORDS];
};

struct turn_words {
	u64 word[TURNS];
};

/* What a bio writes on one of the tracked devices that it was seen on. */
struct owner {
	u64 disk, sector, sectors;
};

struct known {
	struct owner owner[OWNERS_OF_BIO];
};

struct slot_array {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE | BPF_F_INNER_MAP);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(u32));
	__uint(value_size, sizeof(struct entry));
};

struct front_array {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(u32));
	__uint(value_size, sizeof(struct front_words));
};

/* Disk and number of a slot to its array. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
	__uint(max_entries, SLOTS_AT_ONCE);
	__type(key, struct slot_key);
	__array(values, struct slot_array);
} table SEC(".maps");

/* A place made of the disk's number to the front of its slot, if it has only one. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, FRONTS);
	__type(key, u32);
	__array(values, struct front_array);
} front SEC(".maps");

/* What no slot can be named for. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct lost_words);
} lost SEC(".maps");

/* The events that each processor has dealt with. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct turn_words);
} turns SEC(".maps");

/* A bio's address to its owners. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, BIOS_AT_ONCE);
	__type(key, u64);
	__type(value, struct known);
} bios SEC(".maps");

/* Keeps the enum in the object, for the test. */
const volatile enum layout layout_in_btf = LEVELS;
