# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Changes files of an imported root file system. Its links lead nowhere: a link in it could name any file of the host."""

from __future__ import annotations

import contextlib
import fnmatch
import os
import stat
import typing as t

from .mends import Change, Interfaces, Root, needed

KEPT = ".orig"


def mend(folder: str, root: Root, interfaces: Interfaces) -> list[dict[str, t.Any]]:
    """Carries the mends out; each with its reason and the files that it changed."""
    done = []
    for each in needed(root):
        changed = [path for pattern, change in each.files for path in _matching(folder, pattern) if _change(folder, path, change, interfaces)]
        if changed or not each.files:
            done.append({"mend": each.name, "reason": each.reason, "files": changed})
    return done


@contextlib.contextmanager
def _parent(folder: str, path: str) -> t.Iterator[int | None]:
    """The folder of a path below the root, opened without following a link; None where there is none, or a link instead."""
    opened = [os.open(folder, os.O_RDONLY | os.O_DIRECTORY)]
    try:
        for part in path.split("/")[:-1]:
            opened.append(os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=opened[-1]))
        parent: int | None = opened[-1]
    except (FileNotFoundError, NotADirectoryError, OSError):
        parent = None
    try:
        yield parent
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _matching(folder: str, pattern: str) -> list[str]:
    above, _slash, last = pattern.rpartition("/")
    with _parent(folder, pattern) as parent:
        names = [] if parent is None else fnmatch.filter(os.listdir(parent), last)
    return [f"{above}/{name}" for name in sorted(names) if not name.endswith(KEPT)]


def _change(folder: str, path: str, change: Change, interfaces: Interfaces) -> bool:
    """Whether the file is another now. It keeps owner, group and mode; its former self stays under another name."""
    name = path.rpartition("/")[2]
    with _parent(folder, path) as parent:
        if parent is None:
            return False
        try:
            descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=parent)
        except OSError:
            return False
        with open(descriptor, encoding="utf-8", errors="surrogateescape", newline="") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                return False
            before = file.read()
        after = change(before, interfaces)
        if after == before:
            return False
        beside = f".{name}.handover"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(beside, dir_fd=parent)
        made = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=parent)
        with open(made, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            file.write(after)
            os.fchown(file.fileno(), status.st_uid, status.st_gid)
            os.fchmod(file.fileno(), stat.S_IMODE(status.st_mode))
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(name, name + KEPT, src_dir_fd=parent, dst_dir_fd=parent, follow_symlinks=False)
        except FileExistsError:
            pass
        os.rename(beside, name, src_dir_fd=parent, dst_dir_fd=parent)
        return True
