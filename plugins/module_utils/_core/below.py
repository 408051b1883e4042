# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Files below a root file system that is not this host's. Its links lead nowhere: a link in it could name any file of the host."""

from __future__ import annotations

import contextlib
import os
import stat
import typing as t

from .inits import Change
from .runtime import HandoverError

KEPT = ".orig"


@contextlib.contextmanager
def parent_of(folder: str, path: str) -> t.Iterator[int | None]:
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


def read(folder: str, path: str) -> bytes | None:
    """A regular file's contents; None where there is none."""
    with parent_of(folder, path) as parent:
        try:
            descriptor = None if parent is None else os.open(path.rpartition("/")[2], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=parent)
        except OSError:
            return None
        if descriptor is None:
            return None
        with open(descriptor, "rb") as file:
            return file.read() if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else None


def link_of(folder: str, path: str) -> str:
    """Where a link leads; empty where there is none."""
    with parent_of(folder, path) as parent:
        try:
            return "" if parent is None else os.readlink(path.rpartition("/")[2], dir_fd=parent)
        except OSError:
            return ""


def make_folders(folder: str, path: str, mode: int) -> None:
    """The folders above a path; those that are there stay as they are."""
    above = ""
    for part in path.split("/")[:-1]:
        with parent_of(folder, above + part) as parent:
            if parent is not None:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, mode, dir_fd=parent)
        above += part + "/"


def put(folder: str, path: str, content: bytes, mode: int) -> None:
    """A file of root's that is there whole or not at all."""

    def write(beside: str, parent: int) -> None:
        made = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=parent)
        with open(made, "wb") as file:
            file.write(content)
            os.fchmod(file.fileno(), mode)
            file.flush()
            os.fsync(file.fileno())

    _replace(folder, path, write)


def link(folder: str, path: str, target: str) -> None:
    """A link in the place of whatever has that name."""
    _replace(folder, path, lambda beside, parent: os.symlink(target, beside, dir_fd=parent))


def _replace(folder: str, path: str, write: t.Callable[[str, int], None]) -> None:
    name = path.rpartition("/")[2]
    with parent_of(folder, path) as parent:
        if parent is None:
            raise HandoverError(f"/{path} of it lies behind a link, which could lead anywhere on the host: make its folder a real one")
        beside = f".{name}.handover"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(beside, dir_fd=parent)
        write(beside, parent)
        os.rename(beside, name, src_dir_fd=parent, dst_dir_fd=parent)


def change_file(folder: str, path: str, change: Change) -> bool:
    """Whether the file is another now. It keeps owner, group and mode; its former self stays under another name."""
    name = path.rpartition("/")[2]
    with parent_of(folder, path) as parent:
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
        after = change(before)
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
