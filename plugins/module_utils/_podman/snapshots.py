# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The place of snapshots on a host, and the record of each.

One folder a snapshot, `<root>/<workload>/<name>/`: `snapshot.json`, `configuration.json`, an image file or a folder for each volume that is not in the store
of disks, and, if the memory was taken too, the dump and the container's own layer. It is made under a name that begins with a dot and renamed when all of
it is on the disk: one with a name is whole.
"""

from __future__ import annotations

import json
import os
import shutil
import typing as t

from .._core.bind_rules import layered
from .._core.disk_store import CONFIGURATION, check_name, is_name
from .._core.runtime import HandoverError

ROOT = "/var/lib/handover/snapshots"
RECORD = "snapshot.json"
# Of an image volume, so that it can be made again.
_OF_A_VOLUME = ("name", "image", "mountpoint", "fstype", "options", "size")


class Snapshots:
    """The snapshots of one workload on this host."""

    def __init__(self, root: str, workload: str) -> None:
        check_name("workload", workload)
        self.folder = os.path.join(root, workload)

    def path(self, name: str) -> str:
        check_name("name", name)
        return os.path.join(self.folder, name)

    def all(self) -> list[dict[str, t.Any]]:
        """The record of each, the oldest first."""
        try:
            names = [name for name in os.listdir(self.folder) if is_name(name)]
        except FileNotFoundError:
            return []
        return sorted((self.read(name) for name in names), key=lambda each: (each["taken"], each["name"]))

    def has(self, name: str) -> bool:
        return os.path.exists(os.path.join(self.path(name), RECORD))

    def read(self, name: str) -> dict[str, t.Any]:
        path = os.path.join(self.path(name), RECORD)
        try:
            with open(path, encoding="utf-8") as source:
                return json.load(source)
        except FileNotFoundError as exc:
            known = ", ".join(sorted(os.listdir(self.folder))) if os.path.isdir(self.folder) else ""
            raise HandoverError(
                "there is no snapshot {0} in {1}: {2}".format(name, self.folder, "name one of " + known if known else "none was taken on this host")
            ) from exc
        except (OSError, ValueError) as exc:
            raise HandoverError("{0} cannot be read: {1}: remove the snapshot".format(path, exc)) from exc

    def configuration(self, name: str) -> dict[str, t.Any]:
        """The container as it was; nothing where the snapshot was taken without."""
        try:
            with open(os.path.join(self.path(name), CONFIGURATION), encoding="utf-8") as source:
                return json.load(source)
        except FileNotFoundError:
            return {}

    def begin(self, name: str) -> str:
        """An empty folder for the coming snapshot; a killed run's leftovers in it are gone."""
        unfinished = os.path.join(self.folder, "." + name)
        shutil.rmtree(unfinished, ignore_errors=True)
        os.makedirs(unfinished, mode=0o700)
        return unfinished

    def finish(self, name: str, record: t.Mapping[str, t.Any]) -> None:
        unfinished = os.path.join(self.folder, "." + name)
        with open(os.path.join(unfinished, RECORD), "w", encoding="utf-8") as target:
            json.dump(record, target)
        os.sync()
        os.rename(unfinished, self.path(name))
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def forget(self, name: str) -> None:
        """Its name goes first: a half that is left over has none."""
        unfinished = os.path.join(self.folder, "." + name)
        shutil.rmtree(unfinished, ignore_errors=True)
        if os.path.isdir(self.path(name)):
            os.rename(self.path(name), unfinished)
            shutil.rmtree(unfinished)


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
        "{0} ({1})".format(mount["destination"], _source_of(mount))
        for mount in container.get("mounts") or []
        if not mount.get("read_only") and (layered(mount) or not mount.get("image_volume") and mount.get("name") not in taken)
    ]


def _source_of(mount: t.Mapping[str, t.Any]) -> str:
    """What a mount's files are of, in words."""
    if layered(mount):
        return "an overlay of podman's"
    return "podman's volume " + mount["name"] if mount["type"] == "volume" else mount["source"]
