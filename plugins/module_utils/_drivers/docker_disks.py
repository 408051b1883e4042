# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The image volumes below the mounts of a container of Docker's.

A move does not ask for them: to it an image volume is a path of the host, like any other.
"""

from __future__ import annotations

import typing as t

from .._core import loop
from .._podman.volume_facts import image_volume_below

# For sentences.
ENGINE = "Docker's"


def with_disks(workload: dict[str, t.Any]) -> dict[str, t.Any]:
    """As workload_info has one of podman's: each mount with its folder of the host, and the image volume that this lies on."""
    mounts = loop.read_mounts()
    for mount in workload.get("mounts") or []:
        directory = mount["source"] if mount["type"] == "bind" else ((mount.get("volume") or {}).get("options") or {}).get("device") or ""
        mount.update(directory=directory, image_volume=image_volume_below(directory, mounts) if directory else None)
    # Where a copy of its memory lies while it is taken, too.
    return {**workload, "engine": ENGINE, **({"static_dir": workload["own_dir"]} if "own_dir" in workload else {})}


def of_group(word: str, members: t.Sequence[dict[str, t.Any]]) -> dict[str, t.Any]:
    """Several containers, of which copies are of one moment."""
    running = sorted(member["name"] for member in members if member["running"])
    state = "running" if running else "exited"
    return {
        "exists": True, "running": bool(running), "held": False, "name": word, "id": "", "state": state, "running_members": running,
        "engine": ENGINE, "members": [{**member, "infra": False} for member in members],
    }  # fmt: skip
