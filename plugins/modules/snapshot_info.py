#!/usr/bin/python

# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: snapshot_info

short_description: Tell which snapshots of a container a host has

version_added: 0.1.0

description:
  - Returns the record of each snapshot that was taken of the container on this host.

extends_documentation_fragment:
  - livefleet.handover._attributes
  - livefleet.handover._attributes.info_module
  - livefleet.handover._snapshots

options:
  workload:
    description:
      - Name of the container.
    type: str
    required: true

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
  description: The snapshots, the oldest first. C(mountpoints) has the mount point of each volume that is mounted.
  returned: success
  type: list
  elements: dict
  sample:
    - {name: before-upgrade, taken: "2026-11-21T20:30:00Z", memory: false, running: true, paused_ms: 212, size: 21696512, mountpoints: {}}
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._core.runtime import HandoverError
from ..module_utils._podman.snapshot_mounts import SnapshotMounts
from ..module_utils._podman.snapshots import ROOT, Snapshots


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={"workload": {"type": "str", "required": True}, "root": {"type": "path", "default": ROOT}},
        supports_check_mode=True,
    )
    try:
        root, workload = module.params["root"], module.params["workload"]
        mounts = SnapshotMounts(root, workload)
        found = [dict(each, mountpoints=mounts.places(each["name"])) for each in Snapshots(root, workload).all()]
        module.exit_json(changed=False, snapshots=found)
    except HandoverError as exc:
        module.fail_json(msg=str(exc))


if __name__ == "__main__":
    main()
