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
  - Returns the engine's and the kernel's facts about one container on this host, and the host's features that matter when a
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
    choices: [docker, openvz, podman]
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
  whole:
    description:
      - With O(brief), whether the whole answer comes with the brief one. V(here) is for a host that has the workload.
      - It does not come where a session of the workload is on the host, or the workload is held.
    type: str
    choices: [never, here, always]
    default: never
  guests:
    description:
      - Whether it is also told if the host has a KVM guest of that name.
    type: bool
    default: false
  disks:
    description:
      - With O(driver=docker), whether the image volumes below its mounts are told, too. Of podman's containers they are in any case.
      - Several containers, named together or by their project, are told with it. Snapshots and backups need that.
    type: bool
    default: false
  timeout:
    description:
      - Seconds that the whole module may take.
    type: int
    default: 120

requirements:
  - podman, Docker or OpenVZ on the host, whichever O(driver) names; without it only the host is described

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
    together:
      description: Names of the containers that cannot be parted, if this is one of several.
      type: list
      elements: str
      sample: [shop, sidecar]
    members:
      description: Of several containers that move as one, what is said here about each, in the order of their start.
      type: list
      elements: dict
      sample: []
    pods:
      description: The pods that they are in.
      type: list
      elements: dict
      sample: []
    running_members:
      description: Names of those that run.
      type: list
      elements: str
      sample: [db, web]
    outsiders:
      description: Names of further containers that cannot be parted from them.
      type: list
      elements: str
      sample: []
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
      description: Its tmpfs that hold something, with the first file in each that has an extended attribute, and the first mount in it.
      type: list
      elements: dict
      sample: [{place: /scratch, size: 4096, attributes: "", device: "0:62", inside: ""}]
    own_network:
      description: The objects that it made in its network namespace, in words.
      type: list
      elements: str
      sample: [the route to 198.51.100.0/24]
    mtus:
      description: The MTU of each of its interfaces.
      type: dict
      sample: {eth0: 1500}
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
asked_at:
  description: When the host was asked, in seconds since 1970 by the controller's clock.
  returned: always
  type: float
  sample: 1795256040.25
told_at:
  description: When its answer was there, by the same clock. The C(clock) of C(host) was read between the two.
  returned: always
  type: float
  sample: 1795256041.5
sessions:
  description: The sessions of the helper on this host. Without O(brief), they are part of RV(host).
  returned: when O(brief=true)
  type: list
  elements: dict
  sample:
    - {id: shop-20261121t041500z, role: source, workload: shop, state: released, running: true, ended: false, error: ""}
guest:
  description:
    - The KVM guest of that name on this host, and its state as C(virsh) calls it, or V(unknown) where libvirt does not tell. Unfinished moves of it are
      among RV(sessions).
  returned: when O(guests=true)
  type: dict
  sample: {exists: true, state: running}
host:
  description: The host's features and offers.
  returned: when O(brief=false), or O(whole) has it come
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

from ..module_utils._core.step import alone
from ..module_utils._drivers.workload_info import STEP


def main() -> None:
    """Entry point."""
    alone(STEP)


if __name__ == "__main__":
    main()
