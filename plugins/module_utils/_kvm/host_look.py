# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host's share of the things that guests name: files and their digests, network devices, ports, processors, huge pages, devices.

The same is looked at on both hosts, so that two answers can be held against each other. Only reads.
"""

from __future__ import annotations

import contextlib
import grp
import hashlib
import os
import pwd
import re
import socket
import stat
import struct
import typing as t

from .._core.host import numbers, online_processors
from .._core.loop import Mount, read_mounts
from .cache import SHARED_FILE_SYSTEMS

HOOKS = "/etc/libvirt/hooks"
KINDS = (
    (stat.S_ISREG, "file"), (stat.S_ISDIR, "folder"), (stat.S_ISBLK, "block"), (stat.S_ISCHR, "character"), (stat.S_ISSOCK, "socket"), (stat.S_ISFIFO, "pipe"),
)  # fmt: skip
LISTENS = "0A"


def look(places: t.Iterable[str], files: t.Iterable[str], trees: t.Iterable[str], root: str = "/") -> dict[str, t.Any]:
    """`places` are looked for, of `files` the digest is read as well, and of `trees` the digest of all that is below."""
    mounts = read_mounts()
    contents = set(files)
    return {
        "places": {path: place(path, mounts, path in contents) for path in sorted({*places, *contents})},
        "trees": {path: tree(path) for path in sorted(trees)},
        "links": links(root),
        "addresses": addresses(root),
        "ports": ports(root),
        "processors": online_processors(root),
        "nodes": numbers(_read(root, "sys/devices/system/node/online")),
        "hugepages": hugepages(root),
        "pci": pci(root),
        "mdev": _names(root, "sys/bus/mdev/devices"),
        "usb": usb(root),
        "hooks": {entry["path"]: entry["digest"] for entry in tree(os.path.join(root, HOOKS.lstrip("/")))},
    }


def place(path: str, mounts: t.Sequence[Mount], contents: bool) -> dict[str, t.Any]:
    """The file at a path, links followed."""
    try:
        status = os.stat(path)
    except OSError:
        return {"exists": False}
    kind = next((name for test, name in KINDS if test(status.st_mode)), "other")
    real = os.path.realpath(path)
    found = {"exists": True, "kind": kind, "real": real, "size": status.st_size, **owner(status), "shared": shared_from(real, mounts)}
    if contents and kind in ("file", "block"):
        found["digest"] = digest(path)
    return found


def tree(path: str) -> list[dict[str, t.Any]]:
    """A file, or all that is in a folder and the folder itself, without the name of another file."""
    if not os.path.lexists(path):
        return []
    found = [_entry(path, ".")]
    if os.path.isdir(path) and not os.path.islink(path):
        for folder, folders, names in os.walk(path):
            folders.sort()
            found += [_entry(os.path.join(folder, name), os.path.relpath(os.path.join(folder, name), path)) for name in sorted([*folders, *names])]
    return found


def _entry(path: str, name: str) -> dict[str, t.Any]:
    status = os.lstat(path)
    kind = "link" if stat.S_ISLNK(status.st_mode) else next((word for test, word in KINDS if test(status.st_mode)), "other")
    label = ""
    with contextlib.suppress(OSError):
        label = os.getxattr(path, "security.selinux", follow_symlinks=False).rstrip(b"\0").decode("utf-8", "replace")
    return {"path": name, "kind": kind, **owner(status), "label": label, "digest": digest(path) if kind == "file" else ""}


def owner(status: os.stat_result) -> dict[str, str]:
    """By name: hosts number their users each in their own way."""
    names = {"owner": str(status.st_uid), "group": str(status.st_gid)}
    with contextlib.suppress(KeyError):
        names["owner"] = pwd.getpwuid(status.st_uid).pw_name
    with contextlib.suppress(KeyError):
        names["group"] = grp.getgrgid(status.st_gid).gr_name
    return {**names, "mode": f"{stat.S_IMODE(status.st_mode):04o}"}


def digest(path: str) -> str:
    """SHA-256 of a file's content."""
    found = hashlib.sha256()
    with open(path, "rb") as source:
        for piece in iter(lambda: source.read(1 << 20), b""):
            found.update(piece)
    return found.hexdigest()


