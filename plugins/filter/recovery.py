# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleFilterError
from ansible_collections.livefleet.handover.plugins.filter.earlier_moves import FREEZING
from ansible_collections.livefleet.handover.plugins.plugin_utils._operator import prepares

# A workload is frozen from the first of them on; a stop before the release is undone; after it the destination decides.
UNDECIDED = ("prepare", "presync", *FREEZING)
# A side that has ended in one of them before the workload was handed over: the other waits for it in vain.
ENDED = ("failed", "thawed", "refused", "discarded", "fenced")
Side = t.Mapping[str, t.Any]


def recovery(answers: t.Mapping[str, t.Mapping[str, t.Any]], session: str = "") -> list[dict[str, t.Any]]:
    """Every move that was not brought to its end, and on which host that can be done: one row a move."""
    sides: dict[str, dict[str, tuple[str, Side]]] = {}
    for host, answer in sorted(answers.items()):
        for side in answer.get("sessions") or []:
            # A move with a workload; its image travels in a session that ends with it.
            if side.get("workload") and (not session or side["id"] == session):
                name = side["id"][: -len("-trial")] if side["id"].endswith("-trial") else side["id"]
                sides.setdefault(name, {}).setdefault(side["role"], (host, side))
    if session and not sides:
        return []
    return [_row(name, by_role, answers, bool(session)) for name, by_role in sorted(sides.items())]


def _row(name: str, by_role: t.Mapping[str, tuple[str, Side]], answers: t.Mapping[str, t.Mapping[str, t.Any]], named: bool) -> dict[str, t.Any]:
    plan: dict[str, t.Any] = {}
    for _host, side in by_role.values():
        plan = plan or dict(side.get("plan") or {})
    hosts = {role: by_role[role][0] if role in by_role else plan.get(role) for role in ("source", "destination")}
    states = {role: by_role[role][1]["state"] if role in by_role else None for role in ("source", "destination")}
    row = {
        "session": name,
        "workload": next(side["workload"] for _host, side in by_role.values()),
        "source": hosts["source"],
        "destination": hosts["destination"],
        "source_was": states["source"],
        "destination_was": states["destination"],
        "driver": plan.get("driver") or "podman",
    }
    return dict(row, **_way(by_role, hosts, answers, named))


def _way(
    by_role: t.Mapping[str, tuple[str, Side]], hosts: t.Mapping[str, str | None], answers: t.Mapping[str, t.Any], named: bool
) -> dict[str, t.Any]:
    """Whether it can be ended now, and if not why not."""
    if hosts["source"] is None or hosts["source"] not in answers:
        return {"end": False, "why": "its source is not among the hosts that were asked: {0}".format(hosts["source"] or "nothing says which it is")}
    if "sessions" not in answers[hosts["source"]]:
        return {"end": False, "why": "{0} cannot be asked: bring it back and run this again".format(hosts["source"])}
    undecided = [side for _host, side in by_role.values() if side["state"] in UNDECIDED]
    # A wait for a host that has booted since is in vain, too. A trial ends before the move that it was for begins.
    ended = any(side["state"] in ENDED and not side["id"].endswith("-trial") for _host, side in by_role.values())
    at_work = any(side["running"] for side in undecided) and not ended and not any(side["restarted"] for side in undecided)
    if (at_work or any(prepares(side) for side in undecided)) and not named:
        return {"end": False, "why": "it is under way: to take it back, name it with handover_session"}
    if "source" not in by_role and by_role["destination"][1]["state"] not in UNDECIDED + ("refused", "discarded", "fenced"):
        return {"end": False, "why": "{0} knows nothing of it: look where the workload runs".format(hosts["source"])}
    return {"end": True, "why": ""}


def checked(answers: t.Any, session: str = "") -> list[dict[str, t.Any]]:
    """The filter: its input comes from a playbook."""
    if not isinstance(answers, t.Mapping):
        raise AnsibleFilterError("recovery: what each host answered is needed, by its name, not {0}".format(type(answers).__name__))
    return recovery(answers, session)


class FilterModule:
    """Moves that were not brought to their end."""

    def filters(self) -> dict[str, t.Callable]:
        """Name → filter."""
        return {"recovery": checked}
