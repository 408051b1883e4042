# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The file system of a ploop disk, alone: the disk has a partition table with one partition, and an image volume is a file system from its first byte."""

from __future__ import annotations

import os
import struct
import typing as t

from .._core.runtime import HandoverError, Runtime

SECTOR = 512


def filesystem_in(file: t.BinaryIO, size: int) -> tuple[int, int, str]:
    """Where the disk's only file system begins, how long it is, and its kind."""
    kind = _kind(file, 0)
    if kind:
        return 0, size, kind
    partitions = _partitions(file)
    if len(partitions) != 1:
        raise HandoverError(f"the disk has {len(partitions)} partitions and no file system of its own: a container's has one")
    start, length = partitions[0]
    kind = _kind(file, start)
    if not kind:
        raise HandoverError("the disk's partition holds neither ext4 nor xfs")
    if start + length > size:
        raise HandoverError(f"the disk's partition ends at {start + length}, and the disk at {size}")
    return start, length, kind


def _kind(file: t.BinaryIO, offset: int) -> str:
    file.seek(offset)
    head = file.read(2048)
    if head[:4] == b"XFSB":
        return "xfs"
    return "ext4" if head[1080:1082] == b"\x53\xef" else ""


def _partitions(file: t.BinaryIO) -> list[tuple[int, int]]:
    """Of a GUID partition table: beginning and length in bytes."""
    file.seek(SECTOR)
    header = file.read(92)
    if header[:8] != b"EFI PART":
        raise HandoverError("the disk has neither a file system nor a partition table of the kind that ploop makes")
    table, count, length = struct.unpack_from("<QII", header, 72)
    if not 128 <= length <= 4096 or count > 1024:
        raise HandoverError(f"the disk's partition table has {count} entries of {length} bytes, which no program writes")
    found = []
    for index in range(count):
        file.seek(table * SECTOR + index * length)
        entry = file.read(48)
        if len(entry) == 48 and entry[:16] != bytes(16):
            first, last = struct.unpack_from("<QQ", entry, 32)
            found.append((first * SECTOR, (last - first + 1) * SECTOR))
    return found


def carve(runtime: Runtime, disk: str, image: str) -> str:
    """Makes the disk's file system an image of its own, under its name only when it is whole. Returns its kind."""
    with open(disk, "rb") as file:
        start, length, kind = filesystem_in(file, os.fstat(file.fileno()).st_size)
    if start and not _shorten(runtime, disk, start):
        beside = disk + ".part"
        how = ["bs=4M", "iflag=skip_bytes,count_bytes", "conv=sparse", f"skip={start}", f"count={length}"]
        runtime.run([runtime.tool("dd", "coreutils"), f"if={disk}", f"of={beside}", *how])
        os.replace(beside, disk)
    with open(disk, "r+b") as file:
        file.truncate(length)
        os.fsync(file.fileno())
    if kind == "ext4":
        # 1 says that something was mended: the journal.
        runtime.run([runtime.tool("e2fsck", "e2fsprogs"), "-f", "-p", disk], accept=(0, 1))
    os.makedirs(os.path.dirname(image), exist_ok=True)
    if os.path.lexists(image):
        raise HandoverError(f"{image} exists: nothing is written over; remove it, or give another name in import_openvz_name")
    os.rename(disk, image)
    return kind


def _shorten(runtime: Runtime, disk: str, start: int) -> bool:
    """Takes the beginning away without copying the rest, where the file system below can."""
    tool = runtime.find("fallocate")
    return bool(tool) and runtime.run([str(tool), "--collapse-range", "--offset", "0", "--length", str(start), disk], accept=range(256)).rc == 0
