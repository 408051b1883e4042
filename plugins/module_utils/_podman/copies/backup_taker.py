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
from ..._core.backups import MEMORY, PERIODS, RECORD, Backups, Row
from ..._core.disk_store import CONFIGURATION, check_name, is_elsewhere
from ..._core.pcopy import Pcopy
from ..._core.room import look_for_room
from ..._core.runtime import HandoverError, Runtime
from ..backup_moment import take_all
from ..snapshots import folders, image_volumes, left_out_of, look_for_cgroup, recorded
from .backup_memory import look_for_memory, wants_memory
from .engine import Engine, EngineOf, PodmanEngine, demand_same
from .memory_fit import host_then
from .memory_halt import MemoryHalt
from .memory_in_place import HALTED

Document = t.Mapping[str, t.Any]

# Of the container: commands in it before the file systems stand still, and after it; whether its memory is taken, too.
LABEL = "livefleet.handover.backup."

ARGUMENTS: dict[str, t.Any] = {
    "workload": {"type": "str", "required": True},
    "repository": {"type": "path", "required": True},
    "driver": {"type": "str", "choices": ["docker", "podman"], "default": "podman"},
    "name": {"type": "str"},
    "keep": {"type": "dict", "default": {}, "options": {period: {"type": "int"} for period in PERIODS}},
    "track": {"type": "bool", "default": True},
    "mode": {"type": "str", "choices": ["auto", "pull", "push"], "default": "auto"},
    "before": {"type": "str"},
    "after": {"type": "str"},
    "memory": {"type": "bool"},
    "ran": {"type": "list", "elements": "str", "default": []},
    "hook_timeout": {"type": "int", "default": 60},
    "timeout": {"type": "int", "default": 14400},
}


class NotHere(HandoverError):
    """The host does not have the container."""


