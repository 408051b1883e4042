# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A container of a project that moves beside the others of it, each by itself and all at the same moment: what it needs of them."""

from __future__ import annotations

import json
import typing as t

from ..._core.network_checks import carried_beside
from .plan import Check, Plan


def way(project: str, destination: str) -> str:
    """The command that moves all containers of a project at the same moment."""
    return "move all of it live with the playbook move and -e '{0}'".format(json.dumps({"handover_moves": [{"workload": project, "to": destination}]}))


def refusal(plan: Plan) -> t.Iterator[str]:
    """Why such a container does not move without the others."""
    project = plan.container["wave"]
    yield "{0} is a container of the project {1} on {2} ({3}), which moves as one: {4}, or stopped with -e handover_workload={1} {5}".format(
        plan.workload, project, plan.source, ", ".join(plan.container["together"]), way(project, plan.destination), "-e migrate_mode=offline"
    )


def carried(plan: Plan) -> dict[str, int]:
    """How many of its connections are with those that move beside it, by its own address: they are there when it is."""
    return carried_beside(plan, plan.here["host"]["podman"]["networks"]) if plan.in_wave else {}


def _pod_taken(plan: Plan) -> t.Iterator[str]:
    """A pod of that name is there already: it has to be the one that others of the project have come to."""
    if not plan.in_wave:
        return
    listed = plan.there["host"]["podman"]["containers"]
    for pod in plan.container.get("in_pods", []):
        strangers = sorted(each["name"] for each in listed if each.get("pod") == pod["name"] and each.get("project") != plan.container["wave"])
        if strangers:
            yield "{0} has a pod named {1} already, with {2}: remove it there, or rename it".format(plan.destination, pod["name"], ", ".join(strangers))
        if pod.get("cannot_recreate"):
            yield "the pod {0} cannot be made again on {1}: {2}: make it with podman pod create".format(pod["name"], plan.destination, pod["cannot_recreate"])


def _book(plan: Plan) -> t.Iterator[str]:
    if plan.in_wave and plan.container.get("requires") and not plan.there["host"]["podman"].get("sqlite", True):
        yield (
            "{0} requires {1}, and podman on {2} keeps its book in another database than SQLite, in which it cannot be readied before that runs there: "
            "update podman to 4.8 or later, or move the project {3} with migrate_mode=offline".format(
                plan.workload, ", ".join(plan.container["requires"]), plan.destination, plan.container["wave"]
            )
        )


CHECKS: dict[str, Check] = {"wave_pod": _pod_taken, "wave_requires": _book}
