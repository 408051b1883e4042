# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Room on both hosts: for the container's name, its files and its memory."""

from __future__ import annotations

import typing as t

from ..._core import bind_checks, move_checks
from ..._core.move_checks import Need
from ..._core.sizes import format_size
from .image import missing
from .plan import Check, Facts, Plan

# The dump in memory holds CRIU's own records too, and the helper needs its buffers.
SPARE_MEMORY = 128 * 2**20


def _already_there(plan: Plan) -> t.Iterator[str]:
    if plan.there["workload"]["exists"] and not plan.members:
        yield "{1} has a container named {0} already, which is {2}: remove it with `podman rm {0}` there, or rename it".format(
            plan.workload, plan.destination, plan.there["workload"]["state"]
        )
    if plan.workload in plan.there["host"]["podman"]["remains"]:
        yield (
            "podman's storage on {1} still has a container named {0} whose removal was cut off, and podman would not make another: "
            "remove it with `podman rm --force {0}` there"
        ).format(plan.workload, plan.destination)


def needs(plan: Plan) -> list[Need]:
    """All that is laid down anywhere by the move, but for its own records."""
    there = plan.there["host"]
    own = sum(volume["size"] for volume in plan.directories) + plan.container["layer"]
    images = missing(plan)
    image = sum(each["size"] for each in images)
    found = [
        Need("its image volumes", plan.destination, there["images"], sum(_room(plan, volume) for volume in plan.volumes)),
        Need("its own layer, image and directory volumes", plan.destination, there["podman"]["store"], own + image),
    ]
    found += bind_checks.needs(plan)
    if image:
        found += [Need("the archive of its image", name, host["sessions"], image) for name, host in plan.hosts]
    if any(each["format"] == "oci-archive" for each in images):
        # podman packs and unpacks it there.
        found += [Need("its image, packed", name, host["temporary"], image) for name, host in plan.hosts]
    return [need for need in found if need.size]


def _room(plan: Plan, volume: Facts) -> int:
    """Bytes that an image takes when it has arrived."""
    return int(max(volume["size"], volume["allocated"]) if plan.reserve_space else volume["allocated"])


def _space(plan: Plan) -> t.Iterator[str]:
    yield from move_checks.space(plan, needs(plan))


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


CHECKS: dict[str, Check] = {
    "already_there": _already_there,
    "space": _space,
    "memory": _memory,
}
