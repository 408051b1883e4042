#!/usr/bin/python

# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: workload_info

short_description: Return a host's facts about a workload, and its offers to one

version_added: 0.1.0

description:
  - Returns podman's and the kernel's facts about one container on this host, and the host's features that matter when a
    container is to leave it or to arrive.
  - Never waits for a container that a handover holds frozen. Every question has a time limit of its own; what could not
    be learned within it stands in RV(problems).

extends_documentation_fragment:
  - livefleet.handover._attributes
  - livefleet.handover._attributes.info_module
  - livefleet.handover._sessions

options:
  workload:
    description:
      - Name of the container, or its ID, short or in full. It need not exist on this host. The answer has its name in any case.
    type: str
    required: true
  driver:
    description:
      - The engine that runs the workload.
    type: str
    choices: [podman]
    default: podman
  images:
    description:
      - The directory in which image volumes that arrive here are laid down; its file system's free space is returned.
    type: path
    default: /var/lib/handover/volumes
  brief:
    description:
      - Only whether the workload is there and runs, and the sessions of the helper. It is much quicker.
    type: bool
    default: false
  timeout:
    description:
      - Seconds that the whole module may take.
    type: int
    default: 120

requirements:
  - podman on the host; without it only the host is described

seealso:
  - module: livefleet.handover.preflight

author:
  - The Handover maintainers (@livefleet)
"""

EXAMPLES = r"""
- name: Look at the shop and its host
  livefleet.handover.workload_info:
    workload: shop
  register: here

- name: Say how much memory it would have to move
  ansible.builtin.debug:
    msg: "{{ here.workload.memory | human_readable }}"
  when: here.workload.running
"""

RETURN = r"""
workload:
  description:
    - The container. Where it does not exist on this host, only its name and that it does not exist.
    - Where podman does not answer because a handover holds the container, RV(workload.held) is true and details are missing.
  returned: success
  type: dict
  contains:
    exists:
      description: Whether the host has a container of this name.
      type: bool
      sample: true
    running:
      description: Whether it runs now.
      type: bool
      sample: true
    unaccounted:
      description: Keys of podman's inspect that hold something and have no row in the inventory.
      type: list
      elements: str
      sample: []
    required_by:
      description: Names of the containers that cannot be without this one.
      type: list
      elements: str
      sample: [sidecar]
    service:
      description:
        - The unit of systemd that starts and stops it, with the files that it consists of, and why it cannot move if it cannot. Empty where there
          is none.
      type: dict
      sample:
        unit: shop.service
        kind: quadlet
        adoption: inside
        active: true
        enabled: generated
        cannot: []
    units:
      description: Where there is no such container, the units that start one of this name and are active or enabled.
      type: list
      elements: str
      sample: []
    entered:
      description: Processes in it that its first one has not started, as those of C(podman exec).
      type: list
      elements: dict
      sample: [{process: sh, pid: 4711}]
    conmon_gone:
      description: Whether it runs without podman's own process beside it, which has died.
      type: bool
      sample: false
    tmpfs:
      description: Its tmpfs that hold something, and the first file in each that has an extended attribute.
      type: list
      elements: dict
      sample: [{place: /scratch, size: 4096, attributes: ""}]
    own_network:
      description: The objects that it made in its network namespace, in words.
      type: list
      elements: str
      sample: [the route to 198.51.100.0/24]
    mtus:
      description: The MTU of each of its interfaces.
      type: dict
      sample: {eth0: 1500}
    pod_members:
      description: Where the name is that of a pod and of no container, the names of its containers.
      type: list
      elements: str
      sample: []
    held:
      description: Whether podman did not answer about it.
      type: bool
      sample: false
    memory:
      description: Bytes that a dump of its memory takes.
      type: int
      sample: 41943040
    obstacles:
      description: The state that CRIU would refuse to dump, each with the process that has it. M(livefleet.handover.preflight) explains it.
      type: list
      elements: dict
      sample:
        - check: ghost_files
          process: postgres
          pid: 31
          detail: /var/lib/postgresql/old.log
          size: 2097152
    cgroup:
      description: The directory of its cgroup, if freezing that spares CRIU a wait in the pause.
      type: str
      sample: /sys/fs/cgroup/machine.slice/libpod-4c6b8ac0c5c4.scope
    throttle:
      description:
        - The directory of its cgroup whose processor time can be limited (C(cgroup)). Empty where there is none, and why that is so (C(why)).
      type: dict
      sample:
        cgroup: /sys/fs/cgroup/machine.slice/libpod-4c6b8ac0c5c4.scope
        why: ""
    mounts:
      description:
        - Its volumes and binds. For one that lies on an image volume, C(image_volume) says which. For one that podman keeps as a plain
          directory, C(directory_volume) says where, how large it is, and its other users.
      type: list
      elements: dict
      sample:
        - destination: /var/lib/postgresql
          type: volume
          name: pgdata
          image_volume:
            name: pgdata
            image: /var/lib/handover/volumes/pgdata.img
            device: /dev/loop1
            mountpoint: /var/lib/handover/mnt/pgdata
            fstype: ext4
            options: noatime,discard
            size: 1073741824
            allocated: 271392768
