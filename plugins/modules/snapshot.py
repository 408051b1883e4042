#!/usr/bin/python

# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: snapshot

short_description: Take a snapshot of a container on its own host, go back to one, or remove it

version_added: 0.1.0

description:
  - A snapshot is a copy of the container's image volumes and plain volumes as they all were at one moment, and of its memory and its own layer at the
    same moment if that is asked for. A plain volume that other containers have, too, is left out.
  - For the volumes alone the container runs on. Their file systems are frozen together for the last pass of a copy, by C(pcopy snapshot), and only
    clusters that differ from the snapshot before are stored. A container with plain volumes stands still itself for the last files of these.
  - With its memory the container is checkpointed, and restored when the volumes are copied. Where the file system of O(root) and of the images can
    share blocks (xfs, btrfs, on the same device), copying takes no time.
  - The role livefleet.handover.snapshot goes back, by the states V(staged), V(placed) and V(restored).

extends_documentation_fragment:
  - livefleet.handover._attributes
  - livefleet.handover._snapshots

attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: partial
    details:
      - A snapshot that is there is not taken again. Restoring is done each time.

options:
  workload:
    description:
      - Name of the container. Of several, as V(db+web), or of a pod or a project of compose, the snapshots are of one moment. Each container has its own,
        under the same name, and is gone back to by itself.
    type: str
    required: true
  name:
    description:
      - Name of the snapshot.
    type: str
    required: true
  state:
    description:
      - V(present) takes it, V(absent) removes it.
      - V(mounted) mounts its volumes read-only below O(root), as RV(mountpoints) says, and V(unmounted) ends that. Each is a copy, which takes the room of
        its data. A restart of the host unmounts them.
      - V(staged) lays whole copies, such as the layer's, beside the files in use, as C(<path>.rollback), and stops the container.
      - V(placed) makes the image volumes, which are not mounted, those of the snapshot, and puts the copies in place. Only clusters that differ are
        written. If it is killed, the volumes cannot be mounted until it is run again, so that the container does not start.
      - V(restored) lets the container go on with its memory, or starts it.
    type: str
    choices: [present, mounted, unmounted, staged, placed, restored, absent]
    default: present
  memory:
    description:
      - V(present), whether the memory and the container's own layer are taken too. V(restored), whether they are brought back.
    type: bool
    default: false
  configuration:
    description:
      - The container, or the group, as M(livefleet.handover.workload_info) returns it. It is taken along, so that the container can be created again from
        the snapshot.
    type: dict
    default: {}
  keep:
    description:
      - V(staged), whether the disks as they are are kept first, as a snapshot named C(undo-<time>).
    type: bool
    default: false
  track:
    description:
      - V(present), whether the helper goes on tracking writes to the volumes, so that the next snapshot reads only the clusters written since. A write
        costs a little more then.
      - Without, and after the volumes were attached anew, the next snapshot reads all and compares digests.
    type: bool
    default: false
  volumes:
    description:
      - The container's image volumes that are mounted, as M(livefleet.handover.workload_info) returns them. Those of a group's members are in
        O(configuration).
    type: list
    elements: dict
    default: []
  timeout:
    description:
      - Seconds that the whole module may take.
    type: int
    default: 3600

seealso:
  - module: livefleet.handover.snapshot_info

author:
  - The Handover maintainers (@livefleet)
"""

EXAMPLES = r"""
- name: Take a snapshot before the upgrade
  livefleet.handover.snapshot:
    workload: shop
    name: before-upgrade
    volumes: "{{ here.workload.mounts | map(attribute='image_volume') | select }}"
"""

RETURN = r"""
reasons:
  description: Why something was changed, or in check mode would be.
  returned: always
  type: list
  elements: str
  sample: [there is no snapshot before-upgrade]
left_out:
  description: Those of several containers that have no volume of their own. There is no snapshot of them.
  returned: always
  type: list
  elements: str
  sample: [web]
mountpoints:
  description: Volume and mount point of each of its volumes that is mounted.
  returned: always
  type: dict
  sample: {pgdata: /var/lib/handover/snapshots/.mounted/shop/before-upgrade/pgdata}
snapshot:
  description: Its record, or the first one's of several. None where there is none.
  returned: always
  type: dict
  sample:
    name: before-upgrade
    taken: "2026-11-21T20:30:00Z"
    container: 5a3e7d04f11b
    memory: false
    running: true
    paused_ms: 212
    size: 21696512
    disks: true
    volumes: [{name: pgdata, image: /var/lib/handover/volumes/pgdata.img, size: 268435456}]
