# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One backup of a KVM guest that runs, and the end of those that a policy does not keep."""

from __future__ import annotations

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ..._core.backup_log import BackupLog
from ..._core.backups import GUEST, RECORD, Backups, Row
from ..._core.disk_store import check_name
from ..._core.pcopy import Pcopy
from ..._core.runtime import HandoverError, Runtime
from .. import lock
from ..guests import URI
from ..libvirt import Libvirt
from .guest_checks import BACKUP
from .guest_look import look
from .guest_point import GuestPoint, Hooks


class GuestTaker:
    """One backup."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.params = module.params
        self.libvirt = Libvirt(Runtime(module, module.params["timeout"]), URI)
        self.name: str = module.params["workload"]
        self.backups = Backups(Pcopy(self.libvirt.runtime), module.params["repository"], self.name)
        hooks = Hooks(self.params["before"], self.params["after"], self.params["hook_timeout"])
        self.point = GuestPoint(module, self.libvirt, self.backups.store, BACKUP, hooks)

    def run(self) -> dict[str, t.Any]:
        """Takes it, and prunes."""
        if self.params["name"]:
            check_name("name", self.params["name"])
        with lock.hold(self.name):
            facts = self.point.alone(look(self.libvirt, self.name))
            listed = self._listed()
            outside = self.point.look(facts, listed, self.params["repository"])
            taken = [] if self.module.check_mode else [self.point.take(self.params["name"] or "", facts, listed, outside)]
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

    def _listed(self) -> list[Row]:
        """The backups that there are."""
        listed = self.backups.all()
        if listed and self.backups.document(listed[-1]["id"], RECORD).get("kind") != GUEST:
            raise HandoverError(f"{self.params['repository']} has backups of a container {self.name}: choose another repository for the guest of that name")
        if self.params["name"] and any(each["name"] == self.params["name"] for each in listed):
            raise HandoverError(f"there is a backup {self.params['name']} of {self.name} in {self.params['repository']}: choose another name")
        return listed
