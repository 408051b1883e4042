# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""OpenVZ's containers on this host, as the planner has to know them.

A container is named by its id, as vzctl and the role `migrate` name it. Its files lie where vz.conf says, which may be another file system on each host: so
the planner counts no disk for it, and the preflight looks for the room there.
"""

from __future__ import annotations

import os
import typing as t

from .._core.placement import OPENVZ
from .._core.runtime import Runtime
from .._openvz.driver import look


def runs(runtime: Runtime) -> bool:
    """Whether this is a host of OpenVZ's."""
    return runtime.find("vzctl") is not None and os.path.isdir(look.FOLDER)


def workloads(runtime: Runtime, asked: bool) -> list[dict[str, t.Any]]:
    """A row for each container that vzctl knows; `asked` where this is a host of OpenVZ's."""
    found = (look.Look(runtime, ctid).brief() for ctid in look.configured()) if asked else ()
    return [
        {
            "name": each["name"],
            "kind": OPENVZ,
            "running": each["running"],
            "state": each["state"],
            "labels": {},
            "memory": look.memory_of(each["id"]) if each["running"] else 0,
            "disk": 0,
        }
        for each in found
        if each["exists"]
    ]
