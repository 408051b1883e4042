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

from .. import inventory
from ..workload import missing_volumes
from . import binds, container, cpu, criu, flags, hosts, image, networks, options, processes, room, secrets, service, state, volumes
from .basics import BASICS
from .image import archive, image_present
from .link import link_rate, listen_address
from .plan import EBPF, HASH, Check, Finding, Plan
from .told import TOLD, told

__all__ = (
    "BASICS", "CHECKS", "EBPF", "HASH", "Check", "Finding", "Plan", "archive", "directories", "examine", "image_present", "link_rate", "listen_address",
    "TOLD", "out_of_reach", "told", "twin", "unknown_names", "verdict",
)  # fmt: skip

# An ignore list names a key of podman's that has no row in the inventory by this and the key.
UNACCOUNTED = "inventory:"

# The order is that of the sentences that an operator reads.
CHECKS: dict[str, Check] = {
    **container.CHECKS,
    **service.CHECKS,
    **volumes.CHECKS,
    **flags.CHECKS,
    **state.CHECKS,
    **secrets.CHECKS,
    **processes.CHECKS,
    **image.CHECKS,
    **room.CHECKS,
    **networks.CHECKS,
    **cpu.CHECKS,
    **hosts.CHECKS,
    **criu.CHECKS,
    **options.CHECKS,
}


def out_of_reach(destination: str, said: str) -> str:
    """The sentence about a destination that did not answer at all; `said` is the connection's message, whose last line has the reason."""
    why = (said.strip().splitlines() or ["it gave no reason"])[-1].strip()
    why = why[len("Task failed: ") :] if why.startswith("Task failed: ") else why
    return "the destination {0} cannot be reached: see whether it is up and `ansible {0} -m ping` works ({1})".format(destination, why)


def twin(plan: Plan) -> dict[str, t.Any]:
    """Everything that a move makes on the destination, and removes again if it is undone: the container, unless it is there, and podman's volumes."""
    podman = plan.there["host"]["podman"]
    return {
        "made": not any(each["name"] == plan.workload for each in podman["containers"]),
        "volumes": sorted(missing_volumes(plan.container["mounts"], podman["volumes"])),
        "folders": binds.folders(plan),
        "secrets": secrets.carried(plan),
    }


def directories(plan: Plan) -> list[t.Mapping[str, t.Any]]:
    """All that moves along as a tree and has a path of its own: plain volumes, and bind mounts that are carried."""
    return [*plan.directories, *binds.directories(plan)]


def examine(plan: Plan, ignore: t.Container[str] = ()) -> tuple[list[Finding], list[Finding]]:
    """The faults that count, and those to be ignored. Where the basics are wrong, the rest is not asked."""
    found: list[Finding] = []
    ignored: list[Finding] = []
    for stage in (BASICS, CHECKS):
        for name, check in stage.items():
            for sentence in check(plan):
                # The basics cannot be ignored: without them nothing can be moved.
                (ignored if name in ignore and stage is CHECKS else found).append(Finding(name, sentence))
        if found and stage is BASICS:
            return found, ignored
    for key in plan.container.get("unaccounted", []):
        name = UNACCOUNTED + key
        (ignored if name in ignore else found).append(Finding(name, inventory.refusal(plan.workload, plan.source, key, name)))
    return found, ignored


def unknown_names(ignore: t.Iterable[str]) -> list[str]:
    """Names on an ignore list that no check has."""
    return [name for name in ignore if name not in CHECKS and not name.startswith(UNACCOUNTED)]


def verdict(plan: Plan, sentences: t.Sequence[str]) -> str:
    """The one sentence in which the check of a workload ends."""
    if not sentences:
        mode = plan.mode if plan.container["running"] else "as it is, stopped"
        return "{0} can move from {1} to {2} ({3})".format(plan.workload, plan.source, plan.destination, mode)
    if len(sentences) == 1:
        return "{0} cannot move from {1} to {2}: {3}".format(plan.workload, plan.source, plan.destination, sentences[0])
    return "{0} cannot move from {1} to {2}: {3} things are in the way: {4}".format(
        plan.workload,
        plan.source,
        plan.destination,
        len(sentences),
        "; ".join("({0}) {1}".format(number, sentence) for number, sentence in enumerate(sentences, 1)),
    )
