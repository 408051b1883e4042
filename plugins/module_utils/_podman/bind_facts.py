# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files and folders at the paths that a container bind-mounts, on this host."""

from __future__ import annotations

import hashlib
import os
import stat
import typing as t

from .._core import host
from .._core.bind_rules import FILE, FOLDER, KEPT
from .._core.loop import Mount
from .._core.runtime import HandoverError
from .container_facts import mounts_of

_KINDS = ((stat.S_ISDIR, FOLDER), (stat.S_ISREG, FILE), (stat.S_ISSOCK, "socket"), (stat.S_ISBLK, "device"), (stat.S_ISCHR, "device"), (stat.S_ISFIFO, "pipe"))
# A host gives its files this one itself.
_HOSTS_OWN = "security.selinux"


def kind_of(path: str) -> str:
    """The target of a path; empty if there is nothing."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return ""
    return next((name for test, name in _KINDS if test(mode)), "")


def of_mount(path: str, place: str, pid: int) -> dict[str, t.Any]:
    """The view of a container that mounts a path on `place`: a file is mounted as it was then, even if another has its name by now."""
    kind = kind_of(path)
    seen = [mount for mount in mounts_of(pid) if mount.place == place] if pid and kind == FILE else []
    return {
        "kind": kind,
        "names": os.stat(path).st_nlink if kind == FILE else 1,
        "replaced": any(os.path.basename(mount.root) != os.path.basename(os.path.realpath(path)) or mount.root.endswith("//deleted") for mount in seen[-1:]),
    }


def facts_of(path: str, mounts: t.Sequence[Mount], digest: bool) -> dict[str, t.Any]:
    """The facts about one path."""
    kind, gone = kind_of(path), missing(path)
    above = [mount for mount in mounts if (path + "/").startswith(mount.mountpoint.rstrip("/") + "/")]
    below = sorted(mount.mountpoint for mount in mounts if mount.mountpoint.startswith(path.rstrip("/") + "/"))
    return {
        **host.place(path),
        "kind": kind,
        "real": os.path.realpath(path),
        "empty": _empty(path, kind),
        "size": host.allocated(path) if kind else 0,
        "missing": gone,
        "inside": kind_of(os.path.dirname((gone or [path])[-1])),
        "kept": os.path.lexists(path + KEPT),
        "fstype": max(enumerate(above), key=lambda each: (len(each[1].mountpoint), each[0]))[1].fstype if above else "",
        "mounted": any(mount.mountpoint == path for mount in mounts),
        "mounts_below": below,
        "digest": digest_of(path) if digest and kind in (FILE, FOLDER) else "",
    }


def missing(path: str) -> list[str]:
    """The path and the folders above it that are not there, the deepest first."""
    found = []
    while not os.path.lexists(path) and os.path.dirname(path) != path:
        found.append(path)
        path = os.path.dirname(path)
    return found


def _empty(path: str, kind: str) -> bool:
    if kind == FOLDER:
        with os.scandir(path) as entries:
            return next(entries, None) is None
    return kind == FILE and os.stat(path).st_size == 0


def digest_of(path: str) -> str:
    """A digest of content, kinds, owners, modes and extended attributes; times are each host's own."""
    whole = hashlib.sha256()
    try:
        _add(whole, os.fsencode(os.path.realpath(path)), b".")
    except OSError as exc:
        raise HandoverError("{0} cannot be read ({1}), so it is not known whether both hosts have the same: see what it is".format(path, exc)) from exc
    return whole.hexdigest()


def _add(whole: t.Any, path: bytes, relative: bytes) -> None:
    status = os.lstat(path)
    numbers = [status.st_mode, status.st_uid, status.st_gid, status.st_rdev, 0 if stat.S_ISDIR(status.st_mode) else status.st_size]
    _word(whole, relative)
    _word(whole, " ".join(str(number) for number in numbers).encode())
    for name in sorted(_attributes(path)):
        _word(whole, os.fsencode(name))
        _word(whole, os.getxattr(path, name, follow_symlinks=False))
    if stat.S_ISLNK(status.st_mode):
        _word(whole, os.readlink(path))
    elif stat.S_ISREG(status.st_mode):
        with open(path, "rb") as file:
            content = hashlib.sha256()
            for piece in iter(lambda: file.read(1 << 20), b""):
                content.update(piece)
            _word(whole, content.digest())
    elif stat.S_ISDIR(status.st_mode):
        for entry in sorted(os.listdir(path)):
            _add(whole, os.path.join(path, entry), os.path.join(relative, entry))


def _attributes(path: bytes) -> list[str]:
    try:
        return [name for name in os.listxattr(path, follow_symlinks=False) if name != _HOSTS_OWN]
    except OSError:
        return []  # a file system without any


def _word(whole: t.Any, word: bytes) -> None:
    whole.update(len(word).to_bytes(8, "little"))
    whole.update(word)


def users_of(path: str, containers: t.Iterable[t.Mapping[str, t.Any]]) -> list[str]:
    """Names of the containers that mount this path, something in it, or a folder that it is in; by what an engine says of each. Links are followed."""

    def meets(other: str) -> bool:
        one, two = (os.path.realpath(each).rstrip("/") + "/" for each in (path, other))
        return one.startswith(two) or two.startswith(one)

    return sorted(
        container.get("Name") or ""
        for container in containers
        if any(mount.get("Type") == "bind" and mount.get("Source") and meets(mount["Source"]) for mount in container.get("Mounts") or [])
    )
