#!/usr/bin/python

# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: snapshot

short_description: Take, stage, restore or remove a snapshot of a container on its own host

version_added: 0.1.0

description:
  - A snapshot is a copy of the container's image volumes as they all were at one moment, and of its memory and its own layer at the same moment
    if that is asked for.
  - For the volumes alone the container runs on. Their file systems are frozen together for the last pass of a copy, by C(pcopy snapshot), and only
    clusters that differ from the snapshot before are stored.
  - With its memory the container is checkpointed, and restored when the volumes are copied. Where the file system of O(root) and of the images can
    share blocks (xfs, btrfs, on the same device), copying takes no time.
  - To go back, the copies are staged beside the images while the container runs. The role livefleet.handover.snapshot puts them in place.

extends_documentation_fragment:
  - livefleet.handover._attributes

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
      - Name of the container.
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
      - V(staged) lays a copy of each image beside the image in use, as C(<image>.rollback), and stops the container.
      - V(restored) brings the memory and the layer back, if the snapshot has them, and starts the container.
    type: str
    choices: [present, staged, restored, absent]
    default: present
  memory:
    description:
      - V(present), whether the memory and the container's own layer are taken too. V(restored), whether they are brought back.
    type: bool
    default: false
  volumes:
    description:
      - The container's image volumes, as M(livefleet.handover.workload_info) returns them.
    type: list
    elements: dict
    default: []
  root:
    description:
      - The directory that holds the snapshots.
    type: path
    default: /var/lib/handover/snapshots
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
snapshot:
  description: Its record. None where there is none.
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

import contextlib
import os
import shutil
import time
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._core import host
from ..module_utils._core.pcopy import Pcopy
from ..module_utils._core.runtime import HandoverError, Runtime
from ..module_utils._core.sizes import format_size
from ..module_utils._podman import processes, workload
from ..module_utils._podman.disk_store import DiskStore
from ..module_utils._podman.podman import Podman
from ..module_utils._podman.preflight.plan import SPARE_DISK, STOPPED
from ..module_utils._podman.snapshots import ROOT, Snapshots

STAGED = ".rollback"


