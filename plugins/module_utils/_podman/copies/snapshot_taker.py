# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Takes snapshots of containers of this host: of one, with its memory or without, or of several at one moment."""

from __future__ import annotations

import json
import os
import time
import typing as t
from dataclasses import dataclass

from ..._core import host
from ..._core.disk_store import CONFIGURATION, DiskStore, Part, take
from ..._core.pcopy import Pcopy
from ..._core.room import look_for_room
from ..._core.runtime import HandoverError, Runtime
from ..._core.snapshot_mounts import SnapshotMounts
from ..._core.snapshot_records import Snapshots
from .. import memory_files, processes
from ..halted import halted
from ..podman import Podman
from ..preflight.plan import STOPPED
from ..snapshots import cgroup_of, folders, image_volumes, look_for_cgroup, recorded
from .backup_memory import look_for_obstacles
from .engine import Engine, PodmanEngine
from .memory_halt import MemoryHalt
from .memory_in_place import HALTED, MemoryInPlace
from .snapshot_disks import copy

Facts = dict[str, t.Any]


@dataclass(frozen=True)
class Subject:
    """A container of which a snapshot is taken."""

    workload: str
    configuration: t.Mapping[str, t.Any]  # as workload_info has it
    volumes: t.Sequence[t.Mapping[str, t.Any]]  # its image volumes

    @property
    def folders(self) -> list[dict[str, t.Any]]:
        """Its plain volumes."""
        return folders(self.configuration)


