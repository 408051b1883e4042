# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A backup as libvirt is asked for it: the disks that it serves, the checkpoint that they are compared with, and the one that is made at that moment.

A checkpoint is a bitmap in each qcow2 image of all that was written since. Each store of backups has a checkpoint of its own, the one of its latest backup.
Raw images have none, so of these everything is read and compared with digests.
"""

from __future__ import annotations

import hashlib
import secrets
import typing as t
from dataclasses import dataclass, replace
from xml.etree import ElementTree

from .guest_look import GuestDisk

PREFIX = "handover-"
NO_BITMAP = "an image of the format {0} keeps no list of what was written"
NOT_ASKED = "no checkpoint was to be kept between two backups"
NO_CHECKPOINT = "the backup before has left no checkpoint"
LOST = "libvirt has lost the checkpoint of the backup before ({0})"
NOT_ITS = "the checkpoint of the backup before ({0}) is not of this disk"


@dataclass(frozen=True)
class DiskPlan:
    """One disk of a backup."""

    disk: GuestDisk
    since: str  # the checkpoint that it is compared with; empty: everything is read
    why: str  # everything is read
    keeps: bool  # it gets a checkpoint

    @property
    def bitmap(self) -> str:
        """The bitmap's name on the wire."""
        return f"{PREFIX}{self.disk.target}" if self.since else ""

    @property
    def scratch(self) -> str:
        """Where QEMU keeps what the guest overwrites meanwhile."""
        return f"{self.disk.path}.{PREFIX}backup"


def own(store: str) -> str:
    """How the checkpoints of a store begin."""
    return f"{PREFIX}{hashlib.sha256(store.encode()).hexdigest()[:8]}-"


def new_name(store: str) -> str:
    return own(store) + secrets.token_hex(6)


def plan(
    disks: t.Sequence[GuestDisk],
    marks: t.Mapping[str, str],
    checkpoints: t.Mapping[str, t.Container[str]],
    track: bool,
) -> list[DiskPlan]:
    """`marks` are the checkpoints of the latest backup, by disk; none where there is no backup. `checkpoints` are those that libvirt has."""
    return [_plan_disk(disk, marks.get(disk.target), checkpoints, track) for disk in disks]


def _plan_disk(disk: GuestDisk, mark: str | None, checkpoints: t.Mapping[str, t.Container[str]], track: bool) -> DiskPlan:
    keeps = track and disk.format == "qcow2"
    why = ""
    if disk.format != "qcow2":
        why = NO_BITMAP.format(disk.format)
    elif not track:
        why = NOT_ASKED
    elif not mark:
        why = NO_CHECKPOINT
    elif mark not in checkpoints:
        why = LOST.format(mark)
    elif disk.target not in checkpoints[mark]:
        why = NOT_ITS.format(mark)
    return DiskPlan(disk, "" if why else t.cast(str, mark), why, keeps)


def without(each: DiskPlan, why: str) -> DiskPlan:
    """The plan of a disk whose checkpoint cannot be used."""
    return replace(each, since="", why=why) if each.since else each


def pull_xml(plans: t.Sequence[DiskPlan], everything: t.Iterable[str], socket: str) -> str:
    """QEMU serves the disks. `everything` are the targets of all drives of the guest."""
    root = ElementTree.Element("domainbackup", mode="pull")
    ElementTree.SubElement(root, "server", transport="unix", socket=socket)
    for each, disk in _disks(root, plans, everything):
        disk.set("exportname", each.disk.target)
        if each.since:
            disk.set("exportbitmap", each.bitmap)
        ElementTree.SubElement(disk, "scratch", file=each.scratch)
    return ElementTree.tostring(root, encoding="unicode")


def push_xml(plans: t.Sequence[DiskPlan], everything: t.Iterable[str], images: t.Mapping[str, str]) -> str:
    """QEMU writes each disk into the image that is there for it."""
    root = ElementTree.Element("domainbackup", mode="push")
    for each, disk in _disks(root, plans, everything):
        ElementTree.SubElement(disk, "driver", type="qcow2")
        ElementTree.SubElement(disk, "target", file=images[each.disk.target])
    return ElementTree.tostring(root, encoding="unicode")


def _disks(root: ElementTree.Element, plans: t.Sequence[DiskPlan], everything: t.Iterable[str]) -> t.Iterator[tuple[DiskPlan, ElementTree.Element]]:
    """The element of each disk that is taken. The others are named, too: libvirt takes all that are not."""
    disks = ElementTree.SubElement(root, "disks")
    planned = {each.disk.target: each for each in plans}
    for target in everything:
        each = planned.get(target)
        if each is None:
            ElementTree.SubElement(disks, "disk", name=target, backup="no")
            continue
        disk = ElementTree.SubElement(disks, "disk", name=target, backup="yes", type="file")
        if each.since:
            disk.attrib.update(backupmode="incremental", incremental=each.since)
        else:
            disk.set("backupmode", "full")
        yield each, disk


def checkpoint_xml(plans: t.Sequence[DiskPlan], everything: t.Iterable[str], name: str, store: str) -> str:
    """Empty where no disk gets one."""
    keeping = {each.disk.target for each in plans if each.keeps}
    if not keeping:
        return ""
    root = ElementTree.Element("domaincheckpoint")
    ElementTree.SubElement(root, "name").text = name
    ElementTree.SubElement(root, "description").text = f"The latest backup in {store}"
    disks = ElementTree.SubElement(root, "disks")
    for target in everything:
        ElementTree.SubElement(disks, "disk", name=target, checkpoint="bitmap" if target in keeping else "no")
    return ElementTree.tostring(root, encoding="unicode")
