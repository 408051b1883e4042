# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""vzctl's facts about a container, in the words of this collection: pure functions of its answers and of its configuration."""

from __future__ import annotations

import ipaddress
import posixpath
import re
import typing as t

from ..._core import host
from ..config import Line, is_newer, read, read_defaults
from ..look import state_of

Document = t.Mapping[str, t.Any]

# The gate before a mount knows the container by this, as an OCI hook does by a bundle. Nothing is there.
KNOWN_AS = "/run/handover/openvz"
# The name of the private area among the directories of a move.
PRIVATE = "private"
# The folder in it with the image of a ploop disk.
IMAGE = "root.hdd"
# vzctl 4 moves these with a container; libvzctl keeps its own in the private area.
SCRIPTS = ("start", "stop", "mount", "umount", "premount", "postumount")
# The places that each host has for itself.
PLACES = ("VE_PRIVATE", "VE_ROOT")
USUAL = {"VE_PRIVATE": "/vz/private/$VEID", "VE_ROOT": "/vz/root/$VEID", "DUMPDIR": "/vz/dump", "LOCKDIR": "/vz/lock"}
DUMP = "Dump.{0}"
# The folder of a move's dump, beside those of vzctl's own.
DUMPED = "handover.{0}"
# The first version of libvzctl and prlctl.
NEWER = 7
# Of libvzctl the configuration is in the private area, and that of /etc/vz/conf is a link to it.
INSIDE = "ve.conf"
# The ways of a live move: OpenVZ's kernel 2.6.32 dumps and holds, or CRIU does so for vzctl 4 on another kernel, or for libvzctl on each.
KERNEL, CRIU, LIBVZCTL = "kernel", "criu", "libvzctl"
BY_CRIU = (CRIU, LIBVZCTL)
# A directory container has its files in the private area itself, or of libvzctl in the folder fs of it.
SIMFS, DIRECTORY, PLOOP = "simfs", "directory", "ploop"
# Of an image that is encrypted the descriptor names the key.
_KEY = re.compile(r"<KeyId>\s*[^<\s]")
# Running, by vzctl, and no task of it can run: a move holds it.
HELD = "paused"


def bundle_of(ctid: str) -> str:
    return posixpath.join(KNOWN_AS, ctid)


def effective(text: str, defaults: str = "") -> dict[str, str]:
    """The parameters that count, by name: those of the container before the host's."""
    lines = read(text)
    return _chosen([*lines, *read_defaults(defaults, lines)], is_newer(lines))


def _chosen(lines: t.Iterable[Line], newer: bool) -> dict[str, str]:
    """Of a parameter that is set twice, vzctl 4 takes the first, and libvzctl the last."""
    found: dict[str, str] = {}
    for line in lines:
        if line.name and not line.fault and (newer or line.name not in found):
            found[line.name] = line.value
    return found


def place(parameters: t.Mapping[str, str], name: str, ctid: str) -> str:
    """A path of a container's, where its id stands for $VEID."""
    value = parameters.get(name) or USUAL[name]
    return value.replace("${VEID}", ctid).replace("$VEID", ctid)


def addresses_of(parameters: t.Mapping[str, str]) -> list[str]:
    """The addresses of IP_ADDRESS, without their masks, in the form in which two of them can be compared."""
    found = []
    for word in parameters.get("IP_ADDRESS", "").replace(",", " ").split():
        try:
            found.append(str(ipaddress.ip_interface(word).ip))
        except ValueError:
            found.append(word)
    return found


def bridges_of(parameters: t.Mapping[str, str]) -> list[str]:
    """The host's bridges that interfaces of NETIF are on."""
    words = parameters.get("NETIF", "").replace(";", ",").split(",")
    return sorted({word.partition("=")[2] for word in words if word.startswith("bridge=") and word.partition("=")[2]})


def second_level(parameters: t.Mapping[str, str], layout: str) -> bool:
    """Whether the host keeps limits for its users and groups, outside of its files."""
    return layout in (SIMFS, DIRECTORY) and parameters.get("DISK_QUOTA", "yes") != "no" and parameters.get("QUOTAUGIDLIMIT", "") not in ("", "0")


def way(version: t.Sequence[int], kernel: bool) -> str:
    """Who dumps and restores a container on a host. vzctl 4 asks its kernel, or CRIU where that is not OpenVZ's. libvzctl asks CRIU."""
    if version and version[0] >= NEWER:
        return LIBVZCTL
    return CRIU if version and not kernel else KERNEL


def state_word(status: str) -> str:
    """One word for the state."""
    state = state_of(status)
    return next((word for word in ("paused", "suspended", "running", "mounted") if state[word]), "stopped")


def facts_of(seen: Document) -> dict[str, t.Any]:
    """The facts from the look at the container; those of its files are added by a caller on the host."""
    ctid, conf = seen["id"], seen["files"].get("conf", "")
    parameters = effective(conf, seen["files"].get("vz.conf", ""))
    state = state_word(seen["status"])
    return {
        "exists": True,
        "held": False,
        "name": ctid,
        "id": ctid,
        "title": parameters.get("NAME", ""),
        "state": state,
        "running": state == "running",
        "status": seen["status"],
        # A configuration of libvzctl's may be on a host of vzctl 4, which reads it.
        "newer": is_newer(read(conf)) and host.parse_version(seen["vzctl"])[:1] >= [NEWER],
        "vzctl": seen["vzctl"],
        "bundle": bundle_of(ctid),
        "conf": conf,
        "faults": [line.value for line in read(conf) if line.fault],
        "parameters": effective(conf),
        "scripts": {name: text for name, text in seen["scripts"].items() if name.startswith(ctid + ".")},
        "own_scripts": sorted(name for name in seen["scripts"] if name.startswith("scripts.")),
        "host_scripts": sorted(name for name in seen["scripts"] if name.startswith("vps.")),
        "private": seen["private"],
        "root": seen["mountpoint"],
        "layout": seen["layout"],
        "encrypted": _KEY.search(seen["files"].get("descriptor", "")) is not None,
        "size": seen["kib"] * 1024,
        "quota": second_level(parameters, seen["layout"]),
        "addresses": addresses_of(parameters),
        "bridges": bridges_of(parameters),
        # What every engine's container has. Those of a move with memory are not asked for.
        "networks": [],
        "memory": 0,
        "layer": 0,
    }


def moved_configuration(text: str, places: t.Mapping[str, str], ctid: str) -> str:
    """The configuration as the destination has it: the host's own places where they are others, and all other lines as they are."""
    numbered = {line.number: line for line in read(text) if line.name in places and not line.fault}
    other = {number: line.name for number, line in numbered.items() if place({line.name: line.value}, line.name, ctid) != places[line.name]}
    return "\n".join('{0}="{1}"'.format(other[number], places[other[number]]) if number in other else line for number, line in enumerate(text.split("\n"), 1))


def essence(text: str) -> list[tuple[str, str]]:
    """All that has to be equal on both hosts for it to be the same container."""
    return [(line.name, line.value) for line in read(text) if line.name not in PLACES]
