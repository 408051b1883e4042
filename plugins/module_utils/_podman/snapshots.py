# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The volumes of a container as a snapshot or a backup takes them, and those places that none takes."""

from __future__ import annotations

import typing as t

from .._core.bind_rules import layered
from .._core.runtime import HandoverError

# Of an image volume, so that it can be made again.
_OF_A_VOLUME = ("name", "image", "mountpoint", "fstype", "options", "size")


def image_volumes(container: t.Mapping[str, t.Any]) -> list[dict[str, t.Any]]:
    """Of a container as workload_info has it: each once, be it mounted at several places."""
    found = [mount["image_volume"] for mount in container.get("mounts") or [] if mount.get("image_volume")]
    return list({volume["image"]: volume for volume in found}.values())


def recorded(volumes: t.Iterable[t.Mapping[str, t.Any]]) -> list[dict[str, t.Any]]:
    """Image volumes as the record of a copy has them."""
    return [{key: volume.get(key) for key in _OF_A_VOLUME} for volume in volumes]


def folders(container: t.Mapping[str, t.Any]) -> list[dict[str, t.Any]]:
    """The plain volumes that it alone has and can write to, each once. One that others write to, too, would not stand still with it."""
    found = [mount["directory_volume"] for mount in container.get("mounts") or [] if mount.get("directory_volume") and not mount.get("read_only")]
    return [{"name": name, "path": path} for name, path in sorted({each["name"]: each["path"] for each in found if not each.get("shared_with")}.items())]


def cgroup_of(container: t.Mapping[str, t.Any]) -> str:
    """That of a container that runs, and stands still for the last pass over its plain volumes."""
    return str(container.get("cgroup") or "") if container.get("running") and folders(container) else ""


def look_for_cgroup(container: t.Mapping[str, t.Any]) -> None:
    """An error where a container that runs cannot be stopped for that moment."""
    if container.get("running") and folders(container) and not container.get("cgroup"):
        raise HandoverError(
            "{0} has the plain volume {1} and no cgroup of version 2 of its own, by which it could stand still for a moment: stop it first, or put its files "
            "in an image volume".format(container["name"], folders(container)[0]["name"])
        )


def left_out_of(container: t.Mapping[str, t.Any]) -> list[str]:
    """The places that it can write to, and that no copy has."""
    taken = {folder["name"] for folder in folders(container)}
    return [
        "{0} ({1})".format(mount["destination"], _source_of(mount, container.get("engine") or "podman's"))
        for mount in container.get("mounts") or []
        if not mount.get("read_only") and (layered(mount) or not mount.get("image_volume") and mount.get("name") not in taken)
    ]


def _source_of(mount: t.Mapping[str, t.Any], engine: str) -> str:
    """What a mount's files are of, in words."""
    if layered(mount):
        return "an overlay of podman's"
    return "{0} volume {1}".format(engine, mount["name"]) if mount["type"] == "volume" else mount["source"] or mount["type"]
