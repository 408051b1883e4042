# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Settings of a Ceph cluster for a while, taken back when their time is up, even if the process that made them is gone.

A lease is a systemd timer and a service, two files that an administrator can read, on a disk: they outlive the play, the
controller and a reboot of this host. While no monitor answers the service is tried again. When it has succeeded it removes
both files. The presence of the timer says that the setting is ours: one that was found has none.
"""

from __future__ import annotations

import datetime
import os
import shlex
import typing as t
from dataclasses import dataclass

from .._core.runtime import HandoverError, Runtime

_RETRY_SECONDS = 10
_UNDO = "ExecStart="


@dataclass(frozen=True)
class Lease:
    """One thing that is taken back."""

    name: str  # of its units
    what: str  # for people
    undo: tuple[str, ...]  # the whole command that takes it back


@dataclass(frozen=True)
class Leases:
    """The leases on this host."""

    runtime: Runtime
    directory: str

    def held(self, prefix: str) -> list[str]:
        """Names of the leases that begin so."""
        return sorted(name[: -len(".timer")] for name in os.listdir(self.directory) if name.startswith(prefix) and name.endswith(".timer"))

    def grant(self, leases: t.Sequence[Lease], seconds: int) -> None:
        """Begins these leases. An existing one is prolonged, and keeps its command."""
        if not leases:
            return
        held = set(self.held(""))
        new = [lease for lease in leases if lease.name not in held]
        end = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds)
        try:
            for lease in new:
                self._write(f"{lease.name}.service", service(lease, self.directory, self._systemctl()), lease)
            for lease in leases:
                self._write(f"{lease.name}.timer", timer(lease, end), lease)
        except HandoverError:
            self.end([lease.name for lease in new])
            raise
        timers = [f"{lease.name}.timer" for lease in leases]
        self.runtime.run([self._systemctl(), "daemon-reload"])
        self.runtime.run([self._systemctl(), "enable", "--quiet", *timers])
        # One that runs already has to see its new time.
        self.runtime.run([self._systemctl(), "restart", *timers])

    def end(self, names: t.Sequence[str]) -> None:
        """Ends these leases; the settings are not touched."""
        if not names:
            return
        self.runtime.run([self._systemctl(), "disable", "--quiet", "--now", *(f"{name}.timer" for name in names)], accept=(0, 1, 5))
        for name in names:
            for kind in ("timer", "service"):
                path = os.path.join(self.directory, f"{name}.{kind}")
                if os.path.exists(path):
                    os.unlink(path)
        self.runtime.run([self._systemctl(), "daemon-reload"])

    def undo(self, name: str) -> tuple[str, ...]:
        """The command with which this lease, which is held, takes back the setting."""
        path = os.path.join(self.directory, f"{name}.service")
        try:
            with open(path, encoding="utf-8") as source:
                (undo,) = (line[len(_UNDO) :] for line in source if line.startswith(_UNDO))
        except (OSError, ValueError) as exc:
            raise HandoverError(f"{path} does not say how the lease {name} ends: {exc}; look at what is set, and take it back by hand") from exc
        return tuple(shlex.split(undo.replace("$$", "$").replace("%%", "%")))

    def take_back(self, names: t.Sequence[str]) -> None:
        """Does now what the leases would do at their end, side by side, and ends them. A failed one is tried again and again, without us."""
        try:
            self.runtime.run([self._systemctl(), "start", *(f"{name}.service" for name in names)])
        finally:
            # A lease that has ended also leaves systemd with units that have no file any more.
            self.runtime.run([self._systemctl(), "daemon-reload"])

    def _write(self, name: str, text: str, lease: Lease) -> None:
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
            raise HandoverError(f"the lease of {lease.what} cannot be written to {path}: {exc.strerror}; nothing was set") from exc

    def _systemctl(self) -> str:
        return self.runtime.tool("systemctl", "systemd")


_HEADER = "# Written by livefleet.handover, which removes it.\n"


def service(lease: Lease, directory: str, systemctl: str) -> str:
    """The unit that takes it back."""
    # For systemd `%` and `$` are special, for ceph's commands they are nothing.
    undo = shlex.join(lease.undo).replace("%", "%%").replace("$", "$$")
    files = " ".join(os.path.join(directory, f"{lease.name}.{kind}") for kind in ("timer", "service"))
    # Leases end together, and each has systemd look at all units again: a timer that still runs when the file of its service is gone has failed.
    return f"""\
{_HEADER}[Unit]
Description=Take back {lease.what}, which was set for a restart that did not come to its end
StartLimitIntervalSec=0

[Service]
Type=oneshot
{_UNDO}{undo}
ExecStartPost={systemctl} stop {lease.name}.timer
ExecStartPost={systemctl} disable --quiet {lease.name}.timer
ExecStartPost=/bin/rm -f {files}
TimeoutStartSec=120
Restart=on-failure
RestartSec={_RETRY_SECONDS}
"""


def timer(lease: Lease, end: datetime.datetime) -> str:
    """The unit that says when."""
    return f"""\
{_HEADER}[Unit]
Description=Until when there is {lease.what}

[Timer]
OnCalendar={end:%Y-%m-%d %H:%M:%S} UTC
AccuracySec=1s
# A host that was off at that time does it when it is up again.
Persistent=true

[Install]
WantedBy=timers.target
"""
