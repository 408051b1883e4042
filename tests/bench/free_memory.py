# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Free memory that stays the machine's own while something is measured.

A virtual machine may report its free memory to what it runs on (the kernel's Documentation/mm/free_page_reporting.rst), which takes it away and
brings it again when it is used. On the machine of the lab a GiB that was reported took 3.5 to 11 s to touch, where 0.4 s are enough; which of two
moves, or of two restarts, is given such memory is chance, and says nothing of either. So nothing is reported meanwhile, and what was reported
before is brought first.
"""

from __future__ import annotations

import contextlib
import mmap
import sys
import typing as t
from pathlib import Path

# The least blocks that are reported, as powers of two pages. None is as large as that.
ORDER, NONE = Path("/sys/module/page_reporting/parameters/page_reporting_order"), 11
BALLOONS = Path("/sys/bus/virtio/drivers/virtio_balloon")
# VIRTIO_BALLOON_F_REPORTING of the virtio specification, a place in the line of the features.
REPORTING = 5
GIB = 1 << 30
# It is left to others while the rest is touched.
SPARED = 2 * GIB
# MADV_POPULATE_WRITE of Linux 5.14, which the module mmap has no name for.
POPULATE = 23


def is_reported() -> bool:
    return any(path.read_text()[REPORTING] == "1" for path in BALLOONS.glob("virtio*/features"))


def free() -> int:
    """Bytes that nothing uses; what the page cache has stays where it is, and was not reported."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemFree:"):
            return int(line.split()[1]) << 10
    raise LookupError("/proc/meminfo does not say how much memory is free")


def bring() -> None:
    """Touches the memory that is free, for a moment."""
    held = []
    while free() > SPARED + GIB:
        each = mmap.mmap(-1, GIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        each.madvise(POPULATE)
        held.append(each)
    for each in held:
        each.close()


@contextlib.contextmanager
def kept() -> t.Iterator[None]:
    """Nothing is reported; it needs root. Where nothing is in any case, nothing is done."""
    if not is_reported():
        yield
        return
    before = ORDER.read_text()
    try:
        ORDER.write_text(f"{NONE}\n")
    except OSError as error:
        print(f"free memory goes on being taken away: {ORDER} takes no {NONE}: {error}", file=sys.stderr)
        yield
        return
    try:
        bring()
        yield
    finally:
        ORDER.write_text(before)
