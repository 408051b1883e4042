# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Looks at the disks of a guest: each image and all that it stands on, as the images say themselves; devices and their identity; other users.

The same is looked at on both hosts, and disk_rules holds one answer against the other. The format of an image is the one that its definition or the
image above it names: a guest can write any header into its raw disk, so none is guessed.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import stat
import subprocess
import time
import typing as t
from xml.etree import ElementTree

from .._core.loop import LOSETUP_COLUMNS, parse_losetup
from .._core.runtime import HandoverError
from .host_look import digest, owner

# There is no module at hand, whose run_command would start these programs.
# pylint: disable=ansible-bad-function

# Lies beside an image while both hosts look: one that is seen on both sides proves that both see one folder.
STAMP = ".handover-stamp-"
STAMP_SECONDS = 3600
QEMU_IMG_SECONDS = 120
QEMU_PIDS = "/run/libvirt/qemu"
# Of a disk these say which one it is, on any host. Others (t10, virtio serials) are often the same for every disk of a kind.
WORLD_WIDE = ("naa.", "eui.", "uuid.")


def disks(root: ElementTree.Element) -> list[dict[str, t.Any]]:
    """The disks of a definition that can hold a guest's data."""
    found = []
    for disk in root.findall("devices/disk"):
        source, driver, target = disk.find("source"), disk.find("driver"), disk.find("target")
        if disk.get("device") in ("cdrom", "floppy") or (source is None and disk.get("type") not in ("vhostuser", "nvme")):
            continue
        where = {} if source is None else source.attrib
        found.append(
            {
                "target": "" if target is None else target.get("dev", ""),
                "kind": disk.get("type", ""),
                "path": where.get("file") or where.get("dev") or where.get("dir") or where.get("path") or "",
                "pool": where.get("pool", ""),
                "volume": where.get("volume", ""),
                "format": "raw" if driver is None else driver.get("type", "raw"),
                "read_only": disk.find("readonly") is not None,
                "shareable": disk.find("shareable") is not None,
            }
        )
    return found


def resolve(libvirt: t.Any, connection: t.Any, disk: dict[str, t.Any]) -> dict[str, t.Any]:
    """A volume of a pool has a path, and is a file or a device by it."""
    if disk["kind"] != "volume":
        return disk
    with contextlib.suppress(libvirt.libvirtError):
        disk = {**disk, "path": connection.storagePoolLookupByName(disk["pool"]).storageVolLookupByName(disk["volume"]).path()}
    return disk


def chain(path: str, form: str) -> list[dict[str, t.Any]]:
    """An image and its backing files, nearest first, as the images say."""
    if form == "raw":
        return [{"path": path, "format": "raw"}]
    argv = ["qemu-img", "info", "--force-share", "--backing-chain", "--output=json", "-f", form, path]
    try:
        said = subprocess.run(argv, capture_output=True, timeout=QEMU_IMG_SECONDS, check=False)
    except FileNotFoundError as exc:
        raise HandoverError("this host has no qemu-img, which says of an image where it stands on: install qemu-utils") from exc
    except subprocess.TimeoutExpired as exc:
        raise HandoverError(f"qemu-img said nothing of {path} within {QEMU_IMG_SECONDS} s: look whether its storage answers") from exc
    if said.returncode != 0:
        words = said.stderr.decode("utf-8", "replace").strip().splitlines() or ["it said nothing"]
        raise HandoverError(f"qemu-img cannot read {path} and all that it stands on ({words[-1]}): see `qemu-img info --backing-chain {path}`")
    return [_layer(each) for each in json.loads(said.stdout.decode("utf-8"))]


