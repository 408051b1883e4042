# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The end of a check: the pause and the bytes of the move that would follow, and how much was looked at. Nothing is measured yet.

The figures of the pause are those with which the helper's own forecast begins (helper/internal/session/forecast.go); a trial has better ones.
"""

from __future__ import annotations

import typing as t

from .move import Facts, Move
from .progress import duration
from .sizes import format_size
from .times import CRIU_RATE, CRIU_WAYS, PLACED_WAYS

# Milliseconds of an idle container's whole pause on a host that does nothing else (docs/benchmarks/freeze.md).
USUAL_BASE_MS = 200


def parts(move: Move, volumes: t.Iterable[Facts], directories: t.Iterable[Facts], images: t.Iterable[Facts]) -> dict[str, int]:
    """Bytes that have to be on the destination, by kind: memory of a live move, disks, files, and the images that the destination lacks."""
    live = move.live and move.container["running"]
    return {
        "memory": int(move.container.get("memory") or 0) if live else 0,
        "disks": sum(volume["allocated"] for volume in volumes),
        "files": sum(directory["size"] for directory in directories) + int(move.container.get("layer") or 0),
        "images": sum(image["size"] for image in images),
    }


def pause_ms(move: Move, memory: int, placed: bool = False) -> int | None:
    """Milliseconds of a live move's pause if nothing is written in it; None of a move that stops the workload, or of one that does not run."""
    if not move.live or not move.container["running"]:
        return None
    ways = 0 if move.lazy_pages else PLACED_WAYS if placed else CRIU_WAYS
    return USUAL_BASE_MS + round(ways * 1000 * memory / CRIU_RATE)


def follows(move: Move, max_frozen_ms: int, placed: bool) -> str:
    """Why memory that can follow is to, in one sentence; empty: the pause is short enough without."""
    paused = pause_ms(move, parts(move, [], [], [])["memory"], placed) or 0
    if not 0 < max_frozen_ms < paused:
        return ""
    return (
        "the memory of {0} follows when it runs on {1} (lazy pages, chosen by auto): it would stand still for about "
        "{2:.2f} s otherwise, and {3:.2f} s are allowed"
    ).format(move.workload, move.destination, paused / 1000, max_frozen_ms / 1000)


def lines(move: Move, sizes: t.Mapping[str, int], rate: int, checks: int, placed: bool = False) -> list[str]:
    """Sentences for people, after the verdict."""
    said = []
    paused = pause_ms(move, sizes["memory"], placed)
    if paused is not None:
        said.append("It would stand still for about {0:.2f} s, and longer by what it writes meanwhile; handover_trial=only measures it.".format(paused / 1000))
    elif move.container["running"]:
        said.append("It would be stopped, and be down until its last changes are on {0} and it has started there.".format(move.destination))
    listed = ", ".join("{0} {1}".format(kind, format_size(size)) for kind, size in sizes.items() if size)
    total = sum(sizes.values())
    said.append(
        "{0} would be sent ({1}), which takes {2} or more at {3}/s.".format(format_size(total), listed, duration(total / rate), format_size(rate))
        if total
        else "Nothing but its configuration would be sent."
    )
    said.append("{0} checks of both hosts found nothing in the way.".format(checks))
    return said
