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


def _without_memory(plan: Plan, what: str, option: str) -> t.Iterator[str]:
    """Why CRIU cannot leave the memory out."""
    if not plan.container["cgroup"] and plan.container["running"]:
        yield "{0} not possible for {1}: it has no cgroup of the second version of its own on {2}: move it without {3}".format(
            what, plan.workload, plan.source, option
        )
    criu = plan.there["host"]["criu"]
    if criu["version"] and not criu["lazy_pages"]:
        yield (
            "{0} not possible on {1}: `criu check --feature uffd-noncoop` finds no userfaultfd there that tells of what tasks do to their memory: "
            "move {2} without {3}, or to a host whose kernel has it (CONFIG_USERFAULTFD)"
        ).format(what, plan.destination, plan.workload, option)


def _lazy_pages(plan: Plan) -> t.Iterator[str]:
    if plan.lazy_pages and plan.live:
        yield from _without_memory(plan, "lazy pages are", "migrate_lazy_pages")


def _place_memory(plan: Plan) -> t.Iterator[str]:
    if plan.place_memory and plan.live:
        yield from _without_memory(plan, "placing memory is", "migrate_place_memory")


CHECKS: dict[str, Check] = {
    "tracker": _tracker,
    "auto_converge": _auto_converge,
    "lazy_pages": _lazy_pages,
    "place_memory": _place_memory,
}
