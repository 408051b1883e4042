#!/usr/bin/python

# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: image_volume

short_description: Keep a container's files in one image file

version_added: 0.1.0

description:
  - Makes, grows, mounts, unmounts and removes an image volume, which is a file system in a raw sparse file.
    The file is attached to a loop device with direct I/O, mounted, and presented to podman as a named volume.
  - A container whose files are in an image can be moved by block, while it writes, with every write seen.
    It also has a size of its own, a file system of its own, and takes on the disk only the space of its content.
  - A volume that is mounted by this module is mounted again when the host boots, before podman restarts its containers.
  - Nothing is ever formatted over. A new image is formatted under another name and appears under its own when it is complete;
    a file that exists is used if it holds the file system asked for, and refused if it does not.

extends_documentation_fragment:
  - livefleet.handover._attributes

attributes:
  check_mode:
    support: full
    details:
      - Looks at the same things as a real run, refuses the same, and names the same reasons.
      - Tools that are missing on the host are a warning in check mode, because another task of the play may install them.
  diff_mode:
    support: full
  idempotent:
    support: full

options:
  name:
    description:
      - Name of the volume. The image, the mount point and the podman volume are named after it unless they are given.
      - Up to 64 letters, digits and C(_ . -), beginning with a letter or digit.
    type: str
    required: true
  state:
    description:
      - With V(present) the image exists with its file system, as large as asked for, and podman knows the volume.
        Whether it is mounted is left as it is.
      - With V(mounted) it is also mounted, now and after a reboot.
      - With V(unmounted) it is neither mounted nor attached, now or after a reboot. The image stays as it is.
      - With V(absent) nothing is left of it. This deletes the data, and so needs O(force=true) if the image exists.
    type: str
    choices: [present, mounted, unmounted, absent]
    default: present
  size:
    description:
      - Size of the volume, a whole number with K, M, G, T or P for powers of 1024.
      - Required to make a volume. A larger size than the volume has grows it; a smaller one is refused.
      - A mounted volume grows while it is in use. For ext4 this takes the capability CAP_SYS_RESOURCE, which root has on
        ordinary hosts. An unmounted ext4 volume grows at once, an unmounted XFS volume when it is mounted next by this module.
    type: str
  fstype:
    description:
      - File system of the volume.
    type: str
    choices: [ext4, xfs]
    default: ext4
  image:
    description:
      - The image file.
      - C(/var/lib/handover/volumes/<name>.img) if not given.
    type: path
  mountpoint:
    description:
      - Where the volume is mounted.
      - C(/var/lib/handover/mnt/<name>) if not given.
    type: path
  podman_volume:
    description:
      - Name of the podman volume that is bound to O(mountpoint). O(name) if not given; the empty string makes none.
      - Start its containers only while the volume is mounted; otherwise they see the empty directory underneath.
    type: str
  boot:
    description:
      - With O(state=mounted), whether the volume is mounted when the host boots. Needs systemd.
    type: bool
    default: true
  owner:
    description:
      - With O(state=mounted), the owner of the volume's root directory, as a name or number.
      - Leave it, O(group) and O(mode) out where podman is to set them. It gives an empty volume the owner and the permissions that
        the directory has in the first image that uses it.
    type: str
  group:
    description:
      - With O(state=mounted), the group of the volume's root directory, as a name or number.
    type: str
  mode:
    description:
      - With O(state=mounted), the permissions of the volume's root directory, as for M(ansible.builtin.file).
    type: raw
  mkfs_options:
    description:
      - More arguments for C(mkfs.ext4) or C(mkfs.xfs) when the volume is made.
    type: list
    elements: str
    default: []
  discard:
    description:
      - Whether files that are deleted in the volume give their space back to the host at once.
      - V(true) if not given, and V(false) with O(reserve=full), whose reservation it would undo.
      - A change takes effect when the volume is mounted next.
    type: bool
  reserve:
    description:
      - With V(none) the image takes space on the host as it fills, and volumes may add up to more than the host has.
      - With V(full) the whole size is reserved on the host in advance.
    type: str
    choices: [none, full]
    default: none
  sector_size:
    description:
      - Logical sector size of the loop device, in bytes.
      - V(4096) is needed for direct I/O where the host's disk itself has sectors of 4096 bytes.
      - A change takes effect when the image is attached next.
    type: int
    choices: [512, 4096]
    default: 512
  force:
    description:
      - With O(state=absent), delete the image and the data in it.
    type: bool
    default: false
  convert:
    description:
      - With O(state=mounted), make an image volume of the plain volume that podman has under the name O(podman_volume), if it has one.
      - Its files are copied while its container runs. Then the container is dumped by CRIU for the last of them, and runs on from that dump on the image
        volume, with its memory and its connections. One that CRIU cannot dump is refused, unless O(restart=true).
      - Owners, permissions, times, attributes, access lists, hard links, holes and flags stay as they are.
      - Not for a volume that more than one container has, nor for an anonymous one. Needs the helper, which the role
        P(livefleet.handover.pcopy#role) installs, and podman 4.8 or later with its records in SQLite.
      - If a run is cut off, another one with the same options ends it.
      - O(size) may be left out. It is then at least twice what the files need.
    type: bool
    default: false
    version_added: 0.1.0
  restart:
    description:
      - With O(convert=true), let a container stop and start that CRIU cannot dump. Its memory and connections are lost then.
      - One that can be dumped keeps them all the same. Check mode says which way it takes, and why.
    type: bool
    default: false
    version_added: 0.1.0
  keep_plain:
    description:
      - With O(convert=true), keep the folder of the plain volume. It is out of podman's reach, below C(.handover-plain) beside podman's volumes.
      - V(false) removes it, also when the volume was converted before.
    type: bool
    default: true
    version_added: 0.1.0
  snapshot_store:
    description:
      - With O(state=unmounted), the store of C(pcopy snapshot) that has the volume under its O(name). Once it is unmounted, the clusters written since
        the current snapshot are noted, if the helper has tracked them. So a rollback need not compare the whole disk.
    type: path
    version_added: 0.1.0
  timeout:
    description:
      - Seconds that the whole module may take.
      - With O(convert=true), the copying is in it, and what follows the dump or the stop is not.
    type: int
    default: 300

requirements:
  - e2fsprogs or xfsprogs on the host, as O(fstype) needs
  - podman on the host, unless O(podman_volume) is empty

author:
  - The Handover maintainers (@livefleet)
"""

EXAMPLES = r"""
- name: Give the shop a volume of its own
  livefleet.handover.image_volume:
    name: shop
    size: 10G
    state: mounted

- name: Start the shop on it
  containers.podman.podman_container:
    name: shop
    image: localhost/shop:1
    volumes:
      - shop:/var/lib/shop

- name: Grow it while the shop runs
  livefleet.handover.image_volume:
    name: shop
    size: 20G
    state: mounted

- name: Make an XFS volume that cannot run out of space on the host
  livefleet.handover.image_volume:
    name: archive
    size: 200G
    fstype: xfs
    reserve: full
    image: /srv/images/archive.img
    state: mounted

- name: Make an image volume of a volume that podman keeps itself, and keep the memory of its container
  livefleet.handover.image_volume:
    name: wiki
    state: mounted
    convert: true
    timeout: 3600

- name: Remove it with everything in it
  livefleet.handover.image_volume:
    name: archive
    fstype: xfs
    image: /srv/images/archive.img
    state: absent
    force: true
"""

RETURN = r"""
reasons:
  description: Why something was changed, or in check mode would be. One sentence for each step, in order.
  returned: success
  type: list
  elements: str
  sample:
    - the image /var/lib/handover/volumes/shop.img does not exist
    - the image is not attached to a loop device
    - the volume is not mounted
    - podman has no volume named shop
    - nothing mounts the volume at boot
conversion:
  description: About a plain volume that was made an image volume. None if none was; in check mode it has only the summary, a forecast.
  returned: success
  type: dict
  contains:
    summary:
      description: All of it in one sentence.
      type: str
      sample: "28.9 MiB were copied, and wiki stood still, with its memory and connections, for 1538 ms (334 ms to dump it, 41 ms for the last files,
        769 ms to restore it); the plain folder is kept as /var/lib/containers/storage/volumes/.handover-plain/wiki"
    container:
      description: The container that uses the volume, or none.
      type: str
      sample: wiki
    paused_ms:
      description: Milliseconds for which the container did not run. None if this run did not end it.
      type: int
      sample: 1538
    memory:
      description: Whether this run has restored it with its memory and connections. None if it was stopped and started, or did not run.
      type: bool
      sample: true
    anew:
      description: Why it was started without the memory of its dump. Empty if it was not.
      type: str
      sample: ""
    stop_ms:
      description: Milliseconds of those for its dump, or its own end.
      type: int
      sample: 334
    last_ms:
      description: Milliseconds of those for the last files, and until everything was on the disk.
      type: int
      sample: 41
    start_ms:
      description: Milliseconds of those for the restore, or the start.
      type: int
      sample: 769
    bytes:
      description: Bytes of files that were copied, in all passes.
      type: int
      sample: 29990912
    kept:
      description: The folder of the plain volume, or none.
      type: str
      sample: /var/lib/containers/storage/volumes/.handover-plain/wiki
