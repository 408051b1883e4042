# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The unit that starts and stops the container, and a container that goes when it ends."""

from __future__ import annotations

import typing as t

from ..._core import move_checks
from .plan import Check, Facts, Plan

# ExecCondition=, by which a unit asks before it starts.
_SYSTEMD = 243
_KEPT = "{0} is started with --rm by {1}, and podman on {2} keeps its book in another database than SQLite: move it with migrate_mode=offline"
_KEPT_FILES = "keeps the unit's files with .migrated behind their names"


def _service(plan: Plan) -> Facts:
    return plan.container.get("service") or {}


def _made_anew(plan: Plan) -> bool:
    """Whether its unit makes another container at each start, so that nothing is lost with this one that the unit would have kept."""
    return bool(_service(plan).get("made_by_unit"))


def _auto_remove(plan: Plan) -> t.Iterator[str]:
    if not plan.container["auto_remove"]:
        return
    if not _made_anew(plan):
        yield "{0} was started with --rm, so its host forgets it as soon as it stops and could not take it back: create it again without --rm".format(
            plan.workload
        )
    elif plan.live and not plan.here["host"]["podman"].get("sqlite", True):
        yield _KEPT.format(plan.workload, _service(plan)["unit"], plan.source)


def _systemd_unit(plan: Plan) -> t.Iterator[str]:
    service = _service(plan)
    for why in service.get("cannot", []):
        yield "the systemd unit {0} of {1} on {2} {3}".format(service["unit"], plan.workload, plan.source, why)
    there = [*plan.there["workload"].get("units", [])]
    if there:
        yield "{0} has the unit {1} already, which starts a container named {2}: disable it there and remove its file{3}".format(
            plan.destination, ", ".join(there), plan.workload, "; the move brings it along" if service else ""
        )
    if not service or service.get("cannot"):
        return
    for name, host in plan.hosts:
        version = host.get("systemd") or [0]
        if version[0] < _SYSTEMD:
            yield "systemd is {0} on {1}, and {2} or later is needed to move {3}, which its unit {4} starts: install it there".format(
                version[0], name, _SYSTEMD, plan.workload, service["unit"]
            )


def _unit_offline(plan: Plan) -> t.Iterator[str]:
    """A stop by such a unit removes the container with its anonymous volumes."""
    names = sorted(volume["name"][:12] for volume in plan.directories if volume["anonymous"])
    if not plan.live and plan.container["running"] and _made_anew(plan) and names:
        yield (
            "{0} has {1} without a name ({2}), which its unit {3} removes whenever it stops the container: name it in the unit, or move it live".format(
                plan.workload, "a volume" if len(names) == 1 else "volumes", ", ".join(names), _service(plan)["unit"]
            )
        )


def _layer_begins_anew(plan: Plan) -> t.Iterator[str]:
    if not plan.live and plan.container["running"] and _made_anew(plan):
        yield "{0} is made anew on {1} by its unit {2}, as at each start: what it wrote outside of its volumes is gone, and {3} {4}".format(
            plan.workload, plan.destination, _service(plan)["unit"], plan.source, _KEPT_FILES
        )


def _files_kept(plan: Plan) -> t.Iterator[str]:
    service = _service(plan)
    if service and not any(_layer_begins_anew(plan)):
        yield "the unit {0} of {1} goes along, and {2} {3}".format(service["unit"], plan.workload, plan.source, _KEPT_FILES)


def _auto_update(plan: Plan) -> t.Iterator[str]:
    if plan.container.get("auto_update") and not _service(plan):
        yield "{0} is updated by podman auto-update, which needs a unit that starts it: on {1} it has none".format(plan.workload, plan.destination)


CHECKS: dict[str, Check] = {
    "rm": _auto_remove, "systemd_unit": _systemd_unit, "project_units": move_checks.project_units, "unit_offline": _unit_offline,
}  # fmt: skip
TOLD: dict[str, Check] = {"unit_files": _files_kept, "unit_layer": _layer_begins_anew, "auto_update": _auto_update}
