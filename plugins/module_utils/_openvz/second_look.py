# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Files that the last pass of a copy has to compare, whatever their size and time say.

rsync takes a file of the same size and time for the same. Older ones compare whole seconds, so that a write in the second of the first pass is missed. And
a file that is written through memory keeps its time until the kernel has written its pages, half a minute later.
"""

from __future__ import annotations

import os
import stat
import typing as t

# The kernel writes a dirty page after 30 s at the latest, and looks each 5 s. The rest is room.
MARGIN = 120.0
# The time that no file of a container has.
MARK = (0, 0)


def mark(folder: str, begun: float) -> int:
    """Gives each file that was written shortly before the pass began, or later, a time of its own. Returns how many they are."""
    return sum(_mark_in(path, begun - MARGIN) for path, _folders, _files in os.walk(folder))


def _mark_in(folder: str, since: float) -> int:
    found = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISREG(status.st_mode) and status.st_mtime >= since:
                os.utime(entry.path, times=MARK, follow_symlinks=False)
                found += 1
    return found


def clock(text: str) -> float:
    """The seconds that the source's `date +%s` says; 0 where it says none, so that every file is compared."""
    words: t.Sequence[str] = text.split()
    return float(words[-1]) if words and words[-1].isdigit() else 0.0
