# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The drop-in of an OSD's unit while the OSD is pinned, and how a daemon that was started with it gets its normal settings back."""

from __future__ import annotations

import os
import re
import shutil
import typing as t

from .._core.host import read_text
from .._core.runtime import Runtime
from .asok import NoAnswer
from .osd import Osd

UNITS = "/run/systemd/system"
# Longer than this no start waits for the reading; the OSD itself reads the rest.
READ_SECONDS = 60
# How long the thread that waits for a device's answers sleeps at most: 250 ms by default. An OSD opens its device some eight times
# before it uses it, to ask what kind of device it is, and each time closing it waits for that thread.
POLL, POLL_MS = "bdev_aio_poll_ms", 1
# With nothing left to read a start is work for one processor, for seconds, and the clients of the other OSDs want that, too.
NICE, NICENESS = "Nice", -10


class DropIn:
    """The drop-in of one OSD's unit."""

    def __init__(self, runtime: Runtime, osd: Osd) -> None:
        self.runtime = runtime
        self.osd = osd
        self.path = os.path.join(UNITS, f"{osd.unit}.d", "handover-pin.conf")

    def exists(self) -> bool:
        return os.path.exists(self.path)

    def before(self) -> dict[str, int]:
        """The normal values of all that the start has differently."""
        return {name: int(value) for name, value in re.findall(rf"^X-({POLL}|{NICE})=(-?\d+)$", read_text(self.path), re.MULTILINE)}

    def text(self, helper: str, ranges: str, devices: t.Sequence[str]) -> str:
        """Its required content."""
        before = {**self._may_differ(), **self.before()}
        lines = [
            "# Written by livefleet.handover.ceph_osd_pin, which removes it.",
            "[Service]",
            "# Fails nothing: what it does not read the OSD reads.",
            f"ExecStartPre=-{helper} pages --read --seconds={READ_SECONDS} --ranges {ranges} {' '.join(devices)}",
        ]
        if POLL in before:
            lines += ["# So that closing a device takes no quarter of a second.", f"Environment=CEPH_ARGS=--{POLL}={POLL_MS}"]
        if NICE in before:
            lines += ["# Until it is up.", f"{NICE}={NICENESS}"]
        # Systemd takes no notice of such a section.
        lines += ["[X-Handover]", *(f"X-{name}={value}" for name, value in before.items())] if before else []
        return "\n".join([*lines, ""])

    def _may_differ(self) -> dict[str, int]:
        """The settings that the next start may have differently, with their present values."""
        if self.osd.layout.containers:
            return {}  # the unit's environment does not get into the container
        found = {}
        if self._property(NICE) == "0":
            found[NICE] = 0
        # An existing setting is left alone.
        if "CEPH_ARGS=" not in self._property("Environment"):
            try:
                poll = int(self.osd.socket.call("config get", var=POLL)[POLL])
            except NoAnswer:
                return found
            if poll > POLL_MS:
                found[POLL] = poll
        return found

    def remove(self) -> None:
        """Removes it. The daemon may run on with its settings."""
        before = self.before()
        folder, own = os.path.split(self.path)
        if os.listdir(folder) == [own]:
            shutil.rmtree(folder)
        else:
            os.unlink(self.path)
        self.reload()
        self._calm_down(before)
        # Last: should the OSD refuse it, all else is gone.
        if POLL in before:
            self._poll_as_before(before[POLL])

    def calm_down(self) -> None:
        """Has a daemon that was started with it wait for a processor as others do."""
        self._calm_down(self.before())

    def _calm_down(self, before: t.Mapping[str, int]) -> None:
        pid = self.osd.pid()
        if NICE in before and pid is not None:
            set_niceness(pid, NICENESS, before[NICE])

    def _poll_as_before(self, value: int) -> None:
        try:
            if self.osd.socket.call("config get", var=POLL)[POLL] == str(POLL_MS):
                self.osd.socket.call("config set", var=POLL, val=[str(value)])
        except NoAnswer:
            return  # it is down, and its next start knows nothing of it

    def reload(self) -> None:
        self.runtime.run([self.runtime.tool("systemctl", "systemd"), "daemon-reload"])

    def _property(self, name: str) -> str:
        return self.runtime.run([self.runtime.tool("systemctl", "systemd"), "show", f"--property={name}", "--value", self.osd.unit]).stdout.strip()


def set_niceness(pid: int, found: int, wanted: int) -> None:
    """For all threads of a process that have the niceness that was found, and those that they begin during this."""
    while True:
        try:
            threads = [int(thread) for thread in os.listdir(f"/proc/{pid}/task")]
        except (FileNotFoundError, ProcessLookupError):
            return
        changed = [thread for thread in threads if _change(thread, found, wanted)]
        if not changed:
            return


def _change(thread: int, found: int, wanted: int) -> bool:
    try:
        if os.getpriority(os.PRIO_PROCESS, thread) != found:
            return False
        os.setpriority(os.PRIO_PROCESS, thread, wanted)
    except ProcessLookupError:
        return False
    return True
