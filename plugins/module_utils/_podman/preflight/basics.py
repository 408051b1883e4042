# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The facts that any further question needs."""

from __future__ import annotations

import typing as t

from ..._core import move_checks
from . import group
from .plan import Check, Plan


def _unknown_workload(plan: Plan) -> t.Iterator[str]:
    if not plan.container["exists"]:
        listed = plan.here["host"]["podman"]["containers"]
        names = sorted(container["name"] for container in listed)
        yield "there is no container named {0} on {1}: name one of its containers{2}".format(
            plan.workload, plan.source, " ({0})".format(", ".join(names)) if names else ", of which it has none"
        )


def _another_name(plan: Plan) -> t.Iterator[str]:
    # A twin, a session and a report go by the name: an ID is another on the destination.
    if plan.container["exists"] and plan.container["name"] != plan.workload:
        yield "{0} is the container {1} on {2}: name it {1}, as its ID is another on each host".format(plan.workload, plan.container["name"], plan.source)


def _podman_missing(plan: Plan) -> t.Iterator[str]:
    for name, host in plan.hosts:
        if not host["podman"]["installed"]:
            yield "podman is missing on {0}: install the package podman there".format(name)


def _held(plan: Plan) -> t.Iterator[str]:
    for name, facts in ((plan.source, plan.here), (plan.destination, plan.there)):
        if facts["workload"]["held"]:
            yield "podman on {0} does not answer about {1}, which is being checkpointed, restored or held frozen: wait until that has ended".format(
                name, plan.workload
            )


BASICS: dict[str, Check] = {
    "same_host": move_checks.same_host,
    "podman": _podman_missing,
    "workload": _unknown_workload,
    "name": _another_name,
    "held": _held,
    # Among the basics because the twin of a session under way on the destination is no rubbish to be removed.
    "locked": move_checks.locked,
    **group.BASICS,
}
