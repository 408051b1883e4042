# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One snapshot of one KVM guest on its own host: taken, mounted, gone back to, removed.

Its disks are in a store as those of a container's snapshots, and its record has the same form, with the guest's images as `drives`.
"""

from __future__ import annotations

import json
import os
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ..._core.backups import GUEST, Backups, Row
from ..._core.disk_store import CONFIGURATION, FOLDER, line_of
from ..._core.pcopy import Pcopy
from ..._core.room import look_for_room
from ..._core.runtime import HandoverError, Runtime
from ..._core.snapshot_mounts import BESIDE, SnapshotMounts
from ..._core.snapshot_records import Snapshots, undo_name
from .. import lock
from ..guests import URI
from ..libvirt import Libvirt
from . import guest_look
from .guest_checks import SNAPSHOT
from .guest_look import OFF, RUNNING, GuestFacts, look
from .guest_moment import remove_checkpoints
from .guest_mounts import GuestMounts
from .guest_point import GuestPoint, configuration
from .guest_rollback import GuestRollback, half_done
from .rollback_checks import demand

NO_MEMORY = "{0} is a KVM guest, and no snapshot has its memory: leave handover_memory away, and it boots after a rollback"

Result = t.Dict[str, t.Any]


class GuestSnapshot:
    """One snapshot of one guest."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.params = module.params
        self.workload: str = module.params["workload"]
        self.name: str = module.params["name"]
        self.libvirt = Libvirt(Runtime(module, module.params["timeout"]), URI)
        self.snapshots = Snapshots(module.params["root"], self.workload)
        # The store of the guest's snapshots has the form of a repository's.
        self.stores = os.path.join(module.params["root"], FOLDER)
        self.backups = Backups(Pcopy(self.libvirt.runtime), self.stores, self.workload)
        self.point = GuestPoint(module, self.libvirt, self.backups.store, SNAPSHOT)
        self.mounts = SnapshotMounts(module.params["root"], self.workload)
        self.with_configuration: bool = module.params.get("with_configuration", True)
        self.reasons: list[str] = []
        self.lines: list[str] = []

    def run(self) -> Result:
        """Brings it to the state asked for."""
        if self.params["memory"]:
            raise HandoverError(NO_MEMORY.format(self.workload))
        # A mount is no work on the guest, which may be moved or backed up meanwhile.
        with self.mounts.held(self.module.check_mode) if self.params["state"] in BESIDE else lock.hold(self.workload):
            found = self._states()[self.params["state"]]()
        return {
            "changed": bool(self.reasons), "reasons": self.reasons, "snapshot": found, "volumes": [], "mountpoints": self.mounts.places(self.name),
            "left_out": [], "lines": self.lines,
        }  # fmt: skip

    def _states(self) -> dict[str, t.Callable[[], Row | None]]:
        return {
            "present": self._present, "mounted": self._mount, "unmounted": self._unmount,
            "staged": self._stage, "placed": self._place, "restored": self._restore, "absent": self._forget,
        }  # fmt: skip

    # present

    def _present(self) -> Row | None:
        if self.snapshots.has(self.name):
            return self._record()
        self.snapshots.path(self.name)  # an error where the name would lead elsewhere
        return self._take(self.name, self._look())

    def _look(self) -> GuestFacts:
        if self.workload not in self.libvirt.names():
            raise HandoverError(f"there is no guest named {self.workload} on this host: name the host that it is on")
        return self.point.alone(look(self.libvirt, self.workload))

    def _take(self, name: str, facts: GuestFacts) -> Row | None:
        half_done(facts)
        listed = self._listed(name)
        outside = self.point.look(facts, listed, self.params["root"])
        self.reasons.append(f"there is no snapshot {name}")
        if self.module.check_mode:
            return None
        self.mounts.clear(self.libvirt.runtime, name)
        self.backups.store.delete(name)  # what a killed run has left under the name
        try:
            place = self.snapshots.begin(name)
            with open(os.open(os.path.join(place, CONFIGURATION), os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="utf-8") as target:
                json.dump(configuration(facts), target)
            record = _record_of(name, facts, self.point.take(name, facts, self._listed(name), outside))
            # A snapshot that a way back takes first has everything: that way back is to be undone.
            record["configuration"] = self.with_configuration or name != self.name
            self.snapshots.finish(name, record)
        except BaseException:
            self.snapshots.forget(name)
            raise
        return record

    def _listed(self, name: str) -> list[Row]:
        """All points of the store but the one of that name, which is none yet."""
        listed = [each for each in self.backups.all() if each["name"] != name]
        if listed and listed[-1]["kind"] != GUEST:
            raise HandoverError(f"{self.stores} has snapshots of a container {self.workload}: remove those first, or choose another folder (snapshot_root)")
        return listed

    def _record(self) -> Row:
        record = self.snapshots.read(self.name)
        if record.get("kind") != GUEST:
            raise HandoverError(f"the snapshot {self.name} of {self.workload} is of a container, and {self.workload} is a guest: choose another name")
        return record

    # staged, placed and restored: the way back

    def _demand(self, states: t.Container[str]) -> tuple[Row, GuestFacts, GuestRollback]:
        """The snapshot and the guest, when all has been looked at that the way back needs."""
        record, facts = self._record(), self._look()
        # Earlier records do not say it.
        brings = self.with_configuration and record.get("configuration", True)
        back = GuestRollback(self.libvirt, self.backups, record, None if brings else facts)
        demand(facts, back, states)
        self.backups.store.look_for_rollback()
        return record, facts, back

    def _stage(self) -> Row:
        """Keeps the guest as it is, and ends it: what it writes after that moment is not kept, so nothing is lost by not asking it to shut down."""
        record, facts, back = self._demand((RUNNING, OFF))
        self.reasons.append(f"{self.workload} is to be as it was in {self.name}")
        if self.module.check_mode:
            return record
        if self.params["keep"] and not back.is_half():
            self._take(undo_name([self.snapshots]), facts)
        if facts.state != OFF:
            self.libvirt.virsh("destroy", "--domain", self.workload)
        return record

    def _place(self) -> Row:
        record, _facts, back = self._demand((OFF,))
        self.reasons.append(f"{self.workload} is to have the files of {self.name}")
        if not self.module.check_mode:
            self.lines.extend(map(line_of, back.write()))
        return record

    def _restore(self) -> Row:
        record = self._record()
        self.reasons.append(f"{self.workload} is to run as it did in {self.name}")
        if record["running"] and not self.module.check_mode and self.libvirt.state(self.workload) == OFF:
            self.libvirt.virsh("start", "--domain", self.workload)
        return record

    # the others

    def _mount(self) -> Row:
        record = self._record()
        targets = [drive["name"] for drive in record["drives"]]
        definition = self.snapshots.configuration(self.name)["definition"]
        parts = GuestMounts(self.libvirt.runtime, self.mounts, self.name, targets, definition)
        missing = parts.missing()
        if missing:
            self.reasons.append(f"of {self.name} these are not mounted: {', '.join(missing)}")
            if unwritten := parts.unwritten():
                data = self.backups.store.data(self.name)
                look_for_room(self.workload, sum(data[target] for target in unwritten), self.params["root"])
            if not self.module.check_mode:
                parts.mount(lambda target, path: self.backups.store.write(self.name, target, path))
        self.lines.extend(parts.told())
        return record

    def _unmount(self) -> None:
        if self.mounts.left(self.name):
            self.reasons.append(f"{self.name} is mounted")
            if not self.module.check_mode:
                self.mounts.unmount(self.libvirt.runtime, self.name)

    def _forget(self) -> None:
        if self.mounts.places(self.name):
            raise HandoverError(f"the snapshot {self.name} is mounted below {self.mounts.folder(self.name)}: unmount it first (state: unmounted)")
        if self.mounts.left(self.name):
            self.reasons.append(f"a mount of {self.name} has left files")
            if not self.module.check_mode:
                self.mounts.clear(self.libvirt.runtime, self.name)
        stored = self.name in self.backups.store.names()
        if not stored and not self.snapshots.has(self.name):
            return
        self.reasons.append(f"there is a snapshot {self.name}")
        if self.module.check_mode:
            return
        self.snapshots.forget(self.name)
        if stored:
            self.backups.store.delete(self.name)
        self._forget_checkpoints()

    def _forget_checkpoints(self) -> None:
        """One whose snapshot is no more costs writes, and is in the way of a move."""
        if self.workload not in self.libvirt.names():
            return
        wanted = set(self.point.marks(self.backups.all()).values())
        left = remove_checkpoints(self.libvirt, self.workload, self.backups.store.folder, wanted)
        if left and self.libvirt.state(self.workload) == RUNNING:
            self.module.warn(f"libvirt does not remove the checkpoint {left[0]} of {self.workload}, which costs writes: try `virsh checkpoint-delete`")


def _record_of(name: str, facts: GuestFacts, taken: Row) -> Row:
    sizes = {volume["name"]: volume["size"] for volume in taken["volumes"]}
    disks = {disk.target: disk for disk in facts.disks}
    return {
        "name": name,
        "taken": taken["taken"],
        "kind": GUEST,
        "container": facts.uuid,
        "memory": False,
        "running": facts.state == guest_look.RUNNING,
        "volumes": [],
        "folders": [],
        "drives": [{"name": target, "image": disks[target].path, "format": disks[target].format, "size": size} for target, size in sizes.items()],
        "files": [{"kind": kind, "path": path} for kind, path in facts.files],
        "disks": True,
        "paused_ms": round(taken["frozen_ms"]),
        "size": sum(volume["stored"] for volume in taken["volumes"]),
    }
