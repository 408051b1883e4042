# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The snapshots that several containers have under one name, and the choice between one and several."""

from __future__ import annotations

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ..._core.runtime import HandoverError, Runtime
from ..._core.snapshot_records import Snapshots, undo_name
from .. import groups
from ..podman import Podman
from ..snapshots import left_out_of
from .engine import EngineOf, PodmanEngine
from .one_snapshot import Snapshot
from .snapshot_taker import SnapshotTaker, subjects_of

# The states of the way back.
BACK = ("staged", "placed", "restored")


class Group:
    """The snapshots that several containers have under one name."""

    def __init__(self, module: AnsibleModule, names: t.Sequence[str], engine_of: EngineOf) -> None:
        self.module = module
        self.params = module.params
        self.names = names
        self.engine_of = engine_of

    def run(self) -> dict[str, t.Any]:
        """Brings all to the state asked for."""
        state = self.params["state"]
        if state == "present":
            return self._present()
        each = [Snapshot(self.module, name, engine_of=self.engine_of) for name in (self._members() if state in BACK else self.names)]
        if state == "staged":
            return self._stage([one.workload for one in each])
        return self._all([one.run() for one in each], [one.workload for one in each])

    def _all(self, results: t.Sequence[dict[str, t.Any]], names: t.Sequence[str]) -> dict[str, t.Any]:
        """One result of those of each."""
        return {
            **results[0],
            "volumes": [volume for result in results for volume in result["volumes"]],
            "changed": any(result["changed"] for result in results),
            "reasons": ["{0}: {1}".format(name, reason) for name, result in zip(names, results) for reason in result["reasons"]],
            "mountpoints": {volume: place for result in results for volume, place in result["mountpoints"].items()},
            "left_out": [],
            "lines": ["{0}: {1}".format(name, line) for name, result in zip(names, results) for line in result.get("lines", [])],
        }

    def _members(self) -> list[str]:
        """Those that have the snapshot, which have to be all that it was taken of."""
        self._without_memory()
        records = {name: snapshots.read(self.params["name"]) for name, snapshots in self._snapshots(self.names).items() if snapshots.has(self.params["name"])}
        if not records:
            raise HandoverError("none of {0} has a snapshot {1}".format(", ".join(self.names), self.params["name"]))
        if any(record.get("together") != sorted(records) for record in records.values()) and len(records) > 1:
            raise HandoverError(
                "the snapshots {0} of {1} are not of one moment, or of more containers: go back to one at a time".format(
                    self.params["name"], " and ".join(sorted(records))
                )
            )
        return list(records)

    def _snapshots(self, names: t.Iterable[str]) -> dict[str, Snapshots]:
        return {name: Snapshots(self.params["root"], name) for name in names}

    def _without_memory(self) -> None:
        if self.params["memory"]:
            raise HandoverError("{0} are {1} containers: memory is taken of one at a time".format(" and ".join(self.names), len(self.names)))

    def _stage(self, names: t.Sequence[str]) -> dict[str, t.Any]:
        """All is looked at before the first is stopped. What is there is kept as it is at one moment."""
        configurations = {member["name"]: member for member in self.params["configuration"].get("members") or []}
        each = [Snapshot(self.module, name, configurations.get(name, {"name": name}), self.engine_of) for name in names]
        looked = [one.look_back() for one in each]
        if not self.module.check_mode:
            subjects = [one.kept(record) for one, (record, _facts) in zip(each, looked)]
            if all(subjects):
                name = undo_name(list(self._snapshots(names).values()))
                each[0].taker.take(name, [subject for subject in subjects if subject], memory=False, check_mode=False)
            for one, (record, facts) in zip(each, looked):
                one.lay(record, facts)
        results = [
            {"changed": True, "reasons": one.reasons, "snapshot": record, "volumes": record["volumes"], "mountpoints": {}}
            for one, (record, _facts) in zip(each, looked)
        ]
        return self._all(results, names)

    def _present(self) -> dict[str, t.Any]:
        self._without_memory()
        subjects = subjects_of(self.params["configuration"])
        if not subjects:
            raise HandoverError("none of {0} has a volume to take a snapshot of: give one of them one (image_volume)".format(", ".join(self.names)))
        runtime = Runtime(self.module, self.params["timeout"])
        along = self.params.get("with_configuration", True)
        taker = SnapshotTaker(runtime, Podman(runtime), self.params["root"], self.params["track"], along, self.engine_of(runtime))
        reasons = taker.take(self.params["name"], subjects, memory=False, check_mode=self.module.check_mode)
        first = Snapshots(self.params["root"], subjects[0].workload)
        return {
            "changed": bool(reasons),
            "reasons": reasons,
            "snapshot": first.read(self.params["name"]) if first.has(self.params["name"]) else None,
            "volumes": [],
            "mountpoints": {},
            "lines": [],
            "left_out": sorted(set(self.names) - {subject.workload for subject in subjects}),
        }


def act(module: AnsibleModule, engine_of: EngineOf = PodmanEngine) -> dict[str, t.Any]:
    """Of one container, or of all that the word names."""
    if module.params["state"] == "present":
        configuration = module.params["configuration"]
        for member in configuration.get("members") or [configuration]:
            for place in [] if member.get("infra") else left_out_of(member):
                module.warn("{0} is no part of the snapshot of {1}: put it in a volume of its own".format(place, member["name"]))
    names = groups.members(engine_of(Runtime(module, module.params["timeout"])).listed(), module.params["workload"])
    return Group(module, names, engine_of).run() if len(names) > 1 else {**Snapshot(module, engine_of=engine_of).run(), "left_out": []}
