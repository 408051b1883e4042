# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What stands in the way of a guest's backup or snapshot, and what is no part of it: tables of sentences."""

from __future__ import annotations

import os
import typing as t
from dataclasses import dataclass

from ..._core.runtime import HandoverError
from .guest_look import OFF, RUNNING, GuestDisk, GuestFacts

FORMATS = ("qcow2", "raw")
# Drives with a medium that can be taken out: nothing of the guest's own is on it.
REMOVABLE = ("cdrom", "floppy")

STATE = "it is not running but '{0}', and only QEMU can tell its disks at one moment: start or resume it"

Check = t.Callable[[GuestFacts], t.Optional[str]]
DiskCheck = t.Callable[[GuestDisk], t.Optional[str]]


@dataclass(frozen=True)
class Kind:
    """What is taken of a guest."""

    noun: str
    refused: str
    states: tuple[str, ...]  # in which it can be


BACKUP = Kind("backup", "cannot be backed up", (RUNNING,))
# A snapshot of a guest that is off is asked for by a person, who knows that it is.
SNAPSHOT = Kind("snapshot", "cannot have a snapshot taken", (RUNNING, OFF))


def demand(facts: GuestFacts, kind: Kind = BACKUP) -> None:
    """An error with all that is in the way."""
    found = [] if facts.state in kind.states else [STATE.format(facts.state)]
    found += [sentence for check in CHECKS if (sentence := check(facts))]
    found += [f"its disk {disk.target} {reason}" for disk in kept(facts) for check in DISK_CHECKS if (reason := check(disk))]
    if found:
        raise HandoverError(f"{facts.name} {kind.refused}: " + "; ".join(found))


def kept(facts: GuestFacts) -> list[GuestDisk]:
    """The disks that a backup has."""
    return [disk for disk in facts.disks if disk.device not in REMOVABLE and not disk.read_only]


def left_out(facts: GuestFacts) -> list[str]:
    """The parts that may hold something, and that no backup has."""
    disks = [
        f"the {'medium in ' + disk.target if disk.device in REMOVABLE else 'read-only disk ' + disk.target} ({disk.path or disk.kind})"
        for disk in facts.disks
        if (disk.device in REMOVABLE or disk.read_only) and (disk.path or disk.kind != "file")
    ]
    return disks + [sentence for path, sentence in OUTSIDE if facts.root.find(path) is not None]


def _persistent(facts: GuestFacts) -> str | None:
    return None if facts.persistent else "libvirt forgets its definition when it ends, and keeps no checkpoint of it: define it (`virsh define`)"


def _moving(facts: GuestFacts) -> str | None:
    return f"a move of it to {facts.moving} has not ended: wait for it, or end it with kvm_migrate_state=cancelled" if facts.moving else None


def _job(facts: GuestFacts) -> str | None:
    if not facts.job:
        return None
    return f"libvirt is at another job on it ({facts.job.lower()}), such as a move or a backup: wait until that has ended (`virsh domjobinfo {facts.name}`)"


def _disks(facts: GuestFacts) -> str | None:
    return None if kept(facts) else "it has no disk of its own to back up"


def missing_files(facts: GuestFacts) -> str | None:
    """Of the firmware's variables and the TPM."""
    gone = [path for _kind, path in facts.files if not os.path.exists(path)]
    return f"{', '.join(gone)} is missing, which its definition names: mend that first" if gone else None


def _nvram(facts: GuestFacts) -> str | None:
    nvram = facts.root.find("os/nvram")
    if nvram is None or nvram.get("type", "file") == "file":
        return None
    return f"the variables of its firmware are no file but '{nvram.get('type')}', and would be left out: give it a file"


def _tpm(facts: GuestFacts) -> str | None:
    backend = facts.root.find("devices/tpm/backend")
    if backend is None or backend.get("type") in ("emulator", "passthrough"):
        return None
    return f"the state of its TPM is kept by another program (backend '{backend.get('type')}'), and would be left out: have libvirt emulate it"


CHECKS: tuple[Check, ...] = (_persistent, _moving, _job, _disks, missing_files, _nvram, _tpm)


def _is_file(disk: GuestDisk) -> str | None:
    if disk.kind == "file" and disk.path and disk.device == "disk":
        return None
    return f"is of type '{disk.kind if disk.device == 'disk' else disk.device}', and only image files can be restored: back it up where it is kept"


def _format(disk: GuestDisk) -> str | None:
    return None if disk.format in FORMATS else f"has the format {disk.format}: convert it to qcow2 (`qemu-img convert`)"


def _alone(disk: GuestDisk) -> str | None:
    return "may be written by other guests, too (<shareable/>), and no moment of theirs is known" if disk.shareable else None


def _lasting(disk: GuestDisk) -> str | None:
    return "is thrown away when the guest ends (<transient/>): nothing of it is to be kept" if disk.transient else None


def _open(disk: GuestDisk) -> str | None:
    return "is encrypted, and its backup would not be: encrypt it in the guest, and the repository" if disk.encrypted else None


DISK_CHECKS: tuple[DiskCheck, ...] = (_is_file, _format, _alone, _lasting, _open)

# Parts of a guest that are outside of its disks.
OUTSIDE = (
    ("devices/filesystem", "the folders of the host that it mounts (<filesystem>)"),
    ("devices/hostdev", "the devices of the host that it has (<hostdev>), with all that is on them"),
    ("devices/memory[@model='nvdimm']", "its non-volatile memory (<memory model='nvdimm'>)"),
    ("devices/memory[@model='virtio-pmem']", "its non-volatile memory (<memory model='virtio-pmem'>)"),
    ("devices/tpm/backend[@type='passthrough']", "the TPM of the host"),
)
