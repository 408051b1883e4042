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
  timeout:
    description:
      - Seconds that the whole module may take.
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

import os
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._core.runtime import HandoverError, Runtime
from ..module_utils._core.sizes import parse_size
from ..module_utils._podman import volume
from ..module_utils._podman.podman import Podman
from ..module_utils._podman.volume_actions import VolumeActions
from ..module_utils._podman.volume_observer import VolumeObserver


class ImageVolume:
    """One image volume of this host."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        runtime = Runtime(module, module.params["timeout"])
        self.wanted = self._wanted()
        options = ("noatime", "discard") if self._discard() else ("noatime",)
        self.observer = VolumeObserver(runtime, Podman(runtime), self.wanted, options, module.params["sector_size"])
        self.actions = VolumeActions(self.observer, tuple(module.params["mkfs_options"]), module.warn)

    # The request

    def _wanted(self) -> volume.Wanted:
        params = self.module.params
        name = params["name"]
        volume.check_name("name", name)
        podman_volume = name if params["podman_volume"] is None else params["podman_volume"]
        if podman_volume:
            volume.check_name("podman_volume", podman_volume)
        size = None
        if params["size"] is not None:
            try:
                size = parse_size(params["size"])
            except ValueError as exc:
                raise HandoverError(f"size: {exc}") from exc
            volume.check_size(size, params["fstype"])
        return volume.Wanted(
            name=name,
            state=params["state"],
            image=volume.check_path("image", params["image"] or volume.default_image(name)),
            mountpoint=volume.check_path("mountpoint", params["mountpoint"] or volume.default_mountpoint(name)),
            fstype=params["fstype"],
            size=size,
            podman_volume=podman_volume or None,
            boot=params["boot"],
            reserve=params["reserve"],
            force=params["force"],
        )

    def _discard(self) -> bool:
        discard, full = self.module.params["discard"], self.module.params["reserve"] == "full"
        if discard and full:
            raise HandoverError("discard=true would give back what reserve=full reserves: leave one of them out")
        return not full if discard is None else discard

    # From the present state to the requested one

    def run(self) -> dict[str, t.Any]:
        """Looks, decides, acts, and looks again."""
        before = self.observer.observe()
        plan = volume.decide(self.wanted, before)
        self._check_tools(plan)
        reasons = [step.reason for step in plan.steps]
        after = before
        if plan.steps and not self.module.check_mode:
            for step in plan.steps:
                getattr(self.actions, step.action)()
            after = self.observer.observe()
            self._verify(after)
        reasons += self._set_root_attributes(after, plan)
        return dict(
            self._facts(after),
            changed=bool(reasons),
            reasons=reasons,
            diff={"before": volume.outline(self.wanted, before), "after": volume.predict(self.wanted, before, plan)},
        )

    def _check_tools(self, plan: volume.Plan) -> None:
        if not plan.missing_tools:
            return
        are = "are" if len(plan.missing_tools) > 1 else "is"
        sentence = f"{', '.join(plan.missing_tools)} {are} missing on this host: install the package {volume.PACKAGES[self.wanted.fstype]}"
        if not self.module.check_mode:
            raise HandoverError(sentence)
        self.module.warn(sentence)

    def _verify(self, after: volume.Observed) -> None:
        left = volume.decide(self.wanted, after).steps
        if left:
            raise HandoverError(
                f"volume {self.wanted.name} is not as asked for after the run, something else changes it at the same time: "
                + "; ".join(step.reason for step in left)
            )

    def _set_root_attributes(self, seen: volume.Observed, plan: volume.Plan) -> list[str]:
        if self.wanted.state != "mounted":
            return []
        reasons = []
        for option, apply in (
            ("owner", self.module.set_owner_if_different),
            ("group", self.module.set_group_if_different),
            ("mode", self.module.set_mode_if_different),
        ):
            value = self.module.params[option]
            # In check mode a volume that is not mounted yet cannot be asked for its root.
            if value is not None and (seen.mount is None or apply(self.wanted.mountpoint, value, False)):
                reasons.append(f"the volume's root directory has another {option} than {value}")
        return reasons

    def _facts(self, seen: volume.Observed) -> dict[str, t.Any]:
        used = None
        if seen.mount is not None:
            filesystem = os.statvfs(seen.mount.mountpoint)
            used = (filesystem.f_blocks - filesystem.f_bfree) * filesystem.f_frsize
        return {
            "name": self.wanted.name,
            "image": self.wanted.image,
            "device": seen.loops[0].name if seen.loops else None,
            "direct_io": seen.loops[0].direct_io if seen.loops else None,
            "mounted": seen.mount is not None,
            "mountpoint": seen.mount.mountpoint if seen.mount else self.wanted.mountpoint,
            "podman_volume": self.wanted.podman_volume if seen.podman_volume is not None else None,
            "fstype": seen.filesystem,
            "size": seen.image.size if seen.image else None,
            "used": used,
            "allocated": seen.image.allocated if seen.image else None,
        }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["present", "mounted", "unmounted", "absent"], "default": "present"},
            "size": {"type": "str"},
            "fstype": {"type": "str", "choices": ["ext4", "xfs"], "default": "ext4"},
            "image": {"type": "path"},
            "mountpoint": {"type": "path"},
            "podman_volume": {"type": "str"},
            "boot": {"type": "bool", "default": True},
            "owner": {"type": "str"},
            "group": {"type": "str"},
            "mode": {"type": "raw"},
            "mkfs_options": {"type": "list", "elements": "str", "default": []},
            "discard": {"type": "bool"},
            "reserve": {"type": "str", "choices": ["none", "full"], "default": "none"},
            "sector_size": {"type": "int", "choices": [512, 4096], "default": 512},
            "force": {"type": "bool", "default": False},
            "timeout": {"type": "int", "default": 300},
        },
        supports_check_mode=True,
    )
    try:
        result = ImageVolume(module).run()
    except HandoverError as exc:
        module.fail_json(msg=str(exc))
    except OSError as exc:
        module.fail_json(msg=f"{exc.filename or module.params['name']}: {exc.strerror or exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
