# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import math
import typing as t

from ansible_collections.livefleet.handover.plugins.module_utils._kvm.consolidation import verdict


def scaled(counts: t.Mapping[str, int], scale: t.Any) -> dict[str, int]:
    """How often each load does its work in a measurement that is so many times as long; at least once."""
    return {load: math.ceil(count * float(scale)) for load, count in counts.items()}


def consolidation_guests(loads: t.Sequence[t.Mapping[str, t.Any]], tiles: int, prefix: str) -> list[dict[str, t.Any]]:
    """Each load so many times, with a name for each guest."""
    return [{**load, "name": f"{prefix}-{tile}-{number}"} for tile in range(1, int(tiles) + 1) for number, load in enumerate(loads, 1)]


def consolidation_row(measured: t.Mapping[str, t.Any], tiles: int, cache: str, guests: int) -> dict[str, t.Any]:
    """The figures of the guests and those of the host, side by side."""
    return {"tiles": tiles, "cache": cache, "guests": guests, "seconds": measured["seconds"], "loads": measured["loads"], **measured["host"]}


class FilterModule:
    """The verdict of a measurement of guests."""

    def filters(self) -> dict[str, t.Callable]:
        """Name → filter."""
        return {
            "consolidation_guests": consolidation_guests,
            "consolidation_row": consolidation_row,
            "consolidation_verdict": verdict,
            "scaled": scaled,
        }
