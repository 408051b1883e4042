# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Loop devices and mounts of this host, and their users.

A file is known by its device and inode numbers, a device by its major and minor numbers. Path names are for people: hosts
that are containers of one kernel see each other's loop devices, often with the very same path in them.
"""

from __future__ import annotations

import json
import os
import re
import stat
import typing as t
from dataclasses import dataclass

LOSETUP_COLUMNS = "NAME,BACK-INO,BACK-MAJ:MIN,DIO,AUTOCLEAR,RO,SIZELIMIT,OFFSET,LOG-SEC"


@dataclass(frozen=True)
class LoopDevice:
    """One attached loop device."""

    name: str
    backing: tuple[str, int]  # major:minor of the file system that holds the file, and the inode there
    direct_io: bool = True
    read_only: bool = False
    offset: int = 0
    size_limit: int = 0
    sector_size: int = 512


@dataclass(frozen=True)
class Mount:
    """One line of mountinfo."""

    device: str  # major:minor
    mountpoint: str
    fstype: str
    source: str


@dataclass(frozen=True)
class Holder:
    """A process that keeps a file, a device or a file system in use."""

    pid: int
    command: str

    def __str__(self) -> str:
        return f"{self.command} (pid {self.pid})"


def taken(sys: str = "/sys") -> list[str]:
    """The devices that have a file."""
    block = os.path.join(sys, "block")
    names = os.listdir(block) if os.path.isdir(block) else []
    return sorted("/dev/" + name for name in names if os.path.isdir(os.path.join(block, name, "loop")))


def parse_losetup(text: str) -> list[LoopDevice]:
    """Reads `losetup --list --json --output` with LOSETUP_COLUMNS; without any loop device it prints nothing."""
    if not text.strip():
        return []
    devices = []
    for row in json.loads(text)["loopdevices"]:
        # A device whose node this host does not have (another container's) shows no numbers.
        if not row.get("back-maj:min") or not row.get("back-ino"):
            continue
        devices.append(
            LoopDevice(
                name=row["name"],
                backing=(row["back-maj:min"].strip(), int(row["back-ino"])),
                direct_io=_flag(row["dio"]),
                read_only=_flag(row["ro"]),
                offset=int(row["offset"]),
                size_limit=int(row["sizelimit"]),
                sector_size=int(row["log-sec"] or 512),
            )
        )
    return devices


def _flag(value: t.Any) -> bool:
    """util-linux has printed its flags as booleans, as numbers and as strings."""
    return value in (True, 1, "1", "true")


def backing_of(path: str) -> tuple[str, int]:
    """How a loop device would name this file."""
    status = os.stat(path)
    return major_minor(status.st_dev), status.st_ino


def major_minor(number: int) -> str:
    return f"{os.major(number)}:{os.minor(number)}"


def parse_mountinfo(text: str) -> list[Mount]:
    """Reads /proc/<pid>/mountinfo, in the order in which the mounts were made."""
    mounts = []
    for line in text.splitlines():
        fields, found, rest = line.partition(" - ")
        columns, tail = fields.split(" "), rest.split(" ")
        if not found or len(columns) < 6 or len(tail) < 2:
            continue
        mounts.append(Mount(device=columns[2], mountpoint=_unescape(columns[4]), fstype=tail[0], source=_unescape(tail[1])))
    return mounts


def _unescape(field: str) -> str:
    """The kernel writes blanks, tabs, line ends and backslashes of a path as three octal digits."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), field)


def read_mounts(proc: str = "/proc", pid: str = "self") -> list[Mount]:
    """The mounts that a process sees; none for a process that has gone."""
    try:
        with open(os.path.join(proc, pid, "mountinfo"), encoding="utf-8", errors="surrogateescape") as source:
            return parse_mountinfo(source.read())
    except OSError:
        return []


def unmounted(path: str, fstab: str, mounts: t.Iterable[Mount]) -> str:
    """The mount point of this fstab that a path is to be below, if nothing is mounted there: its folder is another one, on another disk."""
    places = [_unescape(words[1]) for words in map(str.split, fstab.splitlines()) if len(words) > 1 and not words[0].startswith("#")]
    above = [place.rstrip("/") for place in places if place.startswith("/") and os.path.join(path, "").startswith(os.path.join(place, ""))]
    nearest = max(above, key=len, default="")
    return nearest if nearest and nearest not in {mount.mountpoint for mount in mounts} else ""


def openers(paths: t.Collection[str], proc: str = "/proc") -> list[Holder]:
    """Processes that have one of these files or block devices open, under any path."""
    identities = {_identity(os.stat(path)) for path in paths}
    names = {os.path.basename(path) for path in paths}

    def matches(link: str, text: str) -> bool:
        # Only entries of the right name are looked at: a stat of anything else could hang on a file server that has gone.
        if os.path.basename(text) not in names:
            return False
        try:
            return _identity(os.stat(link)) in identities
        except OSError:
            return False

    return _holders(proc, ("fd",), matches)


def _identity(status: os.stat_result) -> tuple[str, int, int]:
    if stat.S_ISBLK(status.st_mode):
        return "device", status.st_rdev, 0
    return "file", status.st_dev, status.st_ino


def users_of_mount(mountpoint: str, proc: str = "/proc") -> list[Holder]:
    """Processes with an open file, their working directory, root or program below this mount point."""
    return _holders(proc, ("cwd", "root", "exe", "fd"), lambda link, text: text == mountpoint or text.startswith(mountpoint + "/"))


def namespaces_that_see(device: str, proc: str = "/proc") -> list[Holder]:
    """One process of each other mount namespace in which this device (major:minor) is mounted."""
    own = _namespace(proc, "self")
    seen = {own}
    found = []
    for pid in _processes(proc):
        namespace = _namespace(proc, pid)
        if namespace is None or namespace in seen:
            continue
        seen.add(namespace)
        if any(mount.device == device for mount in read_mounts(proc, pid)):
            found.append(Holder(int(pid), _command(proc, pid)))
    return found


def _holders(proc: str, links: t.Sequence[str], matches: t.Callable[[str, str], bool]) -> list[Holder]:
    found = []
    for pid in _processes(proc):
        if int(pid) != os.getpid() and any(matches(link, text) for link, text in _links(os.path.join(proc, pid), links)):
            found.append(Holder(int(pid), _command(proc, pid)))
    return found


def _links(directory: str, links: t.Sequence[str]) -> t.Iterator[tuple[str, str]]:
    """The links of a process and their text; processes come and go while one looks, so a missing entry is passed over."""
    for link in links:
        path = os.path.join(directory, link)
        try:
            paths = [os.path.join(path, entry) for entry in os.listdir(path)] if link == "fd" else [path]
        except OSError:
            continue
        for each in paths:
            try:
                yield each, os.readlink(each)
            except OSError:
                continue


def _processes(proc: str) -> list[str]:
    return sorted((entry for entry in os.listdir(proc) if entry.isdigit()), key=int)


def _namespace(proc: str, pid: str) -> str | None:
    try:
        return os.readlink(os.path.join(proc, pid, "ns", "mnt"))
    except OSError:
        return None


def _command(proc: str, pid: str) -> str:
    try:
        with open(os.path.join(proc, pid, "comm"), encoding="utf-8", errors="replace") as source:
            return source.read().strip()
    except OSError:
        return "a process"
