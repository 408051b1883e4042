# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Room on both hosts: for the container's name, its files and its memory."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..._core.sizes import format_size
from .binds import directories
from .image import missing
from .plan import SPARE_DISK, Check, Facts, Plan

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


@dataclass(frozen=True)
class Need:
    """Bytes that something of the move takes on a file system of a host."""

    what: str
    host: str
    place: Facts  # path, free bytes, and the device where it is known
    size: int


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
    found += [
        Need("the {0} {1}".format("file" if each["file"] else "directory", each["path"]), plan.destination, plan.binds_there[each["path"]], each["size"])
        for each in directories(plan)
        if each["path"] in plan.binds_there
    ]
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
    places: dict[tuple[str, t.Any], list[Need]] = {}
    for need in needs(plan):
        places.setdefault((need.host, need.place.get("device") or need.place["path"]), []).append(need)
    for (host, _device), together in places.items():
        size, place = sum(need.size for need in together), together[0].place
        if size + SPARE_DISK > place["free"]:
            yield "moving {0} needs {1} in {2} on {3} for {4}, and {5} are free there: free {6} more".format(
                plan.workload,
                format_size(size),
                place["path"],
                host,
                " and ".join(need.what for need in together),
                format_size(place["free"]),
                format_size(size + SPARE_DISK - place["free"]),
            )


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
