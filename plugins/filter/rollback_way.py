# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleFilterError
from ansible_collections.livefleet.handover.plugins.filter.whereabouts import let_go

Answer = t.Mapping[str, t.Any]


class Side(t.NamedTuple):
    """One of the two hosts: what workload_info says of it, and its snapshots."""

    name: str
    answer: Answer
    snapshots: t.Sequence[Answer]

    @property
    def has_it(self) -> bool:
        return bool((self.answer.get("workload") or {}).get("exists"))

    def snapshot(self, name: str) -> Answer | None:
        return next((each for each in self.snapshots if each["name"] == name), None)


def rollback_way(source: Side, destination: Side, asked: Answer) -> dict[str, t.Any]:
    """The way to a snapshot on another host: whether snapshots are to `bring`, the container is to `move`, and it can be `looked` at; or a `problem`."""
    moving = _sessions(source.answer, asked["workload"])
    gone = any(let_go(session, asked["workload"]) for session in moving)
    move = source.has_it or gone
    problem = next(filter(None, (check(source, destination, asked, move and not gone) for check in _CHECKS)), "")
    return {"problem": problem, "move": move, "bring": move or destination.snapshot(asked["snapshot"]) is None, "look": source.has_it and not moving}


def _sessions(answer: Answer, workload: str) -> list[Answer]:
    """Of moves from this host that have not ended."""
    told = [*(answer.get("sessions") or ()), *answer.get("host", {}).get("pcopy", {}).get("sessions", ())]
    found = [each for each in told if each.get("workload") == workload and each.get("role") == "source"]
    return [each for each in found if not each.get("ended") or let_go(each, workload)]


def _guest(source: Side, destination: Side, asked: Answer, _moves: bool) -> str:
    for side in (source, destination):
        if (side.answer.get("guest") or {}).get("exists"):
            return "{0} is a KVM guest on {1}, and snapshots of guests go back on their own host: leave handover_destination away".format(
                asked["workload"], side.name
            )
    return ""


def _nowhere(source: Side, destination: Side, asked: Answer, moves: bool) -> str:
    if moves or destination.has_it or source.has_it:
        return ""
    return "there is no container named {0} on {1} or {2}: name the host that it is on (handover_source)".format(
        asked["workload"], source.name, destination.name
    )


def _unknown(source: Side, destination: Side, asked: Answer, moves: bool) -> str:
    known = [each["name"] for each in source.snapshots]
    if source.snapshot(asked["snapshot"]):
        return ""
    if destination.snapshot(asked["snapshot"]):
        return (
            "the snapshot {0} of {1} is on {2} alone, and {1} on {3}: move it there first (playbook migrate), and go back there then".format(
                asked["snapshot"], asked["workload"], destination.name, source.name
            )
            if moves
            else ""
        )
    return "there is no snapshot {0} of {1} on {2}: {3}".format(
        asked["snapshot"], asked["workload"], source.name, "name one of " + ", ".join(known) if known else "none was taken there"
    )


def _memory(source: Side, destination: Side, asked: Answer, moves: bool) -> str:
    row = source.snapshot(asked["snapshot"]) or destination.snapshot(asked["snapshot"])
    if not asked["memory"] or row is None:
        return ""
    if not row["memory"]:
        return "the snapshot {0} of {1} has no memory: go back without it (handover_memory=false)".format(asked["snapshot"], asked["workload"])
    if moves and not row["fits"]:
        return (
            "the snapshot {0} of {1} does not tell whether its memory is that of this container (it was taken without the configuration, or of an earlier "
            "container), and on {2} it could not be gone back to: go back without it (handover_memory=false)"
        ).format(asked["snapshot"], asked["workload"], destination.name)
    return ""


_CHECKS = (_guest, _nowhere, _unknown, _memory)


def checked(source: t.Any, destination: t.Any, asked: t.Any) -> dict[str, t.Any]:
    """The filter: its input comes from a playbook."""
    sides = []
    for side in (source, destination):
        if not isinstance(side, t.Mapping) or not {"name", "answer", "snapshots"} <= set(side):
            raise AnsibleFilterError("rollback_way: of each host its name, answer and snapshots are needed, not {0}".format(type(side).__name__))
        sides.append(Side(side["name"], side["answer"], side["snapshots"]))
    return rollback_way(sides[0], sides[1], asked)


class FilterModule:
    """The way to a snapshot on another host."""

    def filters(self) -> dict[str, t.Callable]:
        """Name → filter."""
        return {"rollback_way": checked}
