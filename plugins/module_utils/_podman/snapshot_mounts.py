# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The volumes of a snapshot, mounted read-only so that files can be copied out.

Each is a sparse file of its own below `<root>/.mounted/<workload>/<name>`, on a loop device. The file may be written, so the kernel completes the journal in
it: the files are those that the container would find after a loss of power. Nothing of the snapshot changes, and it can be deleted meanwhile.
"""

from __future__ import annotations

import os
import shutil
import typing as t
from dataclasses import dataclass

from .._core import loop
from .._core.disk_store import check_name
from .._core.runtime import HandoverError, Runtime

FOLDER = ".mounted"
# XFS refuses a second file system of the same identity, and the container's own is mounted.
_OPTIONS = {"xfs": ("nouuid",)}


@dataclass(frozen=True)
class SnapshotMounts:
    """The mounts of the snapshots of one container."""

    root: str
    workload: str

    def __post_init__(self) -> None:
        check_name("workload", self.workload)

    def folder(self, name: str) -> str:
        check_name("name", name)
        return os.path.join(self.root, FOLDER, self.workload, name)

    def names(self) -> list[str]:
        """The snapshots of which something is mounted, or left of a mount."""
        folder = os.path.join(self.root, FOLDER, self.workload)
        return sorted(os.listdir(folder)) if os.path.isdir(folder) else []

    def image(self, name: str, volume: str) -> str:
        """The file of a volume that is, or was, mounted."""
        if volume in ("", ".", "..") or "/" in volume:
            raise HandoverError("{0} of {1} has a volume named '{2}', which would lie elsewhere: verify the repository".format(name, self.workload, volume))
        return os.path.join(self.folder(name), volume + ".img")

    def places(self, name: str) -> dict[str, str]:
        """Volume → mount point, of those that are mounted."""
        folder = self.folder(name)
        return {os.path.basename(mount.mountpoint): mount.mountpoint for mount in loop.read_mounts() if os.path.dirname(mount.mountpoint) == folder}

    def mount(self, runtime: Runtime, name: str, volumes: t.Sequence[t.Mapping[str, t.Any]], write: t.Callable[[t.Mapping[str, t.Any], str], None]) -> None:
        """`write` lays a volume as a new file, whole or not at all."""
        folder, there = self.folder(name), self.places(name)
        for volume in volumes:
            if volume["name"] in there:
                continue
            image, place = self.image(name, volume["name"]), os.path.join(folder, volume["name"])
            os.makedirs(place, mode=0o700, exist_ok=True)
            if not os.path.exists(image):
                write(volume, image)
            if os.path.isdir(image):  # a plain volume in a snapshot of whole copies
                runtime.run([runtime.tool("mount", "util-linux"), "-o", "bind,ro,nodev,nosuid", image, place])
                continue
            losetup = runtime.tool("losetup", "util-linux")
            device = runtime.run([losetup, "--find", "--show", image]).stdout.strip()
            try:
                options = ",".join(("ro", "nodev", "nosuid", *_OPTIONS.get(volume["fstype"], ())))
                runtime.run([runtime.tool("mount", "util-linux"), "-t", volume["fstype"], "-o", options, device, place])
            finally:
                # Of a device that is in use the kernel takes this as a wish for later: it goes with its mount.
                runtime.run([losetup, "--detach", device], accept=(0, 1))

    def unmount(self, runtime: Runtime, name: str) -> None:
        """Nothing is left of it."""
        for place in self.places(name).values():
            completed = runtime.run([runtime.tool("umount", "util-linux"), place], accept=range(256))
            if completed.rc != 0:
                users = ", ".join(str(user) for user in loop.users_of_mount(place))
                raise HandoverError(
                    "{0} could not be unmounted: {1}".format(place, "it is in use by {0}: end that first".format(users) if users else completed.last_words)
                )
        if self.places(name):
            raise HandoverError("{0} is mounted more than once: unmount it by hand".format(self.folder(name)))
        shutil.rmtree(self.folder(name), ignore_errors=True)

    def left(self, name: str) -> bool:
        """Whether something of it is there."""
        return os.path.isdir(self.folder(name))
