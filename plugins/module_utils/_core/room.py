# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Room for copies of a snapshot's disks."""

from __future__ import annotations

from . import host
from .move import SPARE_DISK
from .runtime import HandoverError
from .sizes import format_size


def look_for_room(workload: str, need: int, folder: str) -> None:
    """An error where a copy does not fit."""
    free = host.free_space(folder)
    if need + SPARE_DISK > free:
        raise HandoverError(
            "the copy of {0} takes {1}, and {2} is free in {3}: free {4} there, or remove older snapshots".format(
                workload, format_size(need), format_size(free), folder, format_size(need + SPARE_DISK - free)
            )
        )
