# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The volumes of a snapshot, mounted read-only so that files can be copied out.

Each is a sparse file of its own below `<root>/.mounted/<workload>/<name>`, on a loop device. The file may be written, so the kernel completes the journal in
it: the files are those that the container would find after a loss of power. Nothing of the snapshot changes, and it can be deleted meanwhile.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import shutil
import typing as t
from dataclasses import dataclass

from . import loop
from .disk_store import check_name
from .runtime import Completed, HandoverError, Runtime

FOLDER = ".mounted"
# The states of a snapshot that are of these files alone.
BESIDE = ("mounted", "unmounted")
_OPTIONS = {
    # XFS refuses a second file system of the same identity, and the container's own is mounted.
    "xfs": ("nouuid",),
    # All subvolumes, and not the one that the guest boots from alone.
    "btrfs": ("subvolid=5",),
}


class NotMounted(HandoverError):
    """The kernel takes a file system for none that it knows, or for damaged."""

    def __init__(self, what: str, place: str, completed: Completed) -> None:
        # Newer versions of mount end with a hint.
        lines = [line.strip() for line in completed.stderr.splitlines() if line.strip() and "dmesg(1)" not in line]
        self.words = (lines[-1] if lines else completed.last_words).replace("mount: {0}: ".format(place), "").rstrip(".")
        super().__init__("{0} could not be mounted: {1}".format(what, self.words))


@dataclass(frozen=True)
class SnapshotMounts:
    """The mounts of the snapshots of one container."""

    root: str
    workload: str

    def __post_init__(self) -> None:
        check_name("workload", self.workload)

    @property
    def _all(self) -> str:
        return os.path.join(self.root, FOLDER, self.workload)

    def folder(self, name: str) -> str:
        check_name("name", name)
        return os.path.join(self._all, name)

    @contextlib.contextmanager
    def held(self, check_mode: bool) -> t.Iterator[None]:
        """Only one run at a time mounts or unmounts: two would write one file. The lock is on the folder itself, which stays."""
        if check_mode:
            yield
            return
        os.makedirs(self._all, mode=0o700, exist_ok=True)
        descriptor = os.open(self._all, os.O_RDONLY | os.O_DIRECTORY)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as exc:
                raise HandoverError("another run mounts or unmounts copies of {0} on this host: wait until it has ended".format(self.workload)) from exc
            yield
        finally:
            os.close(descriptor)

    def names(self) -> list[str]:
        """The snapshots of which something is mounted, or left of a mount."""
        return sorted(os.listdir(self._all)) if os.path.isdir(self._all) else []

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
            self.attach(runtime, image, place, volume["fstype"])

    def attach(self, runtime: Runtime, image: str, place: str, fstype: str, within: t.Sequence[str] = ()) -> None:
        """Mounts the file system in a file, or in the part of it that losetup's words name."""
        losetup, mount = runtime.tool("losetup", "util-linux"), runtime.tool("mount", "util-linux")
        device = runtime.run([losetup, "--find", "--show", *within, image]).stdout.strip()
        try:
            options = ",".join(("ro", "nodev", "nosuid", *_OPTIONS.get(fstype, ())))
            completed = runtime.run([mount, "-t", fstype, "-o", options, device, place], accept=range(256))
            if completed.rc:
                raise NotMounted("{0} of {1}".format(fstype, image), place, completed)
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
        self._let_go(runtime, name)
        shutil.rmtree(self.folder(name), ignore_errors=True)

    def _let_go(self, runtime: Runtime, name: str) -> None:
        """A device that a killed run has left would keep the room of a file that is removed."""
        losetup = runtime.tool("losetup", "util-linux")
        for image in glob.glob(os.path.join(glob.escape(self.folder(name)), "*.img")):
            if os.path.isfile(image):
                for device in runtime.run([losetup, "--associated", image, "--noheadings", "--output", "NAME"]).stdout.split():
                    runtime.run([losetup, "--detach", device], accept=(0, 1))

    def left(self, name: str) -> bool:
        """Whether something of it is there."""
        return os.path.isdir(self.folder(name))

    def clear(self, runtime: Runtime, name: str) -> None:
        """Files that a restart of the host or a kill has left would be mounted as those of the next snapshot of the name."""
        if not self.left(name):
            return
        with self.held(check_mode=False):
            if self.places(name):
                raise HandoverError(
                    "files of an earlier snapshot {0} are mounted below {1}: unmount them first (state: unmounted)".format(name, self.folder(name))
                )
            self.unmount(runtime, name)


@dataclass(frozen=True)
class VolumeMounts:
    """The volumes of one snapshot of a container. Disks of guests have partitions (_kvm.copies.guest_mounts), and are asked for in the same way."""

    runtime: Runtime
    mounts: SnapshotMounts
    name: str
    volumes: t.Sequence[t.Mapping[str, t.Any]]

    def missing(self) -> list[str]:
        """Those that are not mounted."""
        return sorted({volume["name"] for volume in self.volumes} - set(self.mounts.places(self.name)))

    def unwritten(self) -> list[str]:
        """Those that have no file here. After a restart of the host the files are there."""
        return [volume["name"] for volume in self.volumes if not os.path.exists(self.mounts.image(self.name, volume["name"]))]

    def mount(self, write: t.Callable[[str, str], None]) -> None:
        """`write` lays a volume as a new file, whole or not at all."""
        self.mounts.mount(self.runtime, self.name, self.volumes, lambda volume, path: write(volume["name"], path))

    def told(self) -> list[str]:
        """A sentence for each that cannot be mounted: there is none."""
        return []
