#!/usr/bin/python

# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: backup

short_description: Back up containers and KVM guests while they run

version_added: 1.0.0

description:
  - Takes one backup into a repository, which is a folder of this host or of another one.
  - The first is full. Each later one stores the clusters that differ from the one before. They are known from the tracker. Where its marks are lost, as
    after a restart of the host, all is read and compared with digests, and RV(backups) says so.
  - The file systems of all image volumes stand still together for the last pass of the copy, as with M(livefleet.handover.snapshot), and the container
    itself for that of its plain volumes. The thaw is certain.
  - Of a KVM guest all disks are of the moment at which libvirt began to serve them. The file systems in it stand still for that moment, if its agent
    answers, and the thaw is certain. Later backups read what was written since, by libvirt's checkpoints. Where one is lost or broken, or the image
    is raw, all is read and compared with digests. The definition, the firmware's variables and the state of an emulated TPM are taken along.
  - A name that is a container and a guest on the host is refused.
  - Then the backups that O(keep) does not keep are removed. What others need of them stays.
  - The repository is described in C(docs/snapshots.md). C(qemu-img) opens each backup, and restic carries each new file once.

extends_documentation_fragment:
  - livefleet.handover._attributes
  - livefleet.handover._backup

attributes:
  check_mode:
    support: full
    details:
      - Tells also which backups O(keep) would remove of those that are there.
  diff_mode:
    support: none
  idempotent:
    support: none
    details:
      - Each run takes a backup.

options:
  workload:
    description:
      - The container, by name or ID, or the guest, by name.
      - Of several containers, as V(db+web), or of a pod or a project of compose, the backups are of one moment. Each container has a store of its own, and
        goes back alone.
    type: str
    required: true
  repository:
    description:
      - The folder of the backups. It is made if it is missing. It cannot be on a volume of the container.
      - On another host it is C(HOST:/FOLDER), or C(USER@HOST:/FOLDER). That host has the helper, and root of this one logs in there by C(ssh), with a key
        that needs no passphrase.
    type: path
    required: true
  name:
    description:
      - Name of the backup. One with a name is kept whatever O(keep) says.
    type: str
  ran:
    description:
      - Containers that are to be started after a restore, although they do not run now, such as one that has just moved away.
    type: list
    elements: str
    default: []

requirements:
  - the helper on the host (role livefleet.handover.pcopy)
  - podman or Docker on the host, or libvirt 7.0 and QEMU 5.2 or newer

seealso:
  - module: livefleet.handover.backup_info
  - module: livefleet.handover.backup_snapshot

author:
  - The Handover maintainers (@livefleet)
"""

EXAMPLES = r"""
- name: Back up the shop, and keep a week and a year
  livefleet.handover.backup:
    workload: shop
    repository: /srv/backups
    keep: {last: 3, daily: 7, monthly: 12}

- name: Back up a KVM guest
  livefleet.handover.backup:
    workload: web
    repository: /srv/backups
    keep: {daily: 7}

- name: Back up the database after a checkpoint of its own
  livefleet.handover.backup:
    workload: shop-db
    repository: /srv/backups
    before: podman exec shop-db psql --user postgres --command checkpoint
"""

RETURN = r"""
reasons:
  description: Why something was changed, or in check mode would be.
  returned: always
  type: list
  elements: str
  sample: [a backup of shop was asked for]
backups:
  description: The backup of each workload, all of one moment. Empty in check mode.
  returned: always
  type: list
  elements: dict
  contains:
    workload:
      description: Name of the container or guest.
      type: str
      returned: always
    id:
      description: Its ID in the repository.
      type: str
      returned: always
    name:
      description: Its name. Missing where it has none.
      type: str
      returned: with O(name)
    taken:
      description: The moment that it is of.
      type: str
      returned: always
    frozen_ms:
      description: How long the file systems stood still, in milliseconds. With O(memory), how long the container did.
      type: float
      returned: always
    volumes:
      description:
        - For each volume its C(name) and C(size), C(how) the difference was found (C(full), C(marks) or C(digests)), C(why) not by marks, and the
          bytes that were C(read) and C(stored).
      type: list
      elements: dict
      returned: always
  sample:
    - workload: shop
      id: 5a3e7d04f11b22c8
      taken: "2026-11-26T02:30:00Z"
      frozen_ms: 12.1
      volumes: [{name: pgdata, size: 268435456, how: marks, read: 4194304, stored: 2097152}]
left_out:
  description: Files that the container can write to, and parts of the guest, that are no part of the backup.
  returned: always
  type: list
  elements: str
  sample: ["/cache (podman's volume shop-cache)"]
verdicts:
  description: For each backup whether O(keep) keeps it (C(keep)), and the periods that do (C(why)). Empty without O(keep).
  returned: always
  type: list
  elements: dict
  sample: [{workload: shop, id: 5a3e7d04f11b22c8, taken: "2026-11-26T02:30:00Z", keep: true, why: "current, last"}]
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._core.runtime import finish
from ..module_utils._drivers.copies.taker import taker
from ..module_utils._podman.copies.backup_taker import ARGUMENTS


def main() -> None:
    """Entry point."""
    module = AnsibleModule(argument_spec=dict(ARGUMENTS), supports_check_mode=True)
    finish(module, lambda: taker(module).run(), module.params["repository"])


if __name__ == "__main__":
    main()
