# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host of guests from the kernel's side: memory, page sharing, and where a file's data are."""

from __future__ import annotations

import os
import re
import typing as t

from .._core.loop import Mount, major_minor
from .cache import Place

PAGE = os.sysconf("SC_PAGE_SIZE")

# libvirt's settings for QEMU, and the one that lists folders of this host which other hosts reach, too: those are shared
# storage for it on any file system.
QEMU_CONF = "/etc/libvirt/qemu.conf"
EXPORTED = re.compile(r"^\s*shared_filesystems\s*=\s*\[(.*?)\]", re.MULTILINE | re.DOTALL)


def memory(text: str) -> dict[str, int]:
    """The host's memory in bytes, from /proc/meminfo.

    `used_with_cache` is all that is not free; `used` leaves out what the kernel would give back at once when asked for memory: page
    cache, buffers, reclaimable slab. Only the second says whether there is room for another guest.
    """
    fields = {}
    for line in text.splitlines():
        name, _colon, rest = line.partition(":")
        words = rest.split()
        if words:
            fields[name] = int(words[0]) * (1024 if words[1:] == ["kB"] else 1)
    # Shared memory is counted as cache, and cannot be given back.
    cache = fields["Cached"] - fields.get("Shmem", 0) + fields["Buffers"] + fields.get("SReclaimable", 0)
    return {
        "total": fields["MemTotal"],
        "used_with_cache": fields["MemTotal"] - fields["MemFree"],
        "used": fields["MemTotal"] - fields["MemFree"] - cache,
        "available": fields.get("MemAvailable", fields["MemFree"] + cache),
        "cache": cache,
        "swap_used": fields.get("SwapTotal", 0) - fields.get("SwapFree", 0),
    }


def page_sharing(folder: str = "/sys/kernel/mm/ksm") -> dict[str, t.Any]:
    """Whether KSM runs, and how many bytes it saves: `pages_sharing` are the pages that need no memory of their own."""
    numbers = {}
    for name in ("run", "pages_shared", "pages_sharing", "full_scans"):
        try:
            with open(os.path.join(folder, name), encoding="ascii") as source:
                numbers[name] = int(source.read())
        except (OSError, ValueError):
            return {"supported": False, "running": False, "saved": 0, "shared": 0, "full_scans": 0}
    return {
        "supported": True,
        "running": numbers["run"] == 1,
        "saved": numbers["pages_sharing"] * PAGE,
        "shared": numbers["pages_shared"] * PAGE,
        "full_scans": numbers["full_scans"],
    }


def exported_folders(conf: str = QEMU_CONF) -> list[str]:
    """Folders of which libvirt is told that other hosts reach them. None where its settings cannot be read."""
    try:
        with open(conf, encoding="utf-8") as source:
            found = EXPORTED.search(re.sub(r"^\s*#.*$", "", source.read(), flags=re.MULTILINE))
    except OSError:
        return []
    return [os.path.realpath(path) for pair in re.findall(r"\"([^\"]+)\"|'([^']+)'", found.group(1)) for path in pair if path] if found else []


def place_of(path: str, mounts: t.Sequence[Mount], sys_dev: str = "/sys/dev/block", conf: str = QEMU_CONF) -> Place:
    """Where the data of an image file or a block device are. An unknown place stays None."""
    try:
        status = os.stat(path)
    except OSError:
        return Place()
    if os.path.realpath(path).startswith("/dev/"):
        return Place(rotational=_rotational(major_minor(status.st_rdev), sys_dev))
    real = os.path.realpath(path)
    holding = [m for m in mounts if real == m.mountpoint or real.startswith(m.mountpoint.rstrip("/") + "/")]
    # Of two mounts on the same place the later one is seen.
    mount = max(enumerate(holding), key=lambda pair: (len(pair[1].mountpoint), pair[0]))[1] if holding else None
    return Place(
        fstype=mount.fstype if mount else None,
        rotational=_rotational(major_minor(status.st_dev), sys_dev),
        exported=any(real.startswith(folder.rstrip("/") + "/") for folder in exported_folders(conf)),
    )


def _rotational(number: str, sys_dev: str) -> bool | None:
    """Of a partition its disk answers."""
    for place in ("queue/rotational", "../queue/rotational"):
        try:
            with open(os.path.join(sys_dev, number, place), encoding="ascii") as source:
                return source.read().strip() == "1"
        except OSError:
            continue
    return None
