#!/usr/bin/python

# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: snapshot_tree

short_description: Bring all snapshots of a container from another host

version_added: 1.0.0

description:
  - One host offers the snapshots of a container, and another one brings those that it lacks, so that the container can go back to any of them there.
  - They stay on the first host, too. Only clusters that this host lacks travel, by ssh, in which root of this host logs in at the other.
  - Each is here when all of it is on the disk. What came before a kill stays, and the next run brings the rest.

extends_documentation_fragment:
  - livefleet.handover._attributes
  - livefleet.handover._snapshots

attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: full

options:
  workload:
    description:
      - Name of the container.
    type: str
    required: true
  driver:
    description:
      - The engine that runs the container.
    type: str
    choices: [docker, podman]
    default: podman
  state:
    description:
      - V(offered) returns the snapshots of this host, and V(brought) brings those of O(snapshots) that it lacks.
    type: str
    choices: [offered, brought]
    required: true
  source:
    description:
      - With V(brought), the host that has them, as this host's ssh knows it.
    type: str
    default: ""
  snapshots:
    description:
      - With V(brought), what V(offered) returned there.
    type: list
    elements: dict
    default: []
  current:
    description:
      - With V(brought), whether the container itself comes to this host, too. So its disks descend from the snapshot that they descend from there.
    type: bool
    default: false
  beside:
    description:
      - With V(brought), the container's image volumes, as M(livefleet.handover.workload_info) returns them, if they come to this host, too. The room is
        for both.
    type: list
    elements: dict
    default: []
  memory_from:
    description:
      - With V(brought), the other host as M(livefleet.handover.workload_info) describes it. With it a host that cannot restore the memory is refused.
    type: dict
    default: {}
  timeout:
    description:
      - Seconds that the whole module may take.
    type: int
    default: 3600

requirements:
  - the helper on both hosts (role livefleet.handover.pcopy)
  - podman or Docker, and ssh on this host

seealso:
  - module: livefleet.handover.snapshot
  - module: livefleet.handover.snapshot_info

author:
  - The Handover maintainers (@livefleet)
"""

EXAMPLES = r"""
- name: See which snapshots there are
  livefleet.handover.snapshot_tree:
    workload: shop
    state: offered
  delegate_to: node1
  register: offer

- name: Bring them
  livefleet.handover.snapshot_tree:
    workload: shop
    state: brought
    source: node1
    snapshots: "{{ offer.snapshots }}"
"""

RETURN = r"""
reasons:
  description: Why something was changed, or in check mode would be.
  returned: with V(brought)
  type: list
  elements: str
  sample: [before-upgrade is not here]
snapshots:
  description:
    - With V(offered) the record of each snapshot, the oldest first, with the bytes C(beside) the store. C(fits) says of one with memory whether it can be
      seen on another host that the memory is the container's.
    - With V(brought) those of them that this host lacked.
  returned: always
  type: list
  elements: dict
  sample: [{name: before-upgrade, taken: "2026-11-21T20:30:00Z", memory: false, disks: true, beside: 4096, fits: false}]
bytes:
  description: The room that they take here, or took.
  returned: always
  type: int
  sample: 21696512
"""

from ..module_utils._core.runtime import finish
from ..module_utils._core.snapshot_records import ROOT
from ..module_utils._core.step import discreet
from ..module_utils._drivers.copies.engines import ARGUMENT, engine_of
from ..module_utils._podman.copies.snapshot_tree import act


def main() -> None:
    """Entry point."""
    module = discreet(
        argument_spec={
            "workload": {"type": "str", "required": True},
            "driver": ARGUMENT,
            "state": {"type": "str", "choices": ["offered", "brought"], "required": True},
            "source": {"type": "str", "default": ""},
            "snapshots": {"type": "list", "elements": "dict", "default": []},
            "current": {"type": "bool", "default": False},
            "beside": {"type": "list", "elements": "dict", "default": []},
            "memory_from": {"type": "dict", "default": {}},
            "root": {"type": "path", "default": ROOT},
            "timeout": {"type": "int", "default": 3600},
        },
        required_if=[("state", "brought", ("source",))],
        supports_check_mode=True,
    )
    finish(module, lambda: act(module, engine_of(module)), module.params["workload"])


if __name__ == "__main__":
    main()
