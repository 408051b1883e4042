# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The connections to two libvirts, and the answers of both about one guest.

A libvirt that does not answer is silent, which is an answer, too: nothing is decided by it.
"""

from __future__ import annotations

import contextlib
import threading
import typing as t

from .._core.runtime import HandoverError
from . import migration

# A host that says nothing for so long when it is called, or in the middle of a conversation (question every so often, so many unanswered), is out
# of reach.
OPEN_SECONDS = 30.0
KEEPALIVE_SECONDS, KEEPALIVE_MISSED = 5, 5


def load_libvirt() -> t.Any:
    """libvirt's binding, or None where it is not installed."""
    try:
        import libvirt
    except ImportError:
        return None
    # It would print each error and also raise it.
    libvirt.registerErrorHandler(lambda _context, _error: None, None)
    return libvirt


_listening: list[threading.Thread] = []


def listen(libvirt: t.Any) -> None:
    """Has libvirt notice when a connection is dead, which it does only while its events are run."""
    if _listening:
        return
    libvirt.virEventRegisterDefaultImpl()

    def run() -> None:
        while True:
            libvirt.virEventRunDefaultImpl()

    _listening.append(threading.Thread(target=run, daemon=True))
    _listening[0].start()


Self = t.TypeVar("Self", bound="Sides")


class Sides:
    """The libvirts of the host that a guest is on, and of the one that it goes to."""

    def __init__(self, libvirt: t.Any, guest: str, uri: str, destination_uri: str) -> None:
        self.libvirt, self.name = libvirt, guest
        self.uris = {"source": uri, "destination": destination_uri}
        self._open: dict[str, t.Any] = {}

    def __enter__(self: Self) -> Self:
        listen(self.libvirt)
        for side in self.uris:
            self.connection(side)
        if self.connection("source").getHostname() == self.connection("destination").getHostname():
            raise HandoverError(f"the destination {self.uris['destination']} is this host itself: name another one")
        return self

    def __exit__(self, *_exc: object) -> None:
        for connection in self._open.values():
            with contextlib.suppress(self.libvirt.libvirtError):
                connection.close()

    def connection(self, side: str) -> t.Any:
        """The connection to a side, made again if it is dead."""
        try:
            if side in self._open and self._open[side].isAlive():
                return self._open[side]
            self._open[side] = self._opened(side)
        except self.libvirt.libvirtError as exc:
            raise HandoverError(
                f"libvirt on the {side} cannot be reached as {self.uris[side]} ({exc}): "
                f"try `virsh --connect {self.uris[side]} list` on the source, as root"
            ) from exc
        return self._open[side]

    def _opened(self, side: str) -> t.Any:
        """A new connection. ssh itself waits for minutes where a network swallows packets, and libvirt cannot tell it not to."""
        made: list[t.Any] = []

        def call() -> None:
            try:
                made.append(self.libvirt.open(self.uris[side]))
            except self.libvirt.libvirtError as exc:
                made.append(exc)

        caller = threading.Thread(target=call, daemon=True)
        caller.start()
        caller.join(OPEN_SECONDS)
        if not made:
            raise HandoverError(
                f"libvirt on the {side} cannot be reached as {self.uris[side]} (no answer within {OPEN_SECONDS:.0f} s): "
                f"look at the network between the hosts, and try `virsh --connect {self.uris[side]} list` on the source, as root"
            )
        if isinstance(made[0], Exception):
            raise made[0]
        with contextlib.suppress(self.libvirt.libvirtError):  # a driver without a server behind it has none
            made[0].setKeepAlive(KEEPALIVE_SECONDS, KEEPALIVE_MISSED)
        return made[0]

    def domain(self, side: str) -> t.Any:
        """The guest there, or None."""
        try:
            return self.connection(side).lookupByName(self.name)
        except self.libvirt.libvirtError as exc:
            if exc.get_error_code() == self.libvirt.VIR_ERR_NO_DOMAIN:
                return None
            raise

    # --- the answers of both sides ---

    def standing(self, side: str) -> str:
        """A side's answer about the guest, in the words of migration."""
        running = (self.libvirt.VIR_DOMAIN_RUNNING, self.libvirt.VIR_DOMAIN_BLOCKED, self.libvirt.VIR_DOMAIN_PMSUSPENDED)
        try:
            domain = self.domain(side)
            if domain is None:
                return migration.ABSENT
            state, reason = domain.state()
        except (self.libvirt.libvirtError, HandoverError):
            return migration.SILENT
        if state in running:
            return migration.RUNNING
        if state != self.libvirt.VIR_DOMAIN_PAUSED:
            return migration.OFF
        # A guest that arrives held is for libvirt one that its user paused.
        return migration.HALTED if side == "source" and reason in self._not_for_a_move() else migration.PAUSED

    def _not_for_a_move(self) -> set[int]:
        """Why a guest stands still that nothing here has stopped: a person, a disk that failed, a watchdog, a snapshot."""
        reasons = ("USER", "SAVE", "DUMP", "IOERROR", "WATCHDOG", "FROM_SNAPSHOT", "SHUTTING_DOWN", "SNAPSHOT", "CRASHED")
        return {getattr(self.libvirt, f"VIR_DOMAIN_PAUSED_{reason}") for reason in reasons}

    def has_moved(self) -> bool:
        """Whether it is there and not here."""
        return self.standing("source") == migration.ABSENT and self.standing("destination") in (migration.RUNNING, migration.OFF)

    def migrating(self) -> bool:
        """Whether libvirt is at work on it, on either side."""
        for side in self.uris:
            with contextlib.suppress(self.libvirt.libvirtError, HandoverError):
                domain = self.domain(side)
                if domain is not None and domain.isActive() and domain.jobInfo()[0] != self.libvirt.VIR_DOMAIN_JOB_NONE:
                    return True
        return False
