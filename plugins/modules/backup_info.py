#!/usr/bin/python

# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: backup_info

short_description: Tell which backups a repository has, and whether they are as they were written

version_added: 1.0.0

description:
  - Returns the backups of one container or KVM guest, or of all, in a repository of M(livefleet.handover.backup).

extends_documentation_fragment:
  - livefleet.handover._attributes
  - livefleet.handover._attributes.info_module

options:
  repository:
    description:
      - The folder of the backups on the host. On another host, C(HOST:/FOLDER).
    type: path
    required: true
  workload:
    description:
      - Only the backups of this container or guest. Those of all if not given.
    type: str
  verify:
    description:
      - Whether everything is read back and held against its digests.
    type: bool
    default: false
  timeout:
    description:
      - Seconds that the whole module may take.
    type: int
    default: 14400

requirements:
  - the helper on the host (role livefleet.handover.pcopy)

seealso:
  - module: livefleet.handover.backup

author:
  - The Handover maintainers (@livefleet)
"""

EXAMPLES = r"""
- name: List all backups, and read them back
  livefleet.handover.backup_info:
    repository: /srv/backups
    verify: true
  register: kept
"""

RETURN = r"""
backups:
  description: The backups, by workload, the oldest first. C(kind) is V(container) or V(KVM guest), and C(stored) has the bytes that each has added, and
    C(memory) says whether the container can run on from it. C(memory_bytes) of C(stored) are that memory.
  returned: success
  type: list
  elements: dict
  sample:
    - workload: shop
      kind: container
      id: 5a3e7d04f11b22c8
      name: ""
      taken: "2026-11-26T02:30:00Z"
      size: 268435456
      stored: 2097152
      frozen_ms: 12.1
      memory: false
      memory_bytes: 0
      current: true
faults:
  description: Files that are not as they were written, with the backups that need them (C(points)). Empty without O(verify).
  returned: success
  type: list
  elements: dict
  sample: [{workload: shop, file: layers/0123456789abcdef.qcow2, text: it is not as it was written, points: "5a3e7d04f11b22c8, 77aa0c2b16de9f01"}]
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._core.backups import Backups, workloads
from ..module_utils._core.pcopy import Pcopy
from ..module_utils._core.runtime import Runtime, finish


def listed(module: AnsibleModule) -> dict[str, t.Any]:
    """The backups of one workload, or of all."""
    repository, workload = module.params["repository"], module.params["workload"]
    pcopy = Pcopy(Runtime(module, module.params["timeout"]))
    known = workloads(pcopy, repository)
    kept = [Backups(pcopy, repository, name) for name in ([workload] if workload else known)]
    found = [row for each in kept for row in each.all()]
    faults = [fault for each in kept if module.params["verify"] and each.all() for fault in each.faults()]
    return {"changed": False, "backups": found, "faults": faults}


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "repository": {"type": "path", "required": True},
            "workload": {"type": "str"},
            "verify": {"type": "bool", "default": False},
            "timeout": {"type": "int", "default": 14400},
        },
        supports_check_mode=True,
    )
    finish(module, lambda: listed(module), module.params["repository"])


if __name__ == "__main__":
    main()
