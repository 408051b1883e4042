# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The questions to vmtouch(8), and its answers."""

from __future__ import annotations

import glob
import os
import re
import stat
import typing as t
from dataclasses import dataclass

from .runtime import HandoverError

PAGE = os.sysconf("SC_PAGE_SIZE")
_RESIDENT = re.compile(r"^\s*Resident Pages:\s+(\d+)/(\d+)\s", re.MULTILINE)


@dataclass(frozen=True)
class Selection:
    """The files and devices that some paths and patterns mean."""

    paths: tuple[str, ...]
    size: int
    files: int
    devices: tuple[str, ...]


def select(patterns: t.Sequence[str]) -> Selection:
    """Finds the files that the patterns mean now; a directory means all files below it, each of them once, links not followed."""
    paths: dict[str, None] = {}
    for pattern in patterns:
        found = sorted(glob.glob(pattern, recursive=True))
        if not found and not glob.has_magic(pattern):
            raise HandoverError(f"{pattern} does not exist on this host: name files, directories or block devices that are there, or a pattern")
        paths.update(dict.fromkeys(found))
    seen: set[tuple[int, int]] = set()
    chosen, devices, size = [], [], 0
    for path in _leaves(paths):
        try:
            status = os.stat(path)
            if stat.S_ISBLK(status.st_mode):
                key, bytes_ = (0, status.st_rdev), device_size(path)
                devices.append(path)
            elif stat.S_ISREG(status.st_mode):
                key, bytes_ = (status.st_dev, status.st_ino), status.st_size
            else:
                continue
        except FileNotFoundError:
            # A database removes files at any time.
            continue
        if key not in seen:
            seen.add(key)
            chosen.append(path)
            size += -(-bytes_ // PAGE) * PAGE
    return Selection(tuple(chosen), size, len(chosen) - len(devices), tuple(devices))


def _leaves(paths: t.Iterable[str]) -> t.Iterator[str]:
    for path in paths:
        if not os.path.isdir(path):
            yield path
            continue
        for directory, folders, files in os.walk(path):
            folders.sort()
            yield from (os.path.join(directory, name) for name in sorted(files) if not os.path.islink(os.path.join(directory, name)))


def device_size(path: str) -> int:
    """Bytes of a block device."""
    node = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        return os.lseek(node, 0, os.SEEK_END)
    finally:
        os.close(node)


def parse_pages(text: str) -> tuple[int, int]:
    """How many pages are resident, and of how many, from the output of vmtouch."""
    match = _RESIDENT.search(text)
    if not match:
        raise HandoverError(f"vmtouch answered something that is not its summary: {text.strip()[-200:] or 'nothing'}")
    return int(match.group(1)), int(match.group(2))
