# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Options of the move that need something of the hosts."""

from __future__ import annotations

import typing as t

from ..._core.sizes import format_size
from .plan import EBPF, HASH, Check, Plan

# Options that an image volume, a loop device, does without.
_NOT_FOR_LOOPS = "stacked devices"

# Bytes of memory with which placing begins to pay (worthwhile in helper/internal/session/memory.go).
WORTH_PLACING = 16 * 2**20


def _tracker(plan: Plan) -> t.Iterator[str]:
    # They stand in the order in which one depends on the other: the first that fails is the reason.
    missing = [finding["text"] for finding in plan.here["host"]["pcopy"]["findings"] if not finding["ok"] and finding["name"] != _NOT_FOR_LOOPS]
    if not plan.volumes or plan.tracker != HASH and not missing:
        return
    if plan.tracker == EBPF:
        yield "writes cannot be tracked on {0}: {1}".format(plan.source, missing[0])
        return
    size = sum(volume["size"] for volume in plan.volumes)
    if plan.hash_limit and size > plan.hash_limit:
        yield (
            "{0} on {1}, so its volumes would be read whole to be compared, also in the pause: "
            "{2}, and at most {3} were allowed: {4}allow more with hash_limit"
        ).format(
            "writes are not to be tracked" if plan.tracker == HASH else "writes cannot be tracked",
            plan.source,
            format_size(size),
            format_size(plan.hash_limit),
            "" if plan.tracker == HASH else "{0}; or ".format(missing[0]),
        )


def _auto_converge(plan: Plan) -> t.Iterator[str]:
    # Of a container that does not run, another check says so.
    if plan.auto_converge and plan.live and plan.container["running"] and not plan.container["throttle"]["cgroup"]:
        yield ("auto-converge is not possible for {0} on {1}: {2}: move it without migrate_auto_converge, or give its cgroup the controller cpu").format(
            plan.workload, plan.source, plan.container["throttle"]["why"]
        )


def _memory_by_criu(plan: Plan) -> t.Iterator[str]:
    """Why CRIU has to carry the memory itself."""
    # Of several each has one, or they do not move live.
    if not plan.members and not plan.container["cgroup"] and plan.container["running"]:
        yield "it has no cgroup of the second version of its own on {0}".format(plan.source)
    criu = plan.there["host"]["criu"]
    if criu["version"] and not criu["lazy_pages"]:
        yield (
            "`criu check --feature uffd-noncoop` finds no userfaultfd on {0} that tells of what tasks do to their memory (CONFIG_USERFAULTFD)"
        ).format(plan.destination)


def _lazy_pages(plan: Plan) -> t.Iterator[str]:
    for why in _memory_by_criu(plan) if plan.lazy_pages and plan.live else ():
        yield "lazy pages are not possible for {0}: {1}: move it without migrate_lazy_pages, or to another host".format(plan.workload, why)


def may_follow(plan: Plan) -> bool:
    """Whether the memory could follow when the workload runs on the destination."""
    return plan.live and bool(plan.container["running"]) and not plan.members and not plan.in_group and not any(_memory_by_criu(plan))


def _may_place(plan: Plan) -> bool:
    """Whether there is memory that the helper is to place, wherever CRIU can leave it out."""
    asked = plan.place_memory and not plan.lazy_pages and plan.live
    return asked and bool(plan.container["running"]) and int(plan.container.get("memory") or 0) >= WORTH_PLACING


def places(plan: Plan) -> bool:
    """Whether the memory may be placed. The source has the last word when it arms: it knows what has gone ahead."""
    return _may_place(plan) and not any(_memory_by_criu(plan))


def _not_placed(plan: Plan) -> t.Iterator[str]:
    for why in _memory_by_criu(plan) if _may_place(plan) else ():
        yield "CRIU carries the memory of {0} ({1}), and the pause is longer by that: {2}".format(
            plan.workload, format_size(plan.container["memory"]), why
        )


CHECKS: dict[str, Check] = {
    "tracker": _tracker,
    "auto_converge": _auto_converge,
    "lazy_pages": _lazy_pages,
}

TOLD: dict[str, Check] = {"place_memory": _not_placed}
