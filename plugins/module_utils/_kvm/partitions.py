# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The partitions of a guest's disk that lies in a file here, and what each of them has, as util-linux tells it. The file is only read."""

from __future__ import annotations

import shlex
import typing as t
from dataclasses import dataclass

from .._core.runtime import HandoverError, Runtime

# blkid: nothing was found; two kinds of content are as likely.
NOTHING, EITHER = 2, 8
# partx counts in these, whatever the disk's own sectors are.
SECTOR = 512
# Extended partitions of a DOS table hold others, which are in the list, too.
EXTENDED = frozenset(("0x5", "0xf", "0x85"))

# File systems of which the kernel has a driver, perhaps, and those that are more than that.
MOUNTED = frozenset(("ext2", "ext3", "ext4", "xfs", "btrfs", "vfat"))
OTHERS = {
    "": "has no file system that is known here",
    "swap": "is swap space",
    "LVM2_member": "is a physical volume of LVM, and its logical volumes are not activated on a host",
    "crypto_LUKS": "is encrypted with LUKS",
    "BitLocker": "is encrypted with BitLocker",
    "linux_raid_member": "is a member of a RAID",
    "ambivalent": "has marks of two file systems",
}


@dataclass(frozen=True)
class Area:
    """A partition, or a disk that has none."""

    name: str  # vda1, or vda
    type: str  # as blkid calls it; empty: nothing that it knows
    start: int = 0
    size: int = 0  # bytes; 0: to the end

    @property
    def within(self) -> list[str]:
        """losetup's words for it."""
        return ["--offset", str(self.start), "--sizelimit", str(self.size)] if self.size else []

    @property
    def obstacle(self) -> str:
        """Why it is not mounted; empty where it is."""
        if self.type in MOUNTED:
            return ""
        return f"{self.name} {OTHERS[self.type]}" if self.type in OTHERS else f"{self.name} has {self.type}, which is not mounted here"


def look(runtime: Runtime, image: str, target: str, sector: int = SECTOR) -> list[Area]:
    """All areas of a disk, in their order. `sector` is the size of the sectors that the guest sees: its partition table counts in them."""
    whole = Area(target, _type(runtime, image))
    if whole.type:
        return [whole]
    numbers = _partitions(runtime, image, sector)
    if not numbers:
        return [whole]
    return [Area(f"{target}{number}", _type(runtime, image, start, size), start, size) for number, start, size in numbers]


def _type(runtime: Runtime, image: str, start: int = 0, size: int = 0) -> str:
    blkid = runtime.tool("blkid", "util-linux")
    part = ["--offset", str(start), "--size", str(size)] if size else []
    said = runtime.run([blkid, "--probe", "--output", "export", *part, image], accept=(0, NOTHING, EITHER))
    if said.rc == EITHER:
        return "ambivalent"
    return dict(line.partition("=")[::2] for line in said.stdout.splitlines()).get("TYPE", "")


def _partitions(runtime: Runtime, image: str, sector: int) -> list[tuple[int, int, int]]:
    """Number, start and size in bytes of each; none where there is no table."""
    partx = runtime.tool("partx", "util-linux")
    said = runtime.run([partx, "--pairs", "--output", "NR,START,SECTORS,TYPE", "--sector-size", str(sector), image], accept=(0, 1))
    found = []
    for line in said.stdout.splitlines():
        row: dict[str, t.Any] = dict(word.partition("=")[::2] for word in shlex.split(line))
        try:
            number, start, size = int(row["NR"]), int(row["START"]) * SECTOR, int(row["SECTORS"]) * SECTOR
        except (KeyError, ValueError) as exc:
            raise HandoverError(f"partx answered '{line}' for {image}, which names no partition: update util-linux") from exc
        if size and row.get("TYPE", "").lower() not in EXTENDED:
            found.append((number, start, size))
    return found
