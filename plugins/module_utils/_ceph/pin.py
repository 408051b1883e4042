# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Keeps the devices of a BlueStore OSD open, and its database in memory, over a restart.

Three things belong to it, and go together: a file that says where the database lies, a transient unit that keeps the
devices open and the pages locked, and a drop-in of the OSD's unit that reads later writes, which bypass the cache (drop_in).
All of them are below /run, so that nothing is left after a reboot.
"""

from __future__ import annotations

import json
import os
import typing as t
from dataclasses import dataclass

from .._core.pcopy import HELPER, Pcopy
from .._core.runtime import HandoverError, Runtime
from .._core.transient_unit import TransientUnit
from .compact import compact
from .drop_in import DropIn
from .osd import Osd
from .restart import LOG_OPTIONS, Overrides

FOLDER = "/run/handover-ceph"


@dataclass(frozen=True)
class Layout:
    """Where a database lies, and how large it is."""

    extents: t.Mapping[str, t.Sequence[t.Sequence[int]]]
    tables: int
    wal: int

    @property
    def size(self) -> int:
        return self.tables + self.wal

    @property
    def devices(self) -> list[str]:
        return sorted(self.extents)


class Pin:
    """The unit, the drop-in and the list of one OSD."""

    def __init__(self, runtime: Runtime, osd: Osd, helper: str = HELPER) -> None:
        self.runtime = runtime
        self.osd = osd
        self.pcopy = Pcopy(runtime, helper)
        self.unit = TransientUnit(runtime, f"handover-pin-osd.{osd.id}")
        self.ranges = os.path.join(FOLDER, f"osd.{osd.id}.json")
        self.drop_in = DropIn(runtime, osd)

    def layout(self) -> Layout:
        """The present place of the database. The OSD may run during this."""
        work = os.path.join(self.osd.shared, "handover-ceph")
        os.makedirs(work, mode=0o755, exist_ok=True)
        inside = os.path.join(self.osd.seen, "handover-ceph")
        answer = self.pcopy.call(
            "bluefs", "--home", self.osd.home, "--work", work, "--inside", inside, "--", *self.osd.tool(self.runtime, "ceph-bluestore-tool")
        )
        extents = {device: answer["devices"].get(device, []) for device in {*answer["devices"], *self.osd.devices().values()}}
        return Layout(extents, answer["tables"], answer["wal"])

    def resident(self, layout: Layout) -> int:
        """Bytes of the database that are in memory."""
        self._write(self.ranges + ".look", json.dumps(layout.extents))
        try:
            answers = self.pcopy.events("pages", "--ranges", self.ranges + ".look", *layout.devices)
        finally:
            os.unlink(self.ranges + ".look")
        # Behind the end of its log there is room that is not the database's.
        return min(sum(answer["resident"] for answer in answers), layout.size)

    def compact(self) -> None:
        """Has the running OSD compact its database, and forget its logs."""
        overrides = Overrides(self.osd.socket)
        try:
            for option in LOG_OPTIONS:
                overrides.set(option, "0")
            compact(self.osd, self.runtime.remaining())
        finally:
            overrides.restore()

    def begin(self, layout: Layout, seconds: int, lock: bool) -> None:
        """Opens the devices, and returns when the database is in memory. One that there was before ends; the OSD has its devices open itself."""
        self._write(self.ranges, json.dumps(layout.extents))
        text = self.drop_in.text(self.pcopy.path, self.ranges, layout.devices)
        self.unit.stop()
        argv = [self.pcopy.path, "cache", "pin", f"--seconds={seconds}", "--read", *(["--lock"] if lock else []), "--ranges", self.ranges, *layout.devices]
        self.unit.start(argv, f"Database of osd.{self.osd.id} kept in memory over its restart", "notify", seconds)
        self._write(self.drop_in.path, text)
        self.drop_in.reload()

    def exists(self) -> bool:
        return self.drop_in.exists() or os.path.exists(self.ranges) or self.unit.running()

    def end(self) -> None:
        """Lets go, and leaves nothing behind."""
        self.unit.stop()
        if os.path.exists(self.ranges):
            os.unlink(self.ranges)
        if self.drop_in.exists():
            self.drop_in.remove()

    def _write(self, path: str, text: str) -> None:
        try:
            os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
            with open(path, "w", encoding="utf-8") as target:
                target.write(text)
        except OSError as exc:
            if os.path.exists(path):
                os.unlink(path)
            raise HandoverError(f"{path} cannot be written: {exc.strerror}; make room there, for osd.{self.osd.id} is not pinned without it") from exc