class BackupTaker:
    """One backup."""

    def __init__(self, module: AnsibleModule, engine_of: EngineOf = PodmanEngine) -> None:
        self.module = module
        self.params = module.params
        self.runtime = Runtime(module, module.params["timeout"])
        self.engine = engine_of(self.runtime)
        self.host: Document | None = None

    def run(self) -> dict[str, t.Any]:
        """Takes it, and prunes."""
        if self.params["name"]:
            check_name("name", self.params["name"])
        for period, number in self.params["keep"].items():
            if (number or 0) < 0:
                raise HandoverError("keep: {0}: {1} is no number of backups: write 1 or more, or leave {0} out".format(period, number))
        found = self._container()
        if self._goes_on_again(found):
            found = self._container()
        members = [member for member in found.get("members") or [found] if not member.get("infra")]
        containers = [member for member in members if image_volumes(member) or folders(member)]
        if not containers:
            raise HandoverError("{0} has no volume to back up: give it one (image_volume)".format(self.params["workload"]))
        for container in containers:
            look_for_cgroup(container)
        # The settings of an earlier timer have none.
        memory = wants_memory(members, self.params.get("memory"), self._why_halted)
        backups = [Backups(Pcopy(self.runtime), self.params["repository"], container["name"]) for container in containers]
        known = [self._look(each) for each in backups]
        first = [container for container, there in zip(containers, known) if not there]
        if first and not is_elsewhere(self.params["repository"]):  # what a later one needs is known when it is written
            paths = [path for each in first for path in (*(volume["image"] for volume in image_volumes(each)), *(folder["path"] for folder in folders(each)))]
            need = sum(map(host.allocated, paths))
            look_for_room(" and ".join(container["name"] for container in first), need, self.params["repository"])
        if memory:
            look_for_memory(containers[0], self.params["repository"])
        left_out = [(member["name"], each) for member in members for each in left_out_of(member)]
        for name, each in left_out:
            self.module.warn("{0} is no part of the backup of {1}: put it in a volume of its own".format(each, name))
        taken = [] if self.module.check_mode else self._take(containers, backups, memory)
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

    def _why_halted(self, member: Document) -> str:
        self.engine.look_for_dump(self.module, member["name"])
        return self.engine.why_halted(member)

    def _look(self, backups: Backups) -> list[Row]:
        """The backups that there are; an error where the name is one of theirs."""
        listed = backups.all()
        if self.params["name"] and any(each["name"] == self.params["name"] for each in listed):
            raise HandoverError(
                "there is a backup {0} of {1} in {2}: choose another name".format(self.params["name"], backups.workload, self.params["repository"])
            )
        if listed:
            subject = "the backups of {0} in {1}".format(backups.workload, self.params["repository"])
            demand_same(subject, backups.document(listed[-1]["id"], RECORD), self.engine, "or have the others in another repository")
        return listed

    def _take(self, containers: t.Sequence[Document], backups: t.Sequence[Backups], memory: bool) -> list[Row]:
        host_of_memory, ran = self.host if memory else None, self.params.get("ran") or []
        documents = [{CONFIGURATION: container, RECORD: _record(container, ran, host_of_memory, self.engine)} for container in containers]
        name = self.params["name"] or ""
        if not memory:
            return take_all(backups, containers, documents, name, self._options(containers))
        why = self.engine.why_halted(containers[0])
        if why:
            self.module.warn(HALTED.format(containers[0]["name"], why))
        with self.engine.halt_of(containers[0]) as halt:
            return take_all(backups, containers, documents, name, self._options(containers, halt), {MEMORY: halt.archive})

    def _goes_on_again(self, found: Document) -> bool:
        """Whether a backup that was killed in the pause had left it down."""
        if found.get("running") or found.get("members") or self.module.check_mode or not self.engine.goes_on_again(found):
            return False
        self.module.warn("{0} was left halted by a backup with memory that was killed: it runs on from there".format(found["name"]))
        return True

    def _container(self) -> Document:
        result = self.engine.look(self.module, self.params["workload"])
        container, self.host = result["workload"], result.get("host")
        if not container["exists"]:
            raise NotHere(
                "{0} is neither a container of {1} nor a guest of libvirt's on this host: name the host that it is on".format(
                    self.params["workload"], self.engine.whose
                )
            )
        if container["held"]:
            raise HandoverError("{0} is being moved: wait until that has ended".format(container["name"]))
        return container

    def _options(self, containers: t.Sequence[Document], halt: MemoryHalt | None = None) -> list[str]:
        """The helper's words. The archive of the memory takes its time beside the commands, of which each has its own limit then."""
        limit = self.params["hook_timeout"]
        hooks = {when: self.params[when] or join(when, [inside(self.engine, container, when) for container in containers]) for when in ("before", "after")}
        words = []
        if halt is not None:
            within = {when: shlex.join(["timeout", str(limit), "sh", "-c", command]) if command else "" for when, command in hooks.items()}
            hooks = {**within, "after": join("after", [within["after"], halt.pack])}
            limit = self.params["timeout"]
            words = halt.options(limit)
        options = ["--{0}={1}".format(when, command) for when, command in hooks.items() if command]
        return [*options, *words, "--hook-limit={0}".format(limit), "--track=" + str(self.params["track"]).lower()]


def inside(engine: Engine, container: Document, when: str) -> str:
    """The command of a label. It runs in the container, for an image may bring labels, and nobody has asked for its commands on the host."""
    command = container["labels"].get(LABEL + when)
    return engine.inside(container["name"], command) if command and container["running"] else ""


def join(when: str, commands: t.Iterable[str]) -> str:
    """The first that fails ends those before; of those afterwards each is run, whatever the others came to."""
    given = [command for command in commands if command]
    if when == "before" or len(given) < 2:
        return " && ".join(given)
    return "; ".join(["failed=0", *(command + " || failed=1" for command in given), "exit $failed"])


def _record(container: Document, ran: t.Collection[str], host_of_memory: Document | None, engine: Engine) -> Row:
    return {
        **engine.mark,
        "workload": container["name"],
        "container": container["id"],
        "running": container["running"] or container["name"] in ran,
        "host": os.uname().nodename,
        "volumes": recorded(image_volumes(container)),
        "folders": folders(container),
        **({"memory": {"runtime": container["runtime"], "host": host_then(host_of_memory)}} if host_of_memory else {}),
    }
