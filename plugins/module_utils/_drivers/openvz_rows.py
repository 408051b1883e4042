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

from .._core import host
from .._core.placement import OPENVZ
from .._core.runtime import Runtime
from .._openvz.driver import look

# The account that OpenVZ's kernel keeps of a container (its user beancounters), in pages: name, held, highest, barrier, limit, failures.
ACCOUNT = "/proc/bc/{0}/resources"
_HELD = "physpages"


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
            "memory": _memory(each["id"]) if each["running"] else 0,
            "disk": 0,
        }
        for each in found
        if each["exists"]
    ]


def _memory(ctid: str) -> int:
    """Bytes that its processes hold; 0 where the kernel keeps no such account."""
    for line in host.read_text(ACCOUNT.format(ctid)).splitlines():
        words = line.split()
        if words[:1] == [_HELD] and len(words) > 1 and words[1].isdigit():
            return int(words[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0
