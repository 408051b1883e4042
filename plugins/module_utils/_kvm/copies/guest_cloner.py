# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Makes another guest from a snapshot or a backup of one, and removes it with its files.

It is brought back under another name, as a restore does that. A record has its files before any of them is made, so that a run that was killed is cleared up
by the next one.
"""

from __future__ import annotations

import contextlib
import os
import typing as t
from xml.etree import ElementTree

from ansible.module_utils.basic import AnsibleModule

from ..._core.backups import GUEST
from ..._core.clones import Clones, Record
from ..._core.disk_store import FOLDER, check_name
from ..._core.runtime import HandoverError, Runtime
from ..._core.step import Part
from .. import lock
from ..files import remove
from ..guests import URI
from ..libvirt import Libvirt
from ..state import files
from . import apart
from .guest_look import OFF
from .guest_restorer import PACKED, UNFINISHED, GuestRestorer, Plan, brought
from .restored_xml import outputs
from .switch import NOTES, Switch, keeping

FOR_CONTAINERS = {
    "addresses": "its addresses are set in it: leave handover_addresses away, and give hardware addresses (clone_macs)",
    "memory": "no snapshot has its memory: leave it away, and the clone boots",
}


class GuestCloner:
    """One clone."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.params = module.params
        self.name: str = module.params["name"]
        check_name("name", self.name)
        self.libvirt = Libvirt(Runtime(module, module.params["timeout"]), URI)
        self.clones = Clones(module.params["root"])
        self.reasons: list[str] = []
        self.left_out: list[str] = []

    def run(self) -> dict[str, t.Any]:
        """Brings it to the state asked for."""
        with self.clones.held(self.name), lock.hold(self.name):
            clone = {"present": self._present, "absent": self._absent}[self.params["state"]]()
        return {
            "changed": bool(self.reasons), "reasons": self.reasons, "clone": clone, "command": [], "left_out": self.left_out, "addresses": [],
            "lines": self._lines(clone),
        }  # fmt: skip

    def _lines(self, clone: Record | None) -> list[str]:
        """How it is there, if this run has made it."""
        if clone is None or not clone["whole"] or not self.reasons:
            return []
        if self.libvirt.state(self.name) != OFF:
            return [f"{self.name} is as {clone['origin']}, and runs"]
        return [f"{self.name} is as {clone['origin']}, and is off: the addresses in it are those of {self.params['workload']}"]

    # present

    def _present(self) -> Record:
        origin = f"{self.params['workload']}@{self.params['snapshot']}"
        record = self.clones.read(self.name)
        if record is not None and record["whole"]:
            return self._as_it_is(record, origin)
        for option, why in FOR_CONTAINERS.items():
            if self.params[option]:
                raise HandoverError(f"{self.params['workload']} is a KVM guest, and {why}")
        restorer = self._restorer()
        plan = restorer.plan(self.params["macs"])
        if not plan.names.is_another:
            raise HandoverError(
                f"{self.name} is the name of the guest itself, which may run on another host: give the clone another name, or bring the guest back from a "
                "backup with the playbook backup_restore and without handover_clone, which asks all hosts"
            )
        if record is not None:
            self.reasons.append(f"a run that was cut off has left a part of {self.name}")
            self._look_for_others(record)
            if self._identity() and self.libvirt.state(self.name) != OFF:
                raise HandoverError(f"{self.name} was left by a run that was cut off, and has been started since: remove the clone first (state: absent)")
            if self.module.check_mode:
                return _record(origin, plan)  # its files are in the way until then
            self._undo(record)
        restorer.go_back()
        here = restorer.demand(plan)
        self.left_out = apart.left_out(ElementTree.fromstring(restorer.configuration["definition"]), plan.names.old)
        self.reasons.append(f"there is no guest named {self.name}")
        mine = _record(origin, plan)
        if self.module.check_mode:
            return mine
        self.clones.write(self.name, mine)
        try:
            restorer.make(plan, here)
        except BaseException:
            # The error that led here is the one to report. What cannot be removed now is removed by the next run.
            with contextlib.suppress(HandoverError, OSError):
                self._look_for_others(mine)
                self._undo(mine)
            raise
        self.clones.write(self.name, {**mine, "whole": True})
        if self.params["start"]:
            self._start()
        return {**mine, "whole": True}

    def _start(self) -> None:
        """It is whole, and stays if libvirt does not start it, as for the memory that it takes."""
        try:
            self.libvirt.virsh("start", "--domain", self.name)
        except HandoverError as exc:
            raise HandoverError(f"{self.name} is made and defined, but does not start: {exc}") from exc

    def _restorer(self) -> GuestRestorer:
        words = {
            "repository": self.params["repository"] or os.path.join(self.params["root"], FOLDER),
            "workload": self.params["workload"],
            "backup": self.params["snapshot"],
            "name": self.name,
            "notes": NOTES,
            "timeout": self.params["timeout"],
        }
        return GuestRestorer(t.cast(AnsibleModule, Part(self.module, words)))

    def _as_it_is(self, record: Record, origin: str) -> Record:
        if record["origin"] != origin:
            raise HandoverError(f"{self.name} is a clone of {record['origin']}: give this one another name, or remove that one (state: absent)")
        if self._identity() != record["uuid"]:
            raise HandoverError(f"the guest {self.name} is gone, and the clone's record is there: remove the clone (state: absent), or choose another name")
        return record

    def _identity(self) -> str:
        """The UUID of the guest of that name here; empty without one."""
        return self.libvirt.virsh("domuuid", "--domain", self.name).strip() if self.name in self.libvirt.names() else ""

    # absent

    def _absent(self) -> None:
        record, here = self.clones.read(self.name), self._identity()
        if record is None:
            if here:
                raise HandoverError(f"{self.name} is no clone of a snapshot below {self.params['root']}: remove it with virsh")
            return
        self._look_for_others(record)
        left = [path for path in record["files"] if os.path.lexists(path)]
        if record["whole"] and not here and left:
            raise HandoverError(
                f"the clone {self.name} is not on this host any more, and {', '.join(left)} may be in use where it is now: remove it there, and these "
                "files by hand if nothing needs them"
            )
        self.reasons.append(f"there is a clone {self.name} of {record['origin']}")
        if not self.module.check_mode:
            self._undo(record)

    def _look_for_others(self, record: Record) -> None:
        """The name or the files may have become those of another guest since. What is another's is not removed."""
        here = self._identity()
        if here and here != record["uuid"]:
            raise HandoverError(
                f"the guest {self.name} is another than the clone of {record['origin']}: remove it first, or choose another name for the clone; "
                f"{self.clones.path(self.name)} says which files the clone had"
            )
        for name in self.libvirt.names():
            used = set() if name == self.name else _used(self.libvirt.definition(name))
            if shared := [path for path in record["files"] if os.path.realpath(path) in used]:
                raise HandoverError(f"{', '.join(shared)} of the clone {self.name} of {record['origin']} is in use by the guest {name}: remove that one first")

    def _undo(self, record: Record) -> None:
        """Nothing is left of it. `_look_for_others` comes first."""
        switch = Switch(self.libvirt, self.name, NOTES)
        if switch.begun():
            switch.undo()
            self._look_for_others(record)  # the note may have been of another restore
        if self._identity() == record["uuid"]:
            if self.libvirt.state(self.name) != OFF:
                self.libvirt.virsh("destroy", "--domain", self.name)
            words = keeping(self.libvirt.definition(self.name))
            self.libvirt.virsh("undefine", "--domain", self.name, "--managed-save", "--snapshots-metadata", *words)
        for path in record["files"]:
            for end in ("", UNFINISHED, PACKED):
                remove(path + end)
        remove(brought(self.name))
        for path in record["outputs"]:
            remove(path)
        self.clones.forget(self.name)


def _used(definition: str) -> set[str]:
    """The files of a guest, and those below its images."""
    root = ElementTree.fromstring(definition)
    paths = [path for source in root.findall("devices/disk//source[@file]") if (path := source.get("file"))]
    return {os.path.realpath(path) for path in [*paths, *(path for _kind, path in files(root))]}


def _record(origin: str, plan: Plan) -> Record:
    """Before anything is made of it."""
    return {
        "name": plan.names.new,
        "origin": origin,
        "kind": GUEST,
        "uuid": plan.names.uuid,
        "files": list(plan.places),
        "outputs": outputs(plan.definition, plan.names.new),
        "volumes": [],
        "podman_volumes": [],
        "whole": False,
    }
