# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

from ansible_collections.livefleet.handover.plugins.filter.table import table
from ansible_collections.livefleet.handover.plugins.module_utils._core.sizes import format_size

Plan = t.Mapping[str, t.Any]

_COLUMNS = {"workload": "Workload", "source": "From", "destination": "To", "memory": "Memory", "disk": "Disk", "batch": "Batch", "wave": "Wave"}
_OUTCOME = {"workload": "Workload", "source": "From", "destination": "To", "outcome": "Outcome", "pause": "Paused"}


def plan_lines(plan: Plan) -> list[str]:
    """The plan as a table, and the workloads that are no part of it."""
    lines = []
    if plan["moves"]:
        rows = [dict(move, memory=format_size(move["memory"]), disk=format_size(move["disk"]), wave=move["wave"] or None) for move in plan["moves"]]
        lines += table(rows, _COLUMNS)
    else:
        lines.append("There is nothing to move.")
    lines += ["{0} is on {1} already.".format(each["workload"], each["source"]) for each in plan["done"]]
    lines += ["{0} does not run, and will not run there either.".format(each["workload"]) for each in plan["moves"] if not each["running"]]
    return lines


def failed_steps(steps: t.Sequence[str], hostvars: t.Mapping[str, t.Any], before: int) -> list[str]:
    """The steps before this one that have begun and have not come to their end. Those of this one are on their way."""
    known = {step: hostvars[step] for step in steps}
    begun = [step for step, its in known.items() if "__handover_has_begun" in its and "__handover_has_ended" not in its]
    return [step for step in begun if known[step]["__handover_step"]["number"] < before]


def plan_outcome(plan: Plan, hostvars: t.Mapping[str, t.Any], check: bool = False) -> dict[str, t.Any]:
    """The outcome of each move: `lines` to print, the workloads that `failed`, and a `sentence` about them."""
    parts = {move["name"]: [hostvars[step["name"]] for step in plan["steps"] if step["move"].get("name") == move["name"]] for move in plan["moves"]}
    rows = [dict(move, **_outcome(parts[move["name"]], check)) for move in plan["moves"]]
    failed = [row for row in rows if not row["well"]]
    return {
        "lines": _verdicts(rows) if check else table(rows, _OUTCOME) if rows else [],
        "failed": [row["workload"] for row in failed],
        "results": [_result(row, check) for row in rows],
        "sentence": "{0} of {1} {2}: {3}".format(len(failed), len(rows), "cannot move" if check else "were not moved", "; ".join(map(_reason, failed))),
    }


def _reason(row: t.Mapping[str, t.Any]) -> str:
    return row["why"] if row["why"].startswith(row["workload"] + " ") else "{0}: {1}".format(row["workload"], row["why"])


def _verdicts(rows: t.Sequence[t.Mapping[str, t.Any]]) -> list[str]:
    """One sentence for each move of a dry run."""
    way = "{0} {1} move from {2} to {3}{4}."
    return [
        way.format(row["workload"], "can" if row["well"] else "cannot", row["source"], row["destination"], "" if row["well"] else ": " + row["why"].rstrip("."))
        for row in rows
    ]


def _outcome(parts: t.Sequence[t.Mapping[str, t.Any]], check: bool) -> dict[str, t.Any]:
    """The outcome of one move, from the facts under the names of its parts. A dry run looks, in the first part, and does nothing else."""
    if all("__handover_has_ended" in part for part in (parts[:1] if check else parts)):
        paused = paused_ms(parts[-1])
        pause = "{0:.2f} s".format(paused / 1000) if paused else None
        return {"well": True, "outcome": "can move" if check else "moved", "pause": pause, "why": "", "frozen_ms": paused, "path": report_path(parts[-1])}
    why = next((str(part["__handover_why"]) for part in parts if "__handover_why" in part), "")
    if why:
        return {"well": False, "outcome": "failed", "pause": None, "why": why}
    if any("__handover_has_begun" in part for part in parts):
        return {"well": False, "outcome": "not known", "pause": None, "why": "its host did not answer any more: run the same again when it does"}
    return {"well": False, "outcome": "not begun", "pause": None, "why": "not begun, since others had failed"}


def _result(row: t.Mapping[str, t.Any], check: bool) -> dict[str, t.Any]:
    """One move for the next playbook of a workflow, as P(livefleet.handover.move_result#filter) has it."""
    return {
        "workload": row["workload"],
        "from": row["source"],
        "to": row["destination"],
        "verdict": "cannot move" if check and not row["well"] else row["outcome"],
        "frozen_ms": None if check else row.get("frozen_ms"),
        "path": row.get("path", ""),
        "why": row["why"],
    }


def report_path(known: t.Mapping[str, t.Any]) -> str:
    """The page of a move's report; empty where none could be written."""
    return next((path for path in (known.get("__migrate_reported") or {}).get("paths") or () if path.endswith(".html")), "")


def paused_ms(known: t.Mapping[str, t.Any]) -> float:
    """For how long a workload stood still, as the role says that moved it."""
    guest = known.get("__kvm_migrate_done") or {}
    if guest.get("figures"):
        return (guest["figures"].get("downtime_ms") or 0) + (guest.get("held_ms") or 0)
    return ((known.get("__migrate_cutover") or {}).get("status") or {}).get("frozen_ms") or 0


class FilterModule:
    """A plan for people to read."""

    def filters(self) -> dict[str, t.Callable]:
        """Name → filter."""
        return {"plan_lines": plan_lines, "plan_outcome": plan_outcome, "failed_steps": failed_steps}
