# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The tools of this host read disks that are made here: what they say of a table is theirs to know."""

from __future__ import annotations

import shutil
import struct
import subprocess
import uuid
import zlib

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core.runtime import Completed, HandoverError
from ansible_collections.livefleet.handover.plugins.module_utils._kvm import partitions

MIB = 1 << 20
LINUX = uuid.UUID("0FC63DAF-8483-4772-8E79-3D69D8477DE4")
# What blkid goes by, and where it stands.
EXT4 = [(0x438, b"\x53\xef"), (0x400, struct.pack("<IIII", 16, 1024, 0, 900)), (0x418, struct.pack("<I", 0)), (0x44C, struct.pack("<I", 1)),
        (0x45C, struct.pack("<III", 0x4, 0x40, 0))]  # fmt: skip
SWAP = [(0x400, struct.pack("<III", 1, 255, 0)), (4086, b"SWAPSPACE2")]
LUKS = [(0, b"LUKS\xba\xbe\x00\x01"), (168, b"5d8f8a3c-7e0b-4b52-9a30-5f4a5c1c0a01\0")]

pytestmark = pytest.mark.skipif(not (shutil.which("partx") and shutil.which("blkid")), reason="util-linux is not here")


class Tools:
    """Those of this host."""

    def tool(self, name, package):
        return shutil.which(name)

    def run(self, argv, accept=(0,)):
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert done.returncode in accept, done.stderr
        return Completed(tuple(argv), done.returncode, done.stdout, done.stderr)


@pytest.fixture
def tools():
    return Tools()


@pytest.fixture
def disk(tmp_path):
    """A sparse disk, and the function that lays bytes on it."""
    path = tmp_path / "vda.img"
    with open(path, "wb") as target:
        target.truncate(64 * MIB)

    def lay(content, at=0):
        with open(path, "r+b") as target:
            for offset, bytes_ in content:
                target.seek(at + offset)
                target.write(bytes_)
        return str(path)

    return lay


def gpt(parts, sector=512, size=64 * MIB):
    """A table with these parts, each its start and size in MiB: at the beginning, and again at the end."""
    entries = b"".join(
        LINUX.bytes_le + uuid.UUID(int=number + 1).bytes_le + struct.pack("<QQQ", start * MIB // sector, (start + length) * MIB // sector - 1, 0) + bytes(72)
        for number, (start, length) in enumerate(parts)
    ).ljust(128 * 128, b"\0")
    last, span = size // sector - 1, -(-len(entries) // sector)

    def header(here, other, table):
        head = struct.pack("<8sIIIIQQQQ16sQIII", b"EFI PART", 0x10000, 92, 0, 0, here, other, 2 + span, last - span - 1, bytes(16), table, 128, 128,
                           zlib.crc32(entries))  # fmt: skip
        return head[:16] + struct.pack("<I", zlib.crc32(head)) + head[20:]

    return [(446, struct.pack("<B3sB3sII", 0, b"\0\2\0", 0xEE, b"\xff\xff\xff", 1, last)), (510, b"\x55\xaa"), (sector, header(1, last, 2)),
            (2 * sector, entries), ((last - span) * sector, entries), (last * sector, header(last, 1, last - span))]  # fmt: skip


def dos(*entries):
    """A table with entries: type, start and size in sectors."""
    return [(446 + 16 * number, struct.pack("<B3sB3sII", 0, b"", kind, b"", *place)) for number, (kind, *place) in enumerate(entries)] + [(510, b"\x55\xaa")]


def names(found):
    return [(area.name, area.type, area.start, area.size) for area in found]


@pytest.mark.parametrize("sector", [512, 4096])
def test_partitions_of_a_gpt(tools, disk, sector):
    disk(gpt([(1, 8), (16, 4), (32, 1)], sector))
    disk(EXT4, 1 * MIB)
    image = disk(SWAP, 16 * MIB)
    found = partitions.look(tools, image, "vda", sector)
    assert names(found) == [("vda1", "ext4", MIB, 8 * MIB), ("vda2", "swap", 16 * MIB, 4 * MIB), ("vda3", "", 32 * MIB, MIB)]
    assert found[0].within == ["--offset", str(MIB), "--sizelimit", str(8 * MIB)]
    assert [area.obstacle for area in found] == ["", "vda2 is swap space", "vda3 has no file system that is known here"]


def test_logical_partitions_of_a_dos_table_and_not_the_one_that_holds_them(tools, disk):
    disk(dos((0x83, 2048, 2048), (0x05, 8192, 32768)))
    disk(dos((0x83, 2048, 2048)), 8192 * 512)
    image = disk(LUKS, (8192 + 2048) * 512)
    found = partitions.look(tools, image, "sda")
    assert [(area.name, area.start) for area in found] == [("sda1", MIB), ("sda5", 10240 * 512)]
    assert found[1].obstacle == "sda5 is encrypted with LUKS"


def test_a_disk_without_partitions_is_one(tools, disk):
    empty = partitions.look(tools, disk([]), "vdb")
    assert names(empty) == [("vdb", "", 0, 0)] and empty[0].obstacle == "vdb has no file system that is known here"
    found = partitions.look(tools, disk(EXT4), "vdb")
    assert names(found) == [("vdb", "ext4", 0, 0)] and found[0].within == [] and found[0].obstacle == ""


def test_every_kind_that_is_not_mounted_is_told():
    for kind in ("LVM2_member", "linux_raid_member", "BitLocker", "ntfs", "zfs_member", "ambivalent"):
        said = partitions.Area("vda7", kind).obstacle
        assert said.startswith("vda7 ") and (kind in partitions.OTHERS or kind in said)


class Said:
    """Tools that answer this."""

    def __init__(self, rc, text):
        self.completed = Completed((), rc, text, "")

    def tool(self, name, package):
        return name

    def run(self, argv, accept=(0,)):
        return Completed((), 2, "", "") if argv[0] == "blkid" and self.completed.rc != 8 else self.completed


def test_two_marks_are_none():
    assert partitions.look(Said(8, "TYPE=ext4\n"), "/x", "vda")[0].obstacle == "vda has marks of two file systems"


def test_an_answer_of_another_partx_is_an_error():
    with pytest.raises(HandoverError, match="partx answered 'NR=1' for /x, which names no partition"):
        partitions.look(Said(0, "NR=1\n"), "/x", "vda")
