#!/usr/bin/python

# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: clone

short_description: Make another container or KVM guest from a snapshot of one, or remove it

version_added: 1.0.0

description:
  - A clone is a container of its own, with a name, volumes and addresses of its own, on the host that has the snapshot. The first container may go on
    meanwhile.
  - It is made by the command that made the first one, as it was at the moment of the snapshot. It starts on the files of that moment. With a snapshot that
    has the memory, these are the container's own layer, too; the memory itself is not taken.
  - Of a KVM guest it is another guest, with the definition, the firmware's variables and the TPM's state of that moment, and with a UUID, hardware addresses
    and image files of its own. The images are beside those of the first, as C(<clone>-<disk>.<format>), and held against the snapshot by
    C(qemu-img compare).
  - Whatever two of them cannot share is replaced, left out and told (RV(left_out)), or refused.
  - If it fails, nothing is left behind. What a run that was killed has left goes with the next run.

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
  name:
    description:
      - Name of the clone. Its volumes are named after it and after those of the container.
    type: str
    required: true
  state:
    description:
      - V(present) makes the clone. One of this snapshot that is there is left as it is, whether it runs or not.
      - V(absent) removes it with its volumes and all data in them. It is for clones only.
    type: str
    choices: [present, absent]
    default: present
  workload:
    description:
      - Name of the container or guest that the snapshot is of. Required with O(state=present).
    type: str
  snapshot:
    description:
      - Name of the snapshot. Required with O(state=present).
      - With O(repository), the name of the backup, its ID or the beginning of one.
    type: str
  repository:
    description:
      - Of a guest, the folder of its backups on the host, or on another one as C(HOST:/FOLDER). Snapshots of another host are in
        C(HOST:/var/lib/handover/snapshots/.disks). Without it the snapshot is one of this host.
      - Another container of a backup is made by the playbook backup_restore.
    type: path
  addresses:
    description:
      - Addresses of the clone, each in a subnet of one of the container's networks. Where none is named, podman draws one.
      - A guest's are set in it, and none can be given.
      - Required on networks that lead out of the host (macvlan, ipvlan, unmanaged bridge), where podman does not know which addresses are in use.
    type: list
    elements: str
    default: []
  macs:
    description:
      - Of a guest, hardware addresses for its interfaces, in their order. libvirt draws those that are not named.
    type: list
    elements: str
    default: []
  start:
    description:
      - Whether it is started. If not given, a container is, and a guest is not, for the addresses in it are those of the first.
    type: bool
  own_name:
    description:
      - Whether O(name) may be the name of the container itself, which is then made again where it is no more. It is no clone, and has all that was its own.
      - It must run on no other host. This host cannot know that, so without this option its own name is refused.
    type: bool
    default: false
  memory:
    description:
      - Whether it runs on from the memory in the snapshot. Only with O(own_name), and from a backup with memory.
    type: bool
    default: false
  timeout:
    description:
      - Seconds that the whole module may take.
    type: int
    default: 3600

requirements:
  - the helper on the host (role livefleet.handover.pcopy)
  - podman or Docker on the host, or libvirt 8.9 or newer and qemu-img
  - xfsprogs on the host, for volumes with XFS

seealso:
  - module: livefleet.handover.snapshot

author:
  - The Handover maintainers (@livefleet)
"""

EXAMPLES = r"""
- name: Try the upgrade on a clone
  livefleet.handover.clone:
    name: shop-try
    workload: shop
    snapshot: before-upgrade

- name: Give it an address that others reach
  livefleet.handover.clone:
    name: shop-try
    workload: shop
    snapshot: before-upgrade
    addresses: [10.213.0.60]

- name: Start another guest with yesterday's disks, where no one is at its addresses
  livefleet.handover.clone:
    name: web-try
    workload: web
    snapshot: yesterday
    macs: ["52:54:00:12:34:56"]
    start: true

- name: Remove it with its data
  livefleet.handover.clone:
    name: shop-try
    state: absent
"""

RETURN = r"""
reasons:
  description: Why something was changed, or in check mode would be.
  returned: always
  type: list
  elements: str
  sample: [there is no container named shop-try]
clone:
  description: Its record. None where there is none.
  returned: always
  type: dict
  contains:
    kind:
      description: KVM guest, of one. Containers have none.
      type: str
      returned: of guests
    uuid:
      description: Its UUID.
      type: str
      returned: of guests
    files:
      description: Its images, and the files beside them.
      type: list
      elements: str
      returned: of guests
    name:
      description: Name of the clone.
      type: str
      returned: always
    origin:
      description: The container and the snapshot that it is of.
      type: str
      returned: always
    volumes:
      description: Its image volumes.
      type: list
      elements: dict
      returned: always
    podman_volumes:
      description: Further volumes of podman's, which are folders of those.
      type: list
      elements: str
      returned: always
    whole:
      description: Whether all of it is made.
      type: bool
      returned: always
  sample:
    name: shop-try
    origin: shop@before-upgrade
    volumes:
      - {of: pgdata, name: shop-try-pgdata, image: /var/lib/handover/volumes/shop-try-pgdata.img, mountpoint: /var/lib/handover/mnt/shop-try-pgdata}
    podman_volumes: []
    whole: true
addresses:
  description: The addresses that it has now. Empty where it does not run.
  returned: always
  type: list
  elements: str
  sample: [10.88.0.7]
command:
  description: The arguments of podman with which it was made, or would be; values of its variables are not shown. Empty where it is there.
  returned: always
  type: list
  elements: str
  sample: [create, --pull=never, --name=shop-try, --network=podman, --volume=shop-try-pgdata:/var/lib/postgresql, localhost/shop:1]
lines:
  description: Of a guest that was made, how it is there.
  returned: always
  type: list
  elements: str
  sample: ["web-try is as web@yesterday, and runs"]
left_out:
  description: What the first has and the clone has not.
  returned: always
  type: list
  elements: str
  sample: ["port 5432/tcp of the host, which is shop's"]
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._core.runtime import finish
from ..module_utils._core.snapshot_records import ROOT
from ..module_utils._drivers.copies.cloner import clone


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "workload": {"type": "str"},
            "snapshot": {"type": "str"},
            "repository": {"type": "path"},
            "addresses": {"type": "list", "elements": "str", "default": []},
            "macs": {"type": "list", "elements": "str", "default": []},
            "start": {"type": "bool"},
            "own_name": {"type": "bool", "default": False},
            "memory": {"type": "bool", "default": False},
            "root": {"type": "path", "default": ROOT},
            "timeout": {"type": "int", "default": 3600},
        },
        required_if=[("state", "present", ["workload", "snapshot"])],
        supports_check_mode=True,
    )
    finish(module, lambda: clone(module), module.params["name"])


if __name__ == "__main__":
    main()
