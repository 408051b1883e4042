# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The OSDs of this host, however they were deployed.

A deployment is a row of `LAYOUTS`: where an OSD's folder is, how its unit, its admin socket and its container are called, and which folder
of the host the container sees, under which name.
"""

from __future__ import annotations

import glob
import os
import re
import stat
import typing as t
from dataclasses import dataclass

from .._core.host import read_text
from .._core.runtime import HandoverError, Runtime
from .asok import AdminSocket

_FSID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_ENGINES = ("podman", "docker")


@dataclass(frozen=True)
class Layout:
    """Where things are in one kind of deployment."""

    deployment: str
    homes: str  # pattern for the folders of OSDs
    home: str  # the form of such a folder, as a regular expression that names the parts for the other columns
    unit: str
    socket: str
    containers: tuple[str, ...]  # names that the container may have; none: there is no container
    shared: str  # a folder of the host that the container sees …
    seen: str  # … under this name


LAYOUTS = (
    Layout(
        deployment="packaged",
        homes="/var/lib/ceph/osd/*",
        home=r"/var/lib/ceph/osd/(?P<cluster>[^/]+)-(?P<id>\d+)",
        unit="ceph-osd@{id}.service",
        socket="/var/run/ceph/{cluster}-osd.{id}.asok",
        containers=(),
        shared="/run",
        seen="/run",
    ),
    # The same folders and units; but the unit runs a container, and the folders are filled inside of it.
    Layout(
        deployment="ceph-ansible",
        homes="/var/lib/ceph/osd/*",
        home=r"/var/lib/ceph/osd/(?P<cluster>[^/]+)-(?P<id>\d+)",
        unit="ceph-osd@{id}.service",
        socket="/var/run/ceph/{cluster}-osd.{id}.asok",
        containers=("ceph-osd-{id}",),
        shared="/var/run/ceph",
        seen="/var/run/ceph",
    ),
    Layout(
        deployment="cephadm",
        homes="/var/lib/ceph/*/osd.*",
        home=rf"/var/lib/ceph/(?P<fsid>{_FSID})/osd\.(?P<id>\d+)",
        unit="ceph-{fsid}@osd.{id}.service",
        socket="/var/run/ceph/{fsid}/ceph-osd.{id}.asok",
        # Before 16.2.7 with a dot.
        containers=("ceph-{fsid}-osd-{id}", "ceph-{fsid}-osd.{id}"),
        shared="/var/run/ceph/{fsid}",
        seen="/var/run/ceph",
    ),
)


@dataclass(frozen=True)
class Osd:
    """One OSD of this host."""

    id: int
    layout: Layout
    names: t.Mapping[str, str]
    folder: str
    root: str = "/"

    @property
    def unit(self) -> str:
        return self.layout.unit.format(**self.names)

    @property
    def socket(self) -> AdminSocket:
        return AdminSocket(self.layout.socket.format(**self.names))

    @property
    def shared(self) -> str:
        """A folder that the OSD's tools see too …"""
        return self.layout.shared.format(**self.names)

    @property
    def seen(self) -> str:
        """… and under which name."""
        return self.layout.seen.format(**self.names)

    @property
    def home(self) -> str:
        """The OSD's folder with something in it: that of a container may be filled inside of it only."""
        if not os.path.exists(os.path.join(self.folder, "type")):
            pid = self.pid()
            inside = f"/proc/{pid}/root/var/lib/ceph/osd/ceph-{self.id}"
            if pid and os.path.exists(os.path.join(inside, "type")):
                return inside
        return self.folder

    def store(self) -> str:
        """`bluestore` or `filestore`; empty while its disk is not there."""
        return read_text(os.path.join(self.home, "type")).strip()

    def pid(self) -> int | None:
        """The process of the daemon, which in a container is not the unit's main process."""
        for entry in os.listdir(os.path.join(self.root, "proc")):
            if entry.isdigit() and _is_daemon(read_text(os.path.join(self.root, "proc", entry, "cmdline")).split("\0"), self.id):
                return int(entry)
        return None

    def devices(self) -> dict[str, str]:
        """The block devices that BlueStore has, by the name of their links."""
        found = {}
        for name in ("block", "block.db", "block.wal"):
            path = os.path.realpath(os.path.join(self.home, name))
            if os.path.exists(path) and stat.S_ISBLK(os.stat(path).st_mode):
                found[name] = path
        return found

    def disks(self) -> list[str]:
        """Kernel names (major:minor) of the devices that it reads from."""
        numbers = [os.stat(path).st_rdev for path in self.devices().values()] or [os.stat(self.home).st_dev]
        return [f"{os.major(number)}:{os.minor(number)}" for number in numbers]

    def tool(self, runtime: Runtime, tool: str) -> list[str]:
        """How one of Ceph's tools is called so that it fits the daemon's release."""
        if not self.layout.containers:
            return [runtime.tool(tool, "ceph-osd")]
        engine = next((path for path in map(runtime.find, _ENGINES) if path), None)
        if engine is None:
            raise HandoverError(f"osd.{self.id} runs in a container, and this host has neither podman nor docker")
        names = [name.format(**self.names) for name in self.layout.containers]
        listed = runtime.run([engine, "ps", "--format", "{{.Names}}"]).stdout.split()
        running = next((name for name in names if name in listed), None)
        if running is None:
            raise HandoverError(f"osd.{self.id} has no running container named {' or '.join(names)} on this host: start it first")
        return [engine, "exec", running, tool]


def _is_daemon(argv: t.Sequence[str], number: int) -> bool:
    if os.path.basename(argv[0]) != "ceph-osd":
        return False
    # ceph-ansible writes `-i=2`.
    words = [word for each in argv for word in (each.split("=", 1) if each.startswith("-") else [each])]
    pairs = set(zip(words, words[1:]))
    return bool(pairs & {("--id", str(number)), ("-i", str(number)), ("-n", f"osd.{number}"), ("--name", f"osd.{number}")})


def find_osds(runtime: Runtime, root: str = "/") -> list[Osd]:
    """The OSDs of this host, by number."""
    found: dict[int, Osd] = {}
    for layout in LAYOUTS:
        for folder in sorted(glob.glob(os.path.join(root, layout.homes.lstrip("/")))):
            match = re.fullmatch(layout.home, "/" + os.path.relpath(folder, root))
            if not match:
                continue
            osd = Osd(int(match["id"]), layout, match.groupdict(), folder, root)
            if osd.id in found and found[osd.id].layout.home != layout.home:
                raise HandoverError(f"osd.{osd.id} is on this host twice, as {found[osd.id].folder} and as {folder}: remove the folder that is not in use")
            if _in_container(runtime, osd.unit) == bool(layout.containers):
                found[osd.id] = osd
    return [found[number] for number in sorted(found)]


def _in_container(runtime: Runtime, unit: str) -> bool:
    """Whether a unit runs a container: by the script that cephadm writes, or by commands of its own. Of ceph-ansible's only that which stops it need be one."""
    commands = runtime.run([runtime.tool("systemctl", "systemd"), "show", "--property=ExecStart,ExecStop", "--value", unit]).stdout
    return any(word in commands for word in ("podman", "docker", "unit.run"))


def find_osd(runtime: Runtime, number: int, root: str = "/") -> Osd:
    """One OSD of this host."""
    osds = find_osds(runtime, root)
    for osd in osds:
        if osd.id == number:
            return osd
    there = ", ".join(f"osd.{osd.id}" for osd in osds) or "none"
    raise HandoverError(f"osd.{number} is not on this host ({there}): name one that is")
