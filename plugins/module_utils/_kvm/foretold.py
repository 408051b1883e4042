# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The end of a check of a guest: the pause and the bytes of the move that would follow, and how much was looked at."""

from __future__ import annotations

import typing as t

from .._core.sizes import format_size

# Milliseconds that QEMU plans for by itself (its migration parameter downtime-limit).
QEMUS_DOWNTIME_MS = 300


def lines(memory: int | None, images: t.Iterable[t.Mapping[str, t.Any]], max_downtime_ms: int, checks: int) -> list[str]:
    """Sentences for people, after the verdict. `memory` is in bytes, None of a guest that is off; an image's `size` is that of the disk in it."""
    said = []
    if memory is not None:
        limit = max_downtime_ms or QEMUS_DOWNTIME_MS
        said.append(f"It would stand still when the rest of its memory takes {limit} ms or less (kvm_migrate_max_downtime_ms).")
    disks = sum(image["size"] for image in images)
    parts = [*([f"{format_size(memory)} of memory"] if memory else []), *([f"disks of up to {format_size(disks)}"] if disks else [])]
    said.append(f"{' and '.join(parts)} would be sent." if parts else "Nothing but its definition would be sent.")
    said.append(f"{checks} checks of both hosts found nothing in the way.")
    return said
