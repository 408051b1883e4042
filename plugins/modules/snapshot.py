#!/usr/bin/python

# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: snapshot

short_description: Take a snapshot of a container or a KVM guest on its own host, go back to one, or remove it

version_added: 0.1.0

description:
  - A snapshot is a copy of the container's image volumes and plain volumes as they all were at one moment, and of its memory and its own layer at the
    same moment if that is asked for. A plain volume that other containers have, too, is left out.
  - For the volumes alone the container runs on. Their file systems are frozen together for the last pass of a copy, by C(pcopy snapshot), and only
    clusters that differ from the snapshot before are stored. A container with plain volumes stands still itself for the last files of these.
  - With its memory the volumes are copied while the container runs, too. It is dumped for the last pass of that copy, and runs on
    where it stood. Where the helper cannot hold CRIU, as under crun, it is ended by its dump and restored after the pass; a warning says why. A container
    of Docker's that cannot run on is refused.
  - Of a KVM guest all disks are of one moment, as with M(livefleet.handover.backup), and the definition, the firmware's variables and the state of an
    emulated TPM are taken along. It may be off. Its memory is not taken.
  - A name that is a container and a guest on the host is refused.
  - The role livefleet.handover.snapshot goes back, by the states V(staged), V(placed) and V(restored).

extends_documentation_fragment:
  - livefleet.handover._attributes
  - livefleet.handover._snapshots

attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: partial
    details:
      - A snapshot that is there is not taken again. Restoring is done each time.

options:
  workload:
    description:
      - Name of the container or the guest. Of several containers, as V(db+web), or of a pod or a project of compose, the snapshots are of one moment. Each
        container has its own, under the same name. Of one name, they are all gone back to, if they are of one moment.
    type: str
    required: true
  name:
    description:
      - Name of the snapshot.
    type: str
    required: true
  state:
    description:
      - V(present) takes it, V(absent) removes it.
      - V(mounted) mounts its volumes read-only below O(root), as RV(mountpoints) says, and V(unmounted) ends that. Each is a copy, which takes the room of
        its data. A restart of the host unmounts them. Of a guest each partition with ext2, ext3, ext4, XFS, Btrfs or vfat is mounted, as far as the host's
        kernel has them. RV(lines) tells of all others.
      - V(staged) lays whole copies, such as the layer's, beside the files in use, as C(<path>.rollback), and stops the container.
      - V(placed) makes the image volumes, which are not mounted, those of the snapshot, and puts the copies in place. Only clusters that differ are
        written. If it is killed, the volumes cannot be mounted until it is run again, so that the container does not start.
      - For a guest, V(staged) ends it, and V(placed) writes its images in place and brings back the definition and the files beside the disks. The images have
        another name in that time, so that libvirt cannot start the guest.
      - V(restored) lets the container go on with its memory, or starts it. A guest is started if it ran at the snapshot.
    type: str
    choices: [present, mounted, unmounted, staged, placed, restored, absent]
    default: present
  driver:
    description:
      - The engine that runs the container. It says whose is meant where podman and Docker have one of the name. Snapshots in one O(root) are of one of
        the two alone.
    type: str
    choices: [docker, podman]
    default: podman
  memory:
    description:
      - V(present), whether the memory and the container's own layer are taken too. V(restored), whether they are brought back.
    type: bool
    default: false
  configuration:
    description:
      - The container, or the group, as M(livefleet.handover.workload_info) returns it. It is taken along, so that the container can be created again from
        the snapshot.
    type: dict
    default: {}
  keep:
    description:
      - V(staged), whether the disks as they are are kept first, as a snapshot named C(undo-<time>).
    type: bool
    default: false
  track:
    description:
      - V(present), whether the helper goes on tracking writes to the volumes, so that the next snapshot reads only the clusters written since. A write
        costs a little more then. V(staged), the same for the snapshot that O(keep) takes, so that the way back compares only those.
      - Without, and after the volumes were attached anew, the next snapshot reads all and compares digests.
      - Of a guest, whether its qcow2 images keep a checkpoint of libvirt's. A move of the guest is refused as long as there is one.
    type: bool
    default: false
  mode:
    description:
      - V(present), how the disks of a KVM guest that runs get into the store; V(staged), the same for the snapshot that O(keep) takes. With V(pull) QEMU
        serves them on a socket, and the helper reads them. What the guest overwrites meanwhile is kept beside its images. With V(push) QEMU writes them into
        the folder O(root) itself, without a socket and without room beside the images. The guest's writes wait for that folder's disk meanwhile.
      - V(auto) pulls, and pushes where that cannot be done, as with too little room beside the images. A warning says so.
      - Of containers V(push) is refused.
    type: str
    choices: [auto, pull, push]
    default: auto
  with_configuration:
    description:
      - V(present), whether the configuration is taken along. Of a container without it no clone can be made. A guest's definition is in each snapshot, for
        clones and mounts go by it; without, no way back to this one brings it back.
      - V(staged) and V(placed), whether a guest gets the definition of the snapshot, and starts with the host as it did then. Without it the guest
        keeps those that it has. Its disks are the snapshot's, and so are the firmware's variables and the TPM's state, if it has such now. A container
        keeps its configuration in any case.
    type: bool
    default: true
  volumes:
    description:
      - The container's image volumes that are mounted, as M(livefleet.handover.workload_info) returns them. Those of a group's members are in
        O(configuration).
    type: list
    elements: dict
    default: []
  timeout:
    description:
      - Seconds that the whole module may take.
    type: int
    default: 3600

