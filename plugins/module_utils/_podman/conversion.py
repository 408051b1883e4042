# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A plain volume of podman's that becomes an image volume: what has to be known of it, what is in the way, and how large the image gets.

Nothing in here touches the host, as in `volume`.
"""

from __future__ import annotations

import posixpath
import typing as t
from dataclasses import dataclass, field

from .._core.runtime import HandoverError
from .._core.sizes import format_size
from .._core.times import CRIU_RATE
from .volume import FORMAT_NEEDS, SMALLEST, Wanted, listed

# Where the folders of plain volumes are kept, beside podman's own: no volume's name begins with a dot.
KEPT = ".handover-plain"
# The image's name until it is known to have all files; and the note of a conversion that was begun.
DRAFT, RECORD = ".filling", ".converting"
# A file takes this in the file system's tables at the most, beside its content.
PER_FILE = 4096
# The least that an image gets: larger ones take no more of the disk.
LEAST = 256 * 2**20
# How fast a disk gives and takes files, and what lies between a container's stop and its start, or its dump
# and its restore: for a forecast, by what was seen in the lab.
RATE, BETWEEN, STILL = 100 * 2**20, 0.5, 1.5
_STATES = ("running", "exited", "stopped", "created", "configured")
# Those in which it has processes, also where a command of podman's was cut off.
_ALIVE = ("running", "stopping", "initialized")


@dataclass(frozen=True)
class User:
    """The container that uses the volume."""

    name: str
    identifier: str = ""
    pid: int = 0
    state: str = "running"
    auto_remove: bool = False
    units: tuple[str, ...] = ()
    active: bool = False  # whether the first of them is
    session: str = ""  # of a move that has not ended
    patience: int = 10  # seconds that podman waits for its end
    service: t.Mapping[str, t.Any] = field(default_factory=dict)  # of its unit, as a move describes it
    unkept: str = ""  # why its memory cannot be kept
    memory: int = 0  # bytes that a dump of it takes

    @property
    def running(self) -> bool:
        """Whether it has to be stopped, and started again."""
        return self.state in _ALIVE


@dataclass(frozen=True)
class Plain:
    """The plain volume, or one that a conversion has begun with."""

    name: str
    folder: str
    driver: str = "local"
    anonymous: bool = False
    used: int = 0
    files: int = 0
    users: tuple[User, ...] = ()
    bound: tuple[str, ...] = ()  # containers that have its folder by the path
    mounts: tuple[str, ...] = ()  # what is mounted on its folder, or below it
    missing: bool = False  # whether its folder is not there
    kept: bool = False  # whether a folder of that name is kept already
    unbindable: str = ""  # why podman's book cannot say that it is bound
    root: str = ""  # where podman has that book

    @property
    def aside(self) -> str:
        """The folder's name afterwards."""
        return aside_of(self.name, self.folder)

    @property
    def user(self) -> User | None:
        """Its container."""
        return self.users[0] if self.users else None


def aside_of(name: str, folder: str) -> str:
    """Where the folder of a plain volume is kept: podman removes its own folder of a volume with all that is in it."""
    return posixpath.join(posixpath.dirname(posixpath.dirname(folder)), KEPT, name)


def check_request(wanted: Wanted) -> None:
    """What was asked for has to make sense without any look at the host."""
    if wanted.state != "mounted":
        raise HandoverError(f"convert=true is for state=mounted, and state={wanted.state} is asked for: leave one of them out")
    if not wanted.podman_volume:
        raise HandoverError("convert=true needs the name of podman's volume, and podman_volume is empty: leave it out, or name the volume")


def check(plain: Plain, begun: bool) -> None:
    """Refuses what cannot become an image volume, each with the cure; `begun` says that an earlier run has not ended."""
    name = f"podman's volume {plain.name}"
    if plain.driver != "local":
        raise HandoverError(f"{name} is one of the driver {plain.driver}, and only plain ones become image volumes: move its files to one by hand")
    if plain.anonymous:
        raise HandoverError(f"{name} is anonymous, and podman removes it with its container: create the container with -v NAME:/PATH, then convert that volume")
    others = sorted({*(user.name for user in plain.users), *plain.bound})
    if len(others) > 1:
        raise HandoverError(f"{name} is shared by {listed(others)}, and only one container can be stopped for it: give each a volume of its own")
    if plain.bound:
        raise HandoverError(f"{plain.bound[0]} mounts {plain.folder} by its path, which leads nowhere afterwards: create it with -v {plain.name}:/PATH")
    if plain.mounts:
        raise HandoverError(f"something is mounted on {plain.mounts[0]}, in {name}: unmount it, or keep the volume as it is")
    if plain.missing and not begun:
        found = f"{plain.aside} has its files, it seems: rename it" if plain.kept else "its files are lost, or elsewhere: bring them"
        raise HandoverError(f"the folder {plain.folder} of {name} is missing, and {found} to that name")
    if plain.kept:
        raise HandoverError(f"{plain.aside} is there already, from a volume of that name that was converted before: remove it if it is not needed")
    if plain.unbindable:
        raise HandoverError(
            f"{name} cannot be bound to another folder: {plain.unbindable}: stop its container, remove the volume, make it with this module, and copy the files"
        )
    if plain.user:
        _check_user(plain.user, begun)


