#!/usr/bin/python

# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: kvm_restore

short_description: Bring a KVM guest back from a backup

version_added: 1.0.0

description:
  - Makes a guest of this host as it was at a backup of M(livefleet.handover.backup), with its disks, its definition, the variables of its firmware and the
    state of its emulated TPM.
  - The images are written beside the present ones and held against the backup by C(qemu-img compare). Then all files are exchanged at once, while libvirt
    does not know the guest. A run that fails leaves everything as it was, and after one that was killed the next one does that first.
  - The files that were there get another name, which ends in C(.handover-undo-) and the time. They are in RV(kept).
  - Under its own name the guest is started, as it ran when it was backed up. It must not run here or on another host. This module sees its own host alone,
    and the playbook backup_restore asks all.
  - Under another name it has another UUID and other hardware addresses, and is not started, since the addresses in it are those of the first.
  - Whatever two guests cannot share is refused under another name, such as a device of the host, or chosen anew by libvirt, such as a fixed port of the
    screen. M(livefleet.handover.clone) makes such a guest, too, and removes it.

extends_documentation_fragment:
  - livefleet.handover._attributes

attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: none
    details:
      - Each run restores the guest once more.

options:
  repository:
    description:
      - The folder of the backups on the host. On another host, C(HOST:/FOLDER).
    type: path
    required: true
  workload:
    description:
      - Name of the guest that the backup is of.
    type: str
    required: true
  backup:
    description:
      - Its name, its ID, or the beginning of one. The latest if not given.
    type: str
    default: ''
  name:
    description:
      - Name of another guest that is made of it. Its images are in the folders of the first one's.
    type: str
  notes:
    description:
      - The folder that says how far an exchange of files was meant to go.
    type: path
    default: /var/lib/handover/guest-restores
  timeout:
    description:
      - Seconds that the whole module may take.
    type: int
    default: 14400

requirements:
  - the helper on the host (role livefleet.handover.pcopy)
  - libvirt 8.9 or newer and qemu-img on the host

seealso:
  - module: livefleet.handover.backup

author:
  - The Handover maintainers (@livefleet)
"""

EXAMPLES = r"""
- name: Bring the latest backup of a guest back
  livefleet.handover.kvm_restore:
    repository: /srv/backups
    workload: web

- name: Look at last night's beside it
  livefleet.handover.kvm_restore:
    repository: /srv/backups
    workload: web
    backup: 5a3e7d04
    name: web-then
"""

RETURN = r"""
reasons:
  description: Why something was changed, or in check mode would be.
  returned: always
  type: list
  elements: str
  sample: [a restore of web was asked for]
guest:
  description: Name of the guest that is there now.
  returned: always
  type: str
  sample: web
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
disks:
  description: Its images.
  returned: always
  type: list
  elements: str
  sample: [/var/lib/libvirt/images/web.qcow2]
kept:
  description: The files whose places were taken, by their new names.
  returned: always
  type: list
  elements: str
  sample: [/var/lib/libvirt/images/web.qcow2.handover-undo-20261126T120000Z]
started:
  description: Whether the guest was started, or in check mode would be.
  returned: always
  type: bool
  sample: true
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._core.runtime import finish
from ..module_utils._drivers.copies.restorer import restore
from ..module_utils._kvm.copies.switch import NOTES


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "repository": {"type": "path", "required": True},
            "workload": {"type": "str", "required": True},
            "backup": {"type": "str", "default": ""},
            "name": {"type": "str"},
            "notes": {"type": "path", "default": NOTES},
            "timeout": {"type": "int", "default": 14400},
        },
        supports_check_mode=True,
    )
    finish(module, lambda: restore(module), module.params["repository"])


if __name__ == "__main__":
    main()
