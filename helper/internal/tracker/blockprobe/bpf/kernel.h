/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The members of the kernel's structures that the programs read. Where each of them
 * lies is put in when the programs are loaded, from the running kernel's BTF (CO-RE);
 * kernel.go says by name which of them a kernel lacks.
 */
#pragma once

typedef unsigned int u32;
typedef unsigned long long u64;

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct gendisk {
	int major, first_minor;
};

struct block_device {
	struct gendisk *bd_disk;
};

struct bvec_iter {
	u64 bi_sector;
	u32 bi_size;
};

struct bio {
	struct bio *bi_next;
	struct block_device *bi_bdev;
	u32 bi_opf;
	struct bvec_iter bi_iter;
	void *bi_private;
	struct {
		int counter;
	} __bi_remaining;
};

struct request_queue {
	struct gendisk *disk;
	int id;
};

struct request {
	struct request_queue *q;
	u32 cmd_flags;
	int tag;
	u64 __sector;
	struct bio *bio;
	u64 start_time_ns;
};

#pragma clang attribute pop

/* The numbers of the operations differ from kernel to kernel; kernel.go sets them. */
const volatile u64 ranged_ops; /* a bit for each operation whose range is the request's */
const volatile u32 discard_op;
