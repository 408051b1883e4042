# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a container can run on from the memory in a backup: on this host, as it is now.

The checks are those of a move. The host of the backup is as it was then, and the way out is another than that of a move.
"""

from __future__ import annotations

import typing as t

from ..._core.move import LIVE
from ..clone import LABEL as CLONE
from ..essence import essence, first_difference
from ..preflight import cpu, criu
from ..preflight.plan import Facts, Plan

# Of the host, taken along with the memory.
HOST_FACTS = ("name", "arch", "kernel", "cpu_features", "criu")

# The checks of a move that are about a dump and the host that it comes to. Sockets, timers and the network's lock are none of these: they are about dumping.
CHECKS = {name: {**cpu.CHECKS, **criu.CHECKS}[name] for name in ("architecture", "cpu", "criu", "criu_sockets", "criu_versions", "kernel")}

WAY_OUT = "restore the disks alone (handover_memory=false), or choose a host that fits"


def host_then(host: Facts) -> dict[str, t.Any]:
    """What a restore has to know of the host of a backup with memory."""
    return {fact: host[fact] for fact in HOST_FACTS}


def misfits(workload: str, runtime: str, there: str, then: Facts, now: Facts, source: str = "") -> list[str]:
    """Why the memory cannot be restored on a host, each reason without its way out: it ran under one runtime, and the engine uses another one there.

    `source` is what the other host is called; of a backup it is then's."""
    plan = Plan(workload, source or "{0} at the backup".format(then["name"]), now["name"], LIVE, {"host": then}, {"host": now})
    found = [sentence.partition(": ")[0] for check in CHECKS.values() for sentence in check(plan)]
    if not there or there != runtime:
        unknown = "an unknown runtime"
        found.append("{0} ran under {1}, and {2} has {3} for it".format(workload, runtime or unknown, now["name"], there or unknown))
    return found


def alike(configuration: Facts, inspect: Facts) -> bool:
    """Whether a container was made as the one of a backup was, of the same image: so has one that moved, or that was made again."""
    known = configuration.get("essence")
    if not known or configuration["image"]["id"] != inspect.get("Image"):
        return False
    before = configuration.get("id")
    # One that has moved keeps the name that podman gave it by the ID that it had.
    return first_difference(own(known, before), own(essence(inspect), inspect.get("Id"), before)) is None


def own(known: Facts, *identifiers: str | None) -> dict[str, t.Any]:
    """Without the label that says from which backup it was made again, and without the name that podman gives a host by the container's ID."""
    own = {**known, "Config.Labels": {key: value for key, value in (known.get("Config.Labels") or {}).items() if key != CLONE}}
    given = known.get("Config.Hostname")
    if given in [each[:12] for each in identifiers if each]:
        own.update({"Config.Hostname": None, "Config.Env": [word for word in known.get("Config.Env") or [] if word != "HOSTNAME=" + given]})
    return own
