# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One backup of a container, or of several at one moment, and the end of those that a policy does not keep."""

from __future__ import annotations

import os
import shlex
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ..._core import host
from ..._core.backup_log import BackupLog
from ..._core.backups import PERIODS, RECORD, Backups, Row
from ..._core.disk_store import CONFIGURATION, check_name, is_elsewhere
from ..._core.pcopy import Pcopy
from ..._core.runtime import HandoverError, Runtime
from ..._core.step import in_turn
from ..backup_moment import take_all
from ..snapshots import folders, image_volumes, left_out_of, look_for_cgroup, recorded
from ..steps.table import STEPS
from .snapshot_disks import look_for_room

Document = t.Mapping[str, t.Any]

# Of the container: commands in it before the file systems stand still, and after it.
LABEL = "livefleet.handover.backup."

ARGUMENTS: dict[str, t.Any] = {
    "workload": {"type": "str", "required": True},
    "repository": {"type": "path", "required": True},
    "name": {"type": "str"},
    "keep": {"type": "dict", "default": {}, "options": {period: {"type": "int"} for period in PERIODS}},
    "track": {"type": "bool", "default": True},
    "before": {"type": "str"},
    "after": {"type": "str"},
    "hook_timeout": {"type": "int", "default": 60},
    "timeout": {"type": "int", "default": 14400},
}


class NotHere(HandoverError):
    """The host does not have the container."""


class BackupTaker:
    """One backup."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.params = module.params
        self.runtime = Runtime(module, module.params["timeout"])

    def run(self) -> dict[str, t.Any]:
        """Takes it, and prunes."""
        if self.params["name"]:
            check_name("name", self.params["name"])
        for period, number in self.params["keep"].items():
            if (number or 0) < 0:
                raise HandoverError("keep: {0}: {1} is no number of backups: write 1 or more, or leave {0} out".format(period, number))
        found = self._container()
        members = [member for member in found.get("members") or [found] if not member.get("infra")]
        containers = [member for member in members if image_volumes(member) or folders(member)]
        if not containers:
            raise HandoverError("{0} has no volume to back up: give it one (image_volume)".format(self.params["workload"]))
        for container in containers:
            look_for_cgroup(container)
        backups = [Backups(Pcopy(self.runtime), self.params["repository"], container["name"]) for container in containers]
        known = [self._look(each) for each in backups]
        first = [container for container, there in zip(containers, known) if not there]
        if first and not is_elsewhere(self.params["repository"]):  # what a later one needs is known when it is written
            paths = [path for each in first for path in (*(volume["image"] for volume in image_volumes(each)), *(folder["path"] for folder in folders(each)))]
            need = sum(map(host.allocated, paths))
            look_for_room(" and ".join(container["name"] for container in first), need, self.params["repository"])
        left_out = [(member["name"], each) for member in members for each in left_out_of(member)]
        for name, each in left_out:
            self.module.warn("{0} is no part of the backup of {1}: put it in a volume of its own".format(each, name))
        taken = [] if self.module.check_mode else self._take(containers, backups)
        if taken:  # a timer of several logs its failures under their word, too
            volumes = [volume for each in taken for volume in each["volumes"]]
            BackupLog().taken(found["name"], {**taken[0], "volumes": volumes})
        keep = {period: number for period, number in self.params["keep"].items() if number}
        verdicts = [
            {"workload": each.workload, **verdict}
            for each, there in zip(backups, known) if keep and (taken or there)
            for verdict in each.prune(keep, dry=self.module.check_mode)
        ]  # fmt: skip
        reasons = ["a backup of {0} was asked for".format(container["name"]) for container in containers]
        return {"changed": True, "reasons": reasons, "backups": taken, "left_out": [each for _name, each in left_out], "verdicts": verdicts}

    def _look(self, backups: Backups) -> list[Row]:
        """The backups that there are; an error where the name is one of theirs."""
        listed = backups.all()
        if self.params["name"] and any(each["name"] == self.params["name"] for each in listed):
            raise HandoverError(
                "there is a backup {0} of {1} in {2}: choose another name".format(self.params["name"], backups.workload, self.params["repository"])
            )
        return listed

    def _take(self, containers: t.Sequence[Document], backups: t.Sequence[Backups]) -> list[Row]:
        documents = [{CONFIGURATION: container, RECORD: _record(container)} for container in containers]
        return take_all(backups, containers, documents, self.params["name"] or "", self._options(containers))

    def _container(self) -> Document:
        result = in_turn(self.module, STEPS, [{"workload_info": {"workload": self.params["workload"]}}])
        if "msg" in result:
            raise HandoverError(result["msg"])
        container = result["last"]["workload_info"]["workload"]
        if not container["exists"]:
            raise NotHere(
                "{0} is neither a container of podman's nor a guest of libvirt's on this host: name the host that it is on".format(self.params["workload"])
            )
        if container["held"]:
            raise HandoverError("{0} is being moved: wait until that has ended".format(container["name"]))
        return container

    def _options(self, containers: t.Sequence[Document]) -> list[str]:
        hooks = [(when, self.params[when] or join(when, [inside(container, when) for container in containers])) for when in ("before", "after")]
        options = ["--{0}={1}".format(option, value) for option, value in hooks if value]
        return [*options, "--hook-limit={0}".format(self.params["hook_timeout"]), "--track=" + str(self.params["track"]).lower()]


def inside(container: Document, when: str) -> str:
    """The command of a label. It runs in the container, for an image may bring labels, and nobody has asked for its commands on the host."""
    command = container["labels"].get(LABEL + when)
    return "podman exec {0} sh -c {1}".format(shlex.quote(container["name"]), shlex.quote(command)) if command and container["running"] else ""


def join(when: str, commands: t.Iterable[str]) -> str:
    """The first that fails ends those before; of those afterwards each is run, whatever the others came to."""
    given = [command for command in commands if command]
    if when == "before" or len(given) < 2:
        return " && ".join(given)
    return "; ".join(["failed=0", *(command + " || failed=1" for command in given), "exit $failed"])


def _record(container: Document) -> Row:
    return {
        "workload": container["name"],
        "container": container["id"],
        "running": container["running"],
        "host": os.uname().nodename,
        "volumes": recorded(image_volumes(container)),
        "folders": folders(container),
    }
