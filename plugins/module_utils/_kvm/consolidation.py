# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a host does while guests work on it: looks at the kernel's counters, what was between two of them, and what that says in words.

A look is a dict of counters. A report is the difference of two, or the mean of a figure that is no counter (memory).
"""

from __future__ import annotations

import os
import typing as t

from .._core.host import read_text
from . import host

SECTOR = 512

# Fields of the first line of /proc/stat, after its name.
CPU_FIELDS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")

# Fields of a line of /proc/diskstats, after the name of the device (Documentation/admin-guide/iostats.rst).
DISK_FIELDS = (
    "reads", "reads_merged", "sectors_read", "read_ms", "writes", "writes_merged", "sectors_written", "write_ms", "in_flight", "busy_ms", "waited_ms",
)  # fmt: skip

# Run times that differ by less say nothing.
TELLING = 0.05
# Processors that are as busy as that have nothing left to give.
FULL = 0.95


def look(device: str | None, proc: str = "/proc", ksm: str = "/sys/kernel/mm/ksm") -> dict[str, t.Any]:
    """The counters as they are; of the disk with this number (major:minor), if it is one that the kernel counts for."""
    cpu = dict(zip(CPU_FIELDS, map(int, read_text(os.path.join(proc, "stat")).split("\n", 1)[0].split()[1:9])))
    return {
        "cpu": cpu,
        "disk": disk_counters(read_text(os.path.join(proc, "diskstats")), device),
        "memory": host.memory(read_text(os.path.join(proc, "meminfo"))),
        "ksm": host.page_sharing(ksm),
    }


def disk_counters(text: str, device: str | None) -> dict[str, int] | None:
    for fields in map(str.split, text.splitlines()):
        if ":".join(fields[:2]) == device:
            return dict(zip(DISK_FIELDS, map(int, fields[3:14])))
    return None


def between(looks: t.Sequence[t.Mapping[str, t.Any]], seconds: float) -> dict[str, t.Any]:
    """The host's figures from the first look to the last: parts of its processors, of its disk, and bytes of memory."""
    first, last = looks[0], looks[-1]
    cpu = {name: last["cpu"][name] - first["cpu"][name] for name in CPU_FIELDS}
    ticks = max(1, sum(cpu.values()))
    mean = {name: sum(each["memory"][name] for each in looks) // len(looks) for name in ("used", "used_with_cache", "swap_used")}
    return {
        "user": round((cpu["user"] + cpu["nice"]) / ticks, 4),
        "system": round((cpu["system"] + cpu["irq"] + cpu["softirq"]) / ticks, 4),
        "wait": round(cpu["iowait"] / ticks, 4),
        **_disk_between(first["disk"], last["disk"], seconds),
        "memory": mean["used"],
        "memory_with_cache": mean["used_with_cache"],
        "swap": mean["swap_used"],
        "ksm_saved": last["ksm"]["saved"],
    }


def _disk_between(first: t.Mapping[str, int] | None, last: t.Mapping[str, int] | None, seconds: float) -> dict[str, t.Any]:
    if first is None or last is None:
        return dict.fromkeys(("read_rate", "write_rate", "utilisation", "await_ms"))
    gone = {name: last[name] - first[name] for name in DISK_FIELDS}
    requests = gone["reads"] + gone["writes"]
    return {
        "read_rate": int(gone["sectors_read"] * SECTOR / seconds),
        "write_rate": int(gone["sectors_written"] * SECTOR / seconds),
        "utilisation": round(min(1.0, gone["busy_ms"] / (seconds * 1000)), 4),
        "await_ms": round((gone["read_ms"] + gone["write_ms"]) / requests, 3) if requests else 0.0,
    }


# --- in words ----------------------------------------------------------------

Row = t.Mapping[str, t.Any]


def verdict(rows: t.Sequence[Row]) -> list[str]:
    """The verdict of a table of cells, each with its `tiles`, `cache`, `seconds`, `loads` (load → seconds) and the host's figures."""
    cells = {(row["tiles"], row["cache"]): row for row in rows}
    counts = sorted({row["tiles"] for row in rows})
    pairs = [(count, cells[count, "none"], cells[count, "writeback"]) for count in counts if (count, "none") in cells and (count, "writeback") in cells]
    said = [_faster(count, none, writeback) for count, none, writeback in pairs]
    full = [count for count, *both in pairs if max(row["user"] + row["system"] for row in both) >= FULL]
    if full:
        said.append(
            f"The host's processors were full with {_tiles(full[0])}: from there on the times say more of the processors, and of who else used them, "
            "than of the disk."
        )
    for count, none, _writeback in pairs:
        more = cells.get((count + 1, "writeback"))
        if more and more["seconds"] <= none["seconds"]:
            said.append(f"{_tiles(count + 1)} with writeback take no longer than {_tiles(count)} with none: that is room for one more.")
    if pairs:
        _count, none, writeback = pairs[-1]
        said.append(
            f"Memory in use without cache is {_change(none, writeback, 'memory')} with writeback, with cache "
            f"{_change(none, writeback, 'memory_with_cache')}: the kernel gives mere cache back when memory is needed."
        )
    return said


def _faster(count: int, none: Row, writeback: Row) -> str:
    ratio = none["seconds"] / max(1e-9, writeback["seconds"])
    if abs(ratio - 1) < TELLING:
        return f"With {_tiles(count)} none and writeback take the same time, within {TELLING:.0%}."
    better, factor = ("writeback", ratio) if ratio > 1 else ("none", 1 / ratio)
    gains = {load: none["loads"][load] / max(1e-9, writeback["loads"][load]) for load in none["loads"]}
    most = max(gains, key=lambda load: gains[load] if ratio > 1 else 1 / gains[load])
    gain = gains[most] if ratio > 1 else 1 / gains[most]
    return f"With {_tiles(count)} {better} is {factor:.2f} times as fast; {most} gains most, {gain:.2f} times."


def _tiles(count: int) -> str:
    return "1 tile" if count == 1 else f"{count} tiles"


def _change(before: Row, after: Row, what: str) -> str:
    change = after[what] / max(1, before[what]) - 1
    return "the same" if abs(change) < TELLING else f"{abs(change):.0%} {'more' if change > 0 else 'less'}"
