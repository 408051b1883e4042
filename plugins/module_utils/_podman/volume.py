# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an image volume is to be, what it is, and the steps from the one to the other.

Nothing in here touches the host: `decide` compares two records and answers with a list of steps, each with the reason why
it is taken, or refuses in one sentence. After the steps were taken it is asked once more; then no step may be left.

How a file system grows differs. ext4 grows unmounted, in the file, with any privileges, and mounted with CAP_SYS_RESOURCE.
XFS grows mounted only: the image of an unmounted XFS volume grows at once, its file system when the volume is mounted.
"""

from __future__ import annotations

import posixpath
import re
import typing as t
from dataclasses import dataclass, field

from .._core.loop import Holder, LoopDevice, Mount
from .._core.runtime import HandoverError
from .._core.sizes import format_size

IMAGE_ROOT = "/var/lib/handover/volumes"
MOUNT_ROOT = "/var/lib/handover/mnt"

PACKAGES = {"ext4": "e2fsprogs", "xfs": "xfsprogs"}
TOOLS = {
    "ext4": ("mkfs.ext4", "debugfs", "dumpe2fs", "e2fsck", "resize2fs"),
    "xfs": ("mkfs.xfs", "xfs_info", "xfs_growfs"),
}
# Below these the formatters refuse, or leave no room for files.
SMALLEST = {"ext4": 16 * 2**20, "xfs": 300 * 2**20}
# Direct I/O, and disks with sectors of 4 KiB, want whole pages.
GRAIN = 4096
# The bytes that formatting may write at once into a sparse image: the log of XFS, above all.
FORMAT_NEEDS = 80 * 2**20
# A file system may leave a tail unused that is too short for one more block group; only more than that is a grow that was interrupted.
TAIL = 16 * 2**20

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
# Characters that need no quoting in unit files and mount options.
_PATH = re.compile(r"/[A-Za-z0-9_.:@+/-]+")


@dataclass(frozen=True)
class Wanted:
    """The task's request."""

    name: str
    state: str
    image: str
    mountpoint: str
    fstype: str = "ext4"
    size: int | None = None
    podman_volume: str | None = None
    boot: bool = True
    reserve: str = "none"
    force: bool = False


@dataclass(frozen=True)
class ImageFile:
    """The image as a file of the host."""

    size: int
    allocated: int
    kind: str = "regular file"


@dataclass(frozen=True)
class Observed:
    """The host's present state."""

    image: ImageFile | None = None
    filesystem: str | None = None
    rolled_back: bool = False  # a rollback of the image was begun, and has not ended
    away: tuple[str, ...] = ()  # the image, by the names that a rollback gives it until it ends
    filesystem_size: int | None = None  # None where it could not be told
    loops: tuple[LoopDevice, ...] = ()
    loop_size: int | None = None
    mounts: tuple[Mount, ...] = ()  # of those loop devices
    occupant: Mount | None = None  # the file system on the mount point
    mountpoint: str = "missing"  # or: empty, full, not a directory
    free: int = 0  # of the file system that holds the image
    openers: tuple[Holder, ...] = ()  # processes that have the image or its loop device open
    containers: tuple[str, ...] = ()  # running containers that have the volume mounted
    referrers: tuple[str, ...] = ()  # containers, running or not, that name the podman volume
    podman: bool = True
    podman_volume: dict[str, str] | None = None  # its options
    units: str = "missing"  # or: stale, current
    systemd: bool = True
    missing_tools: tuple[str, ...] = ()
    resize_capability: bool = True

    @property
    def mount(self) -> Mount | None:
        """Where the volume is mounted: podman's own bind mounts come after the first."""
        return self.mounts[0] if self.mounts else None


@dataclass(frozen=True)
class Step:
    """One thing to do; `action` is the name of the manager's method."""

    action: str
    reason: str


@dataclass(frozen=True)
class Plan:
    """The steps to take, in order."""

    steps: tuple[Step, ...] = ()
    missing_tools: tuple[str, ...] = field(default=())

    def has(self, *actions: str) -> bool:
        return any(step.action in actions for step in self.steps)


def default_image(name: str) -> str:
    return f"{IMAGE_ROOT}/{name}.img"


def default_mountpoint(name: str) -> str:
    return f"{MOUNT_ROOT}/{name}"


