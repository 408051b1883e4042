# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A container whose root is an image volume as a whole (`podman create --rootfs`), as an import makes it: it has no image.

Its root stands among its mounts, on /, and moves as every image volume does.
"""

from __future__ import annotations

import os
import typing as t

from .._core import below, loop
from .volume_facts import image_volume_below

Facts = t.Mapping[str, t.Any]

ROOT = "rootfs"
# podman looks up the container's user in them, and sets HOME by that.
USERS = ("passwd", "group")
# Longer ones are no lists of users of a container's.
_MOST = 1 << 20


def mounts_of(facts: Facts, mounts: list[loop.Mount]) -> list[dict[str, t.Any]]:
    """The root as a mount of the container's; none where it has an image, or runs from any other directory."""
    root = facts["rootfs"].rstrip("/")
    volume = image_volume_below(root, mounts) if root else None
    if volume is None or volume["mountpoint"] != root or any(mount.mountpoint.startswith(root + "/") for mount in mounts):
        return []
    return [
        {
            "type": ROOT, "name": "", "source": root, "destination": "/", "options": [], "read_only": False, "propagation": "",
            "volume": None, "directory": root, "image_volume": volume, "directory_volume": None,
            "users": {name: (below.read(root, "etc/" + name) or b"")[:_MOST].decode("utf-8", "replace") for name in USERS},
        }
    ]  # fmt: skip


def _mount_of(facts: Facts) -> Facts | None:
    return next((mount for mount in facts.get("mounts") or [] if mount["type"] == ROOT), None)


def path_of(facts: Facts) -> str:
    """Where the root is on its host, and will be on another; empty where it is no image volume."""
    found = _mount_of(facts)
    return found["source"] if found else ""


def furnish(source: Facts) -> None:
    """An empty root, in which a twin is created and initialised, gets the lists of users, so that podman finds there what it found on the source."""
    found = _mount_of(source)
    if found is None:
        return
    folder = os.path.join(found["source"], "etc")
    os.makedirs(folder, exist_ok=True)
    for name, text in found["users"].items():
        if text:
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(text)
