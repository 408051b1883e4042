# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change in any release.

from __future__ import annotations


class ModuleDocFragment:
    """The options of a backup, taken now or by a timer."""

    DOCUMENTATION = r"""
options:
  driver:
    description:
      - The engine that runs the container. It says whose is meant where podman and Docker have one of the name.
    type: str
    choices: [docker, podman]
    default: podman
  keep:
    description:
      - How many backups are kept. Each period keeps the last backup of each of so many hours, days and so on that have one, in the host's time zone.
      - With none of them all are kept. Backups with a name and the latest are always kept.
    type: dict
    default: {}
    suboptions:
      last:
        description: The last so many.
        type: int
      hourly:
        description: Hours.
        type: int
      daily:
        description: Days.
        type: int
      weekly:
        description: Weeks.
        type: int
      monthly:
        description: Months.
        type: int
      yearly:
        description: Years.
        type: int
  track:
    description:
      - Whether the helper goes on tracking writes to the volumes, so that the next backup reads only the clusters written since. A write costs a little more
        then.
      - Of a guest, whether its disks keep a checkpoint of libvirt's until the next backup.
    type: bool
    default: true
  mode:
    description:
      - How the disks of a KVM guest that runs get into the store. With V(pull) QEMU serves them on a socket, and the helper reads them. What the guest
        overwrites meanwhile is kept beside its images. With V(push) QEMU writes them into the store's folder itself, without a socket and without room beside
        the images. The guest's writes wait for that folder's disk meanwhile. It has to be on this host, or mounted.
      - V(auto) pulls, and pushes where that cannot be done, as with too little room beside the images. A warning says so.
      - Of containers V(push) is refused.
    type: str
    choices: [auto, pull, push]
    default: auto
  before:
    description:
      - A shell command on the host that runs before the file systems stand still, such as a database's own checkpoint. If it fails, no backup is taken.
      - If not given, the command of a container's label C(livefleet.handover.backup.before), which runs in the container by C(sh).
    type: str
  after:
    description:
      - A shell command on the host that runs after it, in any case.
      - If not given, the command of a container's label C(livefleet.handover.backup.after), in the same way.
    type: str
  memory:
    description:
      - Whether the backup has the container's memory, of the same moment as its disks, and its own layer. The container stands still for it as by
        M(livefleet.handover.snapshot) with O(livefleet.handover.snapshot#module:memory), and can run on from that moment after a restore.
      - Memory is stored whole with each backup.
      - If not given, the container's label C(livefleet.handover.backup.memory), V(true) or V(false), and without one there is none.
    type: bool
  hook_timeout:
    description:
      - Seconds that O(before) and O(after) may take each.
    type: int
    default: 60
  timeout:
    description:
      - Seconds that the whole module may take.
    type: int
    default: 14400
"""
