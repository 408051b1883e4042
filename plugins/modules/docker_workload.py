#!/usr/bin/python

# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: docker_workload

short_description: Prepare the twin of a container of Docker's, start a container, settle it, or remove it

version_added: 0.1.0

description:
  - On the destination of a move, creates the container that its files will be copied into, and verifies that it equals the one on the source in
    everything that matters. It is not started, and has no restart policy yet.
  - On either side, gives a container the restart policy that it had before its move.
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
      - With V(prepared) the container exists, equals O(source) and has never run here, and so do its volumes and networks, under the names that they
        have there.
      - With V(started) the container runs. It is for one that a boot of its host has ended.
      - With V(settled) the container has the restart policy O(restart_policy). It is for one that runs where it is meant to after a move, or after
        one that was taken back. During a move the policy is off. Networks that were made for the move are this host's from then on.
      - With V(absent) no container of this name exists, nor the volumes listed in O(volumes).
    type: str
    choices: [prepared, started, settled, absent]
    required: true
  source:
    description:
      - For O(state=prepared), the C(workload) that M(livefleet.handover.workload_info) returned on the source.
    type: dict
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
          - Names of the volumes that are to be made, and are not there yet.
        type: list
        elements: str
        required: true
      folders:
        description:
          - Folders and files that are to be made for its bind mounts, empty, the deepest first.
        type: list
        elements: str
        default: []
      addresses:
        description:
          - By the name of a network, addresses for which the container is to ask there beside those that it asked for, as the Engine API writes them. A
            network of this host whose subnet Docker has drawn, and that no container is on, is made again as it is, with its subnet given.
        type: dict
      networks:
        description:
          - Names of Docker's networks that are to be made as they are on the source.
        type: list
        elements: str
        default: []
      secrets:
        description:
          - Of no meaning for Docker.
        type: list
        elements: str
        default: []
  restart_policy:
    description:
      - For O(state=settled), the restart policy, as C(docker update --restart) takes it. Without one the policy is left alone.
    type: str
  volumes:
    description:
      - For O(state=absent), names of volumes to remove with the container, with all that is in them.
    type: list
    elements: str
    default: []
  aside:
    description:
      - For O(state=absent), folders and files that it has mounted by their paths and that have moved away. Each is renamed, with C(.migrated) behind
        its name.
    type: list
    elements: str
    default: []
  folders:
    description:
      - For O(state=absent), folders and files that were made for its bind mounts, the deepest first. Each is removed if nothing is in it.
    type: list
    elements: str
    default: []
  members:
    description:
      - Of no meaning for Docker, whose containers move one by one.
    type: list
    elements: str
    default: []
  pods:
    description:
      - Of no meaning for Docker, which has no pods.
    type: list
    elements: str
    default: []
  beside: {type: list, elements: str, default: [], description: Of no meaning for Docker.}
  requires: {type: list, elements: str, default: [], description: Of no meaning for Docker.}
  around:
    description:
      - For O(state=absent), what was made for the move and goes with it, unless another move needs it or something else is on it.
    type: dict
    default: {}
    suboptions:
      networks:
        description:
          - Names of Docker's networks.
        type: list
        elements: str
        default: []
      pods:
        description:
          - Of no meaning for Docker.
        type: list
        elements: str
        default: []
  timeout:
    description:
      - Seconds that the whole module may take.
    type: int
    default: 120

requirements:
  - Docker on the host, with its socket at C(/run/docker.sock)

author:
  - The Handover maintainers (@livefleet)
"""

EXAMPLES = r"""
- name: Look at the shop
  livefleet.handover.workload_info:
    workload: shop
    driver: docker
  register: here

- name: Prepare its twin on the destination
  livefleet.handover.docker_workload:
    name: shop
    state: prepared
    source: "{{ here.workload }}"
  delegate_to: node2

- name: Have Docker start the shop at each boot of its new host, as it was on the old one
  livefleet.handover.docker_workload:
    name: shop
    state: settled
    restart_policy: "{{ here.workload.restart_policy }}"
  delegate_to: node2

- name: Remove the shop from where it was, now that it has moved
  livefleet.handover.docker_workload:
    name: shop
    state: absent
    volumes: [shopdata]
"""

RETURN = r"""
reasons:
  description: Why something was changed, or in check mode would be. One sentence for each step, in order.
  returned: success
  type: list
  elements: str
  sample:
    - Docker has no volume named shopdata
    - there is no container named shop
volumes:
  description: The volumes that were made, or in check mode would be.
  returned: when O(state=prepared)
  type: list
  elements: str
  sample: [shopdata]
workload:
  description: The container as it is now, as M(livefleet.handover.workload_info) describes it. Empty in check mode where it does not exist.
  returned: when O(state=prepared)
  type: dict
  sample:
    exists: true
    running: false
    name: shop
    state: created
    upper_dir: /var/lib/docker/overlay2/06b26c6200c8/diff
    bundle: /run/containerd/io.containerd.runtime.v2.task/moby/79b93c06795b
"""

from ..module_utils._core.step import alone
from ..module_utils._docker.workload import STEP


def main() -> None:
    """Entry point."""
    alone(STEP)


if __name__ == "__main__":
    main()
