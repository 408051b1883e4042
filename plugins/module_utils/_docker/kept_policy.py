# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The restart policy of a container, while it is off: Docker starts nothing by itself then, not after a restart of its daemon, nor of the host.

It is on the disk before it is taken off, by the container's ID. So a run that was killed does not lose it, and another container of the name does not get it.
"""

from __future__ import annotations

import contextlib
import os
import typing as t

from .._core.runtime import HandoverError
from . import facts as facts_of
from .api import Docker

FOLDER = "/var/lib/handover/docker/policies"
OFF = "no"


class KeptPolicy:
    """Of one container."""

    def __init__(self, docker: Docker, identifier: str) -> None:
        self.docker = docker
        self.identifier = identifier
        self.path = os.path.join(FOLDER, identifier)

    def take_off(self) -> None:
        """Once more changes nothing: where it is off already, the one that is kept is that of the beginning."""
        now = self._now()
        if now != OFF or not os.path.exists(self.path):
            self.keep(now)
        if now != OFF:
            self._have(OFF)

    def keep(self, policy: str) -> None:
        """Notes the one that it is to have when it goes on."""
        os.makedirs(FOLDER, mode=0o700, exist_ok=True)
        with open(self.path + ".new", "w", encoding="utf-8") as target:
            target.write(policy)
            target.flush()
            os.fsync(target.fileno())
        os.replace(self.path + ".new", self.path)
        _sync(FOLDER)

    def put_back(self) -> None:
        """The container has the one that was kept. Where none was, it was never taken off."""
        try:
            with open(self.path, encoding="utf-8") as source:
                wanted = source.read().strip()
        except FileNotFoundError:
            return
        if self._now() != wanted:
            self._have(wanted)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)

    def _now(self) -> str:
        return facts_of.restart_policy(self._inspect())

    def _inspect(self) -> dict[str, t.Any]:
        found = self.docker.inspect(self.identifier)
        if found is None:
            raise HandoverError("the container {0} was removed meanwhile".format(self.identifier[: facts_of.SHORT_ID]))
        return found

    def _have(self, policy: str) -> None:
        self.docker.post("containers", self.identifier, "update", body={"RestartPolicy": facts_of.policy_of(policy)})


def _sync(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
