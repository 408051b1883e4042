# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pieces of state that a move of a container of OpenVZ's leaves behind or makes again, each in one sentence. None of them is an obstacle."""

from __future__ import annotations

import typing as t

from ..._core.move import Move
from ..._core.sizes import format_size
from .facts import BY_CRIU, LIBVZCTL


def _places(move: Move) -> t.Iterator[str]:
    there = move.there["host"]["openvz"]
    places = [("private area", move.container["private"], there["private"]), ("root", move.container["root"], there["root"])]
    # Of libvzctl the root stays as its configuration says.
    for what, here, new in places[:1] if move.container["newer"] else places:
        if here != new:
            yield "the {0} of {1} is {2} on {3}, and will be {4} on {5}".format(what, move.workload, here, move.source, new, move.destination)


def _disk(move: Move) -> t.Iterator[str]:
    if move.container["layout"] == "ploop" and move.container["running"]:
        how = (
            "the top layer of the ploop disk of {0} ({1} with those below it) is read as a whole for each pass, and while {0} stands still"
            if move.live
            else "the ploop disk of {0} ({1}) is sent twice, and {0} stands still the second time"
        )
        yield (how + ": the kernel writes to it and tells no watcher").format(move.workload, format_size(move.container["size"]))


def _host_scripts(move: Move) -> t.Iterator[str]:
    own = [name for name in move.container["host_scripts"] if name != "vps.premount"]
    if own:
        yield "the scripts {0} of {1} stay there, and {2} has those of its own".format(", ".join(own), move.source, move.destination)


def _masks(move: Move) -> t.Iterator[str]:
    for name in ("CPUMASK", "NODEMASK"):
        value = move.container["parameters"].get(name, "")
        if value and value not in ("all", "auto"):
            yield "{0} of {1} is {2}, which names processors or nodes of {3}: on {4} the numbers are that host's".format(
                name, move.workload, value, move.source, move.destination
            )


def _scripts(move: Move) -> t.Iterator[str]:
    if move.container["scripts"]:
        yield "the action scripts of {0} move with it ({1}): see that the paths in them are on {2}".format(
            move.workload, ", ".join(sorted(move.container["scripts"])), move.destination
        )


def _way(move: Move) -> t.Iterator[str]:
    """Of the way that a live move takes, what a trial or an undo leaves otherwise than it was."""
    way = move.here["host"]["openvz"].get("way")
    if move.live and way in BY_CRIU:
        why = "as libvzctl has it" if way == LIBVZCTL else "as neither kernel is OpenVZ's"
        yield (
            "CRIU dumps {0} on {1} and restores it on {2}, {3}. If that is undone, calls in {0} that wait end early (EINTR), "
            "and input that waits in its terminals is lost"
        ).format(move.workload, move.source, move.destination, why)
        if move.container["addresses"]:
            yield "vzctl announces the addresses of {0} from {1} before the release: if the move is undone after that, neighbours ask for them again".format(
                move.workload, move.destination
            )


TOLD: dict[str, t.Callable[[Move], t.Iterator[str]]] = {
    "places": _places,
    "disk": _disk,
    "host_scripts": _host_scripts,
    "masks": _masks,
    "own_scripts": _scripts,
    "way": _way,
}


def told(move: Move) -> list[str]:
    """All sentences that hold for this move."""
    return [sentence for tell in TOLD.values() for sentence in tell(move)] if move.known else []
