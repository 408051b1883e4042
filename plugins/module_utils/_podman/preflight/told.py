# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pieces of state that a move leaves behind or makes again, each in one sentence: before the move, in its check, and after it.

None of them is an obstacle. An operator for whom one matters reads of it while the container is still where it was.
"""

from __future__ import annotations

import typing as t

from ..._core import bind_checks, tmpfs_checks
from ..._core.sizes import format_size
from .options import TOLD as OPTIONS
from .plan import Check, Plan
from .secrets import TOLD as SECRETS
from .service import TOLD as SERVICE


def _exec_sessions(plan: Plan) -> t.Iterator[str]:
    entered = plan.container.get("entered", [])
    if entered and plan.live:
        yield "{0} in {1} {2} started by podman exec: {3} not move, and {4} on {5}".format(
            ", ".join("{0} (pid {1})".format(each["process"], each["pid"]) for each in entered),
            plan.workload,
            "was" if len(entered) == 1 else "were",
            "it does" if len(entered) == 1 else "they do",
            "ends" if len(entered) == 1 else "end",
            plan.source,
        )


def _pinned(plan: Plan) -> t.Iterator[str]:
    have = set(plan.there["host"].get("processors", []))
    for each in plan.container.get("pinned", []) if plan.live else []:
        missing = sorted(set(each["processors"]) - have)
        if missing:
            yield "{0} (pid {1}) in {2} is bound to processors of {3}, of which {4} does not have {5}: it runs there on the others, or on all".format(
                each["process"], each["pid"], plan.workload, plan.source, plan.destination, ", ".join(map(str, missing))
            )


def _log(plan: Plan) -> t.Iterator[str]:
    log = plan.container.get("log") or {}
    if log.get("size") and not log["path"].startswith(plan.container.get("static_dir") or "/"):
        yield "the log of {0} up to now ({1}, {2}) stays on {3}, and the one on {4} begins anew".format(
            plan.workload, log["path"], format_size(log["size"]), plan.source, plan.destination
        )
    elif log.get("size"):
        yield "the log of {0} up to now ({1}, {2}) goes with the container on {3}: save it with `podman logs {0}` if it is needed".format(
            plan.workload, log["path"], format_size(log["size"]), plan.source
        )
    elif log.get("driver") == "journald":
        yield "the log of {0} up to now stays in the journal of {1}".format(plan.workload, plan.source)


def _stopped(plan: Plan) -> t.Iterator[str]:
    state = plan.container.get("state", "")
    if state in ("exited", "stopped"):
        yield "{0} does not run, and moves as it is: podman on {1} will call it created, and not know that it {2} with exit code {3}".format(
            plan.workload, plan.destination, "exited" if state == "exited" else "was stopped", plan.container.get("exit_code", 0)
        )


def _growth(plan: Plan) -> t.Iterator[str]:
    """Room that is there for the files as they are, and not for all that may yet be written into them."""
    growth = sum(max(0, volume["size"] - volume["allocated"]) for volume in plan.volumes)
    place = plan.there["host"]["images"]
    free = max(0, place["free"] - sum(volume["allocated"] for volume in plan.volumes))
    if growth > free and not plan.reserve_space:
        yield (
            "the image volumes of {0} may still take {1} on {2}, and {3} will be free there in {4}: "
            "its writes fail when that is full, so make room there".format(
                plan.workload, format_size(growth), plan.destination, format_size(free), place["path"]
            )
        )


def _own_tables(plan: Plan) -> t.Iterator[str]:
    tables = plan.container.get("own_tables", [])
    if plan.live and tables:
        yield "the nftables table {0} of {1} goes along, and connections that {1} forwards for others are new to it on {2}".format(
            ", ".join(tables), plan.workload, plan.destination
        )


TOLD: dict[str, Check] = {
    "bind_mounts": bind_checks.told,
    **SECRETS,
    "exec_sessions": _exec_sessions,
    "affinity": _pinned,
    "growth": _growth,
    "log": _log,
    "own_tables": _own_tables,
    **OPTIONS,
    **SERVICE,
    "stopped": _stopped,
    "tmpfs": tmpfs_checks.told,
}


def told(plan: Plan) -> list[str]:
    """All sentences that hold for this move."""
    asked = plan.member_plans() or [plan]
    return list(dict.fromkeys(sentence for each in asked if each.known for tell in TOLD.values() for sentence in tell(each)))
