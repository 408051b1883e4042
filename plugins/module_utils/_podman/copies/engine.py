# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The engine that runs a container, as its snapshots and backups have to know it: podman here, others in the table of the drivers."""

from __future__ import annotations

import shlex
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ..._core.backups import GUEST
from ..._core.placement import CONTAINER, DRIVERS
from ..._core.runtime import HandoverError, Runtime
from ..._core.snapshot_records import Snapshots
from ..._core.step import Result, in_turn
from .. import workload
from ..halted import go_on
from ..podman import Podman
from ..preflight.plan import STOPPED
from ..steps.table import STEPS
from . import memory_fit, memory_in_place
from .memory_halt import MemoryHalt

Facts = t.Dict[str, t.Any]
Document = t.Mapping[str, t.Any]


class Engine(t.Protocol):
    """Of this host."""

    whose: str
    # In the record of each copy; podman's have none.
    mark: t.Mapping[str, str]

    def listed(self) -> list[Facts]:
        """All containers with their names and labels, as podman's list has them."""

    def look(self, module: AnsibleModule, word: str) -> Result:
        """The containers that a word names, and their host, as workload_info has them."""

    def host(self, module: AnsibleModule, name: str) -> Facts:
        """This host, as workload_info has it; a move may have the container."""

    def container(self, name: str) -> Facts:
        """One of them; an error where it is not there."""

    def devices(self) -> dict[str, str]:
        """The volumes that are no plain folders, each with the device that it mounts."""

    def places(self, facts: t.Mapping[str, t.Any]) -> set[str]:
        """Folders of the host that a container mounts, whether a file system is mounted there or not."""

    def users_of_volume(self, name: str) -> list[str]:
        """Names of the containers that have it."""

    def look_for_dump(self, module: AnsibleModule, name: str) -> None:
        """An error where its memory cannot be taken, or could not be gone back to."""

    def why_halted(self, facts: Document) -> str:
        """Why one has to be halted and restored for its memory; empty: it runs on where it stood."""

    def halt_of(self, facts: Document) -> MemoryHalt:
        """The way in which its memory is taken."""

    def goes_on_again(self, facts: Document) -> bool:
        """Whether a run that was killed had left it halted, and it goes on now."""

    def let_left_run(self, name: str) -> bool:
        """Whether a run that was killed with all of its processes had left a note of a dump: the container runs on."""

    def look_for_restore(self, name: str) -> None:
        """An error where this host restores no memory."""

    def is_alike(self, configuration: Document, identifier: str) -> bool:
        """Whether a container of this host was made as the one that workload_info has told of, of the same image."""

    def runtime_of(self, host: Document) -> str:
        """The runtime that it uses on a host, as workload_info has that."""

    def look_for_end(self, facts: t.Mapping[str, t.Any], volumes: t.Sequence[Facts]) -> None:
        """An error where it would not be there any more when it has ended, or could start while its image volumes are not mounted."""

    def end(self, facts: t.Mapping[str, t.Any], kill: bool) -> None:
        """Ends one that runs. Nothing starts it until it goes on."""

    def go_on(self, name: str, start: bool) -> None:
        """It is again as it was before its end, and runs if it is to start."""

    def run_on(self, name: str, facts: Document, within: str = "") -> None:
        """It runs on from the memory that lies in its place; within: in the cgroup of its unit."""

    def inside(self, name: str, command: str) -> str:
        """A command of the host that has the shell of a container run another."""


EngineOf = t.Callable[[Runtime], Engine]


