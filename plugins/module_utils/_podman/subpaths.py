# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Mounts of a folder or a file in a volume (`--mount type=volume,…,subpath=…`).

podman binds such a place to a path of its own when it readies a container, and names that path in the OCI configuration. A restore finds it there and
nothing behind it any more. So the configuration of a twin names the place in the volume, which has come by then.
"""

from __future__ import annotations

import json
import os
import posixpath
import stat
import typing as t

from .._core.bind_rules import FILE, FOLDER
from .._core.runtime import HandoverError
from .service_files import write_text

Facts = t.Mapping[str, t.Any]


def kind(volume: str, below: str) -> str:
    """What is there: a folder, a file, or nothing that is known to be the same by its path on another host."""
    path, names = volume, [name for name in posixpath.normpath(below).split("/") if name not in ("", ".")]
    try:
        for name in names:
            path = posixpath.join(path, name)
            mode = os.lstat(path).st_mode
            if name == ".." or stat.S_ISLNK(mode):
                return ""
    except OSError:
        return ""
    return FOLDER if not names or stat.S_ISDIR(mode) else FILE if stat.S_ISREG(mode) else ""


def make(volume: str, mounts: t.Iterable[Facts]) -> None:
    """Makes the places in an empty volume: podman looks for them when it readies the container."""
    for mount in mounts:
        path = place(volume, mount)
        if mount.get("subpath_kind") == FILE:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "ab"):
                pass
        else:
            os.makedirs(path, exist_ok=True)


def place(volume: str, mount: Facts) -> str:
    """Where a mount's place is."""
    return posixpath.normpath(posixpath.join(volume, mount["subpath"].lstrip("/")))


def name_places(configuration: str, places: t.Mapping[str, str]) -> None:
    """Has an OCI configuration name the places (by where the container sees them) as sources of its mounts."""
    if not places:
        return
    try:
        with open(configuration, encoding="utf-8") as opened:
            document = json.load(opened)
        left = dict(places)
        for mount in document["mounts"]:
            mount["source"] = left.pop(mount["destination"], mount["source"])
        if left:
            raise HandoverError("the OCI configuration {0} has no mount on {1}".format(configuration, ", ".join(sorted(left))))
        write_text(configuration, json.dumps(document).encode(), stat.S_IMODE(os.stat(configuration).st_mode))
    except (OSError, ValueError, KeyError, TypeError) as exc:
        raise HandoverError("the OCI configuration {0} cannot be written: {1}".format(configuration, exc)) from exc
