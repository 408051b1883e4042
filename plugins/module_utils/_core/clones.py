# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The record of each clone of a host: what was made for it. It is written before anything is made, so that a run that was killed is cleared up by the next.

One file a clone, `<root>/.clones/<name>.json`.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import typing as t
from dataclasses import dataclass

from .disk_store import check_name
from .runtime import HandoverError

FOLDER = ".clones"
# Root's alone: in /run/lock anyone could have put a file of the name.
LOCKS = "/run/handover/clones"

Record = t.Dict[str, t.Any]


@dataclass(frozen=True)
class Clones:
    """The records below one root."""

    root: str

    def path(self, name: str) -> str:
        check_name("name", name)
        return os.path.join(self.root, FOLDER, name + ".json")

    @contextlib.contextmanager
    def held(self, name: str) -> t.Iterator[None]:
        """Only one run at a time makes or removes a clone of this name."""
        check_name("name", name)
        os.makedirs(LOCKS, mode=0o700, exist_ok=True)
        with open(os.path.join(LOCKS, name + ".lock"), "w", encoding="ascii") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as exc:
                raise HandoverError("another run makes or removes {0} on this host: wait until it has ended".format(name)) from exc
            yield

    def read(self, name: str) -> Record | None:
        """None where there is no such clone."""
        path = self.path(name)
        try:
            with open(path, encoding="utf-8") as source:
                return json.load(source)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as exc:
            raise HandoverError("{0} cannot be read: {1}: see which volumes {2} has, and remove the file".format(path, exc, name)) from exc

    def write(self, name: str, record: t.Mapping[str, t.Any]) -> None:
        """On the disk when it returns."""
        path = self.path(name)
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with open(path + ".new", "w", encoding="utf-8") as target:
            json.dump(record, target)
            target.flush()
            os.fsync(target.fileno())
        os.replace(path + ".new", path)
        self._sync()

    def forget(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path(name))
        self._sync()

    def _sync(self) -> None:
        descriptor = os.open(os.path.join(self.root, FOLDER), os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
