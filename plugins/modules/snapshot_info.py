#!/usr/bin/python

# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: snapshot_info

short_description: Tell which snapshots of a container or a KVM guest a host has

version_added: 0.1.0

description:
  - Returns the record of each snapshot that was taken of the container or guest on this host.

extends_documentation_fragment:
  - livefleet.handover._attributes
  - livefleet.handover._attributes.info_module
  - livefleet.handover._snapshots

options:
  workload:
    description:
      - Name of the container or guest; or of several containers, as V(db+web), of a pod, or of a project of compose.
    type: str
    required: true
  driver:
    description:
      - The engine that runs the containers. A pod or project is looked for in it.
    type: str
    choices: [docker, podman]
    default: podman

seealso:
  - module: livefleet.handover.snapshot

author:
  - The Handover maintainers (@livefleet)
"""

EXAMPLES = r"""
- name: List the snapshots
  livefleet.handover.snapshot_info:
    workload: shop
  register: kept
"""

RETURN = r"""
snapshots:
  description:
    - The snapshots of each container or guest, the oldest first. C(mountpoints) has the mount point of each volume that is mounted.
    - C(parent) is the snapshot that it was taken after, and C(current) whether the disks descend from it, as they do from the last one that was taken or
      gone back to. Both are empty for whole copies.
  returned: success
  type: list
  elements: dict
  sample:
    - {workload: shop, name: before-upgrade, taken: "2026-11-21T20:30:00Z", parent: "", current: true, memory: false, running: true, paused_ms: 212,
       size: 21696512, mountpoints: {}}
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._core.disk_store import DiskStore
from ..module_utils._core.pcopy import Pcopy
from ..module_utils._core.runtime import HandoverError, Runtime, finish
from ..module_utils._core.snapshot_mounts import SnapshotMounts
from ..module_utils._core.snapshot_records import ROOT, Snapshots
from ..module_utils._drivers.copies.engines import ARGUMENT
from ..module_utils._drivers.copies.snapshots import members

TIMEOUT = 60


def look(module: AnsibleModule) -> dict[str, t.Any]:
    """The snapshots of all containers that the word names."""
    root = module.params["root"]
    found = []
    for name in members(module, TIMEOUT):
        mounts, tree = SnapshotMounts(root, name), _tree(module, name)
        found += [
            {"parent": "", "current": False, **each, **tree.get(each["name"], {}), "workload": name, "mountpoints": mounts.places(each["name"])}
            for each in Snapshots(root, name).all()
        ]
    return {"changed": False, "snapshots": found}


def _tree(module: AnsibleModule, name: str) -> dict[str, dict[str, t.Any]]:
    """Without it the snapshots are listed all the same."""
    try:
        return DiskStore.of(Pcopy(Runtime(module, TIMEOUT)), module.params["root"], name).tree()
    except HandoverError as exc:
        module.warn(str(exc))
        return {}


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={"workload": {"type": "str", "required": True}, "driver": ARGUMENT, "root": {"type": "path", "default": ROOT}},
        supports_check_mode=True,
    )
    finish(module, lambda: look(module), module.params["workload"])


if __name__ == "__main__":
    main()
