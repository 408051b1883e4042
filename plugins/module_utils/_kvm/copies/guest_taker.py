# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One backup of a KVM guest that runs, and the end of those that a policy does not keep."""

from __future__ import annotations

import json
import os
import tempfile
import typing as t
from dataclasses import replace

from ansible.module_utils.basic import AnsibleModule

from ..._core import host
from ..._core.backup_log import BackupLog
from ..._core.backups import GUEST, RECORD, Backups, Row, seconds
from ..._core.disk_store import CONFIGURATION, check_name, is_elsewhere
from ..._core.move import SPARE_DISK
from ..._core.pcopy import Pcopy
from ..._core.runtime import HandoverError, Runtime
from ..._core.sizes import format_size
from .. import lock
from ..guests import URI
from ..libvirt import Libvirt
from . import backup_xml, guest_checks
from .freeze import Freeze
from .guest_files import ARCHIVES, archive
from .guest_look import GuestFacts, look
from .guest_moment import GuestMoment, NotBegun, end, is_ours

# What a guest overwrites during a backup is taken to be at most this part of a disk.
SCRATCH_PART = 20


class GuestTaker:
    """One backup."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.params = module.params
        self.runtime = Runtime(module, module.params["timeout"])
        self.libvirt = Libvirt(self.runtime, URI)
        self.name: str = module.params["workload"]
        self.backups = Backups(Pcopy(self.runtime), module.params["repository"], self.name)

    def run(self) -> dict[str, t.Any]:
        """Takes it, and prunes."""
        if self.params["name"]:
            check_name("name", self.params["name"])
        with lock.hold(self.name):
            facts = self._alone(look(self.libvirt, self.name))
            guest_checks.demand(facts)
            listed = self._listed()
            self._look_for_room(facts, listed)
            outside = guest_checks.left_out(facts)
            for each in outside:
                self.module.warn(f"a backup of {self.name} leaves out {each}")
            taken = [] if self.module.check_mode else [self._take(facts, listed, outside)]
        if taken:
            BackupLog().taken(self.name, taken[0])
        keep = {period: number for period, number in self.params["keep"].items() if number}
        verdicts = self.backups.prune(keep, dry=self.module.check_mode) if keep and (taken or listed) else []
        return {
            "changed": True,
            "reasons": [f"a backup of {self.name} was asked for"],
            "backups": taken,
            "left_out": outside,
            "verdicts": [{"workload": self.name, **verdict} for verdict in verdicts],
        }

    def _alone(self, facts: GuestFacts) -> GuestFacts:
        """A backup that a killed run has left at work is ended: this one has the lock."""
        if not facts.job or not is_ours(self.libvirt, self.name):
            return facts
        if not self.module.check_mode:
            end(self.libvirt, self.name)
        return replace(facts, job="")

    def _listed(self) -> list[Row]:
        """The backups that there are."""
        listed = self.backups.all()
        if listed and self.backups.document(listed[-1]["id"], RECORD).get("kind") != GUEST:
            raise HandoverError(f"{self.params['repository']} has backups of a container {self.name}: choose another repository for the guest of that name")
        if self.params["name"] and any(each["name"] == self.params["name"] for each in listed):
            raise HandoverError(f"there is a backup {self.params['name']} of {self.name} in {self.params['repository']}: choose another name")
        return listed

    def _look_for_room(self, facts: GuestFacts, listed: t.Sequence[Row]) -> None:
        """For the guest's own writes meanwhile, and for the first backup; what a later one needs is known when it is written."""
        for disk in guest_checks.kept(facts):
            folder = os.path.dirname(disk.path)
            need, free = SPARE_DISK + disk.size // SCRATCH_PART, host.free_space(folder)
            if need > free:
                raise HandoverError(
                    f"{format_size(free)} is free in {folder}, and what {self.name} overwrites during a backup is kept there: free {format_size(need - free)}"
                )
        if listed or is_elsewhere(self.params["repository"]):
            return
        need = sum(disk.size for disk in guest_checks.kept(facts)) + SPARE_DISK
        free = host.free_space(self.params["repository"])
        if need > free:
            raise HandoverError(
                f"the first backup of {self.name} takes {format_size(need - SPARE_DISK)}, and {format_size(free)} is free in {self.params['repository']}: "
                f"free {format_size(need - free)} there"
            )

    def _take(self, facts: GuestFacts, listed: t.Sequence[Row], outside: t.Sequence[str]) -> Row:
        moment = GuestMoment(self.runtime, self.libvirt, facts, self.backups.store.folder)
        marks = self._marks(listed)
        freeze = self._freeze(facts)
        try:
            self._begin(moment, facts, marks, freeze)
            taken = self._pull(moment, facts, outside, freeze is not None)
        except BaseException:
            try:
                moment.end()
            finally:
                # Its bitmap goes to the one before, which then has all since the backup before.
                if moment.checkpoint:
                    self.libvirt.virsh("checkpoint-delete", "--domain", self.name, moment.checkpoint, accept=range(256))
            raise
        moment.end()
        # The one before, and those of backups that came to nothing.
        stay = moment.keep_only(moment.checkpoint)
        if stay:
            self.module.warn(f"libvirt does not remove the checkpoint {stay[0]} of {self.name}, which costs writes: try `virsh checkpoint-delete`")
        return taken

    def _marks(self, listed: t.Sequence[Row]) -> dict[str, str]:
        """The checkpoint that the latest backup has left, by disk."""
        if not listed:
            return {}
        shown = self.backups.pcopy.call("snapshot", "show", "--json", self.backups.store.folder, listed[-1]["id"])
        return {volume["name"]: (volume.get("mark") or {}).get("tracker", "") for volume in shown["volumes"]}

    def _freeze(self, facts: GuestFacts) -> Freeze | None:
        if not facts.has_agent:
            return None
        freeze = Freeze(self.runtime, self.libvirt, self.name, facts.uuid)
        if freeze.answers():
            return freeze
        self.module.warn(f"the agent of {self.name} does not answer, so its backup is as after a loss of power: start qemu-guest-agent in the guest")
        return None

    def _begin(self, moment: GuestMoment, facts: GuestFacts, marks: t.Mapping[str, str], freeze: Freeze | None) -> None:
        disks = guest_checks.kept(facts)
        plans = backup_xml.plan(disks, marks, facts.checkpoints, self.params["track"])
        self._hook("before")
        try:
            try:
                moment.begin(plans, freeze)
            except NotBegun as exc:
                if not exc.is_of_a_checkpoint() or not any(each.since for each in plans):
                    raise
                # Nothing is lost by reading everything.
                broken = sorted({each.since for each in plans if each.since})
                left = moment.keep_only("")
                moment.forget(left)
                why = f"libvirt cannot use the checkpoint {', '.join(broken)} ({exc})"
                moment.begin([backup_xml.without(each, why) for each in plans], freeze)
        finally:
            self._hook("after")

    def _hook(self, when: str) -> None:
        """A command that hangs is ended."""
        if self.params[when]:
            self.runtime.run(["/bin/sh", "-c", self.params[when]], timeout=self.params["hook_timeout"])

    def _pull(self, moment: GuestMoment, facts: GuestFacts, outside: t.Sequence[str], frozen: bool) -> Row:
        with tempfile.TemporaryDirectory(prefix="handover-") as folder:
            contents = {ARCHIVES[kind]: archive(path) for kind, path in facts.files}
            for name, document in self._documents(facts, outside, frozen).items():
                contents[name] = json.dumps(document).encode()
            for name, content in contents.items():
                with open(os.open(os.path.join(folder, name), os.O_WRONLY | os.O_CREAT, 0o600), "wb") as target:
                    target.write(content)
            request = {
                "store": self.backups.store.folder,
                "name": self.params["name"] or "",
                "description": GUEST,
                "taken": moment.taken,
                "frozen_ms": round(moment.frozen_ms, 1),
                "disks": moment.disks(),
                "files": [{"name": name, "path": os.path.join(folder, name)} for name in sorted(contents)],
            }
            taken = self.backups.pcopy.call("snapshot", "pull", "--json", "-", stdin=json.dumps(request))
        return {**taken, "workload": self.name, "taken": seconds(taken["taken"]), "volumes": [{"why": "", **volume} for volume in taken["volumes"]]}

    def _documents(self, facts: GuestFacts, outside: t.Sequence[str], frozen: bool) -> dict[str, t.Any]:
        """All that a restore needs, wherever it is."""
        return {
            CONFIGURATION: {"kind": GUEST, "name": facts.name, "uuid": facts.uuid, "definition": facts.definition, "autostart": facts.autostart},
            RECORD: {
                "kind": GUEST,
                "workload": facts.name,
                "running": True,
                "frozen": frozen,
                "host": os.uname().nodename,
                "disks": [{"target": disk.target, "path": disk.path, "format": disk.format} for disk in guest_checks.kept(facts)],
                "files": [{"kind": kind, "path": path} for kind, path in facts.files],
                "left_out": list(outside),
            },
        }
