# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A KVM guest that is off goes back to a snapshot of its own: its images are written in place, and only what differs.

The images have another name from before the first write until everything is whole, the definition and the files beside the disks included. So libvirt cannot
start the guest on halves, whenever this is cut off. The names say how far it was, and the next run goes on from there.
"""

from __future__ import annotations

import os
import tempfile
import typing as t

from ..._core.backups import Backups
from ..._core.runtime import HandoverError
from ..files import lasting, remove, rename
from ..libvirt import Libvirt
from .disk_marks import marks_of, unusable
from .guest_checks import kept
from .guest_files import ARCHIVES, unpack
from .guest_look import GuestFacts
from .image_servers import ImageServers, address
from .restored_xml import Names, restored

# The end of an image's name while it is written.
AWAY = ".handover-rollback"


class GuestRollback:
    """Of one guest, to the snapshot of one record."""

    def __init__(self, libvirt: Libvirt, backups: Backups, record: t.Mapping[str, t.Any], now: GuestFacts | None = None) -> None:
        """With `now` the guest keeps the configuration that it has, and of the files beside its disks those come back that it has by that."""
        self.libvirt, self.backups, self.record, self.now = libvirt, backups, record, now
        self.configuration = backups.configuration(record["name"])
        # The images stay where they are, so their chains of backing files do, too.
        name = self.configuration["name"]
        self.names = Names(name, name, self.configuration["uuid"])
        self.definition = now.definition if now else restored(self.configuration["definition"], self.names, {})
        kinds = {each["kind"] for each in record["files"]}
        self.files: list[t.Mapping[str, str]] = [{"kind": kind, "path": path} for kind, path in now.files if kind in kinds] if now else list(record["files"])

    def place(self, drive: t.Mapping[str, t.Any]) -> str:
        """Where the image is now."""
        return drive["image"] + AWAY if os.path.lexists(drive["image"] + AWAY) else str(drive["image"])

    def is_half(self) -> bool:
        """Whether a rollback that was cut off has left an image away: it may be neither old nor new."""
        return any(self.place(drive) != drive["image"] for drive in self.record["drives"])

    def write(self) -> list[dict[str, t.Any]]:
        """Run again after a kill, or to another snapshot, it makes all whole. Returns of each disk how the clusters that differ were found."""
        half = self.is_half()
        try:
            self._put_away()
            done = self._write_disks()
        except BaseException as exc:
            if not half and not self._begun():
                self._bring_back()  # nothing was written
            if not isinstance(exc, HandoverError):
                raise
            raise HandoverError(f"{self.names.new} did not go back to {self.record['name']}: {exc}") from exc
        for each in self.files:
            self._put(each["kind"], each["path"])
        if self.now is None:
            self.libvirt.define(self.definition)
            self.libvirt.virsh("autostart", "--domain", self.names.new, *([] if self.configuration.get("autostart") else ["--disable"]))
        self._bring_back()
        return done

    def _put_away(self) -> None:
        for drive in self.record["drives"]:
            if self.place(drive) == drive["image"]:
                rename(drive["image"], drive["image"] + AWAY)
                lasting(drive["image"] + AWAY)

    def _begun(self) -> bool:
        """Whether a disk may have been written. Without an answer it may."""
        try:
            return any(each.get("restoring") for each in self.backups.store.all())
        except HandoverError:
            return True

    def _write_disks(self) -> list[dict[str, t.Any]]:
        servers = ImageServers(self.libvirt.runtime, self.names.uuid)
        drives = {drive["name"]: (self.place(drive), drive["format"]) for drive in self.record["drives"]}
        marks = marks_of(self.backups.store, self.backups.store.all())
        why = {name: unusable(self.libvirt.runtime, *drive, marks.get(name, "")) for name, drive in drives.items()}
        bitmaps = {name: marks[name] for name in drives if not why[name]}
        try:
            sockets = servers.begin(drives, write=True, bitmaps=bitmaps)
            volumes = [{"name": name, "image": address(socket, name, bitmaps.get(name, ""))} for name, socket in sockets.items()]
            done = self.backups.store.roll_back(self.record["name"], volumes)
        finally:
            servers.end()
        return [{**volume, "why": volume.get("why") or why[volume["volume"]]} for volume in done["volumes"]]

    def _put(self, kind: str, path: str) -> None:
        """A file or folder beside the disks takes the place of the one that is there, which the guest cannot start with meanwhile."""
        with tempfile.TemporaryDirectory(prefix="handover-") as folder:
            packed = os.path.join(folder, ARCHIVES[kind])
            self.backups.pcopy.events("snapshot", "export", "--file=" + ARCHIVES[kind], self.backups.store.folder, self.record["name"], packed)
            with open(packed, "rb") as source:
                content = source.read()
        remove(path + ".handover-new")
        if os.path.isdir(path):
            remove(path)
        unpack(content, path)
        lasting(path)

    def _bring_back(self) -> None:
        for drive in self.record["drives"]:
            if self.place(drive) != drive["image"]:
                rename(drive["image"] + AWAY, drive["image"])
                lasting(drive["image"])


def half_done(facts: GuestFacts) -> None:
    """An error where a rollback has not ended: the disks are those of no moment."""
    away = [disk.path for disk in kept(facts) if disk.path and os.path.lexists(disk.path + AWAY)]
    if away:
        raise HandoverError(f"a rollback of {facts.name} was begun, and has not ended ({away[0]}{AWAY}): run it again")