def shared_from(real: str, mounts: t.Sequence[Mount]) -> str:
    """From where a path is mounted that other hosts mount, too; empty where its file system is this host's own."""
    holding = [m for m in mounts if real == m.mountpoint or real.startswith(m.mountpoint.rstrip("/") + "/")]
    if not holding:
        return ""
    mount = max(enumerate(holding), key=lambda pair: (len(pair[1].mountpoint), pair[0]))[1]
    if mount.fstype not in SHARED_FILE_SYSTEMS:
        return ""
    # Only a part of a file system may be mounted.
    inside = os.path.normpath(os.path.join(part_mounted(mount.mountpoint), os.path.relpath(real, mount.mountpoint)))
    return f"{mount.fstype} {mount.source} {inside}"


def part_mounted(mountpoint: str, text: str | None = None) -> str:
    """The folder of the file system that is seen at a mount."""
    found = "/"
    for fields in map(str.split, (_read("/", "proc/self/mountinfo") if text is None else text).splitlines()):
        if len(fields) > 4 and fields[4] == mountpoint:
            found = fields[3]
    return found


def links(root: str = "/") -> dict[str, str]:
    """Network devices, and which of them are bridges."""
    folder = os.path.join(root, "sys/class/net")
    return {name: "bridge" if os.path.isdir(os.path.join(folder, name, "bridge")) else "device" for name in _names(root, "sys/class/net")}


def addresses(root: str = "/") -> list[str]:
    """The host's own addresses, from the kernel's tables."""
    found = set()
    local = re.compile(r"\|-- ([0-9.]+)\n\s+/32 host LOCAL")
    found.update(local.findall(_read(root, "proc/net/fib_trie")))
    for line in _read(root, "proc/net/if_inet6").splitlines():
        found.add(socket.inet_ntop(socket.AF_INET6, bytes.fromhex(line.split()[0])))
    return sorted(found)


def ports(root: str = "/") -> list[str]:
    """Where TCP is listened on: address and port."""
    found = set()
    for table in ("tcp", "tcp6"):
        for fields in map(str.split, _read(root, f"proc/net/{table}").splitlines()[1:]):
            if len(fields) > 3 and fields[3] == LISTENS:
                address, _colon, port = fields[1].partition(":")
                found.add(f"{_address(address)} {int(port, 16)}")
    return sorted(found)


def _address(text: str) -> str:
    """The kernel writes words in the order of the processor's bytes."""
    raw = b"".join(struct.pack("=I", int(text[at : at + 8], 16)) for at in range(0, len(text), 8))
    return socket.inet_ntop(socket.AF_INET if len(raw) == 4 else socket.AF_INET6, raw)


def hugepages(root: str = "/") -> dict[str, dict[str, int]]:
    """Size in KiB → how many there are, and how many are free."""
    folder, found = "sys/kernel/mm/hugepages", {}
    for name in _names(root, folder):
        size = re.sub(r"\D", "", name)
        counts = {key: _read(root, f"{folder}/{name}/{file}").strip() for key, file in (("total", "nr_hugepages"), ("free", "free_hugepages"))}
        found[size] = {key: int(value or 0) for key, value in counts.items()}
    default = re.search(r"^Hugepagesize:\s+(\d+) kB", _read(root, "proc/meminfo"), flags=re.MULTILINE)
    if default and default.group(1) in found:
        found["default"] = found[default.group(1)]
        found["default"]["size"] = int(default.group(1))
    return found


def pci(root: str = "/") -> dict[str, str]:
    """Address → vendor:product: an address says only where a device is plugged in."""
    folder = "sys/bus/pci/devices"
    return {name: ":".join(_read(root, f"{folder}/{name}/{part}").strip() for part in ("vendor", "device")) for name in _names(root, folder)}


def usb(root: str = "/") -> list[str]:
    """vendor:product of each device."""
    folder = "sys/bus/usb/devices"
    read = [(_read(root, f"{folder}/{name}/idVendor").strip(), _read(root, f"{folder}/{name}/idProduct").strip()) for name in _names(root, folder)]
    return sorted(f"{vendor}:{product}" for vendor, product in read if vendor)


def _names(root: str, folder: str) -> list[str]:
    try:
        return sorted(os.listdir(os.path.join(root, folder)))
    except OSError:
        return []


def _read(root: str, path: str) -> str:
    try:
        with open(os.path.join(root, path), encoding="utf-8", errors="replace") as source:
            return source.read()
    except OSError:
        return ""