@dataclass(frozen=True)
class SnapshotTaker:
    """Of the snapshots below one folder."""

    runtime: Runtime
    podman: Podman
    root: str
    track: bool
    with_configuration: bool = True  # it is taken along
    engine: Engine | None = None  # another than podman

    def take(self, name: str, subjects: t.Sequence[Subject], memory: bool, check_mode: bool) -> list[str]:
        """Why snapshots were taken, or in check mode would be: each of them is there afterwards, or none is."""
        there = [subject.workload for subject in subjects if self._records(subject).has(name)]
        if len(there) == len(subjects):
            for subject in subjects:
                if memory and not self._records(subject).read(name)["memory"]:
                    raise HandoverError("the snapshot {0} of {1} has no memory: choose another name".format(name, subject.workload))
            return []
        if there:
            raise HandoverError(
                "{0} has a snapshot {1} and others of the containers have none: they would be of two moments: choose another name".format(there[0], name)
            )
        facts = [self._look(subject, memory, check_mode) for subject in subjects]
        need = sum(self._need(subject, found, memory) for subject, found in zip(subjects, facts))
        look_for_room(" and ".join(subject.workload for subject in subjects), need, self.root)
        if not check_mode:
            self._take(name, subjects, facts, memory)
        return ["there is no snapshot {0}{1}".format(name, "" if len(subjects) == 1 else " of " + subject.workload) for subject in subjects]

    def container(self, name: str) -> Facts:
        """What its engine says of a container."""
        return self._engine.container(name)

    @property
    def _engine(self) -> Engine:
        return self.engine or PodmanEngine(self.runtime)

    def _records(self, subject: Subject) -> Snapshots:
        return Snapshots(self.root, subject.workload)

    def _disks(self, subject: Subject) -> DiskStore:
        return DiskStore.of(Pcopy(self.runtime), self.root, subject.workload)

    def _look(self, subject: Subject, memory: bool, check_mode: bool) -> Facts:
        facts = self.container(subject.workload)
        if memory and not facts["running"] and not check_mode and self._engine.goes_on_again(facts):
            facts = self.container(subject.workload)  # a run that was killed in the pause had left it down
        if not subject.volumes and not subject.folders and not memory:
            raise HandoverError("{0} has no volume to take a snapshot of: take its memory too, or give it one (image_volume)".format(subject.workload))
        if not facts["running"] and (memory or facts["state"] not in STOPPED):
            raise HandoverError("{0} is {1}: start it{2} first".format(subject.workload, facts["state"], "" if memory else " or stop it"))
        if memory:
            look_for_obstacles(subject.configuration, "take it without its memory (handover_memory=false)", self._engine.why_halted(facts))
            self._engine.look_for_dump(self.runtime.module, subject.workload)
        if facts["running"] and not memory:
            look_for_cgroup(subject.configuration)
        return facts

    def _need(self, subject: Subject, facts: Facts, memory: bool) -> int:
        """Bytes of a whole copy. Disks that a store has already need only what differs, which is known when it is written."""
        need = 0
        if not self._disks(subject).names():
            need = sum(map(host.allocated, [*(volume["image"] for volume in subject.volumes), *(folder["path"] for folder in subject.folders)]))
        if memory:
            need += host.allocated(facts["upper_dir"]) + processes.processes_of(facts["pid"]).memory
        return need

    def _take(self, name: str, subjects: t.Sequence[Subject], facts: t.Sequence[Facts], memory: bool) -> None:
        taken = time.gmtime()
        for subject in subjects:
            SnapshotMounts(self.root, subject.workload).clear(self.runtime, name)
        try:
            places = [self._records(subject).begin(name) for subject in subjects]
            for subject, place in zip(subjects, places):
                _write_configuration(subject.configuration if self.with_configuration else {}, place)
            how = [self._with_memory(name, subjects[0], facts[0], places[0])] if memory else self._while_they_run(name, subjects, places)
            for subject, found, kind in zip(subjects, facts, how):
                record = {
                    "name": name,
                    "taken": time.strftime("%Y-%m-%dT%H:%M:%SZ", taken),
                    "container": found["id"],
                    "memory": memory,
                    "running": found["running"],
                    "volumes": recorded(subject.volumes),
                    "folders": subject.folders,
                    **self._engine.mark,
                    **({"together": sorted(each.workload for each in subjects)} if len(subjects) > 1 else {}),
                    **kind,
                }
                self._records(subject).finish(name, record)
        except BaseException:
            # Also one that has its record already, if another cannot have it: none of them had this name before.
            for subject in subjects:
                self._records(subject).forget(name)
            raise

    def _while_they_run(self, name: str, subjects: t.Sequence[Subject], places: t.Sequence[str], halt: MemoryHalt | None = None) -> list[Facts]:
        """Their disks stand still for the last pass. The configuration is in the store, too, which can be taken elsewhere without the records."""
        parts = [
            Part(
                self._disks(subject), subject.volumes, {CONFIGURATION: os.path.join(place, CONFIGURATION)}, subject.folders,
                cgroup_of(subject.configuration) if halt is None else "",  # nothing of one that is halted has to stand still
            )
            for subject, place in zip(subjects, places)
        ]  # fmt: skip
        for part in parts:
            part.store.delete(name)  # what a killed run has left under the name
        # Without a tracker between two snapshots each compares digests, and no write costs more.
        points = take(parts, name, ["--track=" + str(self.track).lower(), *([] if halt is None else halt.options(int(self.runtime.timeout)))])
        return [{"disks": True, "paused_ms": round(point["frozen_ms"]), "size": sum(volume["stored"] for volume in point["volumes"])} for point in points]

    def _with_memory(self, name: str, subject: Subject, facts: Facts, folder: str) -> Facts:
        """It is dumped for the last pass over its disks, and the copy of the dump is made when it runs."""
        why = self._engine.why_halted(facts)
        if why:
            self.runtime.module.warn(HALTED.format(subject.workload, why))
        disks = subject.volumes or subject.folders
        if why and not disks:
            return self._memory_alone(subject, facts, folder)
        with self._engine.halt_of(facts) as halt:
            if isinstance(halt, MemoryInPlace) and not disks:
                kind: Facts = {"disks": False, "paused_ms": round(halt.alone()), "size": 0}
            else:
                (kind,) = self._while_they_run(name, [subject], [folder], halt)
            for each in os.listdir(halt.memory):
                copy(self.runtime, os.path.join(halt.memory, each), os.path.join(folder, each))
        return {**kind, "size": kind["size"] + host.allocated(folder)}

    def _memory_alone(self, subject: Subject, facts: Facts, folder: str) -> Facts:
        began = time.monotonic()
        with halted(self.runtime, self.podman, subject.workload, facts, lambda: bool(self.container(subject.workload)["running"])):
            for name, path in memory_files.present(facts).items():
                copy(self.runtime, path, os.path.join(folder, name))
        return {"disks": False, "paused_ms": round(1000 * (time.monotonic() - began)), "size": host.allocated(folder)}


def subjects_of(configuration: t.Mapping[str, t.Any]) -> list[Subject]:
    """The containers of a group, as workload_info has it, that have volumes."""
    members = ((member, image_volumes(member)) for member in configuration.get("members") or [] if not member.get("infra"))
    return [Subject(member["name"], member, volumes) for member, volumes in members if volumes or folders(member)]


def _write_configuration(configuration: t.Mapping[str, t.Any], folder: str) -> None:
    descriptor = os.open(os.path.join(folder, CONFIGURATION), os.O_WRONLY | os.O_CREAT, 0o600)
    with open(descriptor, "w", encoding="utf-8") as target:
        json.dump(configuration, target)