"""

import itertools
import os
import time
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._core import host
from ..module_utils._core.pcopy import Pcopy
from ..module_utils._core.runtime import HandoverError, Runtime, finish
from ..module_utils._core.step import discreet
from ..module_utils._podman import groups, rollback
from ..module_utils._podman.copies.snapshot_disks import FOLDER_FSTYPE, TREE, SnapshotDisks, copy, look_for_room, point_of
from ..module_utils._podman.copies.snapshot_taker import SnapshotTaker, Subject, subjects_of
from ..module_utils._podman.disk_store import DiskStore
from ..module_utils._podman.halted import go_on
from ..module_utils._podman.podman import Podman
from ..module_utils._podman.preflight.plan import STOPPED
from ..module_utils._podman.snapshot_mounts import SnapshotMounts
from ..module_utils._podman.snapshots import ROOT, Snapshots, left_out_of

# States of several containers' snapshots that do not depend on one another.
EACH_BY_ITSELF = ("mounted", "unmounted", "absent")


class Snapshot:
    """One snapshot of one container."""

    def __init__(self, module: AnsibleModule, workload: str = "") -> None:
        self.module = module
        self.params = module.params
        self.workload: str = workload or module.params["workload"]
        self.name: str = module.params["name"]
        self.runtime = Runtime(module, module.params["timeout"])
        self.podman = Podman(self.runtime)
        self.snapshots = Snapshots(module.params["root"], self.workload)
        self.disks = DiskStore.of(Pcopy(self.runtime), module.params["root"], self.workload)
        self.mounts = SnapshotMounts(module.params["root"], self.workload)
        self.volumes: t.Sequence[t.Mapping[str, t.Any]] = module.params["volumes"]
        self.reasons: list[str] = []

    def run(self) -> dict[str, t.Any]:
        """Brings it to the state asked for."""
        found = self._states()[self.params["state"]]()
        return {"changed": bool(self.reasons), "reasons": self.reasons, "snapshot": found, "mountpoints": self.mounts.places(self.name)}

    def _states(self) -> dict[str, t.Callable[[], dict[str, t.Any] | None]]:
        return {
            "present": self._present, "mounted": self._mount, "unmounted": self._unmount,
            "staged": self._stage, "placed": self._place, "restored": self._restore, "absent": self._forget,
        }  # fmt: skip

    # present

    def _present(self) -> dict[str, t.Any] | None:
        return self._take(self.name, self.params["memory"])

    def _take(self, name: str, memory: bool) -> dict[str, t.Any] | None:
        taker = SnapshotTaker(self.runtime, self.podman, self.params["root"], self.params["track"])
        subject = Subject(self.workload, self.params["configuration"], self.volumes)
        self.reasons.extend(taker.take(name, [subject], memory, self.module.check_mode))
        return self.snapshots.read(name) if self.snapshots.has(name) else None

    def _container(self) -> dict[str, t.Any]:
        return SnapshotTaker(self.runtime, self.podman, self.params["root"], self.params["track"]).container(self.workload)

    # staged, placed and restored: the way back

    def _record(self) -> dict[str, t.Any]:
        record = self.snapshots.read(self.name)
        if self.params["memory"] and not record["memory"]:
            raise HandoverError("the snapshot {0} of {1} has no memory: go back without it (memory: false)".format(self.name, self.workload))
        return record

    def _disks_of(self, record: t.Mapping[str, t.Any]) -> DiskStore:
        return DiskStore.of(self.disks.pcopy, self.params["root"], self.workload, record)

    def _stage(self) -> dict[str, t.Any]:
        record, facts = self._record(), self._container()
        record = {**record, "folders": self._folders(record, facts)}
        if self.params["memory"] and record["container"] != facts["id"]:
            raise HandoverError(
                "the memory in the snapshot {0} is of an earlier container named {1}: go back without it (memory: false)".format(self.name, self.workload)
            )
        self._look_for_volumes(record, facts)
        self._look_where_it_is_written(record)
        self.reasons.append("{0} is to be as it was in {1}".format(self.workload, self.name))
        if self.module.check_mode:
            return record
        self._keep(record)
        copies = self._copies(record, facts)
        try:
            for source, path in copies.items():
                rollback.remove(path + rollback.STAGED)  # of a run that was killed
                copy(self.runtime, source, path + rollback.STAGED)
        except BaseException:
            for path in copies.values():
                rollback.remove(path + rollback.STAGED)
            raise
        if facts["state"] not in STOPPED:
            self.podman.run(*(["kill", self.workload] if self.params["memory"] else ["stop", self.workload]))
            self.podman.run("wait", self.workload)
        return record

    def _look_for_volumes(self, record: t.Mapping[str, t.Any], facts: t.Mapping[str, t.Any]) -> None:
        """A volume that an earlier rollback has left unmounted is known by the place where podman looks for it."""
        mounted = {volume["image"] for volume in self.params["volumes"]}
        names = {mount["name"] for mount in facts["mounts"] if mount["type"] == "volume"}
        taken = {volume["mountpoint"] for volume in self.params["volumes"]}
        places = {(volume.get("Options") or {}).get("device") for volume in self.podman.volumes() if volume["Name"] in names} - taken
        missing = sorted(volume["image"] for volume in record["volumes"] if volume["image"] not in mounted and volume["mountpoint"] not in places)
        if missing:
            raise HandoverError("{0} does not have the image volume {1} any more, which the snapshot {2} is of".format(self.workload, missing[0], self.name))

    def _folders(self, record: t.Mapping[str, t.Any], facts: t.Mapping[str, t.Any]) -> list[dict[str, t.Any]]:
        """The plain volumes of the snapshot, where the container has them now."""
        places = {mount["name"]: mount["source"] for mount in facts["mounts"] if mount["type"] == "volume"}
        for folder in record.get("folders") or []:
            if folder["name"] not in places:
                raise HandoverError("{0} does not have the volume {1} any more, which the snapshot {2} is of".format(self.workload, folder["name"], self.name))
            others = sorted(set(self.podman.users_of_volume(folder["name"])) - {self.workload})
            if others:
                raise HandoverError(
                    "the volume {0} of {1} is {2}'s, too, by now, which would find other files in it: give each a volume of its own".format(
                        folder["name"], self.workload, others[0]
                    )
                )
        return [{**folder, "path": places[folder["name"]]} for folder in record.get("folders") or []]

    def _look_where_it_is_written(self, record: t.Mapping[str, t.Any]) -> None:
        images = [volume["image"] for volume in record["volumes"]]
        need = record["size"]
        if record.get("disks"):  # they are written in place, and take what they have no blocks for
            rollback.look_at_sizes(record["volumes"])
            store = self._disks_of(record)
            store.look_for_rollback()
            data = store.data(point_of(record))
            need = sum(max(0, data[volume["name"]] - host.allocated(volume["image"])) for volume in record["volumes"])
            # The helper looks for the room of folders, which it needs twice, before it writes.
        look_for_room(self.workload, need, os.path.dirname(images[0]) if images else self.params["root"])

    def _keep(self, record: t.Mapping[str, t.Any]) -> None:
        """The disks as they are, as a snapshot of their own, mounted or not; not where an earlier rollback has left one of them half written."""
        half = any(rollback.is_half(volume["image"]) for volume in record["volumes"]) or any(rollback.is_away(folder["path"]) for folder in record["folders"])
        if not self.params["keep"] or half or not record["volumes"] and not record["folders"]:
            return
        if not {volume["image"] for volume in self.volumes} >= {volume["image"] for volume in record["volumes"]}:
            self.volumes = record["volumes"]
        self._take(self._undo_name(), memory=False)

    def _undo_name(self) -> str:
        """One that is free: the clock of a host can go back."""
        name = time.strftime("undo-%Y%m%dT%H%M%S", time.gmtime())
        others = ("{0}-{1}".format(name, number) for number in itertools.count(2))
        return next(each for each in itertools.chain([name], others) if not self.snapshots.has(each))

    def _copies(self, record: t.Mapping[str, t.Any], facts: t.Mapping[str, t.Any]) -> dict[str, str]:
        """What is laid beside the path whose place it takes. Disks in a store are written in place."""
        folder = self.snapshots.path(self.name)
        copies = {}
        if not record.get("disks"):
            copies = {os.path.join(folder, volume["name"] + ".img"): volume["image"] for volume in record["volumes"]}
            copies.update({os.path.join(folder, volume["name"] + TREE): volume["path"] for volume in record["folders"]})
        if self.params["memory"]:
            copies[os.path.join(folder, "layer")] = facts["upper_dir"]
            copies[os.path.join(folder, "checkpoint")] = facts["checkpoint_dir"]
        return copies

    def _place(self) -> dict[str, t.Any]:
        record, facts = self._record(), self._container()
        if facts["state"] not in STOPPED:
            raise HandoverError("{0} is {1}: stop it first (state: staged)".format(self.workload, facts["state"]))
        record = {**record, "folders": self._folders(record, facts)}
        self.reasons.append("{0} is to have the files of {1}".format(self.workload, self.name))
        if self.module.check_mode:
            return record
        images = {volume["image"] for volume in record["volumes"]}
        copies = self._copies(record, facts).values()
        rollback.swap([path for path in copies if path in images], [path for path in copies if path not in images])
        if record.get("disks"):
            self._disks_of(record).roll_back(point_of(record), record["volumes"], record["folders"])
        return record

    def _restore(self) -> dict[str, t.Any]:
        record = self._record()
        self.reasons.append("{0} is to run as it did in {1}".format(self.workload, self.name))
        if self.module.check_mode:
            return record
        if self.params["memory"]:
            go_on(self.runtime, self.podman, self.workload, self._container())
        elif record["running"]:
            self.podman.run("start", self.workload)
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
        stored = self.name in self.disks.names()
        if not stored and not self.snapshots.has(self.name):
            return
        self.reasons.append("there is a snapshot {0}".format(self.name))
        if self.module.check_mode:
            return
        self.snapshots.forget(self.name)
        if stored:
            self.disks.delete(self.name)


class Group:
    """The snapshots that several containers have under one name."""

    def __init__(self, module: AnsibleModule, names: t.Sequence[str]) -> None:
        self.module = module
        self.params = module.params
        self.names = names

    def run(self) -> dict[str, t.Any]:
        """Brings all to the state asked for."""
        state = self.params["state"]
        if state == "present":
            return self._present()
        if state not in EACH_BY_ITSELF:
            raise HandoverError("{0} are {1} containers: go back to a snapshot of one at a time".format(" and ".join(self.names), len(self.names)))
        results = [Snapshot(self.module, name).run() for name in self.names]
        return {
            **results[0],
            "changed": any(result["changed"] for result in results),
            "reasons": ["{0}: {1}".format(name, reason) for name, result in zip(self.names, results) for reason in result["reasons"]],
            "mountpoints": {volume: place for result in results for volume, place in result["mountpoints"].items()},
            "left_out": [],
        }

    def _present(self) -> dict[str, t.Any]:
        if self.params["memory"]:
            raise HandoverError("{0} are {1} containers: memory is taken of one at a time".format(" and ".join(self.names), len(self.names)))
        subjects = subjects_of(self.params["configuration"])
        if not subjects:
            raise HandoverError("none of {0} has a volume to take a snapshot of: give one of them one (image_volume)".format(", ".join(self.names)))
        runtime = Runtime(self.module, self.params["timeout"])
        taker = SnapshotTaker(runtime, Podman(runtime), self.params["root"], self.params["track"])
        reasons = taker.take(self.params["name"], subjects, memory=False, check_mode=self.module.check_mode)
        first = Snapshots(self.params["root"], subjects[0].workload)
        return {
            "changed": bool(reasons),
            "reasons": reasons,
            "snapshot": first.read(self.params["name"]) if first.has(self.params["name"]) else None,
            "mountpoints": {},
            "left_out": sorted(set(self.names) - {subject.workload for subject in subjects}),
        }


def act(module: AnsibleModule) -> dict[str, t.Any]:
    """Of one container, or of all that the word names."""
    if module.params["state"] == "present":
        configuration = module.params["configuration"]
        for member in configuration.get("members") or [configuration]:
            for place in [] if member.get("infra") else left_out_of(member):
                module.warn("{0} is no part of the snapshot of {1}: put it in a volume of its own".format(place, member["name"]))
    names = groups.members(Podman(Runtime(module, module.params["timeout"])).containers(), module.params["workload"])
    return Group(module, names).run() if len(names) > 1 else {**Snapshot(module).run(), "left_out": []}


def main() -> None:
    """Entry point."""
    module = discreet(
        argument_spec={
            "workload": {"type": "str", "required": True},
            "name": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["present", "mounted", "unmounted", "staged", "placed", "restored", "absent"], "default": "present"},
            "memory": {"type": "bool", "default": False},
            "configuration": {"type": "dict", "default": {}},
            "keep": {"type": "bool", "default": False},
            "track": {"type": "bool", "default": False},
            "volumes": {"type": "list", "elements": "dict", "default": []},
            "root": {"type": "path", "default": ROOT},
            "timeout": {"type": "int", "default": 3600},
        },
        supports_check_mode=True,
    )
    finish(module, lambda: act(module), module.params["name"])


if __name__ == "__main__":
    main()