sessions:
  description: The sessions of the helper on this host. Without O(brief), they are part of RV(host).
  returned: when O(brief=true)
  type: list
  elements: dict
  sample:
    - {id: shop-20261121t041500z, role: source, workload: shop, state: released, running: true, ended: false, error: ""}
host:
  description: The host's features and offers.
  returned: when O(brief=false)
  type: dict
  contains:
    name:
      description: Its own name.
      type: str
      sample: node1
    arch:
      description: Its architecture, as the kernel calls it.
      type: str
      sample: x86_64
    kernel:
      description: Its kernel.
      type: str
      sample: 6.12.43+deb13-amd64
    criu:
      description: Version, result of C(criu check), and the action script that runc's CRIU runs.
      type: dict
      sample:
        version: [4, 2, 1]
        check: true
        said: Looks good.
        action_script: /usr/local/libexec/handover/criu-hook
        tcp_established: false
    pcopy:
      description: Version of the helper, its findings about the kernel, and the sessions on this host.
      type: dict
      sample:
        version: 0.1.0
        protocol: 1
        findings: []
        sessions: []
problems:
  description: The unanswered questions, one sentence each.
  returned: success
  type: list
  elements: str
  sample: []
"""

import dataclasses
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._core import host, loop
from ..module_utils._core.pcopy import Pcopy
from ..module_utils._core.runtime import HandoverError, Runtime
from ..module_utils._podman import container_facts, file_flags, processes, service, workload
from ..module_utils._podman.bind_facts import of_mount
from ..module_utils._podman.container_look import Look, required_by
from ..module_utils._podman.create_command import CommandError, carried_options, files, parse, unsupported
from ..module_utils._podman.essence import essence
from ..module_utils._podman.host_offer import CONFIGURATION_ANNOTATION, CRIU_CONFIGURATION, HostOffer, ghost_limit
from ..module_utils._podman.podman import Held, Podman
from ..module_utils._podman.sessions import ROOT
from ..module_utils._podman.volume_facts import image_volume_below


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
            brief = self._brief(found, containers)
            brief["conmon_gone"] = brief["running"] and container_facts.unattended(brief["id"])
            return {"changed": False, "workload": brief, "sessions": self.look.sessions(), "problems": self.problems}
        networks = self._ask(self.podman.networks, []) if self.has_podman else []
        found = self._workload(containers, networks)
        images, volumes = (self._ask_once(question) if self.has_podman else [] for question in (self.podman.images, self.podman.volumes))
        grammars = self._ask_once(self.podman.grammars) if self.has_podman else []
        return {"changed": False, "workload": found, "host": self.look.facts(containers, networks, images, volumes, grammars), "problems": self.problems}

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
        brief = self._brief(listed, containers)
        if listed is None:
            starting = container_facts.units_of(brief["name"], brief["name"])
            return {**brief, "units": self._ask(lambda: service.acting(self.runtime, starting), []) if starting else []}
        try:
            inspect = self.podman.inspect(listed["Id"])
        except Held as exc:
            self.problems.append(str(exc))
            return {**brief, "held": True}
        facts = {**brief, **workload.facts_of(inspect, networks), "essence": essence(inspect)}
        volumes = {volume["Name"]: volume for volume in self._ask_once(self.podman.volumes)}
        mounts = loop.read_mounts()
        for mount in facts["mounts"]:
            mount.update(self._volume(mount, volumes.get(mount["name"], {}), mounts, facts["name"]))
            if mount["type"] == "bind":
                mount.update(of_mount(mount["source"], mount["destination"], facts["pid"]))
        options = host.parse_criu_configuration(host.read_text(CRIU_CONFIGURATION))
        found = processes.Processes((), 0, ())
        # Those of the host are no business of a container's, though one sees them all with --pid host.
        if facts["running"] and not container_facts.shares_host_processes(facts["pid"]):
            found = processes.processes_of(facts["pid"], ghost_limit(options))
        look = Look(self.runtime, self.podman, inspect, facts)
        seen = {**self._ask(look.still, {}), **(self._ask(lambda: look.running(found.pids), {}) if found.pids else {})}
        facts.update(
            pids=list(found.pids),
            seccomp_filter=any(host.has_seccomp_filter(pid) for pid in found.pids),
            # A tmpfs is packed into the dump.
            memory=found.memory + sum(tmpfs["size"] for tmpfs in seen.get("tmpfs") or []),
            required_by=self._ask(lambda: required_by(self.podman, facts["id"], containers), []),
            **seen,
            connections=host.connections(facts["pid"]) if facts["running"] else {},
            obstacles=[dataclasses.asdict(obstacle) for obstacle in found.obstacles],
            **self._recreation(facts["create_command"]),
            layer=host.allocated(facts["upper_dir"]) if facts["upper_dir"] else 0,
            cgroup=host.freezable_cgroup(facts["pid"], facts["id"], options) if facts["running"] else "",
            throttle=host.limitable_cgroup(facts["pid"], facts["id"]) if facts["running"] else {"cgroup": "", "why": "it does not run"},
            criu_configuration=((inspect.get("Config") or {}).get("Annotations") or {}).get(CONFIGURATION_ANNOTATION, CRIU_CONFIGURATION),
        )
        facts["image"].update(self._image(facts["image"]))
        return facts

    def _brief(self, listed: t.Mapping[str, t.Any] | None, containers: t.Sequence[t.Mapping[str, t.Any]]) -> dict[str, t.Any]:
        """Its entry in podman's list of containers."""
        name = self.params["workload"]
        if listed is None:
            members = sorted(workload.name_of(each, "") for each in containers if each.get("PodName") == name)
            return {"exists": False, "running": False, "held": False, "name": name, "pod_members": members}
        state = listed.get("State", "")
        return {"exists": True, "running": state == "running", "held": False, "name": workload.name_of(listed, name), "id": listed["Id"], "state": state}

    def _recreation(self, command: list[str]) -> dict[str, t.Any]:
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
        return {"cannot_recreate": unsupported(parsed) or "", "create_options": carried_options(parsed), "files": files(parsed)}

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


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "workload": {"type": "str", "required": True},
            "driver": {"type": "str", "choices": ["podman"], "default": "podman"},
            "images": {"type": "path", "default": "/var/lib/handover/volumes"},
            "sessions": {"type": "path", "default": ROOT},
            "brief": {"type": "bool", "default": False},
            "timeout": {"type": "int", "default": 120},
        },
        supports_check_mode=True,
    )
    try:
        module.exit_json(**WorkloadInfo(module).run())
    except HandoverError as exc:
        module.fail_json(msg=str(exc))


if __name__ == "__main__":
    main()