class Snapshot:
    """One snapshot of one container."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.params = module.params
        self.workload: str = module.params["workload"]
        self.name: str = module.params["name"]
        self.runtime = Runtime(module, module.params["timeout"])
        self.podman = Podman(self.runtime)
        self.snapshots = Snapshots(module.params["root"], self.workload)
        self.disks = DiskStore(Pcopy(self.runtime), module.params["root"], self.workload)
        self.reasons: list[str] = []

    def run(self) -> dict[str, t.Any]:
        """Brings it to the state asked for."""
        found = {"present": self._take, "staged": self._stage, "restored": self._restore, "absent": self._forget}[self.params["state"]]()
        return {"changed": bool(self.reasons), "reasons": self.reasons, "snapshot": found}

    # present

    def _take(self) -> dict[str, t.Any] | None:
        if self.snapshots.has(self.name):
            return self.snapshots.read(self.name)
        facts = self._container()
        volumes = self.params["volumes"]
        if not volumes and not self.params["memory"]:
            raise HandoverError("{0} has no image volume to take a snapshot of: take its memory too, or give it one (image_volume)".format(self.workload))
        if not facts["running"] and (self.params["memory"] or facts["state"] not in STOPPED):
            raise HandoverError("{0} is {1}: start it{2} first".format(self.workload, facts["state"], "" if self.params["memory"] else " or stop it"))
        self._look_for_room(self._need(facts), self.params["root"])
        self.reasons.append("there is no snapshot {0}".format(self.name))
        if self.module.check_mode:
            return None
        folder = self.snapshots.begin(self.name)
        taken = time.gmtime()
        try:
            how = self._take_with_memory(facts, folder) if self.params["memory"] else self._take_disks()
        except BaseException:
            self.snapshots.forget(self.name)
            raise
        self.snapshots.finish(
            self.name,
            {
                "name": self.name,
                "taken": time.strftime("%Y-%m-%dT%H:%M:%SZ", taken),
                "container": facts["id"],
                "memory": self.params["memory"],
                "running": facts["running"],
                "volumes": [{key: volume.get(key) for key in ("name", "image", "mountpoint", "fstype", "options", "size")} for volume in volumes],
                **how,
            },
        )
        return self.snapshots.read(self.name)

    def _need(self, facts: t.Mapping[str, t.Any]) -> int:
        """Bytes of a whole copy. Disks that a store has already need only what differs, which is known when it is written."""
        if not self.params["memory"] and self.disks.names():
            return 0
        need = sum(host.allocated(volume["image"]) for volume in self.params["volumes"])
        if self.params["memory"]:
            need += host.allocated(facts["upper_dir"]) + processes.processes_of(facts["pid"]).memory
        return need

    def _take_disks(self) -> dict[str, t.Any]:
        """While it runs: its disks stand still for the last pass."""
        point = self.disks.take(self.name, self.params["volumes"])
        return {"disks": True, "paused_ms": round(point["frozen_ms"]), "size": sum(volume["stored"] for volume in point["volumes"])}

    def _take_with_memory(self, facts: t.Mapping[str, t.Any], folder: str) -> dict[str, t.Any]:
        began = time.monotonic()
        with self._halted(facts):
            for volume in self.params["volumes"]:
                self._sync(volume)
                self._copy(volume["image"], os.path.join(folder, volume["name"] + ".img"))
            self._copy(facts["checkpoint_dir"], os.path.join(folder, "checkpoint"))
            self._copy(facts["upper_dir"], os.path.join(folder, "layer"))
        return {"disks": False, "paused_ms": round(1000 * (time.monotonic() - began)), "size": host.allocated(folder)}

    def _container(self) -> dict[str, t.Any]:
        listed = workload.find(self.podman.containers(), self.workload)
        if listed is None:
            raise HandoverError("there is no container named {0} on this host".format(self.workload))
        return workload.facts_of(self.podman.inspect(listed["Id"]), ())

    def _look_for_room(self, need: int, folder: str) -> None:
        free = host.free_space(folder)
        if need + SPARE_DISK > free:
            raise HandoverError(
                "the copy of {0} takes {1}, and {2} is free in {3}: free {4} there, or remove older snapshots".format(
                    self.workload, format_size(need), format_size(free), folder, format_size(need + SPARE_DISK - free)
                )
            )

    @contextlib.contextmanager
    def _halted(self, facts: t.Mapping[str, t.Any]) -> t.Iterator[None]:
        """Nothing of it runs inside. It runs on afterwards in any case; if it does not, both reasons are told."""
        options = ("--tcp-established", "--file-locks")
        halt, go_on = ("container", "checkpoint", "--keep", *options), ("container", "restore", *options)
        try:
            self.runtime.run([*self._door(facts), self.podman.path, *halt, self.workload])
            yield
        except BaseException as exc:
            # A halt that failed may have left it running.
            if self._container()["running"]:
                raise
            try:
                self.podman.run(*go_on, self.workload)
            except HandoverError as second:
                raise HandoverError("{0}; and {1} does not run on: {2}".format(exc, self.workload, second)) from exc
            raise
        self.podman.run(*go_on, self.workload)

    def _door(self, facts: t.Mapping[str, t.Any]) -> list[str]:
        """The words that keep new connections away while it is dumped: CRIU refuses a listener at whose door somebody waits."""
        if not facts["network_namespace"]:
            return []
        pcopy = Pcopy(self.runtime)
        pcopy.check_installed()
        return [pcopy.path, "internal", "shut-door", "--namespace=" + facts["network_namespace"], "--"]

    def _sync(self, volume: t.Mapping[str, t.Any]) -> None:
        self.runtime.run([self.runtime.tool("sync", "coreutils"), "--file-system", volume["mountpoint"]])

    def _copy(self, source: str, target: str) -> None:
        self.runtime.run([self.runtime.tool("cp", "coreutils"), "--archive", "--no-target-directory", "--sparse=always", "--reflink=auto", source, target])

    # staged and restored

    def _stage(self) -> dict[str, t.Any]:
        record = self.snapshots.read(self.name)
        facts = self._container()
        if record["memory"] and self.params["memory"] and record["container"] != facts["id"]:
            raise HandoverError(
                "the memory in the snapshot {0} is of an earlier container named {1}: go back without it (memory: false)".format(self.name, self.workload)
            )
        if self.params["memory"] and not record["memory"]:
            raise HandoverError("the snapshot {0} of {1} has no memory: go back without it (memory: false)".format(self.name, self.workload))
        mounted = {volume["image"] for volume in self.params["volumes"]}
        missing = sorted(volume["image"] for volume in record["volumes"] if volume["image"] not in mounted)
        if missing:
            raise HandoverError("{0} does not have the image volume {1} any more, which the snapshot {2} is of".format(self.workload, missing[0], self.name))
        images = [volume["image"] for volume in record["volumes"]]
        # Of disks in a store the size is that of a difference.
        need = sum(map(host.allocated, images)) if record.get("disks") else record["size"]
        self._look_for_room(need, os.path.dirname(images[0]) if images else self.params["root"])
        self.reasons.append("{0} is to be as it was in {1}".format(self.workload, self.name))
        if not self.module.check_mode:
            try:
                for volume in record["volumes"]:
                    self._lay(record, volume)
            except BaseException:
                for volume in record["volumes"]:
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(volume["image"] + STAGED)
                raise
            if facts["state"] not in STOPPED:
                self.podman.run(*(["kill", self.workload] if self.params["memory"] else ["stop", self.workload]))
                self.podman.run("wait", self.workload)
        return record

    def _lay(self, record: t.Mapping[str, t.Any], volume: t.Mapping[str, t.Any]) -> None:
        staged = volume["image"] + STAGED
        if not record.get("disks"):
            self._copy(os.path.join(self.snapshots.path(self.name), volume["name"] + ".img"), staged)
            return
        with contextlib.suppress(FileNotFoundError):
            os.unlink(staged)  # of a run that was killed
        self.disks.write(self.name, volume["name"], staged)

    def _restore(self) -> dict[str, t.Any]:
        record, facts = self.snapshots.read(self.name), self._container()
        if self.params["memory"] != record["memory"] and self.params["memory"]:
            raise HandoverError("the snapshot {0} of {1} has no memory: go back without it (memory: false)".format(self.name, self.workload))
        self.reasons.append("{0} is to run as it did in {1}".format(self.workload, self.name))
        if self.module.check_mode:
            return record
        if self.params["memory"]:
            for name, place in (("layer", facts["upper_dir"]), ("checkpoint", facts["checkpoint_dir"])):
                _remove(place)
                self._copy(os.path.join(self.snapshots.path(self.name), name), place)
            self.podman.run("container", "restore", "--tcp-established", "--file-locks", self.workload)
        elif record["running"]:
            self.podman.run("start", self.workload)
        return record

    # absent

    def _forget(self) -> None:
        stored = self.name in self.disks.names()
        if not stored and not self.snapshots.has(self.name):
            return
        self.reasons.append("there is a snapshot {0}".format(self.name))
        if self.module.check_mode:
            return
        self.snapshots.forget(self.name)
        if stored:
            self.disks.delete(self.name)


def _remove(folder: str) -> None:
    """A half removed file must not become part of the new one."""
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        pass
    except OSError as exc:
        raise HandoverError("{0} cannot be removed: {1}: remove it, and go back once more".format(exc.filename or folder, exc.strerror)) from exc


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "workload": {"type": "str", "required": True},
            "name": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["present", "staged", "restored", "absent"], "default": "present"},
            "memory": {"type": "bool", "default": False},
            "volumes": {"type": "list", "elements": "dict", "default": []},
            "root": {"type": "path", "default": ROOT},
            "timeout": {"type": "int", "default": 3600},
        },
        supports_check_mode=True,
    )
    try:
        module.exit_json(**Snapshot(module).run())
    except HandoverError as exc:
        module.fail_json(msg=str(exc))


if __name__ == "__main__":
    main()
