# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The present state of an image volume on this host: its file, its loop devices, its mounts, its podman volume, its units."""

from __future__ import annotations

import os
import re
import typing as t
from dataclasses import dataclass

from .._core import host, loop
from .._core.runtime import Runtime
from . import volume, volume_files as files, volume_units as units
from .podman import Podman

CAP_SYS_RESOURCE = 24
# The helper puts it in the place of the first page until a disk is whole (package store).
ROLLBACK_BEGUN = b"handover: a rollback of this disk was begun"
# The ends of an image's name while a rollback has it away: until the container's own layer fits its disks, or until a whole copy has its place.
HELD, ASIDE = ".handover-held", ".before-rollback"


@dataclass(frozen=True)
class VolumeObserver:
    """Looks at one image volume, and changes nothing."""

    runtime: Runtime
    podman: Podman
    wanted: volume.Wanted
    options: tuple[str, ...]  # of the mount
    sector_size: int

    def observe(self) -> volume.Observed:
        """All that a plan is made from."""
        wanted = self.wanted
        image = self._image_file()
        regular = image is not None and image.kind == "regular file"
        loops = self.loops() if regular else ()
        mounts, occupant = self.mounts(loops)
        leaving = wanted.state in ("unmounted", "absent")
        missing = tuple(tool for tool in volume.TOOLS[wanted.fstype] if self.runtime.find(tool) is None)
        filesystem = self._filesystem(loops) if regular else None
        filesystem_size = None
        if filesystem == wanted.fstype and not missing and not leaving:
            filesystem_size = self._filesystem_size(loops, mounts)
        podman = self.runtime.find("podman") is not None
        podman_volume = self._podman_volume() if podman and wanted.podman_volume else None
        away = tuple(wanted.image + end for end in (HELD, ASIDE) if os.path.lexists(wanted.image + end))
        return volume.Observed(
            image=image,
            away=away,
            filesystem=filesystem,
            rolled_back=regular and files.begins_with(wanted.image, ROLLBACK_BEGUN),
            filesystem_size=filesystem_size,
            loops=loops,
            loop_size=files.device_size(loops[0].name) if loops else None,
            mounts=mounts,
            occupant=occupant,
            mountpoint=files.directory_state(wanted.mountpoint),
            free=host.free_space(os.path.dirname(wanted.image)),
            openers=tuple(loop.openers([*([wanted.image] if regular else []), *away, *(device.name for device in loops)])) if regular or away else (),
            containers=self._containers_inside(mounts[0].device) if podman and mounts and leaving else (),
            referrers=self._containers_naming_it() if podman and podman_volume is not None and leaving else (),
            podman=podman,
            podman_volume=podman_volume,
            units=self._unit_state(),
            systemd=os.path.isdir(units.SYSTEMD_RUNS),
            missing_tools=() if leaving else missing,
            resize_capability=_has_capability(CAP_SYS_RESOURCE),
        )

    def _image_file(self) -> volume.ImageFile | None:
        try:
            status = os.lstat(self.wanted.image)
        except FileNotFoundError:
            return None
        return volume.ImageFile(size=status.st_size, allocated=status.st_blocks * 512, kind=files.kind(status.st_mode))

    def loops(self) -> tuple[loop.LoopDevice, ...]:
        """The loop devices that have the image."""
        backing = loop.backing_of(self.wanted.image)
        listed = self.runtime.run([self.losetup, "--list", "--json", "--output", loop.LOSETUP_COLUMNS]).stdout
        return tuple(device for device in loop.parse_losetup(listed) if device.backing == backing)

    def mounts(self, loops: t.Sequence[loop.LoopDevice]) -> tuple[tuple[loop.Mount, ...], loop.Mount | None]:
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
            text = self.runtime.run([self.tool("dumpe2fs"), "-h", device]).stdout
            found = re.search(r"^Block count:\s+(\d+)$.*^Block size:\s+(\d+)$", text, re.MULTILINE | re.DOTALL)
        else:
            # A mounted XFS is asked itself: its device may lag behind.
            text = self.runtime.run([self.tool("xfs_info"), mounts[0].mountpoint if mounts else device]).stdout
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

    def unit_files(self) -> dict[str, str]:
        """The units that attach and mount the volume at boot: name → text."""
        return units.volume_units(
            volume=self.wanted.name,
            image=self.wanted.image,
            mountpoint=self.wanted.mountpoint,
            fstype=self.wanted.fstype,
            options=self.options,
            losetup=self.losetup,
            sector_size=self.sector_size,
        )

    def _unit_state(self) -> str:
        texts = self.unit_files()
        found = units.installed(texts, units.UNIT_DIRECTORY)
        if not any(found.values()):
            return "missing"
        enabled = units.is_enabled(units.mount_unit_name(self.wanted.mountpoint), units.UNIT_DIRECTORY)
        return "current" if found == texts and enabled else "stale"

    @property
    def losetup(self) -> str:
        """The path of losetup."""
        # Debian has it in the package mount; elsewhere, and in Debian through a dependency, util-linux brings it.
        return self.runtime.tool("losetup", "util-linux")

    def tool(self, name: str) -> str:
        """The path of a tool of the file system."""
        return self.runtime.tool(name, volume.PACKAGES[self.wanted.fstype])


def _has_capability(number: int) -> bool:
    with open("/proc/self/status", encoding="ascii", errors="replace") as source:
        for line in source:
            if line.startswith("CapEff:"):
                return bool(int(line.split()[1], 16) >> number & 1)
    return False
