# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The file of an image volume: made beside its name, and moved into place; grown, reserved, looked at.

A size is in bytes. An error that the user can do something about is a HandoverError, any other one an OSError.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import typing as t

from .._core.runtime import HandoverError
from .._core.sizes import format_size


def kind(mode: int) -> str:
    """The kind of a file by its mode, in words."""
    for test, kind in (
        (stat.S_ISREG, "regular file"),
        (stat.S_ISDIR, "directory"),
        (stat.S_ISLNK, "symbolic link"),
        (stat.S_ISBLK, "block device"),
    ):
        if test(mode):
            return kind
    return "special file"


def directory_state(path: str) -> str:
    """Whether a place for a mount is empty, full, missing, or not a directory."""
    try:
        return "full" if os.listdir(path) else "empty"
    except FileNotFoundError:
        return "missing"
    except NotADirectoryError:
        return "not a directory"


def begins_with(path: str, text: bytes) -> bool:
    """Whether a file begins with these bytes."""
    with open(path, "rb") as source:
        return source.read(len(text)) == text


def device_size(device: str) -> int:
    """Bytes that a block device has."""
    with open(f"/sys/class/block/{os.path.basename(device)}/size", encoding="ascii") as source:
        return int(source.read()) * 512


@contextlib.contextmanager
def draft(path: str) -> t.Iterator[tuple[str, int]]:
    """A new file, readable by root only, that is gone again at the end: a file that stays has another name by then.

    Its lock tells a run that is still at work from one that was killed and left its draft behind.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        _remove_stale_draft(path)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield path, descriptor
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        os.close(descriptor)


def _remove_stale_draft(path: str) -> None:
    with open_image(path) as descriptor:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            raise HandoverError(f"{path} is being made by another run at this moment: wait for it") from exc
        os.unlink(path)


@contextlib.contextmanager
def open_image(path: str) -> t.Iterator[int]:
    """The descriptor of an image for a moment; a symbolic link is none."""
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def truncate(descriptor: int, size: int, path: str) -> None:
    """Gives an image its size, without blocks."""
    try:
        os.ftruncate(descriptor, size)
    except OSError as exc:
        if exc.errno != errno.EFBIG:
            raise
        raise HandoverError(f"{path} cannot have {format_size(size)}: the file system that holds it has no files of that size") from exc


def allocate(descriptor: int, size: int, path: str) -> None:
    """Gives an image all blocks of its size."""
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError as exc:
        if exc.errno != errno.ENOSPC:
            raise
        raise HandoverError(f"{path} could not be reserved in full ({format_size(size)}): the disk is full; free some, or take reserve=none") from exc


def sync_directory(path: str) -> None:
    """Waits until the names in a directory are on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
