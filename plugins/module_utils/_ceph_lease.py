# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A flag of an OSD that is taken back when its time is up, whatever became of whoever had it set.

A lease is a systemd timer and a service, two files that an administrator can read, on a disk: they outlive the play, the
controller and a reboot of this host. While no monitor answers the service is tried again. When it has succeeded it removes
both files. The presence of the timer says that the flag is ours: one that was found set has none.
"""

from __future__ import annotations

import datetime
import os
import re
import shlex
import typing as t
from dataclasses import dataclass

from ansible_collections.livefleet.handover.plugins.module_utils._runtime import (
    HandoverError,
    Runtime,
)

_UNIT = re.compile(r"handover-noout-osd\.(\d+)\.timer")
_RETRY_SECONDS = 10


@dataclass(frozen=True)
class Leases:
    """The leases on this host."""

    runtime: Runtime
    directory: str
    command: t.Sequence[str]

    def held(self) -> list[int]:
        """OSDs whose flag is ours."""
        return sorted(int(match[1]) for match in map(_UNIT.fullmatch, os.listdir(self.directory)) if match)

    def grant(self, osds: t.Sequence[int], seconds: int) -> None:
        """Begins a lease for each of these OSDs, or prolongs it."""
        if not osds:
            return
        end = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds)
        new = set(osds) - set(self.held())
        try:
            for osd in osds:
                for name, text in units(osd, self.command, end, self.directory, self._systemctl()).items():
                    self._write(name, text)
        except HandoverError:
            self.end(sorted(new))
            raise
        timers = [f"{unit_name(osd)}.timer" for osd in osds]
        self.runtime.run([self._systemctl(), "daemon-reload"])
        self.runtime.run([self._systemctl(), "enable", "--quiet", *timers])
        # One that runs already has to see its new time.
        self.runtime.run([self._systemctl(), "restart", *timers])

    def end(self, osds: t.Sequence[int]) -> None:
        """Ends the leases of these OSDs; their flags are not touched."""
        if not osds:
            return
        self.runtime.run([self._systemctl(), "disable", "--quiet", "--now", *(f"{unit_name(osd)}.timer" for osd in osds)], accept=(0, 1, 5))
        for osd in osds:
            for kind in ("timer", "service"):
                path = os.path.join(self.directory, f"{unit_name(osd)}.{kind}")
                if os.path.exists(path):
                    os.unlink(path)
        self.runtime.run([self._systemctl(), "daemon-reload"])

    def _write(self, name: str, text: str) -> None:
        path = os.path.join(self.directory, name)
        try:
            with open(path + ".new", "w", encoding="utf-8") as target:
                target.write(text)
                target.flush()
                os.fsync(target.fileno())
            os.replace(path + ".new", path)
        except OSError as exc:
            if os.path.exists(path + ".new"):
                os.unlink(path + ".new")
            raise HandoverError(f"the lease of noout cannot be written to {path}: {exc.strerror}; nothing was set") from exc

    def _systemctl(self) -> str:
        return self.runtime.tool("systemctl", "systemd")


def unit_name(osd: int) -> str:
    return f"handover-noout-osd.{osd}"


def units(osd: int, command: t.Sequence[str], end: datetime.datetime, directory: str, systemctl: str) -> dict[str, str]:
    """File name → text of the units of one lease."""
    name = unit_name(osd)
    # For systemd `%` and `$` are special, for ceph's commands they are nothing.
    unset = shlex.join([*command, "--connect-timeout=15", "osd", "unset-group", "noout", f"osd.{osd}"]).replace("%", "%%").replace("$", "$$")
    files = " ".join(os.path.join(directory, f"{name}.{kind}") for kind in ("timer", "service"))
    header = "# Written by livefleet.handover.ceph_noout, which removes it.\n"
    return {
        f"{name}.service": header
        + f"""\
[Unit]
Description=Take back noout of osd.{osd}, whose restart did not come to its end
StartLimitIntervalSec=0

[Service]
Type=oneshot
ExecStart={unset}
ExecStartPost={systemctl} disable --quiet {name}.timer
ExecStartPost=/bin/rm -f {files}
ExecStartPost={systemctl} --no-block stop {name}.timer
TimeoutStartSec=120
Restart=on-failure
RestartSec={_RETRY_SECONDS}
""",
        f"{name}.timer": header
        + f"""\
[Unit]
Description=Until when osd.{osd} keeps the noout of its restart

[Timer]
OnCalendar={end:%Y-%m-%d %H:%M:%S} UTC
AccuracySec=1s
# A host that was off at that time does it when it is up again.
Persistent=true

[Install]
WantedBy=timers.target
""",
    }
