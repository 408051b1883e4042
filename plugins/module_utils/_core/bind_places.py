# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The places of bind mounts on a host: made before a container arrives, put aside when it has left."""

from __future__ import annotations

import ctypes
import errno
import os
import typing as t

from .bind_rules import FILE, FOLDER, KEPT, is_bind
from .runtime import HandoverError

_RENAME_NOREPLACE = 1
_AT_FDCWD = -100


def make(paths: t.Iterable[str], mounts: t.Iterable[t.Mapping[str, t.Any]]) -> None:
    """Makes the missing places, empty: an engine creates no container without it, or makes a folder of its own. The first of `paths` are the deepest."""
    files = {mount["source"] for mount in mounts if mount.get("kind") == FILE}
    for path in reversed(list(paths)):
        try:
            if path in files:
                # It may be the program that the container starts with: a runtime wants that to be one.
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o600))
                os.chmod(path, 0o755)
            else:
                os.mkdir(path, 0o755)
        except OSError as exc:
            raise HandoverError("{0} cannot be made on this host: {1}".format(path, exc.strerror)) from exc


def remove(paths: t.Iterable[str]) -> None:
    """Removes the places that were made, as far as they are empty."""
    for path in paths:
        try:
            if os.path.isdir(path) and not os.path.islink(path):
                os.rmdir(path)
            elif os.path.lexists(path) and os.lstat(path).st_size == 0:
                os.remove(path)
        except OSError as exc:
            if exc.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
                raise HandoverError("{0}, which was made for the move, cannot be removed: {1}".format(path, exc.strerror)) from exc


def empty_folders(mounts: t.Iterable[t.Mapping[str, t.Any]]) -> list[str]:
    """Bind-mounted folders in which nothing is: nothing may be left in them by a container that is only initialised."""
    folders = {mount["source"] for mount in mounts if is_bind(mount) and mount.get("kind") == FOLDER}
    return sorted(path for path in folders if os.path.isdir(path) and not os.listdir(path))


def to_put_aside(paths: t.Iterable[str]) -> list[str]:
    """Those that are still under their names."""
    return [path for path in paths if os.path.lexists(path)]


def put_aside(paths: t.Iterable[str]) -> None:
    """Renames a path that has moved away, and never over anything."""
    for path in to_put_aside(paths):
        if _rename(path, path + KEPT) != 0:
            number = ctypes.get_errno()
            raise HandoverError(
                "{0} has moved to another host and cannot be renamed to {0}{1} ({2}): remove it or rename it".format(
                    path, KEPT, os.strerror(number)
                )
            )


def _rename(path: str, name: str) -> int:
    rename = ctypes.CDLL(None, use_errno=True).renameat2
    return int(rename(_AT_FDCWD, os.fsencode(path), _AT_FDCWD, os.fsencode(name), _RENAME_NOREPLACE))
