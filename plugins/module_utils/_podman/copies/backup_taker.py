# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One backup of one container, and the end of those that a policy does not keep."""

from __future__ import annotations

import os
import shlex
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ..._core import host
from ..._core.pcopy import Pcopy
from ..._core.runtime import HandoverError, Runtime
from ..._core.step import in_turn
from ..backup_log import BackupLog
from ..backups import PERIODS, RECORD, Backups
from ..disk_store import is_elsewhere
from ..snapshots import CONFIGURATION, check_name
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

_OF_A_VOLUME = ("name", "image", "mountpoint", "fstype", "options", "size")


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
        container = self._container()
        volumes = volumes_of(container)
        if not volumes:
            raise HandoverError("{0} has no image volume to back up: give it one (image_volume)".format(container["name"]))
        backups = Backups(Pcopy(self.runtime), self.params["repository"], container["name"])
        listed = backups.all()
        if self.params["name"] and any(each["name"] == self.params["name"] for each in listed):
            raise HandoverError(
                "there is a backup {0} of {1} in {2}: choose another name".format(self.params["name"], container["name"], self.params["repository"])
            )
        if not listed and not is_elsewhere(self.params["repository"]):  # what a later one needs is known when it is written
            look_for_room(container["name"], sum(host.allocated(volume["image"]) for volume in volumes), self.params["repository"])
        left_out = left_out_of(container)
        for each in left_out:
            self.module.warn("{0} is no part of the backup of {1}: put it in an image volume".format(each, container["name"]))
        taken = None
        if not self.module.check_mode:
            record = {"workload": container["name"], "container": container["id"], "running": container["running"], "host": os.uname().nodename}
            record["volumes"] = [{key: volume.get(key) for key in _OF_A_VOLUME} for volume in volumes]
            taken = backups.take(volumes, {CONFIGURATION: container, RECORD: record}, self._options(container))
            BackupLog().taken(container["name"], taken)
        keep = {period: number for period, number in self.params["keep"].items() if number}
        verdicts = backups.prune(keep, dry=self.module.check_mode) if keep and (taken or listed) else []
        reasons = ["a backup of {0} was asked for".format(container["name"])]
        return {"changed": True, "reasons": reasons, "backup": taken, "left_out": left_out, "verdicts": verdicts}

    def _container(self) -> Document:
        result = in_turn(self.module, STEPS, [{"workload_info": {"workload": self.params["workload"]}}])
        if "msg" in result:
            raise HandoverError(result["msg"])
        container = result["last"]["workload_info"]["workload"]
        if not container["exists"]:
            raise NotHere("{0} is no container of this host: name the host that it is on".format(self.params["workload"]))
        if container["held"]:
            raise HandoverError("{0} is being moved: wait until that has ended".format(container["name"]))
        return container

    def _options(self, container: Document) -> list[str]:
        hooks = [(when, self.params[when] or inside(container, when)) for when in ("before", "after")]
        given = [("name", self.params["name"]), *hooks]
        options = ["--{0}={1}".format(option, value) for option, value in given if value]
        return [*options, "--hook-limit={0}".format(self.params["hook_timeout"]), "--track=" + str(self.params["track"]).lower()]


def inside(container: Document, when: str) -> str:
    """The command of a label. It runs in the container, for an image may bring labels, and nobody has asked for its commands on the host."""
    command = container["labels"].get(LABEL + when)
    return "podman exec {0} sh -c {1}".format(shlex.quote(container["name"]), shlex.quote(command)) if command and container["running"] else ""


def volumes_of(container: Document) -> list[Document]:
    """Its image volumes, each once."""
    found = {mount["image_volume"]["image"]: mount["image_volume"] for mount in container["mounts"] if mount["image_volume"]}
    return list(found.values())


def left_out_of(container: Document) -> list[str]:
    """What it can write to, and is in no image volume."""
    return [
        "{0} ({1})".format(mount["destination"], "podman's volume " + mount["name"] if mount["type"] == "volume" else mount["source"])
        for mount in container["mounts"]
        if not mount["image_volume"] and not mount["read_only"]
    ]
