# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The moment of a guest whose disks QEMU itself writes into the store's folder, by libvirt's push mode.

Nothing is served, and nothing is kept beside the images. The store is root's alone. So QEMU gets the one folder with its targets under another name, by a bind
mount, which reaches it in its own namespace. libvirt makes the targets QEMU's while the job is at work.
"""

from __future__ import annotations

import json
import os
import shutil
import time
import typing as t

from ..._core import host
from ..._core.disk_store import DiskStore
from ..._core.runtime import HandoverError, Runtime
from ..._core.sizes import format_size
from ..libvirt import Libvirt
from . import backup_xml, guest_moment
from .backup_xml import DiskPlan
from .freeze import Freeze, NotThawedError
from .guest_look import OFF, GuestFacts, pairs
from .guest_moment import GuestMoment, is_ours

# The folder in a store, as the helper makes it.
FOLDER = "push"
# Between two questions; the first ones come sooner.
LEAST_PAUSE, MOST_PAUSE = 0.1, 2.0
# libvirt may be started anew meanwhile, and goes on with the job.
PATIENCE = 60.0
COMPLETED = "Completed"
OPERATION = "Backup"
# What libvirt says of a job that it does not know any more.
UNKNOWN = ("", "None")
# How virsh calls a guest that QEMU has stopped, as a write failed.
STOPPED = "paused (I/O error)"


class PushMoment(GuestMoment):
    """Of one guest, and one store of this host."""

    verb = "push"
    # The helper has made the images.
    words = ("--reuse-external",)

    def __init__(self, runtime: Runtime, libvirt: Libvirt, facts: GuestFacts, store: DiskStore) -> None:
        super().__init__(runtime, libvirt, facts, store.folder)
        self.keeper = store
        self.folder = os.path.join(store.folder, FOLDER)
        self.name = name_of(facts.uuid)
        self.sizes: dict[str, int] = {}

    def begin(self, plans: t.Sequence[DiskPlan], freeze: Freeze | None) -> None:
        """The store says of which disks it can use what was written since the checkpoint."""
        self.plans = list(plans)
        self._clear()
        self.sizes = {each.disk.target: self._size(each.disk.target) for each in plans}
        request = json.dumps({"store": self.store, "disks": self.disks()})
        made = {each["name"]: each.get("why", "") for each in self.keeper.pcopy.call("snapshot", "push", "--targets", "--json", "-", stdin=request)["targets"]}
        try:
            super().begin([backup_xml.without(each, why) if (why := made[each.disk.target]) else each for each in plans], freeze)
        except NotThawedError:
            # A guest that QEMU has stopped, for a store that is full, answers nothing. The job's end says the reason.
            if _stands(self.libvirt, self.facts.name):
                self.complete()
            raise

    def _prepare(self) -> None:
        os.makedirs(guest_moment.PUSHED, mode=0o711, exist_ok=True)
        os.chmod(guest_moment.PUSHED, 0o711)
        os.makedirs(self.name, mode=0o711, exist_ok=True)
        self.runtime.run([self.runtime.tool("mount", "mount"), "--bind", self.folder, self.name])
        # The end of an earlier job is not that of this one.
        self._told()

    def _clear(self) -> None:
        clear(self.runtime, self.facts.uuid, self.store)

    def _asked(self, targets: t.Sequence[str]) -> str:
        return backup_xml.push_xml(self.plans, targets, {each.disk.target: os.path.join(self.name, f"{each.disk.target}.qcow2") for each in self.plans})

    def _size(self, target: str) -> int:
        """Of the disk as the guest sees it."""
        return int(pairs(self.libvirt.virsh("domblkinfo", "--domain", self.facts.name, "--device", target))["Capacity"])

    def complete(self) -> None:
        """Waits until QEMU has written everything. libvirt's word for that is needed: an image that is half there looks like a whole one."""
        guest, pause, lost = self.facts.name, LEAST_PAUSE, 0.0
        while True:
            if is_ours(self.libvirt, guest):
                lost = 0.0
            else:
                ended, why = self._told()
                if ended == COMPLETED:
                    return
                if ended not in UNKNOWN:
                    why = why or f"libvirt has the job as {ended.lower()}"
                    raise HandoverError(f"QEMU did not write the disks of {guest}: {why} ({format_size(host.free_space(self.store))} is free in {self.store})")
                lost = lost or time.monotonic()
                if self._has_ended() or time.monotonic() - lost > PATIENCE:
                    log = f"/var/log/libvirt/qemu/{guest}.log"
                    raise HandoverError(f"libvirt does not say that QEMU has written all disks of {guest}: see {log}, and take it again")
            if self.runtime.remaining() < 2 * MOST_PAUSE:
                raise HandoverError(f"QEMU did not write the disks of {guest} within the time: raise the timeout, or have the disks pulled")
            time.sleep(pause)
            pause = min(2 * pause, MOST_PAUSE)

    def _told(self) -> tuple[str, str]:
        """How the job has ended of which libvirt has not told yet, and why. Only a backup's success counts: another job may have ended since."""
        told = pairs(self.libvirt.virsh("domjobinfo", "--domain", self.facts.name, "--completed", accept=range(256)))
        ended = told.get("Job type", "")
        if ended == COMPLETED and told.get("Operation") != OPERATION:
            return "", ""
        return ended, told.get("Error message", "")

    def _has_ended(self) -> bool:
        """Whether the guest has, and QEMU with it."""
        return self.libvirt.virsh("domstate", "--domain", self.facts.name, accept=range(256)).strip() == OFF

    def disks(self) -> list[dict[str, t.Any]]:
        """The disks as the helper is to take them."""
        return [
            {
                "name": each.disk.target,
                "size": self.sizes[each.disk.target],
                "since": each.since,
                "why": each.why,
                "checkpoint": self.checkpoint if each.keeps else "",
            }
            for each in self.plans
        ]


def go_on(libvirt: Libvirt, guest: str) -> str:
    """QEMU stops a guest whose old data it cannot write into the store. No job is at work any more, so the guest goes on. Returns a sentence."""
    if _stands(libvirt, guest):
        libvirt.virsh("resume", "--domain", guest, accept=range(256))
        if _stands(libvirt, guest):
            return f"a write of {guest} failed, and it stays paused: see `virsh domblkerror {guest}`, and try `virsh resume {guest}`"
        return f"a write of {guest} failed meanwhile, which paused it; it was resumed"
    return ""


def _stands(libvirt: Libvirt, guest: str) -> bool:
    return libvirt.virsh("domstate", "--domain", guest, "--reason", accept=range(256)).strip() == STOPPED


def name_of(uuid: str) -> str:
    """The name by which the QEMU of a guest has the folder."""
    return os.path.join(guest_moment.PUSHED, uuid)


def clear(runtime: Runtime, uuid: str, store: str) -> None:
    """The name goes, and the folder with all that no snapshot has: of a run that was killed, too. No job is at work."""
    name = name_of(uuid)
    if os.path.ismount(name):
        runtime.run([runtime.tool("umount", "mount"), "--lazy", name])
    if os.path.isdir(name):
        os.rmdir(name)
    shutil.rmtree(os.path.join(store, FOLDER), ignore_errors=True)
