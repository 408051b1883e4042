# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The moment of a guest's backup: libvirt begins to serve its disks as they are then, and with the same step makes the checkpoint for the next one."""

from __future__ import annotations

import contextlib
import datetime
import glob
import os
import tempfile
import time
import typing as t

from ..._core.runtime import HandoverError, Runtime
from ..libvirt import Libvirt
from . import backup_xml, guest_look
from .backup_xml import DiskPlan
from .freeze import Freeze
from .guest_look import GuestFacts

# Of each guest that runs, a folder that QEMU may write to: <id>-<name>.
FOLDERS = "/var/lib/libvirt/qemu/domain-"
SOCKET = "handover-backup.sock"
# Of each guest whose disks QEMU writes itself, a name of the folder that it writes them into, which lies where QEMU could not reach it.
PUSHED = "/run/handover-push"
# libvirt takes its time to remove the files of a job.
ENDS_WITHIN, PAUSE = 60.0, 0.2
BEGINS_WITHIN = 60.0


class NotBegun(HandoverError):
    """libvirt refuses; the text is its own last sentence."""

    def is_of_a_checkpoint(self) -> bool:
        """Whether it is a bitmap that is broken or missing, as after a crash of QEMU."""
        return any(word in str(self).lower() for word in ("bitmap", "checkpoint"))


class GuestMoment:
    """Of one guest, and one store."""

    # The helper's word for the way in which it has the disks.
    verb = "pull"
    # Further words for libvirt.
    words: tuple[str, ...] = ()

    def __init__(self, runtime: Runtime, libvirt: Libvirt, facts: GuestFacts, store: str) -> None:
        self.runtime, self.libvirt, self.facts, self.store = runtime, libvirt, facts, store
        self.checkpoint = ""
        self.plans: list[DiskPlan] = []
        self.taken = ""
        self.frozen_ms = 0.0
        self.socket = ""

    def begin(self, plans: t.Sequence[DiskPlan], freeze: Freeze | None) -> None:
        """Sets the moment. Where a checkpoint cannot be used, everything is to be read."""
        self.plans = list(plans)
        self.checkpoint = backup_xml.new_name(self.store) if any(each.keeps for each in plans) else ""
        self._prepare()
        if freeze is None:
            self._begin(BEGINS_WITHIN)
        else:
            self.frozen_ms = freeze.around(self._begin)

    def _prepare(self) -> None:
        """What a run that was killed has left goes: no job is at work."""
        self.socket = os.path.join(folder_of(self.libvirt, self.facts.name), SOCKET)
        self._clear()

    def _clear(self) -> None:
        for path in [self.socket, *(each.scratch for each in self.plans)]:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)

    def _asked(self, targets: t.Sequence[str]) -> str:
        return backup_xml.pull_xml(self.plans, targets, self.socket)

    def _begin(self, seconds: float) -> None:
        targets = [disk.target for disk in self.facts.disks]
        with tempfile.TemporaryDirectory(prefix="handover-") as folder:
            words = [*self.libvirt.command, "backup-begin", "--domain", self.facts.name, *self.words]
            words += ["--backupxml", _put(folder, "backup", self._asked(targets))]
            text = backup_xml.checkpoint_xml(self.plans, targets, self.checkpoint, self.store)
            if text:
                words += ["--checkpointxml", _put(folder, "checkpoint", text)]
            done = self.runtime.run(words, accept=range(256), timeout=seconds)
            if done.rc:
                raise NotBegun(f"libvirt does not begin a backup of {self.facts.name}: {done.last_words}")
        self.taken = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    def complete(self) -> None:
        """Returns when the helper can have the disks."""

    def disks(self) -> list[dict[str, t.Any]]:
        """The disks as the helper is to read them."""
        return [
            {
                "name": each.disk.target,
                "socket": self.socket,
                "export": each.disk.target,
                "bitmap": each.bitmap,
                "since": each.since,
                "why": each.why,
                "checkpoint": self.checkpoint if each.keeps else "",
            }
            for each in self.plans
        ]

    def end(self) -> None:
        """Has libvirt serve them no more."""
        end(self.libvirt, self.facts.name)
        self._clear()

    def keep_only(self, wanted: str) -> list[str]:
        """Removes the other checkpoints of this store. What a later one needs of a bitmap, libvirt adds to the one before. Returns those that stay."""
        return remove_checkpoints(self.libvirt, self.facts.name, self.store, {wanted})

    def forget(self, names: t.Iterable[str]) -> None:
        """Checkpoints whose bitmaps are lost or broken are no use to anything."""
        for name in names:
            self.libvirt.virsh("checkpoint-delete", "--domain", self.facts.name, name, "--metadata", accept=range(256))


def folder_of(libvirt: Libvirt, name: str) -> str:
    """The folder in which QEMU can make a socket."""
    number = libvirt.virsh("domid", "--domain", name).strip()
    folders = glob.glob(f"{FOLDERS}{glob.escape(number)}-*")
    if len(folders) != 1:
        raise HandoverError(f"libvirt has no folder {FOLDERS}{number}-… in which QEMU could serve the disks of {name}: is it a guest of the system?")
    return folders[0]


def remove_checkpoints(libvirt: Libvirt, guest: str, store: str, wanted: t.Container[str]) -> list[str]:
    """Those of one store, but for the wanted ones. Returns those that stay all the same."""
    stay = []
    for name in guest_look.checkpoint_names(libvirt, guest):
        if name in wanted or not name.startswith(backup_xml.own(store)):
            continue
        try:
            libvirt.virsh("checkpoint-delete", "--domain", guest, name)
        except HandoverError:
            stay.append(name)
    return stay


def is_ours(libvirt: Libvirt, name: str) -> bool:
    """Whether the backup that libvirt is at was begun here. Another program's is none of ours to end."""
    said = libvirt.virsh("backup-dumpxml", "--domain", name, accept=range(256))
    return f"/{SOCKET}" in said or f"{PUSHED}/" in said


def end(libvirt: Libvirt, name: str) -> None:
    """Ends a backup that was begun here, if there is one."""
    until = time.monotonic() + ENDS_WITHIN
    asked = False
    while is_ours(libvirt, name):
        if time.monotonic() > until:
            raise HandoverError(f"libvirt does not end the backup of {name}: try `virsh domjobabort {name}`")
        if not asked:
            libvirt.virsh("domjobabort", "--domain", name, accept=range(256))
            asked = True
        time.sleep(PAUSE)


def _put(folder: str, name: str, text: str) -> str:
    path = os.path.join(folder, name + ".xml")
    with open(path, "w", encoding="utf-8") as target:
        target.write(text)
    return path
