# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The disks of a guest's snapshot or backup, mounted read-only so that files can be copied out: each partition with a file system in a place of its own.

A disk is a sparse file, as a container's volume is, and each partition a loop device on a part of it. So neither nbd nor a partition's node is needed. A
partition that the kernel does not mount has a note with its words, and is not tried again until it is unmounted.
"""

from __future__ import annotations

import os
import typing as t
from dataclasses import dataclass
from xml.etree import ElementTree

from ..._core.runtime import Runtime
from ..._core.snapshot_mounts import NotMounted, SnapshotMounts
from ..partitions import SECTOR, Area, look

WAY_OUT = "What is not mounted can be read in another guest that is made of it (playbook clone), or by guestmount."


@dataclass(frozen=True)
class GuestMounts:
    """Of one snapshot."""

    runtime: Runtime
    mounts: SnapshotMounts
    name: str
    targets: t.Sequence[str]
    definition: str

    def missing(self) -> list[str]:
        """What can be mounted and is not, as far as it is known: of a disk that is not written yet the partitions are not."""
        unwritten, there = self.unwritten(), self.mounts.places(self.name)
        rest = [area.name for area in self._areas() if area.name not in there and not area.obstacle and not self._noted(area)]
        return [*unwritten, *rest]

    def unwritten(self) -> list[str]:
        """Disks that have no file here."""
        return [target for target in self.targets if not os.path.exists(self._image(target))]

    def mount(self, write: t.Callable[[str, str], None]) -> None:
        """`write` lays a disk as a new file, whole or not at all."""
        os.makedirs(self.mounts.folder(self.name), mode=0o700, exist_ok=True)
        for target in self.unwritten():
            write(target, self._image(target))
        there = self.mounts.places(self.name)
        for target in self.targets:
            for area in self._look(target):
                if area.name not in there and not area.obstacle and not self._noted(area):
                    self._attach(target, area)

    def told(self) -> list[str]:
        """A sentence for each part that is not mounted, and the way out."""
        found = [sentence for area in self._areas() if (sentence := area.obstacle or self._noted(area))]
        return [*found, WAY_OUT] if found else []

    def _attach(self, target: str, area: Area) -> None:
        place = os.path.join(self.mounts.folder(self.name), area.name)
        os.makedirs(place, mode=0o700, exist_ok=True)
        try:
            self.mounts.attach(self.runtime, self._image(target), place, area.type, area.within)
        except NotMounted as exc:
            os.rmdir(place)
            with open(self._note(area), "w", encoding="utf-8") as note:
                note.write(f"{area.name} has {area.type}, and this host does not mount it: {exc.words}")

    def _areas(self) -> list[Area]:
        return [area for target in self.targets if os.path.exists(self._image(target)) for area in self._look(target)]

    def _look(self, target: str) -> list[Area]:
        return look(self.runtime, self._image(target), target, self._sector(target))

    def _image(self, target: str) -> str:
        return self.mounts.image(self.name, target)

    def _note(self, area: Area) -> str:
        return os.path.join(self.mounts.folder(self.name), area.name + ".why")

    def _noted(self, area: Area) -> str:
        try:
            with open(self._note(area), encoding="utf-8") as note:
                return note.read()
        except FileNotFoundError:
            return ""

    def _sector(self, target: str) -> int:
        """The size of a sector, as the guest sees it."""
        for disk in ElementTree.fromstring(self.definition).findall("devices/disk"):
            size = disk.find("blockio[@logical_block_size]")
            if size is not None and (named := disk.find("target")) is not None and named.get("dev") == target:
                return int(size.get("logical_block_size", SECTOR))
        return SECTOR
