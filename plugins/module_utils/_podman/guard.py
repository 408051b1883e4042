# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The mark on the folder under a mount point.

The helper's OCI hook refuses to start a container that would see a marked folder: its volume is not mounted, and it would run without its data. The mark
is an extended attribute, the same as in the helper (package fsid). It is hidden while the volume is mounted.
"""

from __future__ import annotations

import errno
import os

MARK = "trusted.handover.mountpoint"

# A file system that keeps no such attributes, a folder that is gone or has no mark.
_NONE = (errno.ENOTSUP, errno.ENOENT, errno.ENODATA)


def mark(folder: str) -> None:
    """Marks a folder on which nothing is mounted yet."""
    try:
        os.setxattr(folder, MARK, b"1")
    except OSError as exc:
        if exc.errno != errno.ENOTSUP:
            raise


def unmark(folder: str) -> None:
    """Takes the mark off a folder that is no volume's any more."""
    try:
        os.removexattr(folder, MARK)
    except OSError as exc:
        if exc.errno not in _NONE:
            raise
