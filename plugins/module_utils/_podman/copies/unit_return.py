# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The unit of a container that goes back to a snapshot: it does not act when the container ends, and has it again afterwards.

A container that its unit makes anew at each start has to outlive its own end here: its memory is restored in it. podman's process beside it would remove
it, so that is ended first. Then the container comes back into the unit's cgroup and becomes the unit's, as after a move (service_move.py).

What is added to the unit is for this boot only. It can be started in between, and the disks themselves keep the container from starting on halves.
"""

from __future__ import annotations

import contextlib
import os
import signal
import typing as t

from ..._core.runtime import HandoverError, Runtime
from .. import service as service_of, service_files as files_of, service_guard as guard_of
from ..service_move import Unit, place_inside

Document = t.Mapping[str, t.Any]

ADDED = files_of.OURS + "rollback.conf"
PATIENCE_SECONDS = 60.0
_HEADER = "# Written by livefleet.handover while the container of this unit goes back to a snapshot.\n"
# The container's end is no reason to start it again, nor to remove it.
_KEPT = _HEADER + "[Service]\nRestart=no\nExecStop=\nExecStopPost=\nKillMode=none\n"
# Its start runs nothing but a process that awaits the container, and is not over before the container has been taken over.
_AWAITS = (
    _HEADER + "[Unit]\nRefuseManualStop=yes\n\n"
    "[Service]\nType=notify\nNotifyAccess=all\nExecCondition=\nExecStartPre=\nExecStart=\nExecStart={0} infinity\nExecStartPost=\nExecStop=\nExecStopPost=\n"
    "TimeoutStartSec=infinity\nRestart=no\nKillMode=none\nDelegate=yes\n"
)


def unit_of(runtime: Runtime, configuration: Document, workload: str) -> UnitReturn | None:
    """The unit that a container has to be handed back to, by what workload_info says of it, or of its group."""
    members = {member["name"]: member for member in configuration.get("members") or []}
    service = members.get(workload, configuration).get("service") or {}
    if not service.get("unit"):
        return None
    unit = UnitReturn(runtime, service)
    # One that is not active has not started the container, or is kept by a rollback that was cut off.
    return unit if service["made_by_unit"] or service["active"] or unit.is_kept() else None


class UnitReturn(Unit):
    """Of one container, for one rollback."""

    @property
    def _added(self) -> str:
        return guard_of.drop_in(guard_of.PASSING, self.name, ADDED)

    def is_kept(self) -> bool:
        """Whether a rollback has begun that has not handed the container back."""
        return os.path.lexists(self._added)

    def end(self, container: str, kill: bool) -> None:
        """The container has ended, and is there still."""
        self._write(_KEPT)
        found = self.podman.inspect(container)
        if self.service["made_by_unit"]:
            _end_beside(found)
        # Without that process podman does not learn with which status it ended, and says so. Only `stop` looks whether it has ended.
        self.runtime.run([self.podman.path, "stop", *(["--time=0"] if kill else []), container], accept=(0, 125))
        if not self.runtime.wait_for(lambda: not self.podman.inspect(container)["State"]["Running"], PATIENCE_SECONDS):
            raise HandoverError("{0} has not ended within {1:g} s: see `podman ps`, and go back once more".format(container, PATIENCE_SECONDS))
        self.podman.run("container", "cleanup", container)

    def expect(self) -> None:
        """The container is about to be dumped and to end, and comes back: the unit does not act, and awaits it when it is started."""
        self._write(self._awaiting() if self.service["made_by_unit"] else _KEPT)

    def start(self) -> None:
        """It begins anew, by its unit."""
        self._free()
        if self.service["cidfile"]:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.service["cidfile"])  # of the container that the unit replaces
        self._begin()

    def rest(self) -> None:
        """It does not run, as in the snapshot."""
        self._free()

    def resume(self, container: str) -> None:
        """It runs, and the unit acts again. If it awaits the container still, after a kill, it has it then."""
        stand_in = self._stands_in() if self.is_kept() else 0
        if stand_in:
            self._adopt(self.podman.inspect(container), stand_in)
        self._free()

    def hand_over(self, container: str, restore: t.Callable[[str], None]) -> None:
        """It runs on, and is the unit's. restore is called with the cgroup that it has to come into; empty: any."""
        if not self.service["made_by_unit"]:
            restore("")
            self._free()
            self._begin()  # `podman start` does nothing to a container that runs
            return
        try:
            restore(self._await(container))
            self._adopt(self.podman.inspect(container), self._stands_in())
        except BaseException:
            # The container may run: its processes stay, and only the one that awaits it ends.
            with contextlib.suppress(HandoverError, OSError):
                self._end(self._stands_in())
                self._free()
            raise
        self._free()
        if self.shown().get("ActiveState") != "active":
            raise HandoverError("{0} runs on, and {1} is not active: see `systemctl status {1}`".format(container, self.name))

    def _await(self, container: str) -> str:
        self._write(self._awaiting())
        self.systemctl("reset-failed", self.name, accept=range(256))
        self.systemctl("start", "--no-block", self.name)
        if not self.runtime.wait_for(lambda: self._stands_in() != 0, PATIENCE_SECONDS):
            raise HandoverError("{0} did not come up to await its container: see `systemctl status {0}`".format(self.name))
        group = self.shown().get("ControlGroup") or ""
        if self.service["split"]:
            found = self.podman.inspect(container)
            place_inside(found["OCIConfigPath"], group, found["Id"])
        return service_of.own_folder(group)

    def _awaiting(self) -> str:
        return _AWAITS.format(self.runtime.tool("sleep", "coreutils"))

    def _begin(self) -> None:
        self.systemctl("reset-failed", self.name, accept=range(256))
        self.systemctl("start", self.name)

    def _write(self, text: str) -> None:
        if not guard_of.add({self._added: text}):
            return
        self.systemctl("daemon-reload")
        if self._added not in (self.shown().get("DropInPaths") or "").split():
            raise HandoverError("systemd does not take {0} for a part of {1}: see `systemctl cat {1}`".format(self._added, self.name))

    def _free(self) -> None:
        if self.is_kept():
            guard_of.remove([self._added])
            self.systemctl("daemon-reload")


def _end_beside(found: Document) -> None:
    """Ends podman's process beside a container that runs."""
    pid = int(found["State"].get("ConmonPid") or 0)
    with contextlib.suppress(OSError):
        with open("/proc/{0}/cmdline".format(pid), "rb") as opened:
            words = opened.read().split(b"\0")
        if found["Id"].encode() in words:
            os.kill(pid, signal.SIGKILL)
