# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Room on both hosts: for the container's name, its files and its memory."""

from __future__ import annotations

import typing as t

from ansible_collections.livefleet.handover.plugins.module_utils._preflight_plan import (
    SPARE_DISK,
    Check,
    Plan,
)
from ansible_collections.livefleet.handover.plugins.module_utils._sizes import (
    format_size,
)

# The dump in memory holds CRIU's own records too, and the helper needs its buffers.
SPARE_MEMORY = 128 * 2**20


def _already_there(plan: Plan) -> t.Iterator[str]:
    if plan.there["workload"]["exists"]:
        yield "{1} has a container named {0} already, which is {2}: remove it with `podman rm {0}` there, or rename it".format(
            plan.workload, plan.destination, plan.there["workload"]["state"]
        )


def _space(plan: Plan) -> t.Iterator[str]:
    need = sum(volume["allocated"] for volume in plan.volumes)
    free = plan.there["host"]["images"]["free"]
    if need and need + SPARE_DISK > free:
        yield "the image volumes of {0} take {1}, and {2} has {3} free in {4}: free {5} there".format(
            plan.workload,
            format_size(need),
            plan.destination,
            format_size(free),
            plan.there["host"]["images"]["path"],
            format_size(need + SPARE_DISK - free),
        )
    store = plan.there["host"]["podman"]["store"]
    # An image that has to be brought along is there twice for a moment: as an archive, and unpacked.
    need = sum(volume["size"] for volume in plan.directories) + plan.container["layer"] + (0 if image_present(plan) else 2 * plan.container["image"]["size"])
    if need + SPARE_DISK > store["free"]:
        yield "the container's own layer, image and directory volumes take {0}, and {1} has {2} free in {3}: free {4} there".format(
            format_size(need), plan.destination, format_size(store["free"]), store["path"], format_size(need + SPARE_DISK - store["free"])
        )


def image_present(plan: Plan) -> bool:
    """Whether the destination has the container's image."""
    return plan.known and any(image["id"] == plan.container["image"]["id"] for image in plan.there["host"]["podman"]["images"])


def _memory(plan: Plan) -> t.Iterator[str]:
    if not plan.live:
        return
    need = plan.container["memory"]
    # On the source the dump lies beside the processes that it was made of; on the destination too, once they are restored.
    for (name, host), total in zip(plan.hosts, (need + SPARE_MEMORY, 2 * need + SPARE_MEMORY)):
        if total > host["memory_available"]:
            yield "{0} uses {1} of memory, moving it takes {2} on {3}, and {4} are available there: free some, or use migrate_mode=offline".format(
                plan.workload, format_size(need), format_size(total), name, format_size(host["memory_available"])
            )


CHECKS: t.Dict[str, Check] = {
    "already_there": _already_there,
    "space": _space,
    "memory": _memory,
}
