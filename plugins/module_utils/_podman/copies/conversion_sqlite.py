# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""SQLite's files that a container has open in a volume.

SQLite knows a file by its device and its inode, as they were when it was opened. In the image volume every file has others, and a process that went on would
share no locks with one that opens the file then.
"""

from __future__ import annotations

import contextlib
import os
import stat
import typing as t

_ENDS = ("-shm", "-wal", "-journal")
_BEGINS = b"SQLite format 3\0"
_DELETED = " (deleted)"
# The process has ended, or has closed the file.
_ENDED = (FileNotFoundError, ProcessLookupError)


def open_databases(root: int, places: t.Iterable[str], proc: str = "/proc") -> list[str]:
    """Those below the folders `places`, as the container names them, by the processes in the process namespace of its first one."""
    below = tuple(place.rstrip("/") + "/" for place in places)
    files = (file for pid in _pids(root, proc) for file in _files(os.path.join(proc, pid)))
    return sorted({path for link, path in files if path.startswith(below) and _is_sqlites(link, path)})


def _pids(root: int, proc: str) -> t.Iterator[str]:
    own = os.readlink(os.path.join(proc, str(root), "ns/pid"))
    for pid in filter(str.isdigit, os.listdir(proc)):
        with contextlib.suppress(*_ENDED, PermissionError):  # the kernel keeps a process of another owner's to itself
            theirs = os.readlink(os.path.join(proc, pid, "ns/pid"))
            if theirs == own:
                yield pid


def _files(process: str) -> t.Iterator[tuple[str, str]]:
    """Open and mapped files, each by a link that leads to it though it may have no name any more, and by its path."""
    for kind in ("fd", "map_files"):
        names: list[str] = []
        with contextlib.suppress(*_ENDED):
            names = os.listdir(os.path.join(process, kind))
        for name in names:
            link = os.path.join(process, kind, name)
            with contextlib.suppress(*_ENDED):
                path = os.readlink(link)
                yield link, path[: -len(_DELETED)] if path.endswith(_DELETED) else path


def _is_sqlites(link: str, path: str) -> bool:
    if path.endswith(_ENDS):
        return True
    with contextlib.suppress(*_ENDED):
        if stat.S_ISREG(os.stat(link).st_mode):
            with open(link, "rb") as source:
                return source.read(len(_BEGINS)) == _BEGINS
    return False
