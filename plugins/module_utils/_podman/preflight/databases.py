# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Databases of SQLite's that are open in a live move: each has to keep its device and its inode, by which the library knows it.

On an image volume files keep their inodes, and the volume its device's number, if that is free. All other files get another inode.
"""

from __future__ import annotations

import typing as t

from ..._core.databases import volume_of
from .plan import Check, Plan


def _databases(plan: Plan) -> t.Iterator[str]:
    taken = plan.there["host"].get("loops", [])
    for path, found in {each["detail"]: each for each in plan.container["obstacles"] if each["check"] == "databases"}.items() if plan.live else ():
        volume = volume_of(plan.mounts, path)
        if volume and volume["device"] not in taken:
            continue
        yield "{0} has the SQLite database {1} open on {2} ({3}, pid {4}), known to it by device and inode, and {5} on {6}: {7}, or move it with {8}".format(
            plan.workload,
            path,
            plan.source,
            found["process"],
            found["pid"],
            "its device {0} is taken".format(volume["device"]) if volume else "its inode is another",
            plan.destination,
            "have that detached there" if volume else "put it on an image volume (role image_volume)",
            "migrate_mode=offline",
        )


CHECKS: dict[str, Check] = {"databases": _databases}
