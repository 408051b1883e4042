# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The part of its object map that a FileStore OSD reads when it starts: the logs of its placement groups, and the end of each table, where its index is.

The logs are keys of the map like all others, `<epoch, 10 digits>.<version, 20 digits>` of the object that a placement group has for itself (Ceph:
eversion_t::get_key_name, DBObjectMap::sys_prefix), and in a map that was compacted they lie together. Tables of RocksDB have every sixteenth key in
full, so that they are found by their form, without a look into the tables' indexes. Ceph has RocksDB compress none of them; those of
LevelDB are compressed, and meant whole.
"""

from __future__ import annotations

import os
import re

from .compact import OBJECT_MAP

# Tables grow to 64 MiB, and are read in pieces of this size.
PIECE = 1 << 20
# An index of a table of that size, with its parts.
END = 1 << 20
TABLES = ".sst"
LOG_KEY = re.compile(rb"_USER_\x00(?:dup_)?\d{10}\.\d{20}")
# A key may begin in one piece and end in the next.
LONGEST_KEY = 64


def read_first(home: str) -> dict[str, list[list[int]]]:
    """Path → pieces of it, as [offset, length] in bytes, for the OSD with this folder. Other files than tables of RocksDB are meant whole."""
    folder = os.path.join(home, OBJECT_MAP)
    found: dict[str, list[list[int]]] = {}
    if not os.path.isdir(folder):
        return found
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        try:
            with open(path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size:
                    found[path] = _pieces(file.fileno(), size) if name.endswith(TABLES) else [[0, size]]
        except FileNotFoundError:
            # It was merged into another since.
            continue
    return found


def _pieces(file: int, size: int) -> list[list[int]]:
    """Neighbours are one. It is read and not mapped: a disk that fails is an error then, and not the end of the process."""
    end_of_table = max(0, size - END) // PIECE
    pieces: list[list[int]] = []
    for number in range((size - 1) // PIECE + 1):
        if number < end_of_table and not _has_log(os.pread(file, PIECE + LONGEST_KEY, number * PIECE)):
            continue
        begin, end = number * PIECE, min((number + 1) * PIECE, size)
        if pieces and pieces[-1][0] + pieces[-1][1] == begin:
            pieces[-1][1] += end - begin
        else:
            pieces.append([begin, end - begin])
    return pieces


def _has_log(text: bytes) -> bool:
    """Whether such a key begins in the piece that this begins with."""
    found = LOG_KEY.search(text)
    return found is not None and found.start() < PIECE
