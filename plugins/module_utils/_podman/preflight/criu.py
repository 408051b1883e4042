# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""CRIU and the kernels of both hosts."""

from __future__ import annotations

import typing as t

from .plan import IGNORE, PCOPY_CURE, Check, Facts, Plan, dotted

# The action script also runs under runc since this version of CRIU.
HOOKS_SINCE = [3, 19]

# These kernels refuse two socket options that older versions of CRIU ask every TCP socket for.
SOCKETS_SINCE = [4, 2]

SOCKETS_KERNEL = [6, 16]

# Called by runc, it crashes at a line that names a lock, of whatever kind. 4.2.1 does not.
NAMES_NO_LOCK = [4, 1, 1]


def _criu(plan: Plan) -> t.Iterator[str]:
    if not plan.live:
        return
    for name, host in plan.hosts:
        criu = host["criu"]
        if not criu["version"]:
            yield "CRIU is missing on {0}: install the package criu there, or use migrate_mode=offline".format(name)
        elif criu["version"] < HOOKS_SINCE:
            yield "CRIU is {0} on {1}, and its hooks work under runc from {2} on: install a newer one there, or use migrate_mode=offline".format(
                dotted(criu["version"]), name, dotted(HOOKS_SINCE)
            )
        elif criu["version"] == NAMES_NO_LOCK and criu["network_lock"].get("named"):
            yield "CRIU is {0} on {1}, and crashes at the line network-lock in /etc/criu/runc.conf: {2}, which takes it out, or install CRIU 4.2.1".format(
                dotted(criu["version"]), name, PCOPY_CURE
            )
        elif not criu["check"]:
            yield "CRIU does not work on {0}: `criu check` says: {1}".format(name, criu["said"] or "nothing")


def _criu_sockets(plan: Plan) -> t.Iterator[str]:
    if not plan.live:
        return
    for name, host in plan.hosts:
        version, kernel = host["criu"]["version"], _kernel(host)
        if HOOKS_SINCE <= version < SOCKETS_SINCE and kernel >= SOCKETS_KERNEL:
            yield "CRIU is {0} on {1}, and with its kernel {2} TCP sockets need {3} or later: install a newer CRIU there, or use migrate_mode=offline".format(
                dotted(version), name, host["kernel"], dotted(SOCKETS_SINCE)
            )


def _criu_versions(plan: Plan) -> t.Iterator[str]:
    (_source, here), (_destination, there) = plan.hosts
    if plan.live and there["criu"]["version"] and here["criu"]["version"][:2] > there["criu"]["version"][:2]:
        yield "CRIU is {0} on {1} and {2} on {3}, which may not read what the newer one writes: install the same version there".format(
            dotted(here["criu"]["version"]), plan.source, dotted(there["criu"]["version"]), plan.destination
        )


def _kernel_versions(plan: Plan) -> t.Iterator[str]:
    (_source, here), (_destination, there) = plan.hosts
    if plan.live and _kernel(here) > _kernel(there):
        yield (
            "the kernel is {0} on {1} and {2} on {3}, which is older and may lack what processes have in use: "
            "boot the same kernel there, use migrate_mode=offline, or list the check 'kernel' in {4} if a trial on a like pair of hosts went well".format(
                here["kernel"], plan.source, there["kernel"], plan.destination, IGNORE
            )
        )


def _network_lock(plan: Plan) -> t.Iterator[str]:
    """While CRIU dumps, nothing may reach the workload's sockets."""
    if not plan.live or not plan.container["networks"]:
        return
    lock = plan.here["host"]["criu"]["network_lock"]
    if lock["method"] == "skip":
        yield "CRIU on {0} is told not to lock the network (network-lock in /etc/criu/runc.conf), so connections would break: {1}".format(
            plan.source, PCOPY_CURE
        )
    elif not lock["works"] and plan.here["host"]["criu"]["version"]:
        yield "CRIU on {0} cannot lock the network with {1}: install the package {1} there, or use migrate_mode=offline".format(plan.source, lock["method"])


def _kernel(host: Facts) -> list[int]:
    return [int(part) for part in host["kernel"].split("-")[0].split(".")[:2] if part.isdigit()]


CHECKS: dict[str, Check] = {
    "criu": _criu,
    "criu_sockets": _criu_sockets,
    "criu_versions": _criu_versions,
    "kernel": _kernel_versions,
    "network_lock": _network_lock,
}
