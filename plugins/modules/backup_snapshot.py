#!/usr/bin/python

# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: backup_snapshot

short_description: Make a backup usable as a snapshot of this host

version_added: 1.0.0

description:
  - A backup that is a snapshot of the host can be gone back to, cloned and mounted like any other. Its data stay in the repository, and nothing is copied.
  - Of a repository on another host the one backup is brought here, and removed again with O(state=absent). It takes as much room as its data.
  - The host needs not be the one that the backup is from.

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
  repository:
    description:
      - The folder of the backups on the host. On another host, C(HOST:/FOLDER).
    type: path
    required: true
  workload:
    description:
      - Name of the container that the backup is of.
    type: str
    required: true
  driver:
    description:
      - The engine that runs the container. A backup of another engine's is refused.
    type: str
    choices: [docker, podman]
    default: podman
  backup:
    description:
      - Its name, its ID, or the beginning of one. The latest if not given.
    type: str
    default: ''
  memory:
    description:
      - Whether the snapshot has the memory of the backup, too, so that the container can run on from it. A backup without, and one whose processor, kernel
        or CRIU this host does not match, are refused.
    type: bool
    default: false
  state:
    description:
      - Whether the host has it as a snapshot. With V(absent) the backup itself stays in the repository.
    type: str
    choices: [present, absent]
    default: present
  timeout:
    description:
      - Seconds that the whole module may take.
    type: int
    default: 300

requirements:
  - the helper on the host (role livefleet.handover.pcopy)
  - podman or Docker on the host

seealso:
  - module: livefleet.handover.backup
  - module: livefleet.handover.snapshot
  - module: livefleet.handover.clone

author:
  - The Handover maintainers (@livefleet)
"""

EXAMPLES = r"""
- name: Have the latest backup as a snapshot
  livefleet.handover.backup_snapshot:
    repository: /srv/backups
    workload: shop
  register: had
"""

RETURN = r"""
snapshot:
  description: Name of the snapshot.
  returned: always
  type: str
  sample: backup-5a3e7d04f11b22c8
backup:
  description: ID of the backup.
  returned: always
  type: str
  sample: 5a3e7d04f11b22c8
taken:
  description: The moment that the backup is of.
  returned: always
  type: str
  sample: "2026-11-26T02:30:00Z"
kind:
  description: V(container), or V(KVM guest). A guest's is no snapshot of a host, and M(livefleet.handover.kvm_restore) brings it back.
  returned: always
  type: str
  sample: container
exists:
  description: Whether this host has the container itself. False for a guest.
  returned: always
  type: bool
  sample: true
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._core.runtime import finish
from ..module_utils._core.snapshot_records import ROOT
from ..module_utils._drivers.copies.engines import ARGUMENT, engine_of
from ..module_utils._podman.copies.backup_adopter import adopt


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "repository": {"type": "path", "required": True},
            "workload": {"type": "str", "required": True},
            "driver": ARGUMENT,
            "backup": {"type": "str", "default": ""},
            "memory": {"type": "bool", "default": False},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "root": {"type": "path", "default": ROOT},
            "timeout": {"type": "int", "default": 300},
        },
        supports_check_mode=True,
    )
    finish(module, lambda: adopt(module, engine_of(module)), module.params["repository"])


if __name__ == "__main__":
    main()
