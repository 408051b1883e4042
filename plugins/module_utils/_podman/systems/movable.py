# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a container that is not made yet will be able to move live: by the preflight's own checks, as far as one host can answer them.

The move that they are asked about leads from the host to itself, with the container as it will be.
"""

from __future__ import annotations

import typing as t

from .. import volume
from ..host_offer import CRIU_CONFIGURATION
from ..preflight.examine import BASICS, CHECKS, Finding
from ..preflight.plan import LIVE, Plan
from .made import networks_of
from .request import Request, size_of

Facts = t.Mapping[str, t.Any]

# Of a container that is there: whether something is at work on it.
AT_WORK = ("held", "locked")
# Those that ask about the host, or about what is asked for.
OF_ONE_HOST = (
    "own_cgroups", "storage_driver", "networks", "addresses", "runtime", "silence", "seccomp", "action_script", "pcopy", "systemd", "criu", "criu_sockets",
    "network_lock", "tracker", "image_format", "unanswered",
)  # fmt: skip
# This collection's own, of the network: a connection moves only with an address that is the container's on the whole segment.
CONNECTIONS = "connections"
# As migrate_hash_limit has it unless it is given.
HASH_LIMIT = 8 * 2**30
NAMES = (*OF_ONE_HOST, CONNECTIONS)


def at_work(request: Request, facts: Facts, host: str) -> list[str]:
    """Why a container that is there may not be touched."""
    move = _move(request, facts, host)
    return [sentence for name in AT_WORK for sentence in dict.fromkeys(BASICS[name](move))]


def obstacles(request: Request, facts: Facts, host: str) -> list[Finding]:
    """Each thing that would keep it from moving live."""
    move = _move(request, facts, host)
    found = [Finding(name, sentence) for name in OF_ONE_HOST for sentence in dict.fromkeys(CHECKS[name](move))]
    known = {network["name"]: network for network in move.here["host"]["podman"]["networks"]}
    for network in networks_of(request):
        if network["name"] in known and not known[network["name"]]["shared"]:
            found.append(
                Finding(
                    CONNECTIONS,
                    f"{request['name']}: the network {network['name']} is a bridge of {host} alone, so connections would break by a move: put it on one "
                    "that both hosts are on (macvlan, or an unmanaged bridge)",
                )
            )
    return found


def _move(request: Request, facts: Facts, host: str) -> Plan:
    offer, own = facts["host"], facts["containers"][request["name"]]
    here = {"host": offer, "workload": _container(request, own, offer), "problems": facts["problems"]}
    # Over there its image is missing: can it be brought? Of one that is not here yet, nothing can be said.
    images = [] if own["image"].get("there") else [{"id": "", "names": []}]
    there = {**here, "host": {**offer, "podman": {**offer["podman"], "images": images}}}
    return Plan(workload=request["name"], source=host, destination=host, mode=LIVE, here=here, there=there, hash_limit=HASH_LIMIT)


def _container(request: Request, own: Facts, host: Facts) -> dict[str, t.Any]:
    """The facts about it, in the words of workload_info, as far as these checks read them."""
    known = {network["name"]: network for network in host["podman"]["networks"]}
    return {
        "exists": True, "held": own["held"], "running": True, "name": request["name"], "state": "running",
        "networks": [{**known[each["name"]], **each} for each in networks_of(request) if each["name"] in known],
        "mounts": [_mount(each) for each in request["volumes"]],
        "runtime": host["podman"]["runtime"], "storage_driver": host["podman"]["store"].get("driver") or "overlay",
        "seccomp_filter": True, "criu_configuration": CRIU_CONFIGURATION, "divided": True, "cgroup": "/sys/fs/cgroup" if host["cgroup"] == 2 else "",
        "image": {"id": "", "name": request["image"], "manifest": own["image"].get("manifest") or ""}, "throttle": {"cgroup": "", "why": ""},
        "connections": {},
    }  # fmt: skip


def _mount(wanted: Facts) -> dict[str, t.Any]:
    place, image = volume.default_mountpoint(wanted["name"]), volume.default_image(wanted["name"])
    found = {"name": wanted["name"], "image": image, "mountpoint": place, "fstype": wanted["fstype"], "size": size_of(wanted["size"] or "0") or 0}
    return {"type": "volume", "name": wanted["name"], "destination": wanted["path"], "directory": place, "image_volume": found}
