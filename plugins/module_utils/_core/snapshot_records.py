# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The place of snapshots on a host, and the record of each.

One folder a snapshot, `<root>/<workload>/<name>/`: `snapshot.json`, `configuration.json`, an image file or a folder for each volume that is not in the store
of disks, and, if the memory was taken too, the dump and the container's own layer. It is made under a name that begins with a dot and renamed when all of
it is on the disk: one with a name is whole.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import time
import typing as t

from .disk_store import CONFIGURATION, check_name, is_name
from .runtime import HandoverError

ROOT = "/var/lib/handover/snapshots"
RECORD = "snapshot.json"


class Snapshots:
    """The snapshots of one workload on this host."""

    def __init__(self, root: str, workload: str) -> None:
        check_name("workload", workload)
        self.root, self.workload = root, workload
        self.folder = os.path.join(root, workload)

    def path(self, name: str) -> str:
        check_name("name", name)
        return os.path.join(self.folder, name)

    def all(self) -> list[dict[str, t.Any]]:
        """The record of each, the oldest first."""
        try:
            names = [name for name in os.listdir(self.folder) if is_name(name)]
        except FileNotFoundError:
            return []
        return sorted((self.read(name) for name in names), key=lambda each: (each["taken"], each["name"]))

    def has(self, name: str) -> bool:
        return os.path.exists(os.path.join(self.path(name), RECORD))

    def read(self, name: str) -> dict[str, t.Any]:
        path = os.path.join(self.path(name), RECORD)
        try:
            with open(path, encoding="utf-8") as source:
                return json.load(source)
        except FileNotFoundError as exc:
            known = ", ".join(sorted(os.listdir(self.folder))) if os.path.isdir(self.folder) else ""
            raise HandoverError(
                "there is no snapshot {0} in {1}: {2}".format(name, self.folder, "name one of " + known if known else "none was taken on this host")
            ) from exc
        except (OSError, ValueError) as exc:
            raise HandoverError("{0} cannot be read: {1}: remove the snapshot".format(path, exc)) from exc

    def configuration(self, name: str) -> dict[str, t.Any]:
        """The workload as it was; nothing where the snapshot was taken without."""
        try:
            with open(os.path.join(self.path(name), CONFIGURATION), encoding="utf-8") as source:
                return json.load(source)
        except FileNotFoundError:
            return {}

    def begin(self, name: str) -> str:
        """An empty folder for the coming snapshot; a killed run's leftovers in it are gone."""
        unfinished = os.path.join(self.folder, "." + name)
        shutil.rmtree(unfinished, ignore_errors=True)
        os.makedirs(unfinished, mode=0o700)
        return unfinished

    def finish(self, name: str, record: t.Mapping[str, t.Any]) -> None:
        unfinished = os.path.join(self.folder, "." + name)
        with open(os.path.join(unfinished, RECORD), "w", encoding="utf-8") as target:
            json.dump(record, target)
        os.sync()
        os.rename(unfinished, self.path(name))
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def forget(self, name: str) -> None:
        """Its name goes first: a half that is left over has none."""
        unfinished = os.path.join(self.folder, "." + name)
        shutil.rmtree(unfinished, ignore_errors=True)
        if os.path.isdir(self.path(name)):
            os.rename(self.path(name), unfinished)
            shutil.rmtree(unfinished)


def undo_name(each: t.Sequence[Snapshots]) -> str:
    """One that is free with all of them: the clock of a host can go back."""
    name = time.strftime("undo-%Y%m%dT%H%M%S", time.gmtime())
    others = ("{0}-{1}".format(name, number) for number in itertools.count(2))
    return next(word for word in itertools.chain([name], others) if not any(snapshots.has(word) for snapshots in each))
