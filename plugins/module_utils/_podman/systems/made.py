# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How a container with a whole system is made: podman's options, and a label that says what was asked for.

The container is never made anew where something else is asked for later: the system is in its layer, and would be lost. So the label is
compared. It moves along with the container.
"""

from __future__ import annotations

import hashlib
import json
import typing as t

from ..._core import inits
from .request import Request, size_of

LABEL = "handover.system_container"
# SIGRTMIN+3 has systemd halt. At the signal of a failing power System V's init does so, by its inittab.
STOP_SIGNALS = {inits.SYSTEMD: 37, inits.SYSVINIT: 30}
# By it a shutdown or reboot in the container is one, and init ends. It reaches no further than the container's processes.
_REBOOT = "SYS_BOOT"


def networks_of(request: Request) -> list[dict[str, str]]:
    """Its networks with what is not said: a hardware address that stays the same."""
    return [
        {
            "name": each["name"], "ip": each["ip"] or "", "ip6": each["ip6"] or "", "interface": each["interface"] or "",
            "mac": (each["mac"] or mac_of(each["ip"] or each["ip6"] or "")).lower(),
        }
        for each in request["networks"]
    ]  # fmt: skip


def mac_of(address: str) -> str:
    """One that stays the same lets neighbours find the container at once after a start."""
    return ":".join(["02", *(f"{byte:02x}" for byte in hashlib.sha256(address.encode()).digest()[:5])])


def asked_of(request: Request) -> dict[str, t.Any]:
    """What a container is made by, and cannot be given later."""
    return {
        "image": request["image"],
        "hostname": request["hostname"] or request["name"],
        "networks": networks_of(request),
        "volumes": [f"{volume['name']}:{volume['path']}" for volume in request["volumes"]],
        "memory": size_of(request["memory"]) if request["memory"] else None,
        "cpus": f"{request['cpus']:g}" if request["cpus"] is not None else None,
        "pids_limit": request["pids_limit"],
        "environment": {str(key): text_of(value) for key, value in sorted(request["environment"].items())},
        "capabilities": sorted(request["capabilities"]),
        "stop_timeout": request["stop_timeout"],
    }


def text_of(value: t.Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def recorded(labels: t.Mapping[str, str]) -> dict[str, t.Any] | None:
    """What the role has made a container by; None for one that it has not made."""
    try:
        found = json.loads(labels[LABEL])
    except (KeyError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def differing(record: t.Mapping[str, t.Any], request: Request) -> list[str]:
    """Keys of the request that the container was made without, or with another value."""
    asked = asked_of(request)
    if request["init"] != "auto":
        asked["init"] = request["init"]
    return sorted(key for key, value in asked.items() if record.get(key) != value)


def options(request: Request, init: str) -> dict[str, t.Any]:
    """podman's options, as containers.podman.podman_container takes them."""
    asked = asked_of(request)
    return {
        "hostname": asked["hostname"],
        "systemd": "always" if init == inits.SYSTEMD else "false",
        "tmpfs": inits.RUN if init == inits.SYSVINIT else {},
        "stop_signal": STOP_SIGNALS[init],
        "stop_timeout": asked["stop_timeout"],
        "network": [_network(each) for each in asked["networks"]] or ["none"],
        "volume": asked["volumes"],
        "memory": None if asked["memory"] is None else f"{asked['memory']}b",
        "cpus": asked["cpus"],
        "pids_limit": None if asked["pids_limit"] is None else str(asked["pids_limit"]),
        "env": asked["environment"],
        "cap_add": sorted({_REBOOT, *asked["capabilities"]}),
        "label": {LABEL: json.dumps({**asked, "init": init}, sort_keys=True, separators=(",", ":"))},
    }


def _network(network: t.Mapping[str, str]) -> str:
    keys = {"ip": "ip", "ip6": "ip6", "mac": "mac", "interface": "interface_name"}
    return network["name"] + ":" + ",".join(f"{key}={network[name]}" for name, key in keys.items() if network[name])
