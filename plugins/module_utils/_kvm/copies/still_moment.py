# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The moment of a guest that is off: its disks are as they are, and QEMU's own servers keep everything else from writing them."""

from __future__ import annotations

import datetime
import typing as t

from ..._core.runtime import Runtime
from .backup_xml import DiskPlan
from .freeze import Freeze
from .guest_look import GuestFacts
from .image_servers import ImageServers

OFF = "the guest is off, and libvirt tells of its writes only while it runs"


class StillMoment:
    """Of one guest."""

    verb = "pull"
    # No checkpoint can be made.
    checkpoint = ""
    frozen_ms = 0.0

    def __init__(self, runtime: Runtime, facts: GuestFacts) -> None:
        self.servers = ImageServers(runtime, facts.uuid)
        self.plans: list[DiskPlan] = []
        self.taken = ""
        self.sockets: dict[str, str] = {}

    def begin(self, plans: t.Sequence[DiskPlan], freeze: Freeze | None) -> None:
        """Has the disks served. Nothing runs that a freeze could stop."""
        self.plans = list(plans)
        self.sockets = self.servers.begin({each.disk.target: (each.disk.path, each.disk.format) for each in plans}, write=False)
        self.taken = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    def complete(self) -> None:
        """They are served already."""

    def disks(self) -> list[dict[str, t.Any]]:
        """The disks as the helper is to read them."""
        return [
            {"name": name, "socket": socket, "export": name, "bitmap": "", "since": "", "why": OFF, "checkpoint": ""} for name, socket in self.sockets.items()
        ]

    def end(self) -> None:
        """Has QEMU serve them no more."""
        self.servers.end()

    def keep_only(self, wanted: str) -> list[str]:
        """libvirt removes no checkpoint of a guest that is off: the next snapshot of the guest as it runs does that."""
        return []

    def forget(self, names: t.Iterable[str]) -> None:
        """There are none."""
