# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Secrets: that the destination has the same ones, or can be given them."""

from __future__ import annotations

import typing as t

from .plan import IGNORE, Check, Facts, Plan

CARRY, SAME, REFUSE = "carry", "same", "refuse"
OPTION = "handover_secrets"
_FILE = "file"
_CREATE = "create it there with `podman secret create {0} -`"


def _secrets(plan: Plan) -> t.Iterator[str]:
    for name in plan.container.get("secrets", []):
        if plan.secrets == REFUSE:
            yield "{0} uses the secret {1}, and {2}=refuse moves no container that uses one: choose same or carry".format(plan.workload, name, OPTION)
            continue
        here, there = plan.secrets_here.get(name), plan.secrets_there.get(name)
        if here is None:
            yield "{0} uses the secret {1}, which podman on {2} does not have any more: create it again there with `podman secret create {1} -`".format(
                plan.workload, name, plan.source
            )
        elif here["changed"]:
            yield (
                "the secret {1} has another value on {2} than when {0} was created there, which {0} keeps and a copy of it would not have: "
                "create {0} again, so that it has the new one".format(plan.workload, name, plan.source)
            )
        elif there is None:
            yield from _missing(plan, name, here)
        else:
            yield from _unequal(plan, name, here, there)


def _missing(plan: Plan, name: str, here: Facts) -> t.Iterator[str]:
    if plan.secrets == CARRY and here["driver"] == _FILE:
        return
    if plan.secrets == CARRY:
        yield "{0} uses the secret {1}, which the driver {2} keeps for {3}, and only those of the driver file are carried: {4}".format(
            plan.workload, name, here["driver"], plan.source, _CREATE.format(name)
        )
        return
    yield "{0} uses the secret {1}, which podman on {2} does not have: {3}, or have it copied with {4}=carry".format(
        plan.workload, name, plan.destination, _CREATE.format(name), OPTION
    )


def _unequal(plan: Plan, name: str, here: Facts, there: Facts) -> t.Iterator[str]:
    if not here["digest"] or not there["digest"]:
        driver, host = (there["driver"], plan.destination) if here["digest"] else (here["driver"], plan.source)
        yield (
            "{0} uses the secret {1}, which the driver {2} keeps for {3}, and whether it is the same on {4} cannot be seen: "
            "list the check 'secrets' in {5} if it is".format(plan.workload, name, driver, host, plan.source if here["digest"] else plan.destination, IGNORE)
        )
    elif here["digest"] != there["digest"]:
        yield (
            "{0} uses the secret {1}, which has another value on {2} and is never written over: "
            "make it the same as on {3}, or remove it with `podman secret rm {1}` if nothing else uses it{4}".format(
                plan.workload, name, plan.destination, plan.source, "" if plan.secrets == CARRY else " and have it copied with {0}=carry".format(OPTION)
            )
        )


def carried(plan: Plan) -> list[str]:
    """Names of the secrets that a move makes on the destination, and takes away again if it is undone."""
    if plan.secrets != CARRY:
        return []
    return [name for name in plan.container.get("secrets", []) if name in plan.secrets_here and name not in plan.secrets_there]


def _told(plan: Plan) -> t.Iterator[str]:
    for name in carried(plan):
        yield "the secret {0} that {1} uses is copied to {2}, and {3} keeps it: remove it there with `podman secret rm {0}` if nothing else uses it".format(
            name, plan.workload, plan.destination, plan.source
        )


CHECKS: dict[str, Check] = {"secrets": _secrets}
TOLD: dict[str, Check] = {"secrets": _told}
