#!/usr/bin/python

# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: backup_mount

short_description: Mount the volumes of a container's backup read-only, or the disks of a guest's

version_added: 1.0.0

description:
  - Files can be copied out of a backup on any host that has the repository, or reaches it by ssh.
  - Each volume is a copy, which takes the room of its data. The kernel completes the journal in it, so the files are those that the container would find
    after a loss of power. The backup does not change, and can be removed while it is mounted.
  - Of a KVM guest each partition with ext2, ext3, ext4, XFS, Btrfs or vfat is mounted, as far as the host's kernel has them. RV(lines) tells of all others.
  - A restart of the host unmounts the volumes. Their copies stay until they are unmounted here.

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
      - The folder of the backups on the host. On another host, C(HOST:/FOLDER). Required with O(state=mounted).
    type: path
  workload:
    description:
      - Name of the container or guest that the backup is of.
    type: str
    required: true
  backup:
    description:
      - With V(mounted), its name, its ID, or the beginning of one. The latest if not given.
      - With V(unmounted), its ID or the beginning of one. All that are mounted of it if not given.
    type: str
    default: ''
  state:
    description:
      - Whether the volumes are mounted, below O(root) as RV(mountpoints) says.
    type: str
    choices: [mounted, unmounted]
    default: mounted
  timeout:
    description:
      - Seconds that the whole module may take.
    type: int
    default: 3600

requirements:
  - the helper on the host (role livefleet.handover.pcopy)

seealso:
  - module: livefleet.handover.backup
  - module: livefleet.handover.backup_snapshot

author:
  - The Handover maintainers (@livefleet)
"""

EXAMPLES = r"""
- name: Look at the files of the latest backup
  livefleet.handover.backup_mount:
    repository: /srv/backups
    workload: shop
  register: had
"""

RETURN = r"""
reasons:
  description: Why something was changed, or in check mode would be.
  returned: always
  type: list
  elements: str
  sample: ["of the backup 5a3e7d04f11b22c8 these are not mounted: pgdata"]
backup:
  description: ID of the backup.
  returned: with O(state=mounted)
  type: str
  sample: 5a3e7d04f11b22c8
taken:
  description: The moment that the backup is of.
  returned: with O(state=mounted)
  type: str
  sample: "2026-11-26T02:30:00Z"
mountpoints:
  description:
    - Volume and mount point of each of its volumes that is mounted. Of a guest's disk vda the first partition is C(vda1). Empty with O(state=unmounted).
  returned: always
  type: dict
  sample: {pgdata: /var/lib/handover/snapshots/.mounted/shop/backup-5a3e7d04f11b22c8/pgdata}
lines:
  description: Of a guest, a sentence for each part of its disks that is not mounted.
  returned: always
  type: list
  elements: str
  sample: [vda2 is swap space]
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._core.runtime import finish
from ..module_utils._core.snapshot_records import ROOT
from ..module_utils._drivers.copies.backup_mounter import mount, unmount


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "repository": {"type": "path"},
            "workload": {"type": "str", "required": True},
            "backup": {"type": "str", "default": ""},
            "state": {"type": "str", "choices": ["mounted", "unmounted"], "default": "mounted"},
            "root": {"type": "path", "default": ROOT},
            "timeout": {"type": "int", "default": 3600},
        },
        required_if=[("state", "mounted", ["repository"])],
        supports_check_mode=True,
    )
    act = mount if module.params["state"] == "mounted" else unmount
    finish(module, lambda: act(module), module.params["workload"])


if __name__ == "__main__":
    main()