class PodmanEngine:
    """podman."""

    whose = "podman's"
    mark: t.Mapping[str, str] = {}

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.podman = Podman(runtime)

    def listed(self) -> list[Facts]:
        return self.podman.containers()

    def look(self, module: AnsibleModule, word: str) -> Result:
        return looked(in_turn(module, STEPS, [{"workload_info": {"workload": word}}]))

    def host(self, module: AnsibleModule, name: str) -> Facts:
        return t.cast(Facts, self.look(module, name)["host"])

    def container(self, name: str) -> Facts:
        listed = workload.find(self.listed(), name)
        if listed is None:
            raise HandoverError("there is no container named {0} on this host".format(name))
        return workload.facts_of(self.podman.inspect(listed["Id"]), ())

    def devices(self) -> dict[str, str]:
        return {volume["Name"]: volume["Options"].get("device") or "" for volume in self.podman.volumes() if volume.get("Options")}

    def places(self, facts: t.Mapping[str, t.Any]) -> set[str]:
        devices = self.devices()
        bound = {devices.get(mount["name"], "") for mount in facts["mounts"] if mount["type"] == "volume"}
        return {*bound, str(facts.get("rootfs") or "").rstrip("/")} - {""}  # its root may be one

    def users_of_volume(self, name: str) -> list[str]:
        return self.podman.users_of_volume(name)

    def look_for_dump(self, module: AnsibleModule, name: str) -> None:
        """Those of a container's own facts are in the table of backup_memory."""

    def why_halted(self, facts: Document) -> str:
        return memory_in_place.why_halted(self.podman, facts)

    def halt_of(self, facts: Document) -> MemoryHalt:
        return memory_in_place.halt_of(self.runtime, self.podman, facts)

    def goes_on_again(self, facts: Document) -> bool:
        return bool(facts.get("static_dir")) and MemoryHalt(self.runtime, self.podman, facts).recover()

    def let_left_run(self, name: str) -> bool:
        listed = workload.find(self.listed(), name)
        return listed is not None and memory_in_place.let_left_run(self.runtime, self.podman.inspect(listed["Id"])["StaticDir"])

    def look_for_restore(self, name: str) -> None:
        """The checks of a restore are those of its memory."""

    def is_alike(self, configuration: Document, identifier: str) -> bool:
        return memory_fit.alike(configuration, self.podman.inspect(identifier))

    def runtime_of(self, host: Document) -> str:
        return str(host["podman"]["runtime"])

    def look_for_end(self, facts: t.Mapping[str, t.Any], volumes: t.Sequence[Facts]) -> None:
        """Its unit makes it again where it was removed."""

    def end(self, facts: t.Mapping[str, t.Any], kill: bool) -> None:
        """Nothing starts it on volumes that are not in place."""
        if facts["state"] not in STOPPED:
            self.podman.run("kill" if kill else "stop", facts["name"])
            self.podman.run("wait", facts["name"])

    def go_on(self, name: str, start: bool) -> None:
        if start:
            self.podman.run("start", name)

    def run_on(self, name: str, facts: Document, within: str = "") -> None:
        go_on(self.runtime, name, facts, within)

    def inside(self, name: str, command: str) -> str:
        return "podman exec {0} sh -c {1}".format(shlex.quote(name), shlex.quote(command))


def looked(result: Result) -> Result:
    """The answer of workload_info."""
    if "msg" in result:
        raise HandoverError(result["msg"])
    return t.cast(Result, result["last"]["workload_info"])


def demand_own(root: str, names: t.Iterable[str], engine: Engine) -> None:
    """An error where the snapshots of a name are those of another engine's container: the copies of a name have one place."""
    for name in names:
        try:
            records = Snapshots(root, name).all()
        except HandoverError:
            continue  # one that cannot be read is told where it is needed, and keeps nobody from the others
        for record in records:
            demand_same("the snapshots of {0} in {1}".format(name, root), record, engine, "or have the others in another folder (snapshot_root)")


def demand_same(subject: str, record: t.Mapping[str, t.Any], engine: Engine, otherwise: str) -> None:
    """An error where a copy is of another engine's container."""
    if record.get("kind") == GUEST and engine.mark:
        raise HandoverError("{0} are of a KVM guest: leave handover_driver away, {1}".format(subject, otherwise))
    known, asked = (each.get("driver") or DRIVERS[CONTAINER] for each in (record, engine.mark))
    if known != asked:
        raise HandoverError("{0} are of a container of the driver {1}: name it (handover_driver={1}), {2}".format(subject, known, otherwise))
