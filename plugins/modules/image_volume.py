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

import contextlib
import errno
import fcntl
import os
import re
import stat
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._core import host, loop
from ..module_utils._core.runtime import HandoverError, Runtime
from ..module_utils._core.sizes import format_size, parse_size
from ..module_utils._podman import guard, volume
from ..module_utils._podman import volume_units as units
from ..module_utils._podman.podman import Podman

CAP_SYS_RESOURCE = 24
# How long the kernel may take to write out and let go of a loop device whose last user has gone.
DETACH_SECONDS = 30
SYSTEMD_RUNS = "/run/systemd/system"


class ImageVolume:
    """One image volume of this host."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.runtime = Runtime(module, module.params["timeout"])
        self.podman = Podman(self.runtime)
        self.wanted = self._wanted()
        self.options = ["noatime"] + (["discard"] if self._discard() else [])

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
        before = self._observe()
        plan = volume.decide(self.wanted, before)
        self._check_tools(plan)
        reasons = [step.reason for step in plan.steps]
        after = before
        if plan.steps and not self.module.check_mode:
            for step in plan.steps:
                getattr(self, "_" + step.action)()
            after = self._observe()
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

    # Looking

    def _observe(self) -> volume.Observed:
        wanted = self.wanted
        image = self._image_file()
        regular = image is not None and image.kind == "regular file"
        loops = self._loops() if regular else ()
        mounts, occupant = self._mounts(loops)
        leaving = wanted.state in ("unmounted", "absent")
        missing = tuple(tool for tool in volume.TOOLS[wanted.fstype] if self.runtime.find(tool) is None)
        filesystem = self._filesystem(loops) if regular else None
        filesystem_size = None
        if filesystem == wanted.fstype and not missing and not leaving:
            filesystem_size = self._filesystem_size(loops, mounts)
        podman = self.runtime.find("podman") is not None
        podman_volume = self._podman_volume() if podman and wanted.podman_volume else None
        return volume.Observed(
            image=image,
            filesystem=filesystem,
            filesystem_size=filesystem_size,
            loops=loops,
            loop_size=_device_size(loops[0].name) if loops else None,
            mounts=mounts,
            occupant=occupant,
            mountpoint=_directory_state(wanted.mountpoint),
            free=host.free_space(os.path.dirname(wanted.image)),
            openers=tuple(loop.openers([wanted.image] + [device.name for device in loops])) if regular else (),
            containers=self._containers_inside(mounts[0].device) if podman and mounts and leaving else (),
            referrers=self._containers_naming_it() if podman and podman_volume is not None and leaving else (),
            podman=podman,
            podman_volume=podman_volume,
            units=self._unit_state(),
            systemd=os.path.isdir(SYSTEMD_RUNS),
            missing_tools=() if leaving else missing,
            resize_capability=_has_capability(CAP_SYS_RESOURCE),
        )

    def _image_file(self) -> volume.ImageFile | None:
        try:
            status = os.lstat(self.wanted.image)
        except FileNotFoundError:
            return None
        return volume.ImageFile(size=status.st_size, allocated=status.st_blocks * 512, kind=_kind(status.st_mode))

    def _loops(self) -> tuple[loop.LoopDevice, ...]:
        backing = loop.backing_of(self.wanted.image)
        listed = self.runtime.run([self._losetup, "--list", "--json", "--output", loop.LOSETUP_COLUMNS]).stdout
        return tuple(device for device in loop.parse_losetup(listed) if device.backing == backing)

    def _mounts(self, loops: t.Sequence[loop.LoopDevice]) -> tuple[tuple[loop.Mount, ...], loop.Mount | None]:
        """Where the image is mounted, its own mount point first, and the mounts on top of that mount point."""
        numbers = {loop.major_minor(os.stat(device.name).st_rdev) for device in loops}
        everything = loop.read_mounts()
        mounts = [mount for mount in everything if mount.device in numbers]
        mounts.sort(key=lambda mount: mount.mountpoint != self.wanted.mountpoint)
        occupants = [mount for mount in everything if mount.mountpoint == self.wanted.mountpoint]
        return tuple(mounts), occupants[-1] if occupants else None

    def _filesystem(self, loops: t.Sequence[loop.LoopDevice]) -> str | None:
        target = loops[0].name if loops else self.wanted.image
        blkid = self.runtime.tool("blkid", "util-linux")
        # 2: nothing is recognised. 8: more than one thing is, so that none of them can be trusted.
        completed = self.runtime.run([blkid, "--probe", "--output", "value", "--match-tag", "TYPE", target], accept=(0, 2, 8))
        return completed.stdout.strip() or None

    def _filesystem_size(self, loops: t.Sequence[loop.LoopDevice], mounts: t.Sequence[loop.Mount]) -> int | None:
        device = loops[0].name if loops else self.wanted.image
        if self.wanted.fstype == "ext4":
            text = self.runtime.run([self._tool("dumpe2fs"), "-h", device]).stdout
            found = re.search(r"^Block count:\s+(\d+)$.*^Block size:\s+(\d+)$", text, re.MULTILINE | re.DOTALL)
        else:
            # A mounted XFS is asked itself: its device may lag behind.
            text = self.runtime.run([self._tool("xfs_info"), mounts[0].mountpoint if mounts else device]).stdout
            found = re.search(r"^data\s+=\s+bsize=(\d+)\s+blocks=(\d+)", text, re.MULTILINE)
        return int(found.group(1)) * int(found.group(2)) if found else None

    def _podman_volume(self) -> dict[str, str] | None:
        for found in self.podman.volumes():
            if found["Name"] == self.wanted.podman_volume:
                return found.get("Options") or {}
        return None

    def _containers_inside(self, device: str) -> tuple[str, ...]:
        """Running containers in whose mount namespace the volume is, however it came there."""
        return tuple(
            container["Names"][0]
            for container in self.podman.containers()
            if any(mount.device == device for mount in loop.read_mounts(pid=str(container["Pid"])))
        )

    def _containers_naming_it(self) -> tuple[str, ...]:
        listed = self.podman.run("ps", "--all", "--filter", f"volume={self.wanted.podman_volume}", "--format", "{{.Names}}")
        return tuple(listed.stdout.split())

    def _units(self) -> dict[str, str]:
        return units.volume_units(
            volume=self.wanted.name,
            image=self.wanted.image,
            mountpoint=self.wanted.mountpoint,
            fstype=self.wanted.fstype,
            options=self.options,
            losetup=self._losetup,
            sector_size=self.module.params["sector_size"],
        )

    def _unit_state(self) -> str:
        texts = self._units()
        found = units.installed(texts, units.UNIT_DIRECTORY)
        if not any(found.values()):
            return "missing"
        enabled = units.is_enabled(units.mount_unit_name(self.wanted.mountpoint), units.UNIT_DIRECTORY)
        return "current" if found == texts and enabled else "stale"

    # Acting: one method for each step that a plan can name

    def _create(self) -> None:
        """Formats a file under another name; only when it is complete does it get its own."""
        size = t.cast(int, self.wanted.size)
        directory = os.path.dirname(self.wanted.image)
        os.makedirs(directory, mode=0o700, exist_ok=True)
        with _draft(self.wanted.image + ".new") as (draft, descriptor):
            _truncate(descriptor, size, self.wanted.image)
            self._format(draft)
            if self.wanted.reserve == "full":
                _allocate(descriptor, size, self.wanted.image)
            os.fsync(descriptor)
            try:
                os.link(draft, self.wanted.image)
            except FileExistsError as exc:
                raise HandoverError(f"{self.wanted.image} was made by somebody else at the same time: run the task again") from exc
        _sync_directory(directory)

    def _format(self, path: str) -> None:
        more = self.module.params["mkfs_options"]
        if self.wanted.fstype == "xfs":
            sectors = ["-s", "size=4096"] if self.module.params["sector_size"] == 4096 else []
            self.runtime.run([self._tool("mkfs.xfs"), "-q", *sectors, *more, path])
            return
        # The new file reads as zeroes, which discard lets mke2fs rely on: it marks the inode tables as done without writing
        # them. Where it cannot, it writes them now. Either way the kernel has none to write in the background after the
        # mount, which would only be copied along when the volume moves. Blocks of 4 KiB also where the volume is small.
        extended = "lazy_itable_init=0,lazy_journal_init=1,discard"
        self.runtime.run([self._tool("mkfs.ext4"), "-q", "-F", "-b", "4096", "-E", extended, *more, path])
        # A new volume is empty: podman then fills it from the image, and programs such as initdb accept it.
        # e2fsck makes lost+found when it has something to put there.
        self.runtime.run([self._tool("debugfs"), "-w", "-R", "rmdir lost+found", path])

    def _grow_image(self) -> None:
        size = t.cast(int, self.wanted.size)
        with _open_image(self.wanted.image) as descriptor:
            _truncate(descriptor, size, self.wanted.image)
            if self.wanted.reserve == "full":
                _allocate(descriptor, size, self.wanted.image)
            os.fsync(descriptor)

    def _reserve(self) -> None:
        with _open_image(self.wanted.image) as descriptor:
            _allocate(descriptor, os.fstat(descriptor).st_size, self.wanted.image)
            os.fsync(descriptor)

    def _refresh_loop(self) -> None:
        for device in self._loops():
            self.runtime.run([self._losetup, "--set-capacity", device.name])

    def _grow_filesystem(self) -> None:
        loops = self._loops()
        mounts, _occupant = self._mounts(loops)
        target = loops[0].name if loops else self.wanted.image
        if self.wanted.fstype == "xfs":
            self.runtime.run([self._tool("xfs_growfs"), mounts[0].mountpoint])
            return
        if not mounts:
            # resize2fs insists on a check. 1: all faults have been repaired.
            self.runtime.run([self._tool("e2fsck"), "-f", "-p", target], accept=(0, 1))
        self.runtime.run([self._tool("resize2fs"), target])

    def _attach(self) -> None:
        sector_size = self.module.params["sector_size"]
        # Always said: kernels have different defaults, and the file system was made for this one.
        attach = [self._losetup, "--find", "--nooverlap", "--direct-io=on", "--sector-size", str(sector_size), self.wanted.image]
        completed = self.runtime.run(attach, accept=(0, 1))
        loops = self._loops()
        # Some versions of losetup call refused direct I/O a failure, and attach all the same.
        if not loops:
            raise HandoverError(f"{self.wanted.image} could not be attached to a loop device: {completed.last_words}")
        if not loops[0].direct_io:
            way_out = "" if sector_size == 4096 else "; sector_size=4096 may help"
            self.module.warn(
                f"{self.wanted.image} does without direct I/O, which the file system or the disk under it refuses: its data is cached twice{way_out}"
            )

    def _mount(self) -> None:
        mountpoint = self.wanted.mountpoint
        os.makedirs(mountpoint, exist_ok=True)
        guard.mark(mountpoint)
        device = self._loops()[0].name
        try:
            self.runtime.run([self.runtime.tool("mount", "util-linux"), "-t", self.wanted.fstype, "-o", ",".join(self.options), device, mountpoint])
        except HandoverError:
            self.runtime.run([self._losetup, "--detach", device], accept=(0, 1))
            raise
        # Of a device that is in use the kernel takes this as a wish for later: it goes with its last user, by any unmount.
        self.runtime.run([self._losetup, "--detach", device])

    def _unmount(self) -> None:
        umount = self.runtime.tool("umount", "util-linux")
        mounts, _occupant = self._mounts(self._loops())
        for mount in mounts:
            completed = self.runtime.run([umount, mount.mountpoint], accept=range(256))
            if completed.rc != 0:
                users = loop.users_of_mount(mount.mountpoint)
                reason = f"it is in use by {volume.listed(users)}: end that first" if users else completed.last_words
                raise HandoverError(f"{mount.mountpoint} could not be unmounted: {reason}")

    def _detach(self) -> None:
        numbers = {}
        for device in self._loops():
            numbers[device.name] = loop.major_minor(os.stat(device.name).st_rdev)
            # It may go at this very moment, after the unmount: the check below decides.
            self.runtime.run([self._losetup, "--detach", device.name], accept=(0, 1))
        if self.runtime.wait_for(lambda: not self._loops(), DETACH_SECONDS):
            return
        holders = loop.openers(list(numbers)) + [holder for number in numbers.values() for holder in loop.namespaces_that_see(number)]
        reason = (
            f", because it is in use by {volume.listed(holders)}: end that first"
            if holders
            else f" and nobody has it open: if its file system was frozen (fsfreeze -f), mount {next(iter(numbers), 'it')} again, thaw it there with "
            f"`fsfreeze -u`, and unmount it"
        )
        raise HandoverError(f"{self.wanted.image} is still attached to {volume.listed(numbers)} after the unmount{reason}")

    def _define_volume(self) -> None:
        options = ("--opt=type=none", "--opt=o=bind", f"--opt=device={self.wanted.mountpoint}")
        self.podman.run("volume", "create", *options, t.cast(str, self.wanted.podman_volume))

    def _undefine_volume(self) -> None:
        self.podman.run("volume", "rm", t.cast(str, self.wanted.podman_volume))

    def _write_units(self) -> None:
        for name, text in self._units().items():
            path = os.path.join(units.UNIT_DIRECTORY, name)
            # Written beside and moved into place: systemd may read at any time.
            with open(path + ".new", "w", encoding="utf-8") as target:
                target.write(text)
            os.chmod(path + ".new", 0o644)
            os.replace(path + ".new", path)
        # systemd reads all units again, and once is enough: on a busy host it takes a second.
        self._systemctl("enable", "--quiet", "--no-reload", units.mount_unit_name(self.wanted.mountpoint))
        self._systemctl("daemon-reload")

    def _remove_units(self) -> None:
        runs = os.path.isdir(SYSTEMD_RUNS)
        if runs:
            self._systemctl("disable", "--quiet", "--no-reload", units.mount_unit_name(self.wanted.mountpoint))
        for name in self._units():
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(units.UNIT_DIRECTORY, name))
        if runs:
            self._systemctl("daemon-reload")
            # If the volume was mounted at boot, this unit is still active. Only now that systemd has forgotten its task
            # and its dependants, ending it leaves the loop device and the mount alone. 5: it is not active.
            self._systemctl("stop", units.loop_unit_name(self.wanted.name), accept=(0, 5))

    def _delete(self) -> None:
        os.unlink(self.wanted.image)
        # Where it was the task's own choice, the folder stays, and may serve others.
        guard.unmark(self.wanted.mountpoint)

    def _remove_mountpoint(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.rmdir(self.wanted.mountpoint)

    # Tools

    @property
    def _losetup(self) -> str:
        # Debian has it in the package mount; elsewhere, and in Debian through a dependency, util-linux brings it.
        return self.runtime.tool("losetup", "util-linux")

    def _tool(self, name: str) -> str:
        return self.runtime.tool(name, volume.PACKAGES[self.wanted.fstype])

    def _systemctl(self, *arguments: str, accept: t.Container[int] = (0,)) -> None:
        self.runtime.run([self.runtime.tool("systemctl", "systemd"), *arguments], accept=accept)


def _kind(mode: int) -> str:
    for test, kind in (
        (stat.S_ISREG, "regular file"),
        (stat.S_ISDIR, "directory"),
        (stat.S_ISLNK, "symbolic link"),
        (stat.S_ISBLK, "block device"),
    ):
        if test(mode):
            return kind
    return "special file"


def _directory_state(path: str) -> str:
    try:
        return "full" if os.listdir(path) else "empty"
    except FileNotFoundError:
        return "missing"
    except NotADirectoryError:
        return "not a directory"


def _device_size(device: str) -> int:
    with open(f"/sys/class/block/{os.path.basename(device)}/size", encoding="ascii") as source:
        return int(source.read()) * 512


def _has_capability(number: int) -> bool:
    with open("/proc/self/status", encoding="ascii", errors="replace") as source:
        for line in source:
            if line.startswith("CapEff:"):
                return bool(int(line.split()[1], 16) >> number & 1)
    return False


@contextlib.contextmanager
def _draft(path: str) -> t.Iterator[tuple[str, int]]:
    """A new file, readable by root only, that is gone again at the end: a file that stays has another name by then.

    Its lock tells a run that is still at work from one that was killed and left its draft behind.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        _remove_stale_draft(path)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield path, descriptor
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        os.close(descriptor)


def _remove_stale_draft(path: str) -> None:
    with _open_image(path) as descriptor:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            raise HandoverError(f"{path} is being made by another run at this moment: wait for it") from exc
        os.unlink(path)


@contextlib.contextmanager
def _open_image(path: str) -> t.Iterator[int]:
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _truncate(descriptor: int, size: int, path: str) -> None:
    try:
        os.ftruncate(descriptor, size)
    except OSError as exc:
        if exc.errno != errno.EFBIG:
            raise
        raise HandoverError(f"{path} cannot have {format_size(size)}: the file system that holds it has no files of that size") from exc


def _allocate(descriptor: int, size: int, path: str) -> None:
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError as exc:
        if exc.errno != errno.ENOSPC:
            raise
        raise HandoverError(f"{path} could not be reserved in full ({format_size(size)}): the disk is full; free some, or take reserve=none") from exc


def _sync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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
