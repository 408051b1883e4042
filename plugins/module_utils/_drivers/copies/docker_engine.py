# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Docker's containers, as their snapshots and backups have to know them."""

from __future__ import annotations

import contextlib
import shlex
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ..._core import units
from ..._core.placement import DOCKER
from ..._core.runtime import HandoverError, Runtime
from ..._core.step import Result, in_turn
from ..._docker import facts as facts_of, gate
from ..._docker.api import Docker
from ..._docker.checks import STOPPED
from ..._docker.kept_policy import KeptPolicy
from ..._podman import workload
from ..._podman.copies import memory_fit, memory_in_place
from ..._podman.copies.engine import Document, Facts, looked
from ..._podman.halted import look_for_move
from .. import docker_disks, docker_rows
from ..steps import STEPS
from . import docker_memory


class DockerEngine:
    """Docker."""

    whose = docker_disks.ENGINE
    mark: t.Mapping[str, str] = {"driver": DOCKER}

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.docker = Docker(runtime)

    def _look_for_daemon(self) -> None:
        """A question would start one that is down, and with it each container of a restart policy: a timer asks, too, when nobody is there."""
        if not docker_rows.runs(self.runtime):
            raise HandoverError("Docker does not run on this host, and a question would start it: see `systemctl status docker`, and start it first")

    def listed(self) -> list[Facts]:
        self._look_for_daemon()
        return [{**each, "Names": [facts_of.name_of(each)]} for each in self.docker.containers()]

    def _look(self, module: AnsibleModule, word: str) -> Result:
        self._look_for_daemon()
        result = looked(in_turn(module, STEPS, [{"workload_info": {"workload": word, "driver": DOCKER, "disks": True}}]))
        # A daemon that does not answer has not said that the container is not there.
        if not result["workload"]["exists"] and result["problems"]:
            raise HandoverError(str(result["problems"][0]))
        return result

    def host(self, module: AnsibleModule, name: str) -> Facts:
        return t.cast(Facts, self._look(module, name)["host"])

    def look(self, module: AnsibleModule, word: str) -> Result:
        result = self._look(module, word)
        for member in result["workload"].get("members") or [result["workload"]]:
            look_for_move(self.runtime, member["name"])
        return result

    def container(self, name: str) -> Facts:
        listed = facts_of.resolve(self.docker.containers(), name)
        inspect = self.docker.inspect(listed["Id"]) if listed else None
        if inspect is None:
            raise HandoverError("there is no container of Docker's named {0} on this host".format(name))
        look_for_move(self.runtime, name)
        return docker_memory.with_places({**facts_of.facts_of(inspect, ()), "binds": _binds(inspect)})

    def devices(self) -> dict[str, str]:
        """Those of another driver than local are none of its folders, either."""
        volumes = self.docker.volumes()
        return {each["Name"]: (each.get("Options") or {}).get("device") or "" for each in volumes if each.get("Options") or each.get("Driver") != "local"}

    def places(self, facts: t.Mapping[str, t.Any]) -> set[str]:
        devices = self.devices()
        bound = {mount["source"] if mount["type"] == "bind" else devices.get(mount["name"], "") for mount in facts["mounts"]}
        return bound - {""}

    def users_of_volume(self, name: str) -> list[str]:
        return [facts_of.name_of(each) for each in self.docker.containers() if any(mount.get("Name") == name for mount in each.get("Mounts") or [])]

    def look_for_dump(self, module: AnsibleModule, name: str) -> None:
        docker_memory.look_for_dump(name, self.look(module, name))

    def why_halted(self, facts: Document) -> str:
        """It always runs on: one that does not is refused."""
        return ""

    def halt_of(self, facts: Document) -> docker_memory.DockerMemory:
        return docker_memory.DockerMemory(self.runtime, self.docker, facts)

    def goes_on_again(self, facts: Document) -> bool:
        """It never is halted."""
        return False

    def let_left_run(self, name: str) -> bool:
        listed = workload.find(self.listed(), name)
        inspect = self.docker.inspect(listed["Id"]) if listed else None
        return inspect is not None and memory_in_place.let_left_run(self.runtime, facts_of.facts_of(inspect, ())["own_dir"])

    def look_for_restore(self, name: str) -> None:
        docker_memory.look_for_restore(self.docker, name)

    def is_alike(self, configuration: Document, identifier: str) -> bool:
        inspect = self.docker.inspect(identifier)
        known = configuration.get("essence")
        if not known or inspect is None or configuration["image"]["id"] != inspect.get("Image"):
            return False
        now = facts_of.essence(facts_of.with_network_named(inspect, self.docker.networks()))
        return facts_of.first_difference(memory_fit.own(known), memory_fit.own(now)) is None

    def runtime_of(self, host: Document) -> str:
        """The gate stands before this one alone."""
        return docker_memory.RUNTIME

    def look_for_end(self, facts: t.Mapping[str, t.Any], volumes: t.Sequence[Facts]) -> None:
        if facts["auto_remove"]:
            raise HandoverError("{0} was created with --rm, and Docker removes it when it ends: create it without, and go back then".format(facts["name"]))
        # The gate knows the folder below a volume by its mark, and not one that Docker makes in it.
        for path, volume in ((path, volume) for path in facts["binds"] for volume in volumes):
            if path.startswith(volume["mountpoint"].rstrip("/") + "/"):
                raise HandoverError(
                    "{0} mounts {1} by --volume, and Docker would make that folder anew and start it there while the volume {2} is not mounted: mount {3} "
                    "itself, or by --mount type=bind".format(facts["name"], path, volume["name"], volume["mountpoint"])
                )
        starting = units.acting(self.runtime, units.units_of(DOCKER, facts["name"], facts["id"]))
        if starting:
            raise HandoverError(
                "the systemd unit {0} starts {1}, and could make another on half of a rollback: stop and disable it, start {1} under a restart policy of "
                "Docker's (docker update --restart), and go back then".format(", ".join(starting), facts["name"])
            )
        obstacle = gate.obstacle()
        if obstacle:
            raise HandoverError("Docker could start {0} on half of a rollback, since {1}: {2}".format(facts["name"], obstacle, gate.CURE))

    def end(self, facts: t.Mapping[str, t.Any], kill: bool) -> None:
        """One that is stopped, too, may be started by its policy when the daemon is."""
        policy = KeptPolicy(self.docker, facts["id"])
        policy.take_off()
        if facts["state"] in STOPPED:
            return
        try:
            # The API's answer has a limit, and its time to end is the container's own.
            for word in ("kill", "wait") if kill else ("stop",):
                self.runtime.run([self.runtime.tool("docker", "docker"), word, facts["id"]])
        except BaseException:
            with contextlib.suppress(HandoverError):
                policy.put_back()
            raise

    def go_on(self, name: str, start: bool) -> None:
        found = self.container(name)
        KeptPolicy(self.docker, found["id"]).put_back()
        if start and not found["running"]:
            self.docker.post("containers", found["id"], "start")

    def run_on(self, name: str, facts: Document, within: str = "") -> None:
        docker_memory.run_on(self.runtime, self.docker, name, facts)

    def inside(self, name: str, command: str) -> str:
        return "docker exec {0} sh -c {1}".format(shlex.quote(name), shlex.quote(command))


def _binds(inspect: t.Mapping[str, t.Any]) -> list[str]:
    """Paths of the host that Docker makes at a start where they are missing: those of --volume, and not of --mount."""
    asked = (bind.partition(":")[0] for bind in (inspect.get("HostConfig") or {}).get("Binds") or [])
    return [path.rstrip("/") for path in asked if path.startswith("/")]
