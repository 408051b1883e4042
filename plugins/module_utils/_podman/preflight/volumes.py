# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Volumes and binds: which of them can move, and whether the destination has something under their names."""

from __future__ import annotations

import typing as t

from ..._core import bind_checks as binds
from ..._core.bind_rules import is_bind, layered
from .plan import IGNORE, Check, Plan

# Options of mounts that the twin has again, by the command that makes it.
_OPTIONS = frozenset((
    "rw", "ro", "bind", "rbind", "shared", "rshared", "slave", "rslave", "private", "rprivate", "unbindable", "runbindable",
    "exec", "noexec", "dev", "nodev", "suid", "nosuid", "copy", "nocopy", "z", "Z", "U",
))  # fmt: skip


def _directories(plan: Plan) -> t.Iterator[str]:
    yield from binds.CHECKS["directories"](plan)
    for mount in plan.mounts:
        moves = mount["image_volume"] is not None or mount.get("directory_volume")
        asked_elsewhere = is_bind(mount) or layered(mount)
        if mount["type"] in ("volume", "bind") and not moves and not asked_elsewhere:
            what = "volume {0}".format(mount["name"]) if mount["type"] == "volume" else "{0} {1}".format(mount["kind"] or "path", mount["source"])
            yield (
                "{0} mounts the {1} on {2}, which is neither an image volume nor a plain volume of podman's and would stay behind on {3}: "
                "move its files to a volume made by livefleet.handover.image_volume or by podman volume create, "
                "or list the check 'directories' in {5} if {4} has the same".format(
                    plan.workload, what, mount["destination"], plan.source, plan.destination, IGNORE
                )
            )


def _overlays(plan: Plan) -> t.Iterator[str]:
    """An image that is mounted is listed by podman a second time, as the overlay that it lies in."""
    images = {mount["destination"]: mount["source"] for mount in plan.container["mounts"] if mount["type"] == "image"}
    for place, image in images.items():
        yield "{0} mounts the image {1} on {2}, and such a mount is not made again on {3}: copy its files into the image of {0} or into a volume".format(
            plan.workload, image, place, plan.destination
        )
    for mount in plan.container["mounts"]:
        if layered(mount) and mount["destination"] not in images:
            below = "the volume {0}".format(mount["name"]) if mount["name"] else "a folder of {0}".format(plan.source)
            yield (
                "{0} has an overlay over {1} on {2} (the option O), and whatever it writes there is in no volume and would be lost: "
                "create it without that option".format(plan.workload, below, mount["destination"])
            )


def _mount_options(plan: Plan) -> t.Iterator[str]:
    for mount in plan.container["mounts"]:
        unknown = [option for option in mount.get("options") or () if option.partition("=")[0] not in _OPTIONS]
        if unknown and not layered(mount):
            yield (
                "{0} mounts something on {1} with {2}, and it is not known to be the same on {3}: create it without, or list the check 'mount_options' "
                "in {4}".format(plan.workload, mount["destination"], ", ".join(unknown), plan.destination, IGNORE)
            )


def _subpaths(plan: Plan) -> t.Iterator[str]:
    for mount in plan.container["mounts"]:
        if mount.get("subpath") and not mount.get("subpath_kind"):
            yield (
                "{0} mounts {1} of the volume {2} on {3}, which is neither a folder nor a file there, or is reached by a symbolic link: "
                "name its place in the volume itself".format(plan.workload, mount["subpath"], mount["name"], mount["destination"])
            )


def _directory_volumes(plan: Plan) -> t.Iterator[str]:
    for volume in plan.directories:
        if volume["shared_with"] and not plan.in_group and not plan.container.get("together"):
            yield "{0} shares the volume {1} on {2} with {3}, and only one of them would have it afterwards: give each a volume of its own".format(
                plan.workload, volume["name"], plan.source, ", ".join(volume["shared_with"])
            )


def _images_taken(plan: Plan) -> t.Iterator[str]:
    present = plan.there["host"]["images"]["present"]
    for volume in plan.volumes:
        directory, _slash, name = volume["image"].rpartition("/")
        if directory == plan.there["host"]["images"]["path"].rstrip("/") and name in present:
            yield "{0} exists on {1} already and is never overwritten: move it away, or remove the image volume {2} there if it is not needed".format(
                volume["image"], plan.destination, volume["name"]
            )


def _image_directories(plan: Plan) -> t.Iterator[str]:
    root = plan.there["host"]["images"]["path"].rstrip("/")
    for volume in plan.volumes:
        if volume["image"].rpartition("/")[0] != root:
            yield "the image volume {0} of {1} is {2}, outside of {3}, where the room on {4} was looked at: set migrate_images to its directory".format(
                volume["name"], plan.workload, volume["image"], root, plan.destination
            )


def _mountpoints(plan: Plan) -> t.Iterator[str]:
    for volume in plan.volumes:
        if volume["mountpoint"] in plan.there["host"].get("mountpoints", []):
            yield "something is mounted on {0} of {1} already, where the image volume {2} of {3} is to be: unmount it".format(
                volume["mountpoint"], plan.destination, volume["name"], plan.workload
            )


def _filesystems(plan: Plan) -> t.Iterator[str]:
    for volume in plan.volumes:
        if volume["fstype"] not in ("ext4", "xfs"):
            yield "the image volume {0} of {1} holds {2}, and only ext4 and xfs can be handed over: copy its files to a volume that image_volume makes".format(
                volume["name"], plan.workload, volume["fstype"]
            )


def _volumes_taken(plan: Plan) -> t.Iterator[str]:
    defined = plan.there["host"]["podman"]["volumes"]
    for mount in plan.container["mounts"]:
        if mount["type"] == "volume" and mount["name"] in defined and mount["volume"] and defined[mount["name"]] != mount["volume"]["options"]:
            yield "podman on {0} has another volume named {1}: remove it with `podman volume rm {1}` there".format(plan.destination, mount["name"])
    for volume in plan.directories:
        if volume["name"] in defined and not defined[volume["name"]]:
            yield "podman on {0} has a volume named {1} already, and what is in it is never overwritten: remove it with `podman volume rm {1}` there".format(
                plan.destination, volume["name"]
            )


CHECKS: dict[str, Check] = {
    **binds.CHECKS,
    "directories": _directories,
    "overlays": _overlays,
    "mount_options": _mount_options,
    "subpaths": _subpaths,
    "directory_volumes": _directory_volumes,
    "images": _images_taken,
    "image_directories": _image_directories,
    "mountpoints": _mountpoints,
    "filesystems": _filesystems,
    "volumes": _volumes_taken,
}
