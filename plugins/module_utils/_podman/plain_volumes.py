# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A plain volume keeps the files that it was given.

podman takes a volume that is used for the first time for a new one: it gives the folder the owner and the mode that the image has at that place, and fills an
empty one with the image's files.
"""

from __future__ import annotations

import contextlib
import os
import typing as t

from .rollback import remove


@contextlib.contextmanager
def kept(folders: t.Sequence[str]) -> t.Iterator[None]:
    """The folders are afterwards as they were, whatever podman does to them."""
    before = [(folder, os.stat(folder), os.listdir(folder)) for folder in folders]
    yield
    for folder, stat, names in before:
        for name in set(os.listdir(folder)) - set(names):
            remove(os.path.join(folder, name))
        os.chown(folder, stat.st_uid, stat.st_gid)
        os.chmod(folder, stat.st_mode & 0o7777)
        os.utime(folder, ns=(stat.st_atime_ns, stat.st_mtime_ns))