def _layer(said: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    special = said.get("format-specific", {}).get("data", {})
    return {
        "path": said["filename"],
        "format": said["format"],
        "virtual_size": said.get("virtual-size", 0),
        "cluster_size": said.get("cluster-size", 0),
        "snapshots": [each.get("name", "") for each in said.get("snapshots", [])],
        "backing_format": said.get("backing-filename-format", ""),
        "compat": special.get("compat", ""),
        "lazy_refcounts": bool(special.get("lazy-refcounts")),
        "refcount_bits": special.get("refcount-bits", 16),
        "extended_l2": bool(special.get("extended-l2")),
        "data_file": special.get("data-file", ""),
        "encrypted": bool(said.get("encrypted")),
    }


def image(path: str, contents: bool = False, sys: str = "/sys") -> dict[str, t.Any]:
    """The file at a path: the link itself and its target."""
    folder = _existing(os.path.dirname(path) or "/")
    room = os.statvfs(folder)
    found: dict[str, t.Any] = {
        "exists": os.path.lexists(path), "link": os.path.islink(path), "real": os.path.realpath(path),
        "file_system": os.stat(folder).st_dev, "free": room.f_bavail * room.f_frsize,
    }  # fmt: skip
    try:
        status = os.stat(path)
    except OSError:
        return {**found, "kind": "dangling" if found["exists"] else "nothing"}
    if stat.S_ISBLK(status.st_mode):
        number = f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
        return {**found, "kind": "block", "number": number, "size": _device_size(number, sys), "identity": identity(number, sys), **owner(status)}
    kind = "file" if stat.S_ISREG(status.st_mode) else "folder" if stat.S_ISDIR(status.st_mode) else "other"
    found.update(kind=kind, inode=status.st_ino, size=status.st_size, allocated=status.st_blocks * 512, **owner(status))
    if contents and kind == "file":
        found["digest"] = digest(path)
    return found


def _existing(folder: str) -> str:
    while folder and not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    return folder or "/"


def _text(*path: str) -> str:
    try:
        with open(os.path.join(*path), encoding="utf-8", errors="replace") as source:
            return source.read().strip()
    except OSError:
        return ""


def _device_size(number: str, sys: str) -> int:
    return int(_text(sys, "dev/block", number, "size") or 0) * 512


def identity(number: str, sys: str = "/sys") -> str:
    """Which device it is, the same on every host that sees it; empty where nothing tells. A mapped device is known by all that is below it."""
    place = os.path.realpath(os.path.join(sys, "dev/block", number))
    if os.path.exists(os.path.join(place, "partition")):
        whole = identity(_text(os.path.dirname(place), "dev"), sys)
        return f"{whole} from {_text(place, 'start')} for {_text(place, 'size')}" if whole else ""
    slaves = sorted(os.listdir(os.path.join(place, "slaves"))) if os.path.isdir(os.path.join(place, "slaves")) else []
    if slaves:
        below = [identity(_text(place, "slaves", name, "dev"), sys) for name in slaves]
        name = _text(place, "dm/uuid") or _text(place, "md/uuid")
        return f"{name} on {', '.join(sorted(set(below)))}" if name and all(below) else ""
    name = _text(place, "wwid") or _text(place, "device/wwid")
    return name if name.startswith(WORLD_WIDE) else ""


def stamp(paths: t.Iterable[str]) -> dict[str, str]:
    """Puts a file beside each image. Returns the path of an image → the name of its stamp; none where nothing can be written."""
    made: dict[str, str] = {}
    for path in paths:
        folder = os.path.dirname(os.path.realpath(path))
        if folder in made or not os.path.isfile(path):
            continue
        _sweep(folder)
        name = STAMP + secrets.token_hex(16)
        with contextlib.suppress(OSError):
            os.close(os.open(os.path.join(folder, name), os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o600))
            made[folder] = name
    return {path: made[folder] for path in paths for folder in [os.path.dirname(os.path.realpath(path))] if folder in made}


def _sweep(folder: str) -> None:
    """The leftovers of a look that was killed."""
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            if name.startswith(STAMP) and os.lstat(path).st_mtime < time.time() - STAMP_SECONDS:
                os.unlink(path)


def stamped(path: str, name: str) -> bool:
    """Whether the stamp that the other host has put beside an image is here, too."""
    return os.path.isfile(os.path.join(os.path.dirname(os.path.realpath(path)), name))


def unstamp(stamps: t.Mapping[str, str]) -> None:
    for path, name in stamps.items():
        if name.startswith(STAMP) and "/" not in name:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(os.path.dirname(os.path.realpath(path)), name))


# --- its other users ---


def users(libvirt: t.Any, connection: t.Any, uuid: str, paths: t.Iterable[str]) -> dict[str, list[dict[str, t.Any]]]:
    """Other guests of this host that have an image in one of their chains, also those that are off."""
    keys = {path: key for path in paths for key in [_key(path)] if key}
    found: dict[str, list[dict[str, t.Any]]] = {path: [] for path in keys}
    for domain in connection.listAllDomains():
        if domain.UUIDString() == uuid:
            continue
        try:
            texts = [domain.XMLDesc(0), *([domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)] if domain.isActive() and domain.isPersistent() else [])]
        except libvirt.libvirtError as exc:
            if exc.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN:
                continue  # it has gone since
            raise
        for disk in (resolve(libvirt, connection, each) for text in texts for each in disks(ElementTree.fromstring(text))):
            for used in {_key(layer) for layer in _layers(disk)} - {None}:
                for path in (path for path, key in keys.items() if key == used):
                    use = {"guest": domain.name(), "running": bool(domain.isActive()), "shareable": disk["shareable"]}
                    if use not in found[path]:
                        found[path].append(use)
    return found


def _layers(disk: t.Mapping[str, t.Any]) -> list[str]:
    if not disk["path"]:
        return []
    with contextlib.suppress(HandoverError):
        return [disk["path"], *(each["path"] for each in chain(disk["path"], disk["format"]))]
    return [disk["path"]]


def _key(path: str) -> tuple[str, int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return ("block", status.st_rdev, 0) if stat.S_ISBLK(status.st_mode) else ("file", status.st_dev, status.st_ino)


def holders(guest: str, paths: t.Iterable[str], proc: str = "/proc") -> dict[str, list[str]]:
    """Processes that have an image open, and loop devices on it; but for the guest's own and libvirt's lock daemon."""
    keys = {key: path for path in paths for key in [_key(path)] if key}
    own = _text(QEMU_PIDS, f"{guest}.pid")
    found: dict[str, list[str]] = {path: [] for path in keys.values()}
    for pid in (name for name in os.listdir(proc) if name.isdigit() and name not in (own, str(os.getpid()))):
        with contextlib.suppress(OSError):
            for number in os.listdir(os.path.join(proc, pid, "fd")):
                path = keys.get(_key(os.path.join(proc, pid, "fd", number)) or ("", 0, 0))
                command = _text(proc, pid, "comm")
                if path and command != "virtlockd" and f"{command} (pid {pid})" not in found[path]:
                    found[path].append(f"{command} (pid {pid})")
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        said = subprocess.run(["losetup", "--list", "--json", "--output", LOSETUP_COLUMNS], stdout=subprocess.PIPE, timeout=30, check=True)
        for loop in parse_losetup(said.stdout.decode("utf-8")):
            for (kind, device, inode), path in keys.items():
                if kind == "file" and loop.backing == (f"{os.major(device)}:{os.minor(device)}", inode):
                    found[path].append(f"the loop device {loop.name}")
    return found
