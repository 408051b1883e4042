# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A container and its host, as a move has to know them."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ..._core import floating_look, host, loop, units
from ..._core.pcopy import Pcopy
from ..._core.runtime import HandoverError, Runtime
from ..._core.step import Step
from .. import common_ipc, container_facts, file_flags, groups, pod_command, processes, root_volume, service_pod, subpaths, task_facts, workload
from ..bind_facts import of_mount
from ..container_look import Look
from ..create_command import CommandError, carried_options, files, parse, unsupported
from ..essence import essence
from ..group_facts import beside_facts, essence_of_member, group_facts, pod_facts
from ..host_offer import CONFIGURATION_ANNOTATION, CRIU_CONFIGURATION, HostOffer, ghost_limit
from ..podman import Held, Podman
from ..sessions import ROOT
from ..volume_facts import image_volume_below


class WorkloadInfo:
    """A container and its host."""

    def __init__(self, module: AnsibleModule) -> None:
        self.params = module.params
        self.runtime = Runtime(module, module.params["timeout"])
        self.podman = Podman(self.runtime)
        self.has_podman = self.runtime.find("podman") is not None
        self.problems: list[str] = []
        self.look = HostOffer(self.runtime, self.podman, module.params, self._ask)
        self.answers: dict[t.Callable[[], t.Any], t.Any] = {}

    def run(self) -> dict[str, t.Any]:
        """Asks everything; only the basis of further questions may fail."""
        containers = self._ask(self.podman.containers, []) if self.has_podman else []
        if self.params["brief"]:
            found = workload.resolve(containers, self.params["workload"])
            members = [] if found else groups.resolve(containers, self.params["workload"])[1]
            brief = self._brief_group(members) if members else self._brief(found, containers)
            brief["conmon_gone"] = brief["running"] and not members and container_facts.unattended(brief["id"])
            return {"changed": False, "workload": brief, "sessions": self.look.sessions(), "problems": self.problems}
        # First: a network that another move makes meanwhile is known before its addresses are.
        offered = self.look.host()
        networks = self._ask(self.podman.networks, []) if self.has_podman else []
        found = self._workload(containers, networks)
        images, volumes = (self._ask_once(question) if self.has_podman else [] for question in (self.podman.images, self.podman.volumes))
        grammars = self._ask_once(self.podman.grammars) if self.has_podman else []
        offered.update(podman=self.look.engine(containers, networks, images, volumes, grammars))
        return {"changed": False, "workload": found, "host": offered, "problems": self.problems}

    def _ask(self, question: t.Callable[[], t.Any], otherwise: t.Any) -> t.Any:
        """The answer, or the default; the reason is kept."""
        try:
            return question()
        except HandoverError as exc:
            self.problems.append(str(exc))
            return otherwise

    def _ask_once(self, question: t.Callable[[], t.Sequence[t.Any]]) -> t.Any:
        """The same for the answers that serve both the workload and its host: podman takes a while for each."""
        if question not in self.answers:
            self.answers[question] = self._ask(question, [])
        return self.answers[question]

    # The workload

    def _workload(self, containers: list[dict[str, t.Any]], networks: list[dict[str, t.Any]]) -> dict[str, t.Any]:
        listed = workload.resolve(containers, self.params["workload"])
        if listed is None:
            kind, members = groups.resolve(containers, self.params["workload"])
            if members:
                return self._group(kind, members, containers, networks)
        return self._container(listed, containers, networks)

    def _group(
        self, kind: str, listed: t.Sequence[t.Mapping[str, t.Any]], containers: list[dict[str, t.Any]], networks: list[dict[str, t.Any]]
    ) -> dict[str, t.Any]:
        """Several containers that move as one."""
        inspects = self._ask(lambda: self.podman.inspect_many([each["Id"] for each in containers]), [])
        mine = {each["Id"] for each in listed}
        known = [each for each in inspects if each["Id"] in mine]
        pods = [self._pod(pod) for pod in self._ask(lambda: self.podman.pods(sorted({each["PodName"] for each in listed if each.get("PodName")})), [])]
        order = [each["Id"] for each in groups.in_order(known)]
        members = []
        for each in sorted(listed, key=lambda each: order.index(each["Id"]) if each["Id"] in order else len(order)):
            facts = self._container(each, containers, networks, in_group=True)
            infra = bool(each.get("IsInfra"))
            members.append({"pod": each.get("Pod") or "", **facts, "infra": infra})
        outsiders = {
            other["Name"] for unit in groups.units(inspects, projects=False) if mine & {each["Id"] for each in unit}
            for other in unit if other["Id"] not in mine and not other.get("IsInfra")
        }  # fmt: skip
        pids = [member["pid"] for member in members if member["infra"] and member["running"]]
        common = self._ask(lambda: common_ipc.objects(self.runtime, pids[0]), []) if pids else []
        joined = task_facts.multicast_groups(pids[0]) if pids else []
        as_wave = groups.can_part(known, {each["Pod"] for each in containers if each.get("IsInfra")}) if len(known) == len(listed) else ""
        found = group_facts(self.params["workload"], kind, members, pods, sorted(outsiders))
        if kind == groups.POD:
            found["service"] = self._ask(lambda: service_pod.facts(self.runtime, [member for member in members if not member["infra"]]), {})
        return {**found, "common_ipc": common, "multicast": joined, "as_wave": as_wave}

    def _container(
        self, listed: t.Mapping[str, t.Any] | None, containers: list[dict[str, t.Any]], networks: list[dict[str, t.Any]], in_group: bool = False
    ) -> dict[str, t.Any]:
        """One container."""
        brief = self._brief(listed, containers)
        if listed is None:
            starting = units.units_of("podman", brief["name"], brief["name"])
            return {**brief, "units": self._ask(lambda: units.acting(self.runtime, starting), []) if starting else []}
        try:
            inspect = self.podman.inspect(listed["Id"])
        except Held as exc:
            self.problems.append(str(exc))
            return {**brief, "held": True}
        facts = {**brief, **workload.facts_of(inspect, networks), "essence": essence(inspect)}
        together = {} if in_group else self._ask(lambda: self._together(inspect, containers), {})
        facts.update({"together": [], "wave": "", **together})
        if facts["wave"]:
            facts["essence"] = essence_of_member(facts["essence"], facts["others"], False)
        volumes = {volume["Name"]: volume for volume in self._ask_once(self.podman.volumes)}
        mounts = loop.read_mounts()
        for mount in facts["mounts"]:
            mount.update(self._volume(mount, volumes.get(mount["name"], {}), mounts, facts["name"]))
            if mount["subpath"]:
                mount["subpath_kind"] = subpaths.kind(mount["directory"] or mount["source"], mount["subpath"])
            if mount["type"] == "bind":
                mount.update(of_mount(mount["source"], mount["destination"], facts["pid"]))
        if not in_group:
            facts["mounts"] += root_volume.mounts_of(facts, mounts)
        options = host.parse_criu_configuration(host.read_text(CRIU_CONFIGURATION))
        found = processes.Processes((), 0, ())
        # Those of the host are no business of a container's, though one sees them all with --pid host.
        if facts["running"] and not container_facts.shares_host_processes(facts["pid"]):
            found = processes.processes_of(facts["pid"], ghost_limit(options))
        cgroup = host.freezable_cgroup(facts["pid"], facts["id"], options) if facts["running"] else ""
        look = Look(self.runtime, self.podman, inspect, facts)
        seen = {**self._ask(look.still, {}), **(self._ask(lambda: look.running(found.pids), {}) if found.pids else {})}
        facts.update(
            pids=list(found.pids),
            seccomp_filter=any(host.has_seccomp_filter(pid) for pid in found.pids),
            # A tmpfs is packed into the dump.
            memory=found.memory + sum(tmpfs["size"] for tmpfs in seen.get("tmpfs") or []),
            **seen,
            connections=host.connections(facts["pid"]) if facts["running"] else {},
            # Of ports on an address that may float it counts who is at their other end.
            # So it does of those that move beside it.
            peers=floating_look.peers(host.established(facts["pid"])) if facts["running"] and _counts_peers(facts) else [],
            obstacles=[dataclasses.asdict(obstacle) for obstacle in found.obstacles],
            **self._recreation(facts["create_command"], in_group or bool(facts["wave"]), root_volume.path_of(facts)),
            layer=host.allocated(facts["upper_dir"]) if facts["upper_dir"] else 0,
            cgroup=cgroup,
            divided=facts["running"] and host.divided_cgroup(facts["pid"], facts["id"], cgroup),
            cgroup_namespace=facts["running"] and host.has_own_namespace(facts["pid"], "cgroup"),
            throttle=host.limitable_cgroup(facts["pid"], facts["id"]) if facts["running"] else {"cgroup": "", "why": "it does not run"},
            criu_configuration=((inspect.get("Config") or {}).get("Annotations") or {}).get(CONFIGURATION_ANNOTATION, CRIU_CONFIGURATION),
        )
        facts["image"].update(self._image(facts["image"]))
        return facts

    def _together(self, inspect: dict[str, t.Any], containers: list[dict[str, t.Any]]) -> dict[str, t.Any]:
        """Names of the containers that cannot be parted, if this is one of several; and the rest of a wave, if they move as one."""
        identifier = inspect["Id"]
        inspects = [inspect, *self.podman.inspect_many([each["Id"] for each in containers if each["Id"] != identifier])]
        unit = next((unit for unit in groups.units(inspects, projects=False) if identifier in {each["Id"] for each in unit}), [])
        names = sorted(each["Name"] for each in unit if not each.get("IsInfra"))
        project = groups.can_part(unit, {each["Pod"] for each in containers if each.get("IsInfra")}) if len(names) > 1 or inspect.get("Pod") else ""
        found: dict[str, t.Any] = {"together": names if len(names) > 1 else [], "wave": project}
        if project:
            pods = self.podman.pods(sorted({each["PodName"] for each in containers if each["Id"] == identifier and each.get("PodName")}))
            found.update(beside_facts(inspect, unit, [self._pod(pod) for pod in pods]))
        return found

    def _pod(self, pod: dict[str, t.Any]) -> dict[str, t.Any]:
        """A pod, and why it cannot be made on another host."""
        facts = pod_facts(pod)
        grammars = self._ask_once(self.podman.grammars)
        try:
            why = pod_command.unsupported(pod_command.parse(facts["create_command"], grammars[0], self.podman.pod_grammar())) if grammars else ""
        except CommandError as exc:
            why = str(exc)
        return {**facts, "cannot_recreate": why}

    def _brief(self, listed: t.Mapping[str, t.Any] | None, containers: t.Sequence[t.Mapping[str, t.Any]]) -> dict[str, t.Any]:
        """Its entry in podman's list of containers."""
        name = self.params["workload"]
        if listed is None:
            return {"exists": False, "running": False, "held": False, "name": name}
        state = listed.get("State", "")
        name = workload.name_of(listed, "" if listed.get("IsInfra") else name)
        return {"exists": True, "running": state == "running", "held": False, "name": name, "id": listed["Id"], "state": state}

    def _brief_group(self, listed: t.Sequence[t.Mapping[str, t.Any]]) -> dict[str, t.Any]:
        """The same of several that move as one: it runs if one of them does."""
        running = groups.names(each for each in listed if each.get("State") == "running")
        state = "running" if running else "exited"
        name = self.params["workload"]
        return {"exists": True, "running": bool(running), "held": False, "name": name, "id": "", "state": state, "running_members": running}

    def _recreation(self, command: list[str], in_group: bool, root: str) -> dict[str, t.Any]:
        """Why a twin cannot be made from the command that made it, or the options and files that its podman must have for it."""
        grammars = self._ask_once(self.podman.grammars)
        found: dict[str, t.Any] = {"cannot_recreate": "", "create_options": [], "files": []}
        if not grammars:
            return found
        podman, run, create = grammars
        try:
            parsed = parse(command, podman, run | create)
        except CommandError as exc:
            return {**found, "cannot_recreate": str(exc)}
        return {"cannot_recreate": unsupported(parsed, in_group, root) or "", "create_options": carried_options(parsed), "files": files(parsed)}

    def _volume(self, mount: dict[str, t.Any], volume: dict[str, t.Any], mounts: list[loop.Mount], workload_name: str) -> dict[str, t.Any]:
        """The path that podman's volume is bound to, and the image volume or plain directory that this is, if it is one."""
        options = volume.get("Options") or {}
        directory = options.get("device", "") if mount["type"] == "volume" else mount["source"]
        return {
            "volume": {"driver": volume.get("Driver", ""), "options": options, "labels": volume.get("Labels") or {}} if volume else None,
            "directory": directory,
            "image_volume": image_volume_below(directory, mounts) if directory else None,
            "directory_volume": self._directory_volume(mount, volume, workload_name) if volume.get("Driver") == "local" and not options else None,
        }

    def _directory_volume(self, mount: dict[str, t.Any], volume: dict[str, t.Any], workload_name: str) -> dict[str, t.Any]:
        """A volume that podman keeps as a plain directory of its own."""
        users = self._ask(lambda: self.podman.users_of_volume(mount["name"]), [])
        return {
            "name": mount["name"],
            "path": mount["source"],
            "size": host.allocated(mount["source"]),
            "flags": self._ask(lambda: file_flags.found(Pcopy(self.runtime), mount["source"]), []),
            "anonymous": bool(volume.get("Anonymous")),
            "shared_with": sorted(set(users) - {workload_name}),
        }

    def _image(self, image: dict[str, str]) -> dict[str, t.Any]:
        """How large the image is, and whether its name still means it."""
        for listed in self._ask_once(self.podman.images):
            if listed["Id"] == image["id"]:
                manifest = self._ask(lambda: self.podman.manifest_type(image["id"]), "")
                return {"size": listed.get("Size", 0), "named": image["name"] in (listed.get("Names") or []), "manifest": manifest}
        return {"size": 0, "named": False, "manifest": ""}


def _counts_peers(facts: t.Mapping[str, t.Any]) -> bool:
    return bool(facts["wave"]) or any(port["host_ip"] for port in facts["ports"])


STEP = Step(
    arguments={
        "workload": {"type": "str", "required": True},
        "driver": {"type": "str", "choices": ["podman"], "default": "podman"},
        "images": {"type": "path", "default": "/var/lib/handover/volumes"},
        "sessions": {"type": "path", "default": ROOT},
        "brief": {"type": "bool", "default": False},
        "timeout": {"type": "int", "default": 120},
    },
    run=lambda module: WorkloadInfo(module).run(),
)
