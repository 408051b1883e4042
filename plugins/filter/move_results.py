# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

from ansible_collections.livefleet.handover.plugins.filter.plan import paused_ms, report_path

Facts = t.Mapping[str, t.Any]

# The verdict of a move that succeeded. Only such a workload can be brought back.
MOVED = "moved"


def move_result(move: Facts, known: Facts, check: bool = False, why: str = "") -> dict[str, t.Any]:
    """The result of one move for the next playbook of a workflow. known: the facts of the host that moved it."""
    return {
        "workload": move["workload"],
        "from": move["source"],
        "to": move["destination"],
        "verdict": _verdict(check, why),
        "frozen_ms": None if check or why else paused_ms(known),
        "path": "" if check or why else report_path(known),
        "why": why,
    }


def _verdict(check: bool, why: str) -> str:
    if check:
        return "cannot move" if why else "can move"
    return "failed" if why else MOVED


def stays(sentence: str, asked: Facts) -> dict[str, t.Any]:
    """The result of a request that needed no move."""
    place = asked["destination"]
    return {"workload": asked["workload"], "from": place, "to": place, "verdict": "there already", "frozen_ms": 0, "path": "", "why": sentence}


def ways_back(results: t.Sequence[Facts], origin: str = "") -> list[dict[str, str]]:
    """The moves that bring back the workloads that were moved, or those of them that came from some hosts."""
    origins = {each.strip() for each in origin.split(",")} - {""}
    return [
        {"workload": each["workload"], "from": each["to"], "to": each["from"]}
        for each in results
        if each.get("verdict") == MOVED and (not origins or each["from"] in origins)
    ]


class FilterModule:
    """Results that one playbook leaves for the next."""

    def filters(self) -> dict[str, t.Callable]:
        """Name → filter."""
        return {"move_result": move_result, "stays": stays, "ways_back": ways_back}
