# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The facts about a guest of which a copy is taken: its definition, its disks and the files beside them, its checkpoints, and all that is at work on it."""

from __future__ import annotations

import os
import typing as t
from dataclasses import dataclass
from xml.etree import ElementTree

from ..._core.host import allocated
from ..._core.placement import STOPPED_GUEST
from ..guests import unfinished
from ..libvirt import Libvirt
from ..state import files

RUNNING, OFF = "running", "shut off"
# libvirt's word where nothing is at work.
NO_JOB = "None"


@dataclass(frozen=True)
class GuestDisk:
    """One drive of a guest, as it runs."""

    target: str
    device: str  # disk, cdrom, floppy, lun
    kind: str  # file, block, network, …
    path: str  # empty where it is no file
    format: str
    read_only: bool
    shareable: bool
    transient: bool
    encrypted: bool
    size: int = 0  # bytes that the file takes


@dataclass(frozen=True)
class GuestFacts:
    """One guest on its host."""

    name: str
    uuid: str
    state: str
    persistent: bool
    job: str
    moving: str  # the host that an unfinished move is to; empty without one
    has_agent: bool
    disks: tuple[GuestDisk, ...]
    files: tuple[tuple[str, str], ...]  # the firmware's variables and the TPM's state: kind and place
    root: ElementTree.Element  # the definition of the guest that runs
    definition: str  # as it is after its next start, secrets too
    autostart: bool
    checkpoints: t.Mapping[str, frozenset[str]]  # name → the disks that have it


def look(libvirt: Libvirt, name: str) -> GuestFacts:
    """Asks libvirt, and changes nothing."""
    info = pairs(libvirt.virsh("dominfo", "--domain", name))
    root = ElementTree.fromstring(libvirt.virsh("dumpxml", "--domain", name))
    targets = (target.get("name") for target in root.findall("devices/channel/target"))
    moves = [move for move in unfinished([name]) if move["workload"] == name]
    state = libvirt.state(name)
    return GuestFacts(
        name=name,
        uuid=root.findtext("uuid", ""),
        state=state,
        persistent=info.get("Persistent") == "yes",
        job="" if state in STOPPED_GUEST else job(libvirt, name),
        moving=str(moves[0]["destination"]) if moves else "",
        has_agent="org.qemu.guest_agent.0" in targets,
        disks=tuple(map(_disk, root.findall("devices/disk"))),
        files=tuple(files(root)),
        root=root,
        definition=libvirt.definition(name),
        autostart=info.get("Autostart") == "enable",
        checkpoints={each: checkpoint_disks(libvirt, name, each) for each in checkpoint_names(libvirt, name)},
    )


def job(libvirt: Libvirt, name: str) -> str:
    """The kind of job that libvirt is at, such as a migration or a backup; empty without one."""
    found = pairs(libvirt.virsh("domjobinfo", "--domain", name)).get("Job type", NO_JOB)
    return "" if found == NO_JOB else found


def checkpoint_names(libvirt: Libvirt, name: str) -> list[str]:
    return [line.strip() for line in libvirt.virsh("checkpoint-list", "--domain", name, "--name").splitlines() if line.strip()]


def checkpoint_disks(libvirt: Libvirt, name: str, checkpoint: str) -> frozenset[str]:
    """The disks that have a bitmap for it."""
    root = ElementTree.fromstring(libvirt.virsh("checkpoint-dumpxml", "--no-domain", name, checkpoint))
    return frozenset(disk.get("name", "") for disk in root.findall("disks/disk") if disk.get("checkpoint") == "bitmap")


def _disk(element: ElementTree.Element) -> GuestDisk:
    source, driver = element.find("source"), element.find("driver")
    path = "" if source is None else source.get("file", "")
    encrypted = element.find("encryption") is not None or (source is not None and source.find("encryption") is not None)
    return GuestDisk(
        target="" if (target := element.find("target")) is None else target.get("dev", ""),
        device=element.get("device", "disk"),
        kind=element.get("type", ""),
        path=path,
        format="raw" if driver is None else driver.get("type", "raw"),
        read_only=element.find("readonly") is not None,
        shareable=element.find("shareable") is not None,
        transient=element.find("transient") is not None,
        encrypted=encrypted,
        size=allocated(path) if path and os.path.exists(path) else 0,
    )


def pairs(text: str) -> dict[str, str]:
    lines = (line.partition(":") for line in text.splitlines() if ":" in line)
    return {name.strip(): value.strip() for name, _colon, value in lines}