name:
  description: Name of the volume.
  returned: success
  type: str
  sample: shop
image:
  description: The image file.
  returned: success
  type: str
  sample: /var/lib/handover/volumes/shop.img
device:
  description: The loop device that the image is attached to, or none.
  returned: success
  type: str
  sample: /dev/loop3
direct_io:
  description: Whether the loop device goes past the host's page cache. None if the image is not attached.
  returned: success
  type: bool
  sample: true
mounted:
  description: Whether the volume is mounted.
  returned: success
  type: bool
  sample: true
mountpoint:
  description: Where the volume is mounted, or would be.
  returned: success
  type: str
  sample: /var/lib/handover/mnt/shop
podman_volume:
  description: Name of the podman volume, or none.
  returned: success
  type: str
  sample: shop
fstype:
  description: The file system in the image, or none if there is no image.
  returned: success
  type: str
  sample: ext4
size:
  description: Size of the image in bytes. None if there is no image.
  returned: success
  type: int
  sample: 10737418240
used:
  description: Bytes that are in use in the file system. None if the volume is not mounted.
  returned: success
  type: int
  sample: 2105344
allocated:
  description: Bytes that the image takes on the host's disk. None if there is no image.
  returned: success
  type: int
  sample: 6569984
"""

from ..module_utils._core.step import alone
from ..module_utils._podman.copies.converted_volume import STEP


def main() -> None:
    """Entry point."""
    alone(STEP)


if __name__ == "__main__":
    main()
