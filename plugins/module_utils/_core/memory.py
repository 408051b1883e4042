# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether there is room in memory for pages that are to stay there."""

from __future__ import annotations

from .host import memory_available
from .runtime import HandoverError
from .sizes import format_size


def check_room(what: str, size: int, limit: int | None, reserve: int, locked: int = 0) -> None:
    """Refuses pages that are over the limit, or would leave less than `reserve` of the memory that is available.

    Pages that are cached already count as available, as the kernel could free them, so they are not subtracted from `size`, unless they are `locked`.
    """
    if limit is not None and size > limit:
        raise HandoverError(f"{what} is {format_size(size)}, more than the limit of {format_size(limit)}: raise the limit, or name less")
    available = memory_available()
    if size - locked + reserve > available:
        raise HandoverError(
            f"{what} is {format_size(size)}, and this host has {format_size(available)} of memory available, of which {format_size(reserve)} are to stay free: "
            "free memory, or name less"
        )
