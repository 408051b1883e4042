# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One OSD on its way down and up again: its orders beforehand, and its measurements."""

from __future__ import annotations

import time
import typing as t

from .._core.host import read_text
from .._core.runtime import HandoverError, Runtime
from .asok import AdminSocket, NoAnswer
from .compact import compact
from .drop_in import DropIn
from .osd import Osd

# BlueFS compacts its own log when it is worth it. With these at zero it is at the next occasion.
LOG_OPTIONS = ("bluefs_log_compact_min_ratio", "bluefs_log_compact_min_size")
# A shutdown in order is such an occasion, ending at once is not. A FileStore writes out its journal then, which its next start would do otherwise.
FAST_SHUTDOWN = "osd_fast_shutdown"
# Less than this is read in an instant.
SMALL_LOG = 4 << 20
_SECTOR = 512
# Seconds between two questions to the OSD, which cost next to nothing, and between two to systemd, which are a process each: the start has to share the
# processors with them.
_PAUSE, _LOOK = 0.1, 1.0


class Overrides:
    """Options of a running daemon that are set for a while, and then restored."""

    def __init__(self, socket: AdminSocket) -> None:
        self.socket = socket
        self.before: dict[str, str] = {}

    def set(self, option: str, value: str) -> None:
        self.before.setdefault(option, self._get(option))
        self.socket.call("config set", var=option, val=[value])

    def restore(self) -> None:
        for option, value in self.before.items():
            self.socket.call("config unset", var=option)
            if self._get(option) != value:
                # It was set on the running daemon before, too.
                self.socket.call("config set", var=option, val=[value])
        self.before.clear()

    def _get(self, option: str) -> str:
        return self.socket.call("config get", var=option)[option]


class Restart:
    """One OSD of this host."""

    def __init__(self, runtime: Runtime, osd: Osd) -> None:
        self.runtime = runtime
        self.osd = osd
        self.overrides = Overrides(osd.socket)
        self.in_order = False
        self.began = 0.0
        self.pid: int | None = None
        self.before = (0, 0)
        self.disks: list[str] = []

    def running(self) -> bool:
        return self.osd.pid() is not None

    def tidy(self, policy: str) -> None:
        """Has the OSD leave little behind that its next start reads past the page cache, before it stops or while it does."""
        if policy == "never" or not self.running():
            return
        try:
            if self.osd.store() != "bluestore" or self._log_stays_large(policy):
                self.overrides.set(FAST_SHUTDOWN, "false")
                self.in_order = True
        except NoAnswer:
            # It does not answer, and so cannot be told; that may be the reason for its restart.
            return

    def _log_stays_large(self, policy: str) -> bool:
        """Has BlueFS compact its log, and tells whether that was in vain so far."""
        if policy == "auto" and self._log() <= SMALL_LOG:
            return False
        for option in LOG_OPTIONS:
            self.overrides.set(option, "0")
        # Releases from 17 on look at every write to the log, so that a busy OSD needs but a moment.
        self.runtime.wait_for(lambda: self._log() <= SMALL_LOG, seconds=1.0)
        return self._log() > SMALL_LOG

    def _log(self) -> int:
        return self.osd.socket.call("perf dump", logger="bluefs")["bluefs"]["log_bytes"]

    def untidy(self) -> None:
        """Takes that back, where the OSD was not stopped."""
        try:
            self.overrides.restore()
        except NoAnswer:
            return

    def compact(self, seconds: float) -> dict[str, t.Any]:
        """Has it compact its database while it serves, within this time, and returns how long that took."""
        began = time.monotonic()
        compact(self.osd, seconds)
        return {**self.told(), "compact_seconds": round(time.monotonic() - began, 2)}

    def begin(self) -> None:
        """Remembers the start of the measurement."""
        self.pid = self.osd.pid()
        self.disks = self.osd.disks()
        self.before = self._reads()
        self.began = time.monotonic()

    def told(self) -> dict[str, t.Any]:
        """The result for one that was only told how to end."""
        return {"id": self.osd.id, "tidy": self.in_order}

    def away(self) -> dict[str, t.Any]:
        """The result for an OSD that was stopped."""
        return self._result(time.monotonic() - self.began, 0.0, self._reads())

    def wait(self, deadline: float, limit: float) -> dict[str, t.Any]:
        """Waits until the OSD is up, and tells how long that took."""
        socket = self.osd.socket
        pid, serving, look = None, False, 0.0
        while True:
            try:
                # A socket that was left behind, or the old process, is not the new one.
                pid = pid or self._successor()
                if pid is not None:
                    serving = serving or socket.knows("status")
                    if serving and socket.call("status").get("state") == "active":
                        break
            except HandoverError:
                pid, serving = None, False
            now = time.monotonic()
            if now > deadline:
                raise HandoverError(self._reason(limit))
            if now > look:
                if self._failed():
                    raise HandoverError(self._reason(limit))
                look = now + _LOOK
            time.sleep(_PAUSE)
        # At once: from now on it reads for its clients.
        up, reads = time.monotonic(), self._reads()
        DropIn(self.runtime, self.osd).calm_down()
        stopped = self._stopped()
        return self._result(stopped - self.began, up - stopped, reads)

    def _successor(self) -> int | None:
        """The process that came after the one that there was."""
        pid = self.osd.pid()
        return None if pid == self.pid else pid

    def _result(self, stop: float, up: float, counted: tuple[int, int]) -> dict[str, t.Any]:
        reads, read_bytes = counted
        return {
            "id": self.osd.id,
            "stop_seconds": round(max(stop, 0.0), 2),
            "up_seconds": round(up, 2),
            "reads": reads - self.before[0],
            "read_bytes": read_bytes - self.before[1],
            "tidy": self.in_order,
        }

    def _stopped(self) -> float:
        """When the old process had ended, or the order was given if there was none."""
        microseconds = int(self._property("InactiveEnterTimestampMonotonic") or 0)
        return max(microseconds / 1e6, self.began)

    def _failed(self) -> bool:
        return self._property("ActiveState") == "failed"

    def _reason(self, limit: float) -> str:
        journalctl = self.runtime.find("journalctl")
        said = []
        if journalctl:
            lines = self.runtime.run([journalctl, "--quiet", "--no-pager", "--output=cat", "--lines=50", f"--unit={self.osd.unit}"], accept=range(256)).stdout
            # Ceph marks errors with -1.
            said = [line.split(" -1 ", 1)[1].strip() for line in lines.splitlines() if " -1 " in line and "AdminSocket" not in line]
        how = "has failed to start" if self._failed() else f"did not come up within {limit:g} s"
        return f"osd.{self.osd.id} {how}{': ' + said[-1] if said else ''}; look at `journalctl -u {self.osd.unit}`, and run the play again when it is up"

    def _property(self, name: str) -> str:
        systemctl = self.runtime.tool("systemctl", "systemd")
        return self.runtime.run([systemctl, "show", f"--property={name}", "--value", self.osd.unit]).stdout.strip()

    def _reads(self) -> tuple[int, int]:
        """Reads from the OSD's disks since they are there, and bytes."""
        count = size = 0
        for number in self.disks:
            fields = read_text(f"/sys/dev/block/{number}/stat").split()
            if len(fields) > 2:
                count, size = count + int(fields[0]), size + int(fields[2]) * _SECTOR
        return count, size
