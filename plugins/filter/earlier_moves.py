# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

from ansible_collections.livefleet.handover.plugins.module_utils._core.placement import PAST_RELEASE
from ansible_collections.livefleet.handover.plugins.plugin_utils._operator import prepares

# On its way to the release, if its process lives.
FREEZING = ("barrier", "frozen", "flushed", "prepared")
Side = t.Mapping[str, t.Any]


def earlier_moves(
    here: t.Sequence[Side], workload: str, destination: str, session: str = "", end_only: bool = False, there: t.Sequence[Side] = ()
) -> dict[str, t.Any]:
    """The unfinished moves of a workload from earlier runs: `any`, the one that is `going_on` with the stage it goes on at, and what is `hopeless`."""
    wanted = (session, session + "-trial") if end_only and session else ()
    mine = [side for side in here if side["workload"] == workload and side["role"] == "source" and (not wanted or side["id"] in wanted)]
    mine.sort(key=lambda side: side["id"], reverse=True)
    going_on = next((dict(side, stage=stage) for stage, chosen in _ways(mine, destination, end_only) for side in chosen), {})
    # A live process serves a run, as does the run that prepares a move, unless it is asked for by name.
    hopeless = [side for side in mine if side["id"] != going_on.get("id") and (end_only or not side["running"] and not prepares(side))]
    known = {side["id"] for side in here}
    orphans = [
        side for side in there
        if side["workload"] == workload and side["role"] == "destination" and side["id"] == session and side["id"] not in known
        and side["state"] not in PAST_RELEASE
    ]  # fmt: skip
    return {"any": bool(mine), "going_on": going_on, "hopeless": hopeless + orphans}


def _ways(mine: t.Sequence[Side], destination: str, end_only: bool) -> t.Iterator[tuple[str, list[Side]]]:
    """The stage at which a move goes on, and those that would: past its release in any case, else only if its process lives, and copies there."""
    yield "cutover", [side for side in mine if side["state"] in PAST_RELEASE]
    yield "cutover", [side for side in mine if side["running"] and side["state"] in FREEZING]
    if not end_only:
        yield "presync", [
            side for side in mine if side["running"] and side["state"] == "presync" and (side.get("plan") or {}).get("destination") == destination
        ]


class FilterModule:
    """Moves that an earlier run has not brought to their end."""

    def filters(self) -> dict[str, t.Callable]:
        """Name → filter."""
        return {"earlier_moves": earlier_moves}
