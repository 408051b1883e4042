# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps of a volume that is about to go back to a snapshot: when it is unmounted, the helper notes the clusters written since the current one.

The tracker's marks go with the loop device, and that goes with the mount. So it is held open in between.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass

from .._core.disk_store import DiskStore
from .._core.pcopy import Pcopy
from .._core.runtime import HandoverError
from .volume_actions import VolumeActions


@dataclass(frozen=True)
class NotedActions(VolumeActions):
    """Acts on one image volume that is in a store of snapshots."""

    store: str

    def unmount(self) -> None:
        """Unmounts it everywhere on this host, and has it noted."""
        with contextlib.ExitStack() as held:
            for device in self.seen.loops():
                with contextlib.suppress(OSError):  # it has gone, and its marks with it
                    held.callback(os.close, os.open(device.name, os.O_RDONLY | os.O_CLOEXEC))
            super().unmount()
            self._note()

    def _note(self) -> None:
        """Without the note a rollback compares all, and says so: nothing fails by it."""
        try:
            DiskStore(Pcopy(self.runtime), self.store).note({"name": self.wanted.name, "image": self.wanted.image})
        except HandoverError as exc:
            self.warn("the volume {0} was not noted, and a rollback compares all of it: {1}".format(self.wanted.name, exc))
