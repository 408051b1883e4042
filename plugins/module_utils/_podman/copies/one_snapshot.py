# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One snapshot of one container: taken, mounted, gone back to, removed."""

from __future__ import annotations

import contextlib
import os
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ..._core import host
from ..._core.disk_store import DiskStore, line_of
from ..._core.pcopy import Pcopy
from ..._core.room import look_for_room
from ..._core.runtime import HandoverError, Runtime
from ..._core.snapshot_mounts import BESIDE, SnapshotMounts
from ..._core.snapshot_records import Snapshots, undo_name
from .. import memory_files, rollback
from ..podman import Podman
from ..preflight.plan import STOPPED
from ..snapshots import image_volumes
from .engine import EngineOf, PodmanEngine
from .snapshot_disks import FOLDER_FSTYPE, TREE, SnapshotDisks, copy, point_of
from .snapshot_taker import SnapshotTaker, Subject
from .unit_return import UnitReturn, unit_of

Document = t.Mapping[str, t.Any]


class Snapshot:
    """One snapshot of one container. One of several has its configuration from theirs."""

    def __init__(self, module: AnsibleModule, workload: str = "", configuration: Document | None = None, engine_of: EngineOf = PodmanEngine) -> None:
        self.module = module
        self.params = module.params
        self.workload: str = workload or module.params["workload"]
        self.name: str = module.params["name"]
        self.runtime = Runtime(module, module.params["timeout"])
        self.podman = Podman(self.runtime)
        self.engine = engine_of(self.runtime)
        self.snapshots = Snapshots(module.params["root"], self.workload)
        self.disks = DiskStore.of(Pcopy(self.runtime), module.params["root"], self.workload)
        self.mounts = SnapshotMounts(module.params["root"], self.workload)
        self.configuration: Document = module.params["configuration"] if configuration is None else configuration
        self.volumes: t.Sequence[Document] = module.params["volumes"] if configuration is None else image_volumes(configuration)
        self.reasons: list[str] = []
        self.lines: list[str] = []

    def run(self) -> dict[str, t.Any]:
        """Brings it to the state asked for."""
        with self.mounts.held(self.module.check_mode) if self.params["state"] in BESIDE else contextlib.nullcontext():
            found = self._states()[self.params["state"]]()
        return {
            "changed": bool(self.reasons), "reasons": self.reasons, "snapshot": found, "volumes": found["volumes"] if found else [],
            "mountpoints": self.mounts.places(self.name), "lines": self.lines,
        }  # fmt: skip

    def _states(self) -> dict[str, t.Callable[[], dict[str, t.Any] | None]]:
        return {
            "present": self._present, "mounted": self._mount, "unmounted": self._unmount,
            "staged": self._stage, "placed": self._place, "restored": self._restore, "absent": self._forget,
        }  # fmt: skip

    # present

    def _present(self) -> dict[str, t.Any] | None:
        return self._take(self.name, self.params["memory"])

    @property
    def taker(self) -> SnapshotTaker:
        # What a way back keeps first has everything.
        along = self.params.get("with_configuration", True) or self.params["state"] != "present"
        return SnapshotTaker(self.runtime, self.podman, self.params["root"], self.params["track"], along, self.engine)

    def _take(self, name: str, memory: bool) -> dict[str, t.Any] | None:
        subject = Subject(self.workload, self.configuration, self.volumes)
        self.reasons.extend(self.taker.take(name, [subject], memory, self.module.check_mode))
        return self.snapshots.read(name) if self.snapshots.has(name) else None

    def _container(self) -> dict[str, t.Any]:
        return self.taker.container(self.workload)

    # staged, placed and restored: the way back

    def _record(self) -> dict[str, t.Any]:
        record = self.snapshots.read(self.name)
        if self.params["memory"] and not record["memory"]:
            raise HandoverError("the snapshot {0} of {1} has no memory: go back without it (memory: false)".format(self.name, self.workload))
        return record

    def _disks_of(self, record: t.Mapping[str, t.Any]) -> DiskStore:
        return DiskStore.of(self.disks.pcopy, self.params["root"], self.workload, record)

    def _stage(self) -> dict[str, t.Any]:
        record, facts = self.look_back()
        if not self.module.check_mode:
            subject = self.kept(record)
            if subject is not None:
                self.reasons.extend(self.taker.take(undo_name([self.snapshots]), [subject], memory=False, check_mode=False))
            self.lay(record, facts)
        return record

    def look_back(self) -> tuple[dict[str, t.Any], dict[str, t.Any]]:
        """The record of the snapshot and the container as it is, when all has been looked at that the way back needs."""
        record, facts = self._record(), self._container()
        record = {**record, "folders": self._folders(record, facts), "volumes": self._with_store(record)}
        if self.params["memory"] and not self._is_of(record, facts):
            raise HandoverError(
                "the memory in the snapshot {0} is of an earlier container named {1}: go back without it (memory: false)".format(self.name, self.workload)
            )
        if self.params["memory"]:
            self.engine.look_for_restore(self.workload)
        self.engine.look_for_end(facts, record["volumes"])
        self._look_for_volumes(record, facts)
        self._look_where_it_is_written(record, facts)
        self.reasons.append("{0} is to be as it was in {1}".format(self.workload, self.name))
        return record, facts

    def _is_of(self, record: Document, facts: Document) -> bool:
        """Whether the memory fits this container: it is the same, or its like, which has moved or has come back from a backup."""
        return bool(record["container"] == facts["id"] or self.engine.is_alike(self.snapshots.configuration(self.name), facts["id"]))

    def lay(self, record: Document, facts: Document) -> None:
        """Lays whole copies beside the files in use, and stops the container."""
        copies = self._copies(record, facts)
        try:
            for source, path in copies.items():
                rollback.remove(path + rollback.STAGED)  # of a run that was killed
                copy(self.runtime, source, path + rollback.STAGED)
        except BaseException:
            for path in copies.values():
                rollback.remove(path + rollback.STAGED)
            raise
        unit, kill = self._unit(), bool(self.params["memory"])
        if unit is None:
            self.engine.end(facts, kill)
        elif facts["state"] not in STOPPED:
            unit.end(self.workload, kill)

    def _unit(self) -> UnitReturn | None:
        return unit_of(self.runtime, self.configuration, self.workload)

    def _look_for_volumes(self, record: t.Mapping[str, t.Any], facts: t.Mapping[str, t.Any]) -> None:
        """A volume that an earlier rollback has left unmounted is known by the place where its engine looks for it."""
        mounted = {volume["image"] for volume in self.volumes}
        taken = {volume["mountpoint"] for volume in self.volumes}
        places = self.engine.places(facts)
        missing = sorted(
            volume["image"]
            for volume in record["volumes"]
            if volume["image"] not in mounted and (volume["mountpoint"] in taken or not any(_is_in(place, volume["mountpoint"]) for place in places))
        )
        if missing:
            raise HandoverError("{0} does not have the image volume {1} any more, which the snapshot {2} is of".format(self.workload, missing[0], self.name))

    def _with_store(self, record: t.Mapping[str, t.Any]) -> list[dict[str, t.Any]]:
        """Its volumes, each with the store that the helper writes them from on this host, if it does."""
        return [{**volume, "store": self._disks_of(record).folder if record.get("disks") else None} for volume in record["volumes"]]

    def _folders(self, record: t.Mapping[str, t.Any], facts: t.Mapping[str, t.Any]) -> list[dict[str, t.Any]]:
        """The plain volumes of the snapshot, where the container has them now."""
        places = {mount["name"]: mount["source"] for mount in facts["mounts"] if mount["type"] == "volume"}
        bound: t.Container[str] = self.engine.devices() if record.get("folders") else ()
        for folder in record.get("folders") or []:
            if folder["name"] in bound:
                raise HandoverError(
                    "the volume {0} of {1} is an image volume by now, and a plain one in the snapshot {2}: make a new container of the snapshot (clone), "
                    "or mount it and copy files out".format(folder["name"], self.workload, self.name)
                )
            if folder["name"] not in places:
                raise HandoverError("{0} does not have the volume {1} any more, which the snapshot {2} is of".format(self.workload, folder["name"], self.name))
            others = sorted(set(self.engine.users_of_volume(folder["name"])) - {self.workload})
            if others:
                raise HandoverError(
                    "the volume {0} of {1} is {2}'s, too, by now, which would find other files in it: give each a volume of its own".format(
                        folder["name"], self.workload, others[0]
                    )
                )
        return [{**folder, "path": places[folder["name"]]} for folder in record.get("folders") or []]

    def _look_where_it_is_written(self, record: t.Mapping[str, t.Any], facts: t.Mapping[str, t.Any]) -> None:
        images = [volume["image"] for volume in record["volumes"]]
        rollback.look_at_names(images)
        need = record["size"]
        if record.get("disks"):  # they are written in place, and take what they have no blocks for
            rollback.look_at_sizes(record["volumes"])
            store = self._disks_of(record)
            store.look_for_rollback()
            data = store.data(point_of(record))
            need = sum(max(0, data[volume["name"]] - host.allocated(rollback.place(volume["image"]))) for volume in record["volumes"])
            need += sum(map(host.allocated, self._copies(record, facts)))
            # The helper looks for the room of folders, which it needs twice, before it writes.
        look_for_room(self.workload, need, os.path.dirname(images[0]) if images else self.params["root"])

    def kept(self, record: Document) -> Subject | None:
        """The disks as they are, mounted or not, if a snapshot of them is to be taken; not where an earlier rollback has left one of them half written."""
        if not self.params["keep"] or self._is_half(record) or not record["volumes"] and not record["folders"]:
            return None
        if not {volume["image"] for volume in self.volumes} >= {volume["image"] for volume in record["volumes"]}:
            self.volumes = record["volumes"]
        return Subject(self.workload, self.configuration, self.volumes)

    def _is_half(self, record: Document) -> bool:
        """Whether an earlier rollback was cut off."""
        images, folders = [volume["image"] for volume in record["volumes"]], [folder["path"] for folder in record["folders"]]
        return any(map(rollback.is_half, images)) or any(map(rollback.is_away, folders))

    def _copies(self, record: t.Mapping[str, t.Any], facts: t.Mapping[str, t.Any]) -> dict[str, str]:
        """What is laid beside the path whose place it takes. Disks in a store are written in place."""
        folder = self.snapshots.path(self.name)
        copies = {}
        if not record.get("disks"):
            copies = {os.path.join(folder, volume["name"] + ".img"): volume["image"] for volume in record["volumes"]}
            copies.update({os.path.join(folder, volume["name"] + TREE): volume["path"] for volume in record["folders"]})
        if self.params["memory"]:
            copies.update(memory_files.sources(folder, facts))
        return copies

    def _place(self) -> dict[str, t.Any]:
        record, facts = self._record(), self._container()
        if facts["state"] not in STOPPED:
            raise HandoverError("{0} is {1}: stop it first (state: staged)".format(self.workload, facts["state"]))
        record = {**record, "folders": self._folders(record, facts)}
        self.reasons.append("{0} is to have the files of {1}".format(self.workload, self.name))
        if self.module.check_mode:
            return record
        copies = list(self._copies(record, facts).values())
        images = [volume["image"] for volume in record["volumes"]]
        if not record.get("disks"):
            rollback.swap([path for path in copies if path in images], [path for path in copies if path not in images])
            return record
        rollback.look_at_names(images)
        done = self._roll_back_with(copies, record) if copies else self._roll_back(record)
        rollback.let_go(images)  # without copies, of a run that was killed
        self.lines.extend(map(line_of, done["volumes"]))
        return record

    def _roll_back(self, record: Document) -> Document:
        held = [{**volume, "image": rollback.place(volume["image"])} for volume in record["volumes"]]
        return self._disks_of(record).roll_back(point_of(record), held, record["folders"])

    def _roll_back_with(self, copies: t.Sequence[str], record: Document) -> Document:
        """The layer has to fit the disks: until both are there, the container does not start. The layer that is there goes last, as it cannot come back."""
        images, folders = [volume["image"] for volume in record["volumes"]], [folder["path"] for folder in record["folders"]]
        half = self._is_half(record)
        rollback.hold(images, folders)
        if not images:  # the helper gives folders their names back, and nothing else keeps the container from starting: the layer has to be there before
            rollback.swap([], copies)
            return self._roll_back(record)
        try:
            done = self._roll_back(record)
        except HandoverError as exc:
            if half or self._begun(record):
                raise
            rollback.let_go(images, folders)
            raise HandoverError("{0} is as it was, and starts when its volumes are mounted: {1}".format(self.workload, exc)) from exc
        rollback.swap([], copies)
        return done

    def _begun(self, record: Document) -> bool:
        """Whether a disk may have been written. Without an answer it may."""
        try:
            return any(each.get("restoring") for each in self._disks_of(record).all())
        except HandoverError:
            return True

    def _restore(self) -> dict[str, t.Any]:
        record = self._record()
        self.reasons.append("{0} is to run as it did in {1}".format(self.workload, self.name))
        if self.module.check_mode:
            return record
        unit = self._unit()
        if self.params["memory"]:
            facts = self._container()
            if unit is None:
                self.engine.run_on(self.workload, facts)
            else:
                unit.hand_over(self.workload, lambda cgroup: self.engine.run_on(self.workload, facts, cgroup))
        elif unit is not None:
            (unit.start if record["running"] else unit.rest)()
        else:
            self.engine.go_on(self.workload, record["running"])
        return record

    # mounted and unmounted

    def _mount(self) -> dict[str, t.Any]:
        record = self.snapshots.read(self.name)
        volumes = [*record["volumes"], *({"name": folder["name"], "fstype": FOLDER_FSTYPE} for folder in record.get("folders") or [])]
        missing = sorted({volume["name"] for volume in volumes} - set(self.mounts.places(self.name)))
        if missing:
            files = SnapshotDisks(self.runtime, self.snapshots, self._disks_of(record))
            look_for_room(self.workload, files.need(record), self.params["root"])
            self.reasons.append("of {0} these are not mounted: {1}".format(self.name, ", ".join(missing)))
            if not self.module.check_mode:
                self.mounts.mount(self.runtime, self.name, volumes, lambda volume, path: files.lay(record, volume["name"], path))
        return record

    def _unmount(self) -> None:
        if self.mounts.left(self.name):
            self.reasons.append("{0} is mounted".format(self.name))
            if not self.module.check_mode:
                self.mounts.unmount(self.runtime, self.name)

    # absent

    def _forget(self) -> None:
        if self.mounts.places(self.name):
            raise HandoverError("the snapshot {0} is mounted below {1}: unmount it first (state: unmounted)".format(self.name, self.mounts.folder(self.name)))
        if self.mounts.left(self.name):
            self.reasons.append("a mount of {0} has left files".format(self.name))
            if not self.module.check_mode:
                self.mounts.clear(self.runtime, self.name)
        stored = self.name in self.disks.names()
        if not stored and not self.snapshots.has(self.name):
            return
        held = [volume["image"] for volume in self.snapshots.read(self.name)["volumes"]] if self.snapshots.has(self.name) else []
        for image in held:
            if os.path.lexists(image + rollback.HELD):
                raise HandoverError("a rollback of {0} was begun and has not ended, which may need the snapshot {1}: run it again".format(image, self.name))
        self.reasons.append("there is a snapshot {0}".format(self.name))
        if self.module.check_mode:
            return
        self.snapshots.forget(self.name)
        if stored:
            self.disks.delete(self.name)


def _is_in(place: str, folder: str) -> bool:
    """Whether a place is a folder, or below it."""
    return (place + "/").startswith(folder.rstrip("/") + "/")