def check_name(option: str, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise HandoverError(f"{option}: {name!r} is not a volume name: use up to 64 letters, digits and _ . -, beginning with a letter or digit")


def check_path(option: str, path: str) -> str:
    """The path in its plain form."""
    if not _PATH.fullmatch(path):
        raise HandoverError(f"{option}: {path!r} is not usable: give an absolute path of letters, digits and / _ . : @ + -")
    # normpath keeps two leading slashes, as POSIX lets it.
    plain = "/" + posixpath.normpath(path).lstrip("/")
    if plain == "/":
        raise HandoverError(f"{option}: the root directory cannot be it")
    return plain


def check_size(size: int, fstype: str) -> None:
    if size % GRAIN:
        raise HandoverError(f"size: {size} bytes are not a multiple of {GRAIN}: the nearest are {size - size % GRAIN} and {size - size % GRAIN + GRAIN}")
    if size < SMALLEST[fstype]:
        raise HandoverError(f"size: {format_size(size)} is too small for {fstype}, which needs at least {format_size(SMALLEST[fstype])}")


def decide(wanted: Wanted, seen: Observed) -> Plan:
    """The steps from the present state to the requested one."""
    if seen.image is not None and seen.image.kind != "regular file":
        raise HandoverError(f"{wanted.image} is a {seen.image.kind}, not a regular file: name another image")
    if wanted.state == "absent":
        return _decide_absent(wanted, seen)
    if wanted.state == "unmounted":
        return _decide_unmounted(wanted, seen)
    return _decide_kept(wanted, seen)


def _decide_kept(wanted: Wanted, seen: Observed) -> Plan:
    """present and mounted."""
    mount_it = wanted.state == "mounted" and seen.mount is None
    _check_image(wanted, seen)
    _check_attachment(wanted, seen)
    if wanted.state == "mounted":
        _check_mountpoint(wanted, seen)
    _check_podman(wanted, seen)

    steps: list[Step] = []
    grows = False
    if seen.image is None:
        steps.append(Step("create", f"the image {wanted.image} does not exist"))
    else:
        grows = wanted.size is not None and wanted.size > seen.image.size
        if grows:
            steps.append(Step("grow_image", f"the image has {format_size(seen.image.size)}, and {format_size(t.cast(int, wanted.size))} are asked for"))
        elif wanted.reserve == "full" and seen.image.allocated < seen.image.size:
            steps.append(
                Step(
                    "reserve",
                    f"{format_size(seen.image.allocated)} of {format_size(seen.image.size)} are reserved on the host",
                )
            )
        if seen.loops and (grows or (seen.loop_size is not None and seen.loop_size < seen.image.size)):
            steps.append(Step("refresh_loop", f"{seen.loops[0].name} does not know the image's size yet"))

    lags = grows or _filesystem_lags(seen)
    grow_filesystem = Step("grow_filesystem", f"the {wanted.fstype} file system is smaller than the image")
    if lags and seen.mount is None and wanted.fstype == "ext4":
        steps.append(grow_filesystem)
    if mount_it:
        if not seen.loops:
            steps.append(Step("attach", "the image is not attached to a loop device"))
        steps.append(Step("mount", "the volume is not mounted"))
    if lags and (seen.mount is not None or (mount_it and wanted.fstype == "xfs")):
        _check_online_growth(wanted, seen)
        steps.append(grow_filesystem)

    if wanted.podman_volume and seen.podman_volume is None:
        steps.append(Step("define_volume", f"podman has no volume named {wanted.podman_volume}"))
    if wanted.state == "mounted":
        steps.extend(_decide_units(wanted, seen))

    plan = Plan(tuple(steps), seen.missing_tools)
    if seen.openers and plan.has("grow_image", "grow_filesystem", "mount"):
        raise HandoverError(f"{wanted.image} is in use by {listed(seen.openers)}: wait until it has finished, or end it")
    return plan


def _decide_units(wanted: Wanted, seen: Observed) -> list[Step]:
    if wanted.boot and not seen.systemd:
        raise HandoverError("this host does not run systemd, which mounts the volume after a reboot: pass boot=false, and see to that yourself")
    if wanted.boot and seen.units == "missing":
        return [Step("write_units", "nothing mounts the volume at boot")]
    if wanted.boot and seen.units == "stale":
        return [Step("write_units", "the units that mount the volume at boot are not as asked for")]
    if not wanted.boot and seen.units != "missing":
        return [Step("remove_units", "the volume is mounted at boot")]
    return []


def _decide_unmounted(wanted: Wanted, seen: Observed) -> Plan:
    steps: list[Step] = []
    if seen.units != "missing":
        steps.append(Step("remove_units", "the volume is mounted at boot"))
    if seen.image is None and seen.occupant is not None:
        raise HandoverError(
            f"{wanted.mountpoint} has {seen.occupant.source} mounted, and the image {wanted.image} does not exist: unmount it by hand if it is not needed"
        )
    if seen.mounts:
        _check_unused(wanted, seen)
        steps.append(Step("unmount", f"the volume is mounted on {seen.mounts[0].mountpoint}"))
    if seen.loops:
        steps.append(Step("detach", f"the image is attached to {listed(loop.name for loop in seen.loops)}"))
    return Plan(tuple(steps))


def _decide_absent(wanted: Wanted, seen: Observed) -> Plan:
    if seen.image is not None and not wanted.force:
        raise HandoverError(
            f"absent would delete {wanted.image} ({format_size(seen.image.size)}, of which {format_size(seen.image.allocated)} are on the disk) "
            f"for good: pass force=true if that is meant"
        )
    if seen.away and not wanted.force:
        raise HandoverError(
            f"absent would delete {listed(seen.away)} for good, and a rollback of {wanted.image} has not ended: run it again, or pass force=true"
        )
    steps = list(_decide_unmounted(wanted, seen).steps)
    if seen.podman_volume is not None:
        if not _is_ours(wanted, seen):
            raise HandoverError(_foreign_volume(wanted, seen))
        if seen.referrers:
            owners = f"containers {listed(seen.referrers)}: remove them" if len(seen.referrers) > 1 else f"container {seen.referrers[0]}: remove it"
            raise HandoverError(f"the podman volume {wanted.podman_volume} belongs to the {owners} first")
        steps.append(Step("undefine_volume", f"podman has a volume named {wanted.podman_volume}"))
    if seen.image is not None or seen.away:
        if seen.openers:
            raise HandoverError(f"{wanted.image} is in use by {listed(seen.openers)}: end it first")
        steps.append(Step("delete", f"the image {wanted.image if seen.image is not None else seen.away[0]} exists"))
    # A mount point of the task's own choice may have been there before the volume, and may serve others.
    if wanted.mountpoint == default_mountpoint(wanted.name) and (seen.mountpoint == "empty" or seen.mounts):
        steps.append(Step("remove_mountpoint", f"the directory {wanted.mountpoint} exists"))
    return Plan(tuple(steps))


def _filesystem_lags(seen: Observed) -> bool:
    if seen.image is None or seen.filesystem_size is None:
        return False
    return seen.image.size - seen.filesystem_size >= TAIL


def _check_image(wanted: Wanted, seen: Observed) -> None:
    if seen.image is None:
        if seen.away:
            raise HandoverError(
                f"a rollback of {wanted.image} was begun and has not ended, which has it as {seen.away[0]}: run it again, or go back to another snapshot"
            )
        if wanted.size is None:
            raise HandoverError(f"volume {wanted.name} does not exist yet: say how large it is to be, as in size=10G")
        need = max(FORMAT_NEEDS, wanted.size if wanted.reserve == "full" else 0)
        # Nothing of a sparse image is taken in advance; but a disk that cannot even hold the formatting is full.
        need = min(need, wanted.size)
    else:
        if seen.rolled_back:
            raise HandoverError(
                f"a rollback of {wanted.image} was begun and has not ended, so that nothing may mount it: run it again, or go back to another snapshot"
            )
        if seen.filesystem is None:
            raise HandoverError(
                f"{wanted.image} exists and holds no file system that is known here; it is never formatted over: move it away, or name another image"
            )
        if seen.filesystem != wanted.fstype:
            raise HandoverError(
                f"{wanted.image} holds {seen.filesystem}, and {wanted.fstype} is asked for; it is never formatted over: "
                f"ask for fstype={seen.filesystem}, move it away, or name another image"
            )
        if wanted.size is not None and wanted.size < seen.image.size:
            raise HandoverError(
                f"volume {wanted.name} has {format_size(seen.image.size)} and cannot shrink to {format_size(wanted.size)}: "
                f"image volumes only grow; make a smaller one and copy the files over"
            )
        need = max(wanted.size or 0, seen.image.size) - seen.image.allocated if wanted.reserve == "full" else 0
    if need > seen.free:
        way_out = "a smaller size or reserve=none" if wanted.reserve == "full" else "an image on a larger file system"
        raise HandoverError(
            f"volume {wanted.name} needs {format_size(need)} in {posixpath.dirname(wanted.image)}, "
            f"where {format_size(seen.free)} are free: free some, or take {way_out}"
        )


def _check_attachment(wanted: Wanted, seen: Observed) -> None:
    if len(seen.loops) > 1:
        raise HandoverError(
            f"{wanted.image} is attached to {' and '.join(loop.name for loop in seen.loops)} at once, which destroys it when both are written: "
            "detach all but one with losetup --detach"
        )
    for loop in seen.loops:
        if loop.read_only or loop.offset or loop.size_limit:
            how = "read-only" if loop.read_only else "in part"
            raise HandoverError(f"{wanted.image} is attached to {loop.name} {how}, by somebody else: detach it with losetup --detach {loop.name}")


def _check_mountpoint(wanted: Wanted, seen: Observed) -> None:
    if any(mount.mountpoint == wanted.mountpoint for mount in seen.mounts):
        return
    if seen.mount is not None:
        raise HandoverError(
            f"volume {wanted.name} is mounted on {seen.mount.mountpoint} already, and {wanted.mountpoint} is asked for: "
            f"unmount it there, or ask for mountpoint={seen.mount.mountpoint}"
        )
    if seen.occupant is not None:
        raise HandoverError(
            f"{wanted.mountpoint} has {seen.occupant.source} ({seen.occupant.fstype}) mounted on it already: unmount that, or name another mountpoint"
        )
    if seen.mountpoint == "not a directory":
        raise HandoverError(f"{wanted.mountpoint} is not a directory: name another mountpoint")
    if seen.mountpoint == "full":
        raise HandoverError(f"{wanted.mountpoint} is not empty, and what it holds would be hidden: empty it, or name another mountpoint")


def _check_online_growth(wanted: Wanted, seen: Observed) -> None:
    if wanted.fstype == "ext4" and seen.mount is not None and not seen.resize_capability:
        raise HandoverError(
            f"volume {wanted.name} cannot grow while it is mounted, because root lacks CAP_SYS_RESOURCE on this host: "
            "stop what uses it, apply state=unmounted, then this task again"
        )


def _check_podman(wanted: Wanted, seen: Observed) -> None:
    if not wanted.podman_volume:
        return
    if not seen.podman:
        raise HandoverError("podman is missing on this host: install the package podman, or pass an empty podman_volume")
    if seen.podman_volume is not None and not _is_ours(wanted, seen):
        raise HandoverError(_foreign_volume(wanted, seen))


def bound_options(mountpoint: str) -> dict[str, str]:
    """Of podman's volume that is bound to a folder."""
    return {"type": "none", "o": "bind", "device": mountpoint}


def _is_ours(wanted: Wanted, seen: Observed) -> bool:
    options = seen.podman_volume or {}
    return options.get("device") == wanted.mountpoint and "bind" in options.get("o", "").split(",")


def _foreign_volume(wanted: Wanted, seen: Observed) -> str:
    device = (seen.podman_volume or {}).get("device")
    if device:
        return f"podman has a volume named {wanted.podman_volume} already, which is bound to {device}: remove it, or name another podman_volume"
    convert = "make its files the image volume's with convert=true, " if wanted.state == "mounted" else ""
    return f"podman has a volume named {wanted.podman_volume} already, which podman keeps itself: {convert}remove it, or name another podman_volume"


def _check_unused(wanted: Wanted, seen: Observed) -> None:
    if seen.containers:
        users = f"containers {listed(seen.containers)}: stop them" if len(seen.containers) > 1 else f"container {seen.containers[0]}: stop it"
        raise HandoverError(f"volume {wanted.name} is in use by the running {users} first")
    if len(seen.mounts) > 1:
        raise HandoverError(f"volume {wanted.name} is also mounted on {listed(mount.mountpoint for mount in seen.mounts[1:])}: unmount it there first")


def listed(things: t.Iterable[object]) -> str:
    return ", ".join(str(thing) for thing in things)


def outline(wanted: Wanted, seen: Observed) -> dict[str, t.Any]:
    """The side of a diff with the present state."""
    return {
        "image_size": seen.image.size if seen.image else None,
        "fstype": seen.filesystem,
        "mountpoint": seen.mount.mountpoint if seen.mount else None,
        "boot": seen.units != "missing",
        "podman_volume": wanted.podman_volume if wanted.podman_volume and seen.podman_volume is not None else None,
    }


def predict(wanted: Wanted, seen: Observed, plan: Plan) -> dict[str, t.Any]:
    """The side of a diff with the state after the steps."""
    after = outline(wanted, seen)
    if plan.has("create"):
        after.update(image_size=wanted.size, fstype=wanted.fstype)
    if plan.has("grow_image"):
        after.update(image_size=wanted.size)
    if plan.has("mount"):
        after.update(mountpoint=wanted.mountpoint)
    if plan.has("unmount"):
        after.update(mountpoint=None)
    if plan.has("write_units"):
        after.update(boot=True)
    if plan.has("remove_units"):
        after.update(boot=False)
    if plan.has("define_volume"):
        after.update(podman_volume=wanted.podman_volume)
    if plan.has("undefine_volume"):
        after.update(podman_volume=None)
    if plan.has("delete"):
        after.update(image_size=None, fstype=None)
    return after
