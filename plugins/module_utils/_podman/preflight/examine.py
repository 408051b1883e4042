# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The conditions before a workload is moved.

Tables of checks, one file for each subject. A check is a pure function of the facts about both hosts, and yields one sentence for
each fault: the thing, the place, and the way out. All are asked; an operator who has to wait for a maintenance window wants the
whole list.
"""

from __future__ import annotations

import typing as t

from ..._core import bind_checks as binds, floating as floats, tmpfs_checks
from ..._core.link import link_rate, listen_address
from ..._core.move import UNACCOUNTED, out_of_reach, verdict
from .. import inventory
from ..workload import missing_volumes
from . import container, cpu, criu, databases, flags, floating, group, hosts, image, networks, options, processes, room, secrets, service, state, volumes, wave
from .basics import BASICS
from .image import archive, image_present, missing
from .plan import EBPF, HASH, Check, Finding, Plan
from .told import TOLD, told

__all__ = (
    "BASICS", "CHECKS", "EBPF", "HASH", "Check", "Finding", "Plan", "archive", "directories", "examine", "floating_places", "image_present", "link_rate",
    "listen_address", "may_follow", "missing", "places",
    "TOLD", "out_of_reach", "tmpfs_carried", "told", "twin", "unknown_names", "verdict",
)  # fmt: skip

# The order is that of the sentences that an operator reads.
CHECKS: dict[str, Check] = {
    **container.CHECKS,
    **service.CHECKS,
    **volumes.CHECKS,
    **flags.CHECKS,
    **state.CHECKS,
    **group.CHECKS,
    **secrets.CHECKS,
    **processes.CHECKS,
    **databases.CHECKS,
    **image.CHECKS,
    **room.CHECKS,
    **networks.CHECKS,
    **wave.CHECKS,
    **floating.CHECKS,
    **cpu.CHECKS,
    **hosts.CHECKS,
    **criu.CHECKS,
    **options.CHECKS,
}

# Of several containers that move as one: the checks of what they take together or have in common, and those of the hosts themselves.
OF_ALL = frozenset((*room.CHECKS, *group.CHECKS, "multicast", "project_units"))
OF_HOSTS = frozenset((*cpu.CHECKS, *hosts.CHECKS, *criu.CHECKS, *options.CHECKS))
# Those of the hosts that ask what a container needs of them to be dumped and restored.
OF_DUMPED = frozenset((*hosts.CHECKS, *criu.CHECKS))


def twin(plan: Plan) -> dict[str, t.Any]:
    """Everything that a move makes on the destination, and removes again if it is undone: the container, unless it is there, and podman's volumes."""
    podman = plan.there["host"]["podman"]
    return {
        "made": not any(each["name"] in (plan.names or [plan.workload]) for each in podman["containers"]),
        "volumes": sorted(missing_volumes(plan.container["mounts"], podman["volumes"])),
        "folders": binds.folders(plan),
        "secrets": secrets.carried(plan),
        "restored": bool(plan.members) and plan.live,
        "exiting": [pod["name"] for pod in plan.container.get("pods", []) if plan.live and pod["essence"].get("ExitPolicy") == "stop"],
        "requirements": {each["name"]: each["requires"] for each in plan.members if plan.live and each["running"] and each["requires"]},
        "networks": networks.to_make(plan),
        "pods": [pod["name"] for pod in plan.container.get("in_pods", [])] if plan.in_wave else [],
    }


floating_places, places, may_follow = floats.places, options.places, options.may_follow


def directories(plan: Plan) -> list[t.Mapping[str, t.Any]]:
    """All that moves along as a tree and has a path of its own: plain volumes, and bind mounts that are carried."""
    return [*plan.directories, *binds.directories(plan)]


def tmpfs_carried(plan: Plan) -> list[dict[str, t.Any]]:
    """The tmpfs whose files the session carries: those of each member, where it is several."""
    if not plan.members:
        return tmpfs_checks.carried(plan)
    return [each for member in plan.member_plans() for each in tmpfs_checks.carried(member, member.workload)]


def examine(plan: Plan, ignore: t.Container[str] = ()) -> tuple[list[Finding], list[Finding]]:
    """The faults that count, and those to be ignored. Where the basics are wrong, the rest is not asked."""
    found: list[Finding] = []
    ignored: list[Finding] = []
    for name, check in BASICS.items():
        # The basics cannot be ignored: without them nothing can be moved.
        found += [Finding(name, sentence) for sentence in check(plan)]
    if found:
        return found, ignored
    for each, checks in _asked(plan):
        for name, check in checks.items():
            for sentence in check(each):
                finding = Finding(name, sentence)
                # Members of one host, and of one pod, have much in common.
                if finding not in found:
                    (ignored if name in ignore else found).append(finding)
        for key in each.container.get("unaccounted", []):
            name = UNACCOUNTED + key
            (ignored if name in ignore else found).append(Finding(name, inventory.refusal(each.workload, each.source, key, name)))
    return found, ignored


def _asked(plan: Plan) -> list[tuple[Plan, dict[str, Check]]]:
    """Who is asked what: a container all; of several that move as one each by itself, and all of them for what they need together."""
    if not plan.members:
        return [(plan, CHECKS)]
    of_each = OF_DUMPED if plan.live else frozenset()
    together = {name: check for name, check in CHECKS.items() if name in (OF_ALL | OF_HOSTS) - of_each}
    each = {name: check for name, check in CHECKS.items() if name not in together}
    of_stopped = {name: check for name, check in each.items() if name not in of_each}
    return [*((member, each if member.container["running"] else of_stopped) for member in plan.member_plans()), (plan, together)]


def unknown_names(ignore: t.Iterable[str]) -> list[str]:
    """Names on an ignore list that no check has."""
    return [name for name in ignore if name not in CHECKS and not name.startswith(UNACCOUNTED)]