def check_image(wanted: Wanted, exists: bool, begun: bool) -> None:
    """Nothing is copied into an image that is another's."""
    if exists and not begun:
        raise HandoverError(f"{wanted.image} exists, and podman's volume {wanted.podman_volume} is a plain one: move the image away, or name another one")


def _check_user(user: User, begun: bool) -> None:
    if user.session:
        raise HandoverError(f"{user.name} is being moved by session {user.session}: wait for its end, or resolve it")
    if user.state not in (*_STATES, *(_ALIVE if begun else ())):
        raise HandoverError(f"{user.name} is {user.state}: let it run, or stop it first")
    if len(user.units) > 1:
        raise HandoverError(f"{user.name} is started by more than one unit ({listed(user.units)}): leave one of them")
    if user.running and user.units and not user.active and not begun:
        raise HandoverError(f"{user.name} runs, and its unit {user.units[0]} is not active: start it by that, with `systemctl restart {user.units[0]}`")
    if user.running and user.auto_remove and not user.units:
        raise HandoverError(f"{user.name} was created with --rm, and is gone once it stops: create it without, or run it by a unit")


def check_memory(plain: Plain, restart: bool) -> None:
    """Nothing loses its memory and connections without leave."""
    if plain.user and plain.user.unkept and not restart:
        raise HandoverError(f"{plain.user.name} would lose its memory and connections: {plain.user.unkept}: mend that, or let it stop and start (restart=true)")


def need(plain: Plain) -> int:
    """Bytes that the files take in a file system of their own."""
    return plain.used + plain.used // 16 + plain.files * PER_FILE + FORMAT_NEEDS


def size_for(plain: Plain, fstype: str) -> int:
    """The size of an image in which the files fit twice."""
    size = max(LEAST, 1 << (SMALLEST[fstype] - 1).bit_length())
    while size < 2 * need(plain):
        size *= 2
    return size


def check_room(plain: Plain, wanted: Wanted, free: int) -> None:
    """All files have to fit, into the image and onto the disk."""
    needed, size = need(plain), t.cast(int, wanted.size)
    holds = f"the volume {plain.name} has {format_size(plain.used)} in {plain.files} files, which take up to {format_size(needed)} in an image"
    if size < needed:
        raise HandoverError(f"{holds}, and size={format_size(size)} is asked for: ask for {format_size(size_for(plain, wanted.fstype))}, or leave size out")
    if free < needed:
        raise HandoverError(
            f"{holds}, and {format_size(free)} are free in {posixpath.dirname(wanted.image)}: free {format_size(needed - free)}, or name an image elsewhere"
        )


def inodes(plain: Plain, wanted: Wanted) -> list[str]:
    """Arguments for the formatter, if the files are too many for the usual number of inodes."""
    wants, usual = 2 * plain.files, t.cast(int, wanted.size) // 16384
    return ["-N", str(wants)] if wanted.fstype == "ext4" and wants > usual else []


def reason(plain: Plain) -> str:
    """Why something is done."""
    return f"podman keeps the volume {plain.name} in a plain folder, with {format_size(plain.used)} in {plain.files} files"


def forecast(plain: Plain) -> str:
    """What will be done, for people."""
    copied = f"copying takes some {max(1, round(plain.used / RATE))} s at {format_size(RATE)}/s"
    kept = f"the plain folder is kept as {plain.aside}"
    if plain.user is None or not plain.user.running:
        return f"{copied}, and no container has to stop; {kept}"
    user = plain.user
    if not user.unkept:
        still = STILL + 2 * user.memory / CRIU_RATE  # to dump it, and to restore it
        return f"{copied} while {user.name} runs; then it stands still for some {still:.1f} s, and keeps its memory and connections; {kept}"
    by = f" (its unit {user.units[0]})" if user.units else ""
    why = f"as its memory cannot be kept: {user.unkept}"
    return f"{copied} while {user.name} runs; then it{by} stops and starts, with some {BETWEEN} s between, {why}; {kept}"


# By whether the container kept its memory, the verbs of what was done.
_VERBS = {True: ("stood still, with its memory and connections,", "to dump it", "to restore it"), False: ("was down", "to stop", "to start")}


def told(plain: Plain, facts: t.Mapping[str, t.Any]) -> str:
    """What was done, for people."""
    kept = f"the plain folder is kept as {facts['kept']}" if facts["kept"] else "the plain folder is removed"
    copied = f"{format_size(facts['bytes'])} were copied"
    anew = f"; {facts['container']} began anew, without its memory: {facts['anew']}" if facts["anew"] else ""
    if facts["paused_ms"] is None:  # of a run that was cut off
        runs = f", and {facts['container']} runs on with its memory and connections" if facts["memory"] else ""
        return f"{copied}{runs}{anew}; {kept}"
    did, stop, start = _VERBS[bool(facts["memory"])]
    parts = ", ".join(f"{facts[key]} ms {what}" for key, what in (("stop_ms", stop), ("last_ms", "for the last files"), ("start_ms", start)))
    return f"{copied}, and {facts['container']} {did} for {facts['paused_ms']} ms ({parts}){anew}; {kept}"
