# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The pods and networks on this host that several moves need: the first makes one, and the last that is taken back removes it.

Each move that needs one has a mark below it. Where a move ends well, the thing is the host's, and all its marks go.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import typing as t

from .runtime import HandoverError

ROOT = "/var/lib/handover/parts"
# Kinds of things. An engine has its own: two of them may each have a network of one name.
NETWORK, POD, DOCKER_NETWORK = "network", "pod", "docker-network"


class Parts:
    """The marks on this host."""

    def __init__(self, root: str = ROOT) -> None:
        self.root = root

    def _folder(self, kind: str, name: str) -> str:
        return os.path.join(self.root, kind, name)

    @contextlib.contextmanager
    def alone(self) -> t.Iterator[None]:
        """Of several moves of this host one at a time looks and makes."""
        try:
            os.makedirs(self.root, mode=0o700, exist_ok=True)
            descriptor = os.open(os.path.join(self.root, "lock"), os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as exc:
            raise HandoverError("{0} cannot be written on this host: {1}".format(self.root, exc.strerror)) from exc
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def need(self, kind: str, name: str, move: str, there: bool, make: t.Callable[[], t.Any]) -> bool:
        """The move needs it. Whether it was made now; where it was there, and another move on its way has made it, it is this one's as well."""
        if there:
            if self.claimed(kind, name):
                self.claim(kind, name, move)
            return False
        # Of one that is gone, a mark that is left says nothing.
        shutil.rmtree(self._folder(kind, name), ignore_errors=True)
        # First: what is made and not marked would stay.
        self.claim(kind, name, move)
        try:
            make()
        except HandoverError:
            self.release(kind, name, move)
            raise
        return True

    def claim(self, kind: str, name: str, move: str) -> None:
        """The move has made it, or needs what another has made that is on its way as well."""
        folder = self._folder(kind, name)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        with open(os.path.join(folder, move), "w", encoding="utf-8"):
            pass

    def claimed(self, kind: str, name: str) -> bool:
        """Whether a move has made it that has not ended. The next that needs it claims it as well, whenever it was planned."""
        with contextlib.suppress(OSError):
            return bool(os.listdir(self._folder(kind, name)))
        return False

    def release(self, kind: str, name: str, move: str) -> bool:
        """The move is taken back. Whether it was the last that needs it, so that it goes."""
        folder = self._folder(kind, name)
        try:
            os.remove(os.path.join(folder, move))
            os.rmdir(folder)
        except OSError:
            return False
        return True

    def keep(self, move: str, kinds: t.Iterable[str]) -> None:
        """The move has ended well: what it needs stays, whatever becomes of others."""
        for kind in kinds:
            with contextlib.suppress(OSError):
                for name in os.listdir(os.path.join(self.root, kind)):
                    if os.path.exists(os.path.join(self._folder(kind, name), move)):
                        shutil.rmtree(self._folder(kind, name), ignore_errors=True)