requirements:
  - the helper on the host (role livefleet.handover.pcopy)
  - podman or Docker on the host, or libvirt 7.0, QEMU 5.2 or newer and qemu-nbd

seealso:
  - module: livefleet.handover.snapshot_info

author:
  - The Handover maintainers (@livefleet)
"""

EXAMPLES = r"""
- name: Take a snapshot of a KVM guest
  livefleet.handover.snapshot:
    workload: web
    name: before-upgrade
    track: true

- name: Take a snapshot before the upgrade
  livefleet.handover.snapshot:
    workload: shop
    name: before-upgrade
    volumes: "{{ here.workload.mounts | map(attribute='image_volume') | select }}"
"""

RETURN = r"""
reasons:
  description: Why something was changed, or in check mode would be.
  returned: always
  type: list
  elements: str
  sample: [there is no snapshot before-upgrade]
volumes:
  description: The image volumes of the snapshot, or of the snapshots of several.
  returned: always
  type: list
  elements: dict
  sample: [{name: pgdata, image: /var/lib/handover/volumes/pgdata.img, size: 268435456}]
left_out:
  description: Those of several containers that have no volume of their own. There is no snapshot of them.
  returned: always
  type: list
  elements: str
  sample: [web]
lines:
  description:
    - With V(placed), a line for each image volume that tells how the clusters that differ were found, by marks or by digests, and why.
    - With V(mounted), a line for each part of a guest's disks that is not mounted.
  returned: always
  type: list
  elements: str
  sample: ["pgdata: 21.5 MiB of 2.0 GiB written, and 4.3 MiB read to find them (by marks)"]
mountpoints:
  description: Volume and mount point of each of its volumes that is mounted. Of a guest's disk vda the first partition is C(vda1).
  returned: always
  type: dict
  sample: {pgdata: /var/lib/handover/snapshots/.mounted/shop/before-upgrade/pgdata}
snapshot:
  description: Its record, or the first one's of several. None where there is none.
  returned: always
  type: dict
  sample:
    name: before-upgrade
    taken: "2026-11-21T20:30:00Z"
    container: 5a3e7d04f11b
    memory: false
    running: true
    paused_ms: 212
    size: 21696512
    disks: true
    volumes: [{name: pgdata, image: /var/lib/handover/volumes/pgdata.img, size: 268435456}]
"""

from ..module_utils._core.runtime import finish
from ..module_utils._core.snapshot_records import ROOT
from ..module_utils._core.step import discreet
from ..module_utils._drivers.copies.engines import ARGUMENT
from ..module_utils._drivers.copies.snapshots import act


def main() -> None:
    """Entry point."""
    module = discreet(
        argument_spec={
            "workload": {"type": "str", "required": True},
            "name": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["present", "mounted", "unmounted", "staged", "placed", "restored", "absent"], "default": "present"},
            "driver": ARGUMENT,
            "memory": {"type": "bool", "default": False},
            "configuration": {"type": "dict", "default": {}},
            "keep": {"type": "bool", "default": False},
            "track": {"type": "bool", "default": False},
            "mode": {"type": "str", "choices": ["auto", "pull", "push"], "default": "auto"},
            "with_configuration": {"type": "bool", "default": True},
            "volumes": {"type": "list", "elements": "dict", "default": []},
            "root": {"type": "path", "default": ROOT},
            "timeout": {"type": "int", "default": 3600},
        },
        supports_check_mode=True,
    )
    finish(module, lambda: act(module), module.params["name"])


if __name__ == "__main__":
    main()
