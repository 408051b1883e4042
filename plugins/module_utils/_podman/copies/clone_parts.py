# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What each engine needs to make a container of a copy: the copy's configuration, free places, image volumes."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import tempfile
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ..._core.clones import Clones, Record
from ..._core.disk_store import CONFIGURATION, DiskStore, check_name
from ..._core.pcopy import Pcopy
from ..._core.runtime import HandoverError, Runtime, shown
from ..._core.snapshot_records import Snapshots
from ..._core.step import in_turn
from .. import clone_plan, memory_files, volume as image_volumes
from ..steps.table import STEPS
from .snapshot_disks import SnapshotDisks, copy, point_of

OWN_NAME = (
    "{0} is the name of the container itself, which may run on another host: give the clone another name, or bring the container back from a "
    "backup with the playbook backup_restore and without handover_clone, which asks all hosts"
)
CUT_OFF = "a run that was cut off has left a part of {0}"


class Maker:
    """One container that is made of a copy, by an engine's own `_present`, `_absent`, `_is_there` and `_addresses`."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.params = module.params
        self.name: str = module.params["name"]
        check_name("name", self.name)
        self.runtime = Runtime(module, module.params["timeout"])
        self.clones = Clones(module.params["root"])
        self.reasons: list[str] = []
        self.command: list[str] = []
        self.left_out: list[str] = []

    def run(self) -> dict[str, t.Any]:
        """Brings it to the state asked for."""
        with self.clones.held(self.name):
            clone = {"present": self._present, "absent": self._absent}[self.params["state"]]()
        return {
            "changed": bool(self.reasons), "reasons": self.reasons, "clone": clone, "command": shown(self.command), "left_out": self.left_out,
            "addresses": self._addresses() if clone else [], "lines": [],
        }  # fmt: skip

    def _present(self) -> Record:
        raise NotImplementedError

    def _absent(self) -> None:
        raise NotImplementedError

    def _is_there(self, record: Record) -> bool:
        """Whether the container of the name is the clone of the record."""
        raise NotImplementedError

    def _addresses(self) -> list[str]:
        raise NotImplementedError

    def _as_it_is(self, record: Record, origin: str) -> Record:
        if record["origin"] != origin:
            raise HandoverError("{0} is a clone of {1}: give this one another name, or remove that one (state: absent)".format(self.name, record["origin"]))
        if not self._is_there(record):
            raise HandoverError(
                "the container {0} is gone, and the volumes of the clone are there: remove the clone (state: absent), or give this one another name".format(
                    self.name
                )
            )
        return record

    def _demand_own(self, again: bool, origin: str, snapshot: t.Mapping[str, t.Any]) -> None:
        """An error where it would be the container itself, and that is not asked for; or where another would run on from its memory."""
        if again and not self.params["own_name"]:
            raise HandoverError(OWN_NAME.format(self.name))
        if self.params["memory"] and not (again and snapshot["memory"]):
            raise HandoverError(
                "{0} cannot run on from the memory of {1}: that is for the container itself, made again from a backup with memory".format(self.name, origin)
            )

    def _bring_memory(self, sources: t.Mapping[str, str]) -> None:
        """Its own layer, if the copy has it, and all of its memory if it is to run on from that."""
        for source, place in sources.items():
            if self.params["memory"] or os.path.basename(source) == memory_files.LAYER:
                copy(self.runtime, source, place)


def configuration_of(snapshots: Snapshots, name: str) -> dict[str, t.Any]:
    """The container as it was at the snapshot."""
    path = os.path.join(snapshots.path(name), CONFIGURATION)
    try:
        with open(path, encoding="utf-8") as source:
            configuration = json.load(source)
    except FileNotFoundError:
        configuration = {}
    except ValueError as exc:
        raise HandoverError("{0} cannot be read: {1}: take another snapshot".format(path, exc)) from exc
    if not configuration.get("create_command") and "mounts" not in configuration:
        raise HandoverError(
            "the snapshot {0} of {1} was taken without the container's configuration: take another with the playbook snapshot".format(
                name, snapshots.workload
            )
        )
    return t.cast("dict[str, t.Any]", configuration)


def disks_of(runtime: Runtime, snapshots: Snapshots, snapshot: t.Mapping[str, t.Any]) -> SnapshotDisks:
    """Its disks, which may be gone from the store that has them."""
    store = DiskStore.of(Pcopy(runtime), snapshots.root, snapshots.workload, snapshot)
    if snapshot.get("disks") and not store.has(point_of(snapshot)):
        raise HandoverError(
            "the disks of the snapshot {0} of {1} are gone from {2}: remove the snapshot".format(snapshot["name"], snapshots.workload, store.folder)
        )
    return SnapshotDisks(runtime, snapshots, store)


def look_at_places(name: str, volumes: t.Iterable[t.Mapping[str, t.Any]], record: Record | None) -> None:
    """An error where something is at the place of an image volume. A killed run's, by its record, goes before."""
    ours = {volume["image"] for volume in record["volumes"]} if record else set()
    for volume in volumes:
        image_volumes.check_name("name", volume["name"])
        for path in (volume["image"], volume["mountpoint"]):
            if os.path.lexists(path) and volume["image"] not in ours and not (os.path.isdir(path) and not os.listdir(path)):
                raise HandoverError("{0} is there, where a volume of {1} is to be: {2}".format(path, name, clone_plan.WAY_OUT[volume["name"] == volume["of"]]))


def look_at_devices(name: str, devices: t.Iterable[str]) -> None:
    """An error where a disk of the host would be written to by both."""
    for path in devices:
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISBLK(os.stat(path).st_mode):
                raise HandoverError(
                    "{0} has the disk {1} (--device), and the clone would write to it, too: put its files in an image volume".format(name, path)
                )


def lay(runtime: Runtime, files: SnapshotDisks, snapshot: t.Mapping[str, t.Any], volumes: t.Iterable[t.Mapping[str, t.Any]]) -> None:
    """The image files of image volumes. XFS refuses a second file system of the same identity, and its journal has to be empty before it can have another."""
    for volume in volumes:
        os.makedirs(os.path.dirname(volume["image"]), mode=0o700, exist_ok=True)
        files.lay(snapshot, volume["of"], volume["image"])
        if volume["fstype"] != "xfs" or volume["name"] == volume["of"]:
            continue
        place = tempfile.mkdtemp(prefix="handover-")
        try:
            runtime.run([runtime.tool("mount", "util-linux"), "-t", "xfs", "-o", "loop,nouuid,nodev,nosuid", volume["image"], place])
            runtime.run([runtime.tool("umount", "util-linux"), place])
        finally:
            os.rmdir(place)
        runtime.run([runtime.tool("xfs_admin", "xfsprogs"), "-U", "generate", volume["image"]])


def have_image_volumes(module: AnsibleModule, volumes: t.Iterable[t.Mapping[str, t.Any]], state: str) -> None:
    """Mounts them, or removes them with their data."""
    keys = ("name", "image", "mountpoint", "fstype", "podman_volume", "discard")
    steps = [{"image_volume": {**{key: volume[key] for key in keys}, "state": state, "force": state == "absent"}} for volume in volumes]
    result = in_turn(module, STEPS, steps)
    if "msg" in result:
        raise HandoverError(result["msg"])


def forget(clones: Clones, name: str, record: Record) -> None:
    """The last of an undo: half a copy, and the record."""
    for volume in record["volumes"]:
        try:
            os.unlink(volume["image"] + ".new")
        except FileNotFoundError:
            continue
    clones.forget(name)
