# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A guest comes back from a backup, on this host: under its own name, in the place of the one that is off or no more, or as another one."""

from __future__ import annotations

import contextlib
import datetime
import os
import shutil
import typing as t
import uuid
from dataclasses import dataclass
from xml.etree import ElementTree

from ansible.module_utils.basic import AnsibleModule

from ..._core.backups import GUEST, RECORD, Backups
from ..._core.disk_store import check_name, is_elsewhere
from ..._core.pcopy import Pcopy
from ..._core.runtime import HandoverError, Runtime
from .. import lock
from ..files import lasting, remove
from ..guests import URI
from ..libvirt import Libvirt
from ..state import TPM_FOLDER, files
from . import restore_checks
from .guest_files import ARCHIVES, unpack
from .restored_xml import Names, restored
from .switch import Item, Switch

# Backups from another host, while they are restored.
BROUGHT = "/var/lib/handover/backups/brought"
# The end of a file's name until all are whole.
UNFINISHED = ".handover-restored"
# And that of an archive, out of which one comes.
PACKED = UNFINISHED + ".tar"


@dataclass(frozen=True)
class Plan:
    """The guest that comes back."""

    names: Names
    definition: str
    disks: t.Mapping[str, str]  # the places of its images, by target
    beside: t.Mapping[str, str]  # those of the files beside them, by kind

    @property
    def places(self) -> tuple[str, ...]:
        """All its files."""
        return (*self.disks.values(), *self.beside.values())


