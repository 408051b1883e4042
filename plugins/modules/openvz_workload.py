#!/usr/bin/python

# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: openvz_workload

short_description: Lay the twin of a container of OpenVZ's ready, start a container, or remove it

version_added: 0.1.0

description:
  - On the destination of a move, makes the private area that the container's files will be copied into, and lays its configuration and its action
    scripts ready beside it. Those of libvzctl (7 and later) come in the private area. C(vzctl) does not know the container before the helper registers
    it, at its turn.
  - On either side, starts a container, or removes one that does not run.
  - The exit status of C(vzctl) is not believed alone. Its status is asked after each verb.

extends_documentation_fragment:
  - livefleet.handover._attributes

attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: full

options:
  name:
    description:
      - The container's id.
    type: str
    required: true
  state:
    description:
      - With V(prepared) its private area is there, empty, and its configuration waits for the start.
      - With V(started) the container runs. It is for one that a boot of its host has ended.
      - With V(absent) OpenVZ has no container of this id. Its private area goes with it if O(volumes) names it. Else it stays, and the configuration is
        renamed, with C(.migrated) behind its name. Of libvzctl it is unregistered then. One that no move has stopped here or laid ready is not removed.
        One that a move has suspended here, or holds here, is ended first.
    type: str
    choices: [prepared, started, absent]
    required: true
  source:
    description:
      - For O(state=prepared), the C(workload) that M(livefleet.handover.workload_info) returned on the source.
    type: dict
  planned:
    description:
      - For O(state=prepared), the planned parts, as M(livefleet.handover.preflight) returned them as C(twin). Whatever it says, nothing that is there is
        written over. For a live move, there is a folder for its dump, too.
    type: dict
  volumes:
    description:
      - For O(state=absent), V(private) if the private area is to be removed with the container.
    type: list
    elements: str
    default: []
  aside:
    description:
      - Of no meaning for OpenVZ.
    type: list
    elements: str
    default: []
  folders:
    description:
      - Of no meaning for OpenVZ.
    type: list
    elements: str
    default: []
  members:
    description:
      - Of no meaning for OpenVZ, whose containers move one by one.
    type: list
    elements: str
    default: []
  pods:
    description:
      - Of no meaning for OpenVZ, which has no pods.
    type: list
    elements: str
    default: []
  beside: {type: list, elements: str, default: [], description: Of no meaning for OpenVZ.}
  around: {type: dict, default: {}, description: Of no meaning for OpenVZ.}
  timeout:
    description:
      - Seconds that the whole module may take.
    type: int
    default: 120

requirements:
  - vzctl on the host

author:
  - The Handover maintainers (@livefleet)
"""

EXAMPLES = r"""
- name: Look at the shop
  livefleet.handover.workload_info:
    workload: "101"
    driver: openvz
  register: here

- name: Lay its twin ready on the destination
  livefleet.handover.openvz_workload:
    name: "101"
    state: prepared
    source: "{{ here.workload }}"
  delegate_to: node2

- name: Remove the shop from where it was, now that it has moved
  livefleet.handover.openvz_workload:
    name: "101"
    state: absent
    volumes: [private]
"""

RETURN = r"""
reasons:
  description: Why something was changed, or in check mode would be. One sentence for each step, in order.
  returned: success
  type: list
  elements: str
  sample:
    - /vz/private/101 is not there
    - there is no container 101 that waits for its start
volumes:
  description: The directories that were made, or in check mode would be.
  returned: when O(state=prepared)
  type: list
  elements: str
  sample: [private]
workload:
  description: The container as it waits for its start.
  returned: when O(state=prepared)
  type: dict
  sample:
    exists: true
    running: false
    name: "101"
"""

from ..module_utils._core.step import alone
from ..module_utils._openvz.driver.workload import STEP


def main() -> None:
    """Entry point."""
    alone(STEP)


if __name__ == "__main__":
    main()
