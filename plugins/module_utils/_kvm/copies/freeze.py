# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The file systems of a guest stand still while its backup begins, if its agent can have them so.

The thaw is certain: a timer of systemd's thaws them if this process dies or hangs, and goes on until the agent says that nothing is frozen.
"""

from __future__ import annotations

import json
import shlex
import time
import typing as t

from ..._core import transient_unit
from ..._core.runtime import HandoverError, Runtime
from ..libvirt import AGENT_SECONDS, Libvirt

# How long the file systems may stand still.
FREEZE_SECONDS = 10.0
# A file system writes all that is due before it stands still. The next attempt need not write again what this one has written.
FREEZE_TRIES = 3
# The timer comes after that, and asks so many times, so many seconds apart.
GUARD_SECONDS, GUARD_TRIES, GUARD_PAUSE = 15, 60, 5
THAW = json.dumps({"execute": "guest-fsfreeze-thaw"})


class NotThawedError(HandoverError):
    """The agent does not say that nothing is frozen any more."""


class Freeze:
    """Of one guest."""

    def __init__(self, runtime: Runtime, libvirt: Libvirt, name: str, uuid: str) -> None:
        self.runtime, self.libvirt, self.name = runtime, libvirt, name
        self.unit = f"handover-thaw-{uuid}"
        self.due = False  # the timer goes on trying

    def answers(self) -> bool:
        """Whether an agent is at work in the guest."""
        return self.libvirt.agent(self.name, "guest-ping") is not None

    def around(self, work: t.Callable[[float], None]) -> float:
        """Does the work while they stand still. Returns for how many milliseconds they did. The work is given the seconds that it may take."""
        for _attempt in range(FREEZE_TRIES):
            stood = self._once(work)
            if stood is not None:
                return stood
        raise HandoverError(
            f"the agent of {self.name} could not freeze its file systems within {FREEZE_SECONDS:.0f} s, in {FREEZE_TRIES} attempts: see its log in the guest, "
            "or stop it there to have a backup as after a loss of power"
        )

    def _once(self, work: t.Callable[[float], None]) -> float | None:
        """The same, or None where they have not come to stand still in time: then they were let go."""
        self._arm()
        began = time.monotonic()
        try:
            frozen = self.libvirt.agent(self.name, "guest-fsfreeze-freeze", seconds=int(FREEZE_SECONDS)) is not None
            if frozen:
                work(max(1.0, began + FREEZE_SECONDS - time.monotonic()))
        finally:
            thawed = self._thaw()
            stood = time.monotonic() - began
        if not thawed:
            raise NotThawedError(f"the agent of {self.name} does not thaw its file systems: {self.unit}.timer goes on trying, see `journalctl -u {self.unit}`")
        if not frozen:
            return None
        if stood > FREEZE_SECONDS:
            # The timer may have thawed them before the backup began.
            raise HandoverError(f"the file systems of {self.name} stood still for {stood:.1f} s and were let go: take the backup when the host is less busy")
        return stood * 1000

    def _arm(self) -> None:
        """Has systemd thaw them some time, whatever becomes of this process."""
        self._disarm()
        asked = shlex.join([*self.libvirt.command, "qemu-agent-command", "--domain", self.name, "--timeout", str(AGENT_SECONDS), THAW])
        script = f"for n in $(seq {GUARD_TRIES}); do {asked} && exit 0; sleep {GUARD_PAUSE}; done; exit 1"
        transient_unit.begin(
            self.runtime, self.unit, [f"--on-active={GUARD_SECONDS}", "--timer-property=AccuracySec=100ms", "--collect", "--", "/bin/sh", "-c", script]
        )

    def _disarm(self) -> None:
        """Also one that a run has left which died."""
        systemctl = self.runtime.tool("systemctl", "systemd")
        self.runtime.run([systemctl, "stop", f"{self.unit}.timer", f"{self.unit}.service"], accept=range(256))

    def _thaw(self) -> bool:
        """Whether the agent says that they are. Else the timer stays."""
        try:
            thawed = self.libvirt.agent(self.name, "guest-fsfreeze-thaw") is not None
        except HandoverError:
            thawed = False  # nothing is known: the timer goes on
        if thawed:
            self._disarm()
        self.due = not thawed
        return thawed

    def settle(self) -> None:
        """Tries it once more where it is due: the guest may have been stopped, and answers now. Else the timer goes on."""
        if self.due:
            self._thaw()
