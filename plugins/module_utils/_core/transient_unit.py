# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A process that is to outlive the play for a while: a transient systemd unit.

systemd keeps its log, ends it when its time is up even if the controller is gone, and forgets it then. Whoever has to
free memory in a hurry takes such a process first.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from .host import free_space
from .runtime import HandoverError, Runtime
from .sizes import format_size

# systemd writes a transient unit into a file there, and says no more than "not found" if there is no room for it.
UNITS = "/run/systemd"
_UNIT_FILE = 64 * 1024


def begin(runtime: Runtime, service: str, words: t.Sequence[str]) -> None:
    """Has systemd run a command as this unit: its properties and its words."""
    completed = runtime.run([runtime.tool("systemd-run", "systemd"), "--quiet", "--no-ask-password", "--unit=" + service, *words], accept=range(256))
    if completed.rc != 0:
        raise HandoverError("{0} could not be started: {1}".format(service, _no_room(UNITS) or completed.last_words))


def _no_room(folder: str) -> str:
    free = free_space(folder)
    return "the file system of {0} is full ({1} free): make room there".format(folder, format_size(free)) if free < _UNIT_FILE else ""


@dataclass(frozen=True)
class TransientUnit:
    """One such unit, by its name without `.service`."""

    runtime: Runtime
    name: str

    @property
    def service(self) -> str:
        return self.name + ".service"

    def running(self) -> bool:
        """Whether it runs, or is about to."""
        return self._property("ActiveState") in ("active", "activating", "reloading")

    def start(self, argv: t.Sequence[str], description: str, kind: str, seconds: int) -> None:
        """Starts it and waits until it is ready, as a service of this kind says so. It ends after so many seconds."""
        ready_within = max(1, int(self.runtime.remaining()) - 5)
        completed = self.runtime.run(
            [
                self.runtime.tool("systemd-run", "systemd"),
                "--quiet",
                "--collect",
                f"--unit={self.service}",
                f"--description={description}",
                f"--property=Type={kind}",
                f"--property=RuntimeMaxSec={seconds}",
                f"--property=TimeoutStartSec={ready_within}",
                "--property=OOMScoreAdjust=1000",
                "--property=LimitMEMLOCK=infinity",
                "--",
                *argv,
            ],
            accept=range(256),
        )
        if completed.rc != 0:
            raise HandoverError(f"{self.service} did not start: {_no_room(UNITS) or self._last_words() or completed.last_words}")

    def stop(self) -> None:
        """Ends it. One that has gone already is no error."""
        self.runtime.run([self._systemctl(), "stop", self.service], accept=(0, 5))

    def _property(self, name: str) -> str:
        shown = self.runtime.run([self._systemctl(), "show", f"--property={name}", "--value", self.service])
        return shown.stdout.strip()

    def _last_words(self) -> str:
        """The process's last words. The journal may come a moment late, or not be there."""
        journalctl = self.runtime.find("journalctl")
        if journalctl is None:
            return ""
        said = self.runtime.run([journalctl, "--quiet", "--no-pager", "--output=cat", "--lines=20", f"--unit={self.service}"], accept=range(256))
        # Lines of systemd itself speak of the unit.
        own = (self.service, "Started ", "Starting ", "Failed to start ")
        lines = [line.strip() for line in said.stdout.splitlines() if line.strip() and not line.startswith(own)]
        return lines[-1] if lines else ""

    def _systemctl(self) -> str:
        return self.runtime.tool("systemctl", "systemd")
