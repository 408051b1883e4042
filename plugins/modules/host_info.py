#!/usr/bin/python

# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: host_info

short_description: Describe the workloads of a host, and its free room

version_added: 0.1.0

description:
  - Returns the containers of podman, of Docker and of OpenVZ and the KVM guests of this host with the memory and the disk that each of them uses, the host's
    free memory and disk, and whether it is under maintenance. The placement of workloads is decided by this.
  - Asks no more than that. M(livefleet.handover.workload_info) returns the facts for the move of a container.

extends_documentation_fragment:
  - livefleet.handover._attributes
  - livefleet.handover._attributes.info_module
  - livefleet.handover._sessions

options:
  images:
    description:
      - The directory in which image volumes that arrive here are laid down; its file system's free space is returned.
    type: path
    default: /var/lib/handover/volumes
  timeout:
    description:
      - Seconds that the whole module may take.
    type: int
    default: 120

requirements:
  - podman, Docker, OpenVZ or libvirt on the host

seealso:
  - module: livefleet.handover.maintenance
  - plugin: livefleet.handover.placement
    plugin_type: filter

author:
  - The Handover maintainers (@livefleet)
"""

EXAMPLES = r"""
- name: Look at the host
  livefleet.handover.host_info:
  register: host
"""

RETURN = r"""
memory:
  description: Bytes of memory that programs could have.
  returned: success
  type: int
  sample: 8123256832
disk:
  description: Bytes that are free where volumes are laid down.
  returned: success
  type: int
  sample: 77309411328
maintenance:
  description: Since when and why the host is under maintenance. None where it is not.
  returned: success
  type: dict
  sample:
    since: "2026-11-21T16:30:00Z"
    reason: the new memory modules
kinds:
  description: The kinds that the host can run, V(container) (with podman), V(docker) (where Docker runs), V(openvz) (with vzctl) or
    V(guest) (with libvirt).
  returned: success
  type: list
  elements: str
  sample: [container]
workloads:
  description: The containers and the guests.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Its name.
      type: str
      sample: shop
    kind:
      description: Its kind, V(container), V(docker), V(openvz) or V(guest).
      type: str
      sample: container
    members:
      description: Of containers that cannot be parted, and move as one under their pod's or project's name, the names of all.
      type: list
      elements: str
      sample: [shop-db, shop-web]
    project:
      description: Of a container of podman's or Docker's, the project of compose that it is of.
      type: str
      sample: shop
    bridges:
      description: Of a container of Docker's, the networks that it is on and that are bridges of this host alone.
      type: list
      elements: str
      sample: [shop_default]
    parts:
      description: Of a project of podman-compose whose containers can move side by side, as a wave, the row of each in the order of their start.
      type: list
      elements: dict
      sample: []
    storage:
      description: Of a guest, V(copy) where it has disks of this host alone, and V(shared) where others reach all of them.
      type: str
      sample: copy
    disks:
      description: Of a guest, the targets of the disks that are of this host alone.
      type: list
      elements: str
      sample: [vda]
    running:
      description: Whether it runs now.
      type: bool
      sample: true
    state:
      description: podman's or Docker's word for how it is, or virsh's; of a container of OpenVZ's one made of vzctl's.
      type: str
      sample: running
    untold:
      description: Why no more is known of it than its name. Docker is not asked where it does not run, since it would be started.
      type: str
      sample: Docker does not run there
    labels:
      description: Its labels.
      type: dict
      sample: {handover.apart: web}
    memory:
      description: Bytes that a dump of its memory takes; of a guest that runs, its memory.
      type: int
      sample: 41943040
    disk:
      description: Bytes that its volumes and its own layer take, or the disks that are of this host alone; 0 of OpenVZ's.
      type: int
      sample: 271392768
sessions:
  description: The sessions of the helper on this host, and the moves of guests that were begun here and not ended.
  returned: success
  type: list
  elements: dict
  sample:
    - {id: shop-20261121t041500z, role: source, workload: shop, state: released, running: true, ended: false, destination: node2}
