#!/usr/bin/python

# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: podman_workload

short_description: Prepare a podman container's twin, start a container, or remove one

version_added: 0.1.0

description:
  - On the destination of a move, creates the container that its memory and files will be restored into, and verifies that it
    equals the one on the source in everything that matters. It is not started.
  - On either side, removes a container that does not run.

extends_documentation_fragment:
  - livefleet.handover._attributes

attributes:
  check_mode:
    support: full
    details:
      - Whether the twin equals the source's container can be seen only once it exists.
  diff_mode:
    support: none
  idempotent:
    support: full

options:
  name:
    description:
      - Name of the container.
    type: str
    required: true
  state:
    description:
      - With V(prepared) the container exists, equals O(source) and has never run here. The podman volumes that it names exist,
        bound to the mount points of their image volumes, which are not mounted yet. Those that are plain directories are empty.
      - With V(started) the container runs. It is for one that a boot of its host has ended.
      - With V(settled) a container that runs has the timer of its health check, which podman makes for one that it starts, and not
        for one that it restores. It requires those of O(requires), pods of O(exiting) end with their members, and what was made for it stays.
      - With V(absent) no container of this name exists, nor the volumes listed in O(volumes).
    type: str
    choices: [prepared, started, settled, absent]
    required: true
  source:
    description:
      - For O(state=prepared), the C(workload) that M(livefleet.handover.workload_info) returned on the source.
    type: dict
  health:
    description:
      - For O(state=settled), what the health checks had found on the source, as M(livefleet.handover.workload_info) returned it there as
        C(workload.health_check.results). They go on with that.
    type: dict
    default: {}
  planned:
    description:
      - For O(state=prepared), the planned parts, as M(livefleet.handover.preflight) returned them as C(twin). If it is something else
        by now, the task fails and nothing is made. Not checked if not given.
    type: dict
    suboptions:
      made:
        description:
          - Whether the container is to be made, and is not there yet.
        type: bool
        required: true
      volumes:
        description:
          - Names of the podman volumes that are to be made, and are not there yet.
        type: list
        elements: str
        required: true
      folders:
        description:
          - Paths of bind mounts, and of folders above them, that are to be made empty, the deepest first.
        type: list
        elements: str
        default: []
      secrets:
        description:
          - Names of secrets that M(livefleet.handover.podman_secrets) makes before.
        type: list
        elements: str
        default: []
      restored:
        description:
          - Of a pod, whether the members that ran are restored with their memory. Its infra container is started, and its network is silent;
            the members are readied.
        type: bool
        default: false
      exiting:
        description:
          - Names of pods that end with the last of their members. They do not until O(state=settled).
        type: list
        elements: str
        default: []
      requirements:
        description:
          - By member, the names of the others that it requires (C(--requires)). It does not until O(state=settled).
        type: dict
        default: {}
      networks:
        description:
          - Names of podman's networks that are to be made as they are on the source.
        type: list
        elements: str
        default: []
      pods:
        description:
          - Of a container of a project that moves beside the others of it, the pods without an infra container that they are in.
        type: list
        elements: str
        default: []
  members:
    description:
      - Names of several containers that move as one, in the order of their start. O(name) is their pod's, their project's, or all of theirs.
      - For O(state=started) those that are to run, for O(state=absent) all.
    type: list
    elements: str
    default: []
  pods:
    description:
      - For O(state=absent), the pods of the O(members), which go with them. Of one container, those that go when nothing is left in them.
    type: list
    elements: str
    default: []
  exiting:
    description:
      - For O(state=settled), names of pods that end with the last of their members again.
    type: list
    elements: str
    default: []
  requirements:
    description:
      - For O(state=settled), by member the names of the others that it requires again.
    type: dict
    default: {}
  requires:
    description:
      - For O(state=settled), names of the containers that it requires (C(--requires)), which have come beside it.
    type: list
    elements: str
    default: []
  beside:
    description:
      - For O(state=absent), names of containers that have left beside it. None of them requires it any more.
    type: list
    elements: str
    default: []
  around:
    description:
      - For O(state=absent), what was made for the move and goes with it, unless another move needs it.
    type: dict
    default: {}
    suboptions:
      networks:
        description:
          - Names of podman's networks.
        type: list
        elements: str
        default: []
      pods:
        description:
          - Names of pods.
        type: list
        elements: str
        default: []
  volumes:
    description:
      - For O(state=absent), names of podman volumes to remove with the container. Of an image volume only
        the definition goes, and its content is not touched; one that is a plain directory goes with all that is in it.
    type: list
    elements: str
    default: []
  aside:
    description:
      - For O(state=absent), files and folders that the container mounted by their paths and that have moved. Each is renamed to its
        path and C(.migrated), never over anything.
    type: list
    elements: str
    default: []
  folders:
    description:
      - For O(state=absent), paths that were made for the container and go again as far as they are empty, the deepest first.
    type: list
    elements: str
    default: []
  running:
    description:
      - For O(state=absent), the behaviour if the container runs. With V(refuse) the task fails and nothing is changed.
      - With V(kill) it is killed.
    type: str
    choices: [refuse, kill]
    default: refuse
  timeout:
    description:
      - Seconds that the whole module may take.
    type: int
    default: 120

requirements:
  - podman on the host
  - iproute2 on the host, for a container on a network that leads out of the host (macvlan, ipvlan, unmanaged bridge)

author:
  - The Handover maintainers (@livefleet)
"""

EXAMPLES = r"""
- name: Look at the shop
  livefleet.handover.workload_info:
    workload: shop
  register: here

- name: Prepare its twin on the destination
  livefleet.handover.podman_workload:
    name: shop
    state: prepared
    source: "{{ here.workload }}"
  delegate_to: node2

- name: Start the shop again after its host was restarted
  livefleet.handover.podman_workload:
    name: shop
    state: started

- name: Remove the shop from where it was, now that it has moved
  livefleet.handover.podman_workload:
    name: shop
    state: absent
"""

RETURN = r"""
reasons:
  description: Why something was changed, or in check mode would be. One sentence for each step, in order.
  returned: success
  type: list
  elements: str
  sample:
    - podman has no volume named pgdata
    - there is no container named shop
command:
  description: The arguments with which the container was made; values of its variables are not shown.
  returned: when O(state=prepared)
  type: list
  elements: str
  sample: [create, --pull=never, --name=shop, --hostname=5a3e7d04f11b, "--network=lan:ip=10.213.0.50,mac=02:00:0a:d5:00:32", localhost/shop:1]
volumes:
  description: The podman volumes that were made, or in check mode would be.
  returned: when O(state=prepared)
  type: list
  elements: str
  sample: [pgdata]
workload:
  description: The container as it is now, as M(livefleet.handover.workload_info) describes it. Empty in check mode where it does not exist.
  returned: when O(state=prepared)
  type: dict
  sample:
    exists: true
    running: false
    name: shop
    state: created
    upper_dir: /var/lib/containers/storage/overlay/aa6f3de687c5/diff
    static_dir: /var/lib/containers/storage/overlay-containers/53f0c023e73d/userdata
"""

from ..module_utils._core.step import alone
from ..module_utils._podman.steps.podman_workload import STEP


def main() -> None:
    """Entry point."""
    alone(STEP)


if __name__ == "__main__":
    main()
