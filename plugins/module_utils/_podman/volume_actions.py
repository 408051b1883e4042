# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps that bring an image volume from one state to another: a method for each step that a plan can name."""

from __future__ import annotations

import contextlib
import os
import typing as t
from dataclasses import dataclass

from .._core import loop
from .._core.runtime import HandoverError, Runtime
from . import guard, volume, volume_files as files, volume_units as units
from .volume_observer import ASIDE, HELD, VolumeObserver

# How long the kernel may take to write out and let go of a loop device whose last user has gone.
DETACH_SECONDS = 30


@dataclass(frozen=True)
class VolumeActions:
    """Acts on one image volume. Each step looks again at the things that it changes."""

    seen: VolumeObserver
    mkfs_options: tuple[str, ...]
    warn: t.Callable[[str], None]

    @property
    def wanted(self) -> volume.Wanted:
        """The state asked for."""
        return self.seen.wanted

    @property
    def runtime(self) -> Runtime:
        """The host's programs."""
        return self.seen.runtime

    def create(self) -> None:
        """Formats a file under another name; only when it is complete does it get its own."""
        directory = os.path.dirname(self.wanted.image)
        os.makedirs(directory, mode=0o700, exist_ok=True)
        with files.draft(self.wanted.image + ".new") as (draft, descriptor):
            self._make(draft, descriptor, ())
            try:
                os.link(draft, self.wanted.image)
            except FileExistsError as exc:
                raise HandoverError(f"{self.wanted.image} was made by somebody else at the same time: run the task again") from exc
        files.sync_directory(directory)

    def make(self, path: str, more: t.Sequence[str]) -> None:
        """Formats a new file that stays; `more` are further arguments for the formatter."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            self._make(path, descriptor, more)
        finally:
            os.close(descriptor)

    def _make(self, path: str, descriptor: int, more: t.Sequence[str]) -> None:
        size = t.cast(int, self.wanted.size)
        files.truncate(descriptor, size, self.wanted.image)
        self._format(path, (*more, *self.mkfs_options))
        if self.wanted.reserve == "full":
            files.allocate(descriptor, size, self.wanted.image)
        os.fsync(descriptor)

    def _format(self, path: str, more: t.Sequence[str]) -> None:
        if self.wanted.fstype == "xfs":
            sectors = ["-s", "size=4096"] if self.seen.sector_size == 4096 else []
            self.runtime.run([self.seen.tool("mkfs.xfs"), "-q", *sectors, *more, path])
            return
        # The new file reads as zeroes, which discard lets mke2fs rely on: it marks the inode tables as done without writing
        # them. Where it cannot, it writes them now. Either way the kernel has none to write in the background after the
        # mount, which would only be copied along when the volume moves. Blocks of 4 KiB also where the volume is small.
        extended = "lazy_itable_init=0,lazy_journal_init=1,discard"
        self.runtime.run([self.seen.tool("mkfs.ext4"), "-q", "-F", "-b", "4096", "-E", extended, *more, path])
        # A new volume is empty: podman then fills it from the image, and programs such as initdb accept it.
        # e2fsck makes lost+found when it has something to put there.
        self.runtime.run([self.seen.tool("debugfs"), "-w", "-R", "rmdir lost+found", path])

    def grow_image(self) -> None:
        """Makes the file longer."""
        size = t.cast(int, self.wanted.size)
        with files.open_image(self.wanted.image) as descriptor:
            files.truncate(descriptor, size, self.wanted.image)
            if self.wanted.reserve == "full":
                files.allocate(descriptor, size, self.wanted.image)
            os.fsync(descriptor)

    def reserve(self) -> None:
        """Gives the file all of its blocks."""
        with files.open_image(self.wanted.image) as descriptor:
            files.allocate(descriptor, os.fstat(descriptor).st_size, self.wanted.image)
            os.fsync(descriptor)

    def refresh_loop(self) -> None:
        """Has the loop devices see that the file is longer."""
        for device in self.seen.loops():
            self.runtime.run([self.seen.losetup, "--set-capacity", device.name])

    def grow_filesystem(self) -> None:
        """Has the file system fill its device."""
        loops = self.seen.loops()
        mounts, _occupant = self.seen.mounts(loops)
        target = loops[0].name if loops else self.wanted.image
        if self.wanted.fstype == "xfs":
            self.runtime.run([self.seen.tool("xfs_growfs"), mounts[0].mountpoint])
            return
        if not mounts:
            # resize2fs insists on a check. 1: all faults have been repaired.
            self.runtime.run([self.seen.tool("e2fsck"), "-f", "-p", target], accept=(0, 1))
        self.runtime.run([self.seen.tool("resize2fs"), target])

    def attach(self) -> None:
        """Attaches the file to a loop device."""
        sector_size = self.seen.sector_size
        # Always said: kernels have different defaults, and the file system was made for this one.
        attach = [self.seen.losetup, "--find", "--nooverlap", "--direct-io=on", "--sector-size", str(sector_size), self.wanted.image]
        completed = self.runtime.run(attach, accept=(0, 1))
        loops = self.seen.loops()
        # Some versions of losetup call refused direct I/O a failure, and attach all the same.
        if not loops:
            raise HandoverError(f"{self.wanted.image} could not be attached to a loop device: {completed.last_words}")
        if not loops[0].direct_io:
            way_out = "" if sector_size == 4096 else "; sector_size=4096 may help"
            self.warn(
                f"{self.wanted.image} does without direct I/O, which the file system or the disk under it refuses: its data is cached twice{way_out}"
            )

    def mount(self) -> None:
        """Mounts the device, which then goes with its mount."""
        mountpoint = self.wanted.mountpoint
        os.makedirs(mountpoint, exist_ok=True)
        guard.mark(mountpoint)
        device = self.seen.loops()[0].name
        try:
            self.runtime.run([self.runtime.tool("mount", "util-linux"), "-t", self.wanted.fstype, "-o", ",".join(self.seen.options), device, mountpoint])
        except HandoverError:
            self.runtime.run([self.seen.losetup, "--detach", device], accept=(0, 1))
            raise
        # Of a device that is in use the kernel takes this as a wish for later: it goes with its last user, by any unmount.
        self.runtime.run([self.seen.losetup, "--detach", device])

    def unmount(self) -> None:
        """Unmounts it everywhere on this host."""
        umount = self.runtime.tool("umount", "util-linux")
        mounts, _occupant = self.seen.mounts(self.seen.loops())
        for mount in mounts:
            completed = self.runtime.run([umount, mount.mountpoint], accept=range(256))
            if completed.rc != 0:
                users = loop.users_of_mount(mount.mountpoint)
                reason = f"it is in use by {volume.listed(users)}: end that first" if users else completed.last_words
                raise HandoverError(f"{mount.mountpoint} could not be unmounted: {reason}")

    def detach(self) -> None:
        """Waits until no loop device has the file."""
        numbers = {}
        for device in self.seen.loops():
            numbers[device.name] = loop.major_minor(os.stat(device.name).st_rdev)
            # It may go at this very moment, after the unmount: the check below decides.
            self.runtime.run([self.seen.losetup, "--detach", device.name], accept=(0, 1))
        if self.runtime.wait_for(lambda: not self.seen.loops(), DETACH_SECONDS):
            return
        holders = loop.openers(list(numbers)) + [holder for number in numbers.values() for holder in loop.namespaces_that_see(number)]
        reason = (
            f", because it is in use by {volume.listed(holders)}: end that first"
            if holders
            else f" and nobody has it open: if its file system was frozen (fsfreeze -f), mount {next(iter(numbers), 'it')} again, thaw it there with "
            f"`fsfreeze -u`, and unmount it"
        )
        raise HandoverError(f"{self.wanted.image} is still attached to {volume.listed(numbers)} after the unmount{reason}")

    def define_volume(self) -> None:
        """Makes podman's volume."""
        options = ("--opt=type=none", "--opt=o=bind", f"--opt=device={self.wanted.mountpoint}")
        self.seen.podman.run("volume", "create", *options, t.cast(str, self.wanted.podman_volume))

    def undefine_volume(self) -> None:
        """Removes podman's volume."""
        self.seen.podman.run("volume", "rm", t.cast(str, self.wanted.podman_volume))

    def write_units(self) -> None:
        """Writes the units, and enables them."""
        for name, text in self.seen.unit_files().items():
            path = os.path.join(units.UNIT_DIRECTORY, name)
            # Written beside and moved into place: systemd may read at any time.
            with open(path + ".new", "w", encoding="utf-8") as target:
                target.write(text)
            os.chmod(path + ".new", 0o644)
            os.replace(path + ".new", path)
        # systemd reads all units again, and once is enough: on a busy host it takes a second.
        self._systemctl("enable", "--quiet", "--no-reload", units.mount_unit_name(self.wanted.mountpoint))
        self._systemctl("daemon-reload")

    def remove_units(self) -> None:
        """Disables the units, and removes them."""
        runs = os.path.isdir(units.SYSTEMD_RUNS)
        if runs:
            self._systemctl("disable", "--quiet", "--no-reload", units.mount_unit_name(self.wanted.mountpoint))
        for name in self.seen.unit_files():
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(units.UNIT_DIRECTORY, name))
        if runs:
            self._systemctl("daemon-reload")
            # If the volume was mounted at boot, this unit is still active. Only now that systemd has forgotten its task
            # and its dependants, ending it leaves the loop device and the mount alone. 5: it is not active.
            self._systemctl("stop", units.loop_unit_name(self.wanted.name), accept=(0, 5))

    def delete(self) -> None:
        """Deletes the file, and those that a rollback has left of it: a new volume of this name is none of theirs."""
        for path in (*(self.wanted.image + end for end in (HELD, ASIDE)), self.wanted.image):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        # Where it was the task's own choice, the folder stays, and may serve others.
        guard.unmark(self.wanted.mountpoint)

    def remove_mountpoint(self) -> None:
        """Removes the folder that it was mounted on."""
        with contextlib.suppress(FileNotFoundError):
            os.rmdir(self.wanted.mountpoint)

    def _systemctl(self, *arguments: str, accept: t.Container[int] = (0,)) -> None:
        self.runtime.run([self.runtime.tool("systemctl", "systemd"), *arguments], accept=accept)
