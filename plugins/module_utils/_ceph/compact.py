# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A database that a running OSD compacts, so that its next start reads little of it."""

from __future__ import annotations

import os

from .._core.runtime import HandoverError, Runtime
from .._core.sizes import format_size
from .asok import AdminSocket
from .osd import Osd

# Below the folder of a FileStore.
OBJECT_MAP = "current/omap"


def compact(osd: Osd, seconds: float) -> None:
    """Has the OSD do it, and waits for so long at most."""
    AdminSocket(osd.socket.path, seconds).call("compact")


def has_room(runtime: Runtime, osd: Osd, size: int, policy: str, otherwise: str) -> bool:
    """Whether the database fits beside itself: compaction lets go of the old tables last, and an OSD that has no block left for a new one aborts.

    If not, that is an error with the policy `always`, and otherwise a warning with the OSD's behaviour.
    """
    room, wanted = osd.socket.call("perf dump", logger="osd")["osd"]["stat_bytes_avail"], 2 * size
    if room >= wanted:
        return True
    why = f"osd.{osd.id} has {format_size(room)} left, and may take {format_size(wanted)} for a while to write its database of {format_size(size)} anew"
    if policy == "always":
        raise HandoverError(f"{why}: make room, or leave compact=always")
    runtime.module.warn(f"{why}: it is not compacted, and {otherwise}")
    return False


def object_map_size(osd: Osd) -> int:
    """Bytes of a FileStore's object map, whose files come and go."""
    size = 0
    for folder, _folders, names in os.walk(os.path.join(osd.home, OBJECT_MAP)):
        for name in names:
            try:
                size += os.stat(os.path.join(folder, name)).st_size
            except FileNotFoundError:
                continue
    return size
