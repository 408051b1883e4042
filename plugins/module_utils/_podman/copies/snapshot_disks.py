# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The disks of one snapshot as new files, wherever the snapshot keeps them: in the store of disks, or as whole copies."""

from __future__ import annotations

import os
import typing as t
from dataclasses import dataclass

from ..._core.disk_store import DiskStore
from ..._core.runtime import Runtime
from ..._core.snapshot_records import Snapshots
from ..rollback import remove

# The file system of a plain volume's disk in the store.
FOLDER_FSTYPE = "ext4"
# The end of the name of a plain volume's copy.
TREE = ".tree"


@dataclass(frozen=True)
class SnapshotDisks:
    """Of one container."""

    runtime: Runtime
    snapshots: Snapshots
    disks: DiskStore

    def need(self, record: t.Mapping[str, t.Any]) -> int:
        """Bytes that all of its disks take as new files."""
        if not record.get("disks"):
            return int(record["size"])
        return sum(self.disks.data(point_of(record)).values())

    def lay(self, record: t.Mapping[str, t.Any], volume: str, path: str) -> None:
        """One disk as a new file, whole or not at all."""
        if record.get("disks"):
            self.disks.write(point_of(record), volume, path)
            return
        remove(path + ".new")  # of a run that was killed
        image = os.path.join(self.snapshots.path(record["name"]), volume + ".img")
        copy(self.runtime, image if os.path.exists(image) else self.tree(record, volume), path + ".new")
        os.rename(path + ".new", path)

    def fill(self, record: t.Mapping[str, t.Any], volume: str, path: str) -> None:
        """The files of a plain volume, in a folder that is empty."""
        if record.get("disks"):
            self.disks.fill(point_of(record), volume, path)
        else:
            copy(self.runtime, self.tree(record, volume), path)

    def tree(self, record: t.Mapping[str, t.Any], volume: str) -> str:
        """Where a snapshot of whole copies has a plain volume."""
        return os.path.join(self.snapshots.path(record["name"]), volume + TREE)


def point_of(record: t.Mapping[str, t.Any]) -> str:
    """The name in the store of disks. A backup has an ID there."""
    return str(record.get("point") or record["name"])


def copy(runtime: Runtime, source: str, target: str) -> None:
    """A file or folder with all that it has, by sharing its blocks where that is possible."""
    runtime.run([runtime.tool("cp", "coreutils"), "--archive", "--no-target-directory", "--sparse=always", "--reflink=auto", source, target])