class GuestRestorer:
    """One restore."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.params = module.params
        self.runtime = Runtime(module, module.params["timeout"])
        self.libvirt = Libvirt(self.runtime, URI)
        self.pcopy = Pcopy(self.runtime)
        self.backups = Backups(self.pcopy, module.params["repository"], module.params["workload"])
        self.new: str = module.params["name"] or module.params["workload"]
        check_name("name", self.new)

    def run(self) -> dict[str, t.Any]:
        """Looks, writes the images beside the present ones, exchanges them, and starts the guest."""
        plan = self.plan()
        with lock.hold(self.new):
            self.go_back()
            here = self.demand(plan)
            kept = [] if self.module.check_mode else self.make(plan, here)
        another = plan.names.is_another
        # One that was off at a snapshot stays off.
        started = not another and bool(self.record.get("running", True))
        if not another and not self.module.check_mode:
            self._go_on(started, bool(self.configuration.get("autostart")))
        return {
            "changed": True,
            "reasons": [f"a restore of {self.params['workload']} was asked for" + (f" as {self.new}" if another else "")],
            "guest": self.new,
            "backup": self.point["id"],
            "taken": self.point["taken"],
            "disks": sorted(plan.disks.values()),
            "kept": kept,
            "started": started,
        }

    def plan(self, macs: t.Sequence[str] = ()) -> Plan:
        """Reads the backup, and says who comes back and where its files will be."""
        self.point = self.backups.find(self.params["backup"])
        self.record = self.backups.document(self.point["id"], RECORD)
        if self.record.get("kind") != GUEST:
            raise HandoverError(f"the backup {self.point['id']} of {self.params['workload']} is of a container: restore it with backup_restore")
        self.configuration = self.backups.configuration(self.point["id"])
        identity = str(uuid.uuid4()) if self.new != self.configuration["name"] else self.configuration["uuid"]
        names = Names(self.configuration["name"], self.new, identity, tuple(macs))
        disks = {disk["target"]: names.disk(disk["target"], disk["path"], disk["format"]) for disk in self.record["disks"]}
        beside = {each["kind"]: names.file(each["kind"], each["path"]) for each in self.record["files"]}
        return Plan(names, restored(self.configuration["definition"], names, disks), disks, beside)

    def go_back(self) -> None:
        """What a run has left that was killed while files were exchanged."""
        switch = self._switch()
        if switch.begun() and not self.module.check_mode:
            switch.undo()

    def _switch(self) -> Switch:
        return Switch(self.libvirt, self.new, self.params["notes"])

    def demand(self, plan: Plan) -> restore_checks.Here:
        """An error with all that is in the way."""
        shown = self.pcopy.call("snapshot", "show", "--json", self.backups.store.folder, self.point["id"])
        need: dict[str, int] = {}
        for target, path in plan.disks.items():
            folder = os.path.dirname(path)
            need[folder] = need.get(folder, 0) + int(shown["data"][target])
        sources = ElementTree.fromstring(plan.definition).findall("devices/disk/source[@file]")
        read_only = tuple(path for source in sources if (path := source.get("file", "")) not in plan.disks.values())
        here = restore_checks.look(self.libvirt, plan.names, places_of)
        restore_checks.demand(here, restore_checks.Coming(plan.names, plan.definition, plan.places, need, read_only), self.libvirt)
        return here

    def make(self, plan: Plan, here: restore_checks.Here) -> list[str]:
        """The guest is defined with its files in their places, or nothing is changed. Returns those whose places they took."""
        moment = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        items = [_item(path, moment) for path in plan.disks.values()]
        beside = {ARCHIVES[kind]: _item(path, moment) for kind, path in plan.beside.items()}
        everything = [*items, *beside.values()]
        there = [item["kept"] for item in everything if os.path.lexists(item["path"])]
        try:
            with self._store() as store:
                for disk, item in zip(self.record["disks"], items):
                    self._write(store, disk, item["new"])
                for name, item in beside.items():
                    self._unpack(store, name, item)
            self._switch().make(everything, here.definition, plan.definition)
        finally:
            for item in everything:
                remove(item["new"])
        return there

    @contextlib.contextmanager
    def _store(self) -> t.Iterator[str]:
        """The store with the backup, on this host. One from another host goes again."""
        if not is_elsewhere(self.params["repository"]):
            yield self.backups.store.folder
            return
        folder = os.path.join(brought(self.new), self.point["id"])
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(os.path.dirname(folder), mode=0o700, exist_ok=True)
        try:
            self.pcopy.events("snapshot", "copy", self.backups.store.folder, self.point["id"], folder)
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _write(self, store: str, disk: t.Mapping[str, str], path: str) -> None:
        """One image as a new file, which QEMU itself says is the disk of the backup."""
        remove(path)
        if disk["format"] == "qcow2":
            self.pcopy.events("snapshot", "export", "--volume=" + disk["target"], "--format=qcow2", store, self.point["id"], path)
        else:
            self.pcopy.call("snapshot", "restore", "--json", f"--volume={disk['target']}={path}", store, self.point["id"])
        os.chmod(path, 0o600)
        layer = self.pcopy.call("snapshot", "show", "--json", store, self.point["id"])["images"][disk["target"]]
        said = self.runtime.run([self.runtime.tool("qemu-img", "qemu-utils"), "compare", "-f", disk["format"], "-F", "qcow2", path, layer], accept=range(256))
        if said.rc:
            raise HandoverError(f"the image of {disk['target']} is not the disk of the backup ({said.last_words}): verify the repository")
        lasting(path)

    def _unpack(self, store: str, name: str, item: Item) -> None:
        if os.path.dirname(item["path"]) == TPM_FOLDER:
            os.makedirs(TPM_FOLDER, mode=0o711, exist_ok=True)
        archive = item["path"] + PACKED
        remove(archive)
        remove(item["new"])
        try:
            self.pcopy.events("snapshot", "export", "--file=" + name, store, self.point["id"], archive)
            with open(archive, "rb") as source:
                unpack(source.read(), item["new"])
        finally:
            remove(archive)

    def _go_on(self, start: bool, autostart: bool) -> None:
        if autostart:
            self.libvirt.virsh("autostart", "--domain", self.new)
        if not start:
            return
        try:
            self.libvirt.virsh("start", "--domain", self.new)
        except HandoverError as exc:
            raise HandoverError(f"{self.new} is restored and defined, but does not start: {exc}") from exc


def brought(name: str) -> str:
    """Where the backups of another host are while a guest of that name is made of one; a killed run leaves them."""
    return os.path.join(BROUGHT, name)


def places_of(root: ElementTree.Element) -> list[str]:
    """The files of a guest that a restore may take the place of."""
    disks = root.findall("devices/disk/source[@file]")
    return [source.get("file", "") for source in disks] + [path for _kind, path in files(root)]


def _item(path: str, moment: str) -> dict[str, str]:
    return {"path": path, "new": path + UNFINISHED, "kept": f"{path}.handover-undo-{moment}"}