"""

import os
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._core import host, loop, maintenance
from ..module_utils._core.pcopy import HELPER, Pcopy
from ..module_utils._core.placement import CONTAINER, DOCKER, DRIVERS, GUEST, OPENVZ
from ..module_utils._core.runtime import HandoverError, Runtime
from ..module_utils._drivers import docker_rows, openvz_rows
from ..module_utils._kvm import guests
from ..module_utils._podman import groups, processes
from ..module_utils._podman.podman import Podman
from ..module_utils._podman.sessions import ROOT, Sessions


class HostInfo:
    """A host, its containers and its guests."""

    def __init__(self, module: AnsibleModule) -> None:
        self.params = module.params
        self.runtime = Runtime(module, module.params["timeout"])
        self.podman = Podman(self.runtime)

    def run(self) -> dict[str, t.Any]:
        """Asks podman once for everything; a container that it does not answer about has no disk."""
        mounts = loop.read_mounts()
        # A host that has none of them is asked for podman, and says that it is missing.
        with_guests = guests.has_libvirt(self.runtime)
        with_docker = docker_rows.runs(self.runtime)
        with_openvz = openvz_rows.runs(self.runtime)
        with_containers = self.runtime.find("podman") is not None or not (with_guests or with_docker or with_openvz)
        offered = ((CONTAINER, with_containers), (DOCKER, with_docker), (OPENVZ, with_openvz), (GUEST, with_guests))
        found = guests.workloads(self.runtime, mounts) if with_guests else []
        unfinished = guests.unfinished({each["name"] for each in found}) if with_guests else []
        return {
            "changed": False,
            "memory": host.memory_available(),
            "disk": host.free_space(self.params["images"]),
            "maintenance": maintenance.read(),
            "kinds": [kind for kind, there in offered if there],
            "workloads": [
                *(self._containers(mounts) if with_containers else []),
                *docker_rows.workloads(self.runtime, with_docker),
                *openvz_rows.workloads(self.runtime, with_openvz),
                *found,
            ],
            "sessions": self._sessions() + unfinished,
        }

    def _containers(self, mounts: list[loop.Mount]) -> list[dict[str, t.Any]]:
        listed = self.podman.containers()
        volumes = {volume["Name"]: volume for volume in self.podman.volumes()}
        inspects = {each["Id"]: found for each in listed if not each.get("IsInfra") for found in [self._inspect(each["Id"])] if found}
        pods = {each["Pod"]: each["PodName"] for each in listed if each.get("PodName")}
        rows = {each["Id"]: self._workload(each, inspects.get(each["Id"], {}), volumes, mounts) for each in listed if not each.get("IsInfra")}
        known = [{"Id": identifier, "Name": rows[identifier]["name"], **found} for identifier, found in inspects.items()]
        with_infra = {str(each.get("Pod")) for each in listed if each.get("IsInfra")}
        for unit in groups.units(known, projects=False):
            if len(unit) > 1 or unit[0].get("Pod"):
                members = [rows.pop(each["Id"]) for each in unit]
                project = groups.can_part(unit, with_infra)
                together = _together(project or groups.name_of_unit(unit, pods), members)
                rows[unit[0]["Id"]] = dict(together, parts=members) if project else together
        return list(rows.values())

    def _inspect(self, identifier: str) -> dict[str, t.Any]:
        try:
            return self.podman.inspect(identifier)
        except HandoverError:
            return {}

    def _workload(
        self, listed: t.Mapping[str, t.Any], inspect: t.Mapping[str, t.Any], volumes: t.Mapping[str, t.Any], mounts: list[loop.Mount]
    ) -> dict[str, t.Any]:
        running = listed.get("State") == "running"
        return {
            "name": (listed.get("Names") or [""])[0],
            "kind": CONTAINER,
            "running": running,
            "state": listed.get("State") or "",
            "labels": listed.get("Labels") or {},
            "project": groups.project_of(listed),
            "memory": processes.processes_of(int(listed.get("Pid") or 0)).memory if running else 0,
            "disk": _disk(inspect, volumes, mounts),
        }

    def _sessions(self) -> list[dict[str, t.Any]]:
        if not os.access(HELPER, os.X_OK):
            return []
        sessions = Sessions(Pcopy(self.runtime), self.params["sessions"])
        keys = ("id", "role", "workload", "state", "ended", "running")
        known = [(status, sessions.session(status["id"]).plan() or {}) for status in sessions.statuses()]
        return [{**{key: status.get(key) for key in keys}, "kind": _kind(plan), "destination": plan.get("destination") or ""} for status, plan in known]


def _kind(plan: t.Mapping[str, t.Any]) -> str:
    """The kind of what a session moves; a record of an older release names no driver."""
    return next((kind for kind, driver in DRIVERS.items() if driver and driver == plan.get("driver")), CONTAINER)


def _disk(inspect: t.Mapping[str, t.Any], volumes: t.Mapping[str, t.Any], mounts: list[loop.Mount]) -> int:
    """Bytes of its layer and its volumes; of a container that podman does not answer about there are none."""
    layer = ((inspect.get("GraphDriver") or {}).get("Data") or {}).get("UpperDir") or ""
    paths = {layer} if layer else set()
    for mount in inspect.get("Mounts") or []:
        options = (volumes.get(mount.get("Name") or "") or {}).get("Options") or {}
        directory = options.get("device") or mount.get("Source") or ""
        if mount.get("Type") == "volume" and directory:
            paths.add(_image_of(directory, mounts) or directory)
    return sum(host.allocated(path) for path in paths)


def _together(name: str, members: t.Sequence[dict[str, t.Any]]) -> dict[str, t.Any]:
    """One row of containers that move as one."""
    running = any(member["running"] for member in members)
    return {
        "name": name,
        "kind": CONTAINER,
        "running": running,
        "state": "running" if running else "exited",
        "labels": {key: value for member in members for key, value in member["labels"].items()},
        "memory": sum(member["memory"] for member in members),
        "disk": sum(member["disk"] for member in members),
        "members": sorted(member["name"] for member in members),
    }


def _image_of(directory: str, mounts: list[loop.Mount]) -> str:
    """The image file behind the file system that is mounted there; empty where it is none of a loop device."""
    for mount in reversed(mounts):
        if mount.mountpoint == directory:
            return host.backing_file("/sys", os.path.basename(os.path.realpath("/sys/dev/block/" + mount.device)))
    return ""


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "images": {"type": "path", "default": "/var/lib/handover/volumes"},
            "sessions": {"type": "path", "default": ROOT},
            "timeout": {"type": "int", "default": 120},
        },
        supports_check_mode=True,
    )
    try:
        module.exit_json(**HostInfo(module).run())
    except HandoverError as exc:
        module.fail_json(msg=str(exc))


if __name__ == "__main__":
    main()
