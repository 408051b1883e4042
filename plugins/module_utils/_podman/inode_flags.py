# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Flags of files (chattr) that keep an engine from removing them.

podman forgets a volume and leaves its files behind if one of them is immutable or append only.
"""

from __future__ import annotations

import array
import errno
import fcntl
import os
import stat

from .._core.runtime import HandoverError

_GET, _SET = 0x80086601, 0x40086602  # FS_IOC_GETFLAGS, FS_IOC_SETFLAGS on 64-bit hosts
IMMUTABLE, APPEND_ONLY = 0x10, 0x20
_LOCKS = IMMUTABLE | APPEND_ONLY
# The file system has no flags, or the entry is gone.
_NO_FLAGS = (errno.ENOTTY, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


def unlock(root: str) -> None:
    """Takes these flags away from a folder and everything in it, on its file system, and never through a link."""
    if not os.path.isdir(root) or os.path.islink(root):
        return
    device = os.lstat(root).st_dev
    _unlock_one(root)
    for folder, folders, files in os.walk(root):
        kept = []
        for name in [*folders, *files]:
            path = os.path.join(folder, name)
            try:
                found = os.lstat(path)
            except FileNotFoundError:
                continue
            if found.st_dev != device or not (stat.S_ISDIR(found.st_mode) or stat.S_ISREG(found.st_mode)):
                continue
            _unlock_one(path)
            if stat.S_ISDIR(found.st_mode):
                kept.append(name)
        folders[:] = kept


def flags_of(descriptor: int) -> int | None:
    """The flags of an open file; None where its file system has none."""
    word = array.array("i", [0])
    try:
        fcntl.ioctl(descriptor, _GET, word, True)
    except OSError as exc:
        if exc.errno in _NO_FLAGS:
            return None
        raise
    return word[0] & 0xFFFFFFFF


def _unlock_one(path: str) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            flags = flags_of(descriptor)
            if flags is not None and flags & _LOCKS:
                fcntl.ioctl(descriptor, _SET, array.array("i", [flags & ~_LOCKS]))
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        return
    except OSError as exc:
        raise HandoverError(
            "{0} is immutable or append only, and cannot be made another ({1}): take that away with `chattr -i -a`".format(path, exc.strerror)
        ) from exc
