# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""SQLite's files that a container has open.

SQLite knows a file by its device and its inode, as they were when it was opened (unixInodeInfo in its os_unix.c). Where either is another afterwards, a process
that goes on shares no locks with what it opens then: of two connections of one process each takes the other's, and its memory of the log is cut off.
"""

from __future__ import annotations

import contextlib
import os
import stat
import typing as t

Document = t.Mapping[str, t.Any]

_ENDS = ("-shm", "-wal", "-journal")
_BEGINS = b"SQLite format 3\0"
# Its smallest page.
_LEAST = 512
_DELETED = " (deleted)"
# The process has ended, or has closed the file.
_ENDED = (FileNotFoundError, ProcessLookupError)


def database_of(path: str) -> str:
    """The database that a file is, or lies beside."""
    return next((path[: -len(end)] for end in _ENDS if path.endswith(end)), path)


def volume_of(mounts: t.Iterable[Document], path: str) -> Document | None:
    """The image volume on which a file lies, by its path in the container; None if it lies on none."""
    below = [mount for mount in mounts if path.startswith(mount["destination"].rstrip("/") + "/")]
    volume: Document | None = max(below, key=lambda mount: len(mount["destination"])).get("image_volume") if below else None
    return volume


def open_on(container: Document) -> set[str]:
    """The images of a container's volumes that have a database which is open."""
    mounts = container.get("mounts") or []
    found = (volume_of(mounts, each["detail"]) for each in container.get("obstacles") or [] if each["check"] == "databases")
    return {volume["image"] for volume in found if volume}


def open_databases(root: int, places: t.Iterable[str], proc: str = "/proc") -> list[str]:
    """Those below the folders `places`, as the container names them, by the processes in the process namespace of its first one."""
    below = tuple(place.rstrip("/") + "/" for place in places)
    files = (file for pid in _pids(root, proc) for file in _files(os.path.join(proc, pid)))
    return sorted({path for link, path in files if path.startswith(below) and is_sqlites(link, path)})


def open_in(folder: str, proc: str = "/proc") -> list[str]:
    """The databases that processes have open whose root is this folder, by their paths there."""
    files = (file for pid in _rooted(folder, proc) for file in _files(os.path.join(proc, pid)))
    return sorted({database_of(path) for link, path in files if is_sqlites(link, path)})


def _rooted(folder: str, proc: str) -> t.Iterator[str]:
    if not os.path.isdir(folder):
        return
    whole = os.stat(folder)
    for pid in filter(str.isdigit, os.listdir(proc)):
        with contextlib.suppress(*_ENDED, PermissionError):
            # By its inode: the link is a path in the process's own mount namespace.
            if os.path.samestat(os.stat(os.path.join(proc, pid, "root")), whole):
                yield pid


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


def is_sqlites(link: str, path: str) -> bool:
    """Whether a file is a database of SQLite's, or lies beside one; `link` leads to it."""
    if path.endswith(_ENDS):
        return True
    # One that cannot be read is none. A file of the kernel's has no size, and a read of /proc/kmsg would take from it.
    with contextlib.suppress(OSError):
        status = os.stat(link)
        if stat.S_ISREG(status.st_mode) and status.st_size >= _LEAST and not path.startswith("/sys/"):
            # Without a wait: a program may have a lease on the file, which it is asked to give up.
            descriptor = os.open(link, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                return os.pread(descriptor, len(_BEGINS), 0) == _BEGINS
            finally:
                os.close(descriptor)
    return False
