# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an operator asks for of a container with a whole system, and what is wrong with it before a host is asked.

A check is a pure function of one request, and yields one sentence for each fault: the thing, the place, and the way out.
"""

from __future__ import annotations

import ipaddress
import posixpath
import re
import typing as t

from ..._core.sizes import parse_size

Request = t.Mapping[str, t.Any]

STARTED, PRESENT, ABSENT = "started", "present", "absent"

ARGUMENTS: dict[str, t.Any] = {
    "name": {"type": "str", "required": True},
    "state": {"type": "str", "choices": [STARTED, PRESENT, ABSENT], "default": STARTED},
    "image": {"type": "str"},
    "archive": {"type": "path"},
    "init": {"type": "str", "choices": ["auto", "systemd", "sysvinit"], "default": "auto"},
    "hostname": {"type": "str"},
    "networks": {
        "type": "list", "elements": "dict", "default": [],
        "options": {
            "name": {"type": "str", "required": True},
            "ip": {"type": "str"},
            "ip6": {"type": "str"},
            "mac": {"type": "str"},
            "interface": {"type": "str"},
        },
    },
    "volumes": {
        "type": "list", "elements": "dict", "default": [],
        "options": {
            "name": {"type": "str", "required": True},
            "path": {"type": "path", "required": True},
            "size": {"type": "str"},
            "fstype": {"type": "str", "choices": ["ext4", "xfs"], "default": "ext4"},
        },
    },
    "memory": {"type": "str"},
    "cpus": {"type": "float"},
    "pids_limit": {"type": "int"},
    "environment": {"type": "dict", "default": {}},
    "capabilities": {"type": "list", "elements": "str", "default": []},
    "authorized_keys": {"type": "list", "elements": "str", "default": [], "no_log": False},
    "boot": {"type": "bool", "default": True},
    "stop_timeout": {"type": "int", "default": 120},
    "force": {"type": "bool", "default": False},
    "remove_volumes": {"type": "bool", "default": False},
}  # fmt: skip

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_HOSTNAME = re.compile(r"(?=.{1,64}$)[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*")
_INTERFACE = re.compile(r"[A-Za-z0-9_.-]{1,15}")
_MAC = re.compile(r"[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CAPABILITY = re.compile(r"(CAP_)?[A-Z][A-Z0-9_]*")
_KEY = re.compile(r"(?:[^#\s].*\s)?(?:ssh-|ecdsa-|sk-)[a-z0-9@.-]+\s+[A-Za-z0-9+/]+={0,3}(?:\s.*)?")
_PATH = re.compile(r"/[A-Za-z0-9_.@+/-]+")
# Less does not bring up an init and its first services.
LEAST_MEMORY = 32 * 2**20
# Folders of the layer in which this collection writes, and those that podman or the init mounts.
_OURS = ("/root/.ssh", "/etc")
_MOUNTED = ("/proc", "/sys", "/dev", "/run", "/tmp", "/var/log/journal")
# These reach the host from any container.
_HOST_RIGHTS = ("ALL", "DAC_READ_SEARCH", "SYS_ADMIN", "SYS_MODULE", "SYS_RAWIO")


def _name(request: Request) -> t.Iterator[str]:
    if not _NAME.fullmatch(request["name"]):
        yield f"{request['name']!r} is no name of podman's: give one of up to 64 letters, digits and _ . -, beginning with a letter or digit"


def _image(request: Request) -> t.Iterator[str]:
    if not request["image"]:
        yield f"{request['name']} has no image: name one in `image`"


def _hostname(request: Request) -> t.Iterator[str]:
    if request["hostname"] and not _HOSTNAME.fullmatch(request["hostname"]):
        yield f"{request['name']}: {request['hostname']!r} is no host name: give one of up to 64 letters, digits, - and ."


def _networks(request: Request) -> t.Iterator[str]:
    for network in request["networks"]:
        where = f"{request['name']}, network {network['name']}"
        if not network["ip"] and not network["ip6"]:
            yield f"{where}: it has no address, and podman would choose another at each start: give it one in `ip` or `ip6`"
        for key, version in (("ip", 4), ("ip6", 6)):
            if network[key] and version_of(network[key]) != version:
                yield f"{where}: {network[key]!r} is no address of IP version {version}: write it without a prefix in `{key}`"
        mac = network["mac"] or ""
        if mac and (not _MAC.fullmatch(mac) or int(mac[:2], 16) & 1):
            yield f"{where}: {mac!r} is no hardware address of one interface: write it as in 02:00:00:00:00:10, or leave it out"
        if network["interface"] and not _INTERFACE.fullmatch(network["interface"]):
            yield f"{where}: {network['interface']!r} is no name of an interface: give one of up to 15 letters, digits and _ . -"


def version_of(address: str) -> int:
    """4 or 6; 0 for what is no address."""
    try:
        return ipaddress.ip_address(address).version
    except ValueError:
        return 0


def _volumes(request: Request) -> t.Iterator[str]:
    for volume in request["volumes"]:
        path, where = volume["path"], f"{request['name']}, volume {volume['name']}"
        if not _NAME.fullmatch(volume["name"]):
            yield f"{where}: {volume['name']!r} is no name of a volume: give one of up to 64 letters, digits and _ . -"
        if not _PATH.fullmatch(path) or posixpath.normpath(path) != path:
            yield f"{where}: {path!r} is no plain path: give an absolute one of letters, digits and / _ . @ + -"
        elif any(_within(path, place) for place in _MOUNTED):
            yield f"{where}: {path} is mounted by podman or the init at each start: give the volume another path"
        elif any(_within(place, path) for place in _OURS):
            yield f"{where}: {path} would hide files of the system that are set up here: give the volume a folder for data"
        if volume["size"] and size_of(volume["size"]) is None:
            yield f"{where}: {fault_of_size(volume['size'])}"


def _within(inner: str, outer: str) -> bool:
    return inner == outer or inner.startswith(outer + "/")


def size_of(text: str) -> int | None:
    """Bytes; None for what is no size."""
    try:
        return parse_size(text)
    except ValueError:
        return None


def fault_of_size(text: str) -> str:
    try:
        parse_size(text)
    except ValueError as exc:
        return str(exc)
    return ""


def _limits(request: Request) -> t.Iterator[str]:
    name, memory, cpus, pids = (request[key] for key in ("name", "memory", "cpus", "pids_limit"))
    if memory and size_of(memory) is None:
        yield f"{name}, memory: {fault_of_size(memory)}"
    elif memory and (size_of(memory) or 0) < LEAST_MEMORY:
        yield f"{name}: no whole system comes up in {memory} of memory: give it 32M at least"
    if cpus is not None and cpus < 0.01:
        yield f"{name}: cpus is {cpus:g}: give a number from 0.01 on, or leave it out"
    if pids is not None and pids < 16 and pids != -1:
        yield f"{name}: no whole system comes up with {pids} processes: give it 16 at least, or -1 for no limit"
    if request["stop_timeout"] < 1:
        yield f"{name}: stop_timeout is {request['stop_timeout']}, and its services would be killed at each stop: give it some seconds, as 120"


def _environment(request: Request) -> t.Iterator[str]:
    for key, value in request["environment"].items():
        if not _VARIABLE.fullmatch(str(key)):
            yield f"{request['name']}: {key!r} is no name of a variable: use letters, digits and _ alone"
        elif isinstance(value, (dict, list)) or "\n" in str(value):
            yield f"{request['name']}: the variable {key} is no text of one line"


def _capabilities(request: Request) -> t.Iterator[str]:
    for each in request["capabilities"]:
        if not _CAPABILITY.fullmatch(each):
            yield f"{request['name']}: {each!r} is no capability: write it as in NET_ADMIN"
        elif re.sub("^CAP_", "", each) in _HOST_RIGHTS:
            yield f"{request['name']}: the capability {each} reaches its host, and is not given here: leave it out"


def _keys(request: Request) -> t.Iterator[str]:
    for number, key in enumerate(request["authorized_keys"], 1):
        if "\n" in key.strip() or not _KEY.fullmatch(key.strip()):
            yield f"{request['name']}: number {number} of authorized_keys is no public key of ssh: give each as one line, as it is in a .pub file"


def _removal(request: Request) -> t.Iterator[str]:
    if not request["force"]:
        yield f"{request['name']}: with state=absent the whole system in it is lost: say so with force=true"


def _kept(request: Request) -> t.Iterator[str]:
    if request["remove_volumes"]:
        yield f"{request['name']}: remove_volumes goes with state=absent alone: leave it out"


Check = t.Callable[[Request], t.Iterator[str]]
OF_EACH: tuple[Check, ...] = (_name,)
TO_BE: tuple[Check, ...] = (_image, _hostname, _networks, _volumes, _limits, _environment, _capabilities, _keys, _kept)
TO_GO: tuple[Check, ...] = (_removal,)


def faults(requests: t.Sequence[Request]) -> list[str]:
    """A sentence for each thing that is wrong with what is asked for."""
    found: list[str] = []
    for request in requests:
        for check in (*OF_EACH, *(TO_GO if request["state"] == ABSENT else TO_BE)):
            found += check(request)
    return [*found, *_twice(requests)]


def _twice(requests: t.Sequence[Request]) -> t.Iterator[str]:
    """What only one container can have."""
    made = [request for request in requests if request["state"] != ABSENT]
    networks = [(request["name"], network) for request in made for network in request["networks"]]
    had: dict[str, list[tuple[str, str]]] = {
        "container": [(request["name"], request["name"]) for request in requests],
        "volume": [(volume["name"], request["name"]) for request in made for volume in request["volumes"]],
        "address": [(str(ipaddress.ip_address(network[key])), name) for name, network in networks for key in ("ip", "ip6") if version_of(network[key] or "")],
        "hardware address": [(network["mac"].lower(), name) for name, network in networks if network["mac"]],
    }
    for what, pairs in had.items():
        values = [value for value, _name_of in pairs]
        for value in dict.fromkeys(value for value in values if values.count(value) > 1):
            names = dict.fromkeys(name for other, name in pairs if other == value)
            of = "" if what == "container" else f" ({', '.join(names)})"
            yield f"the {what} {value} is asked for more than once{of}: only one can have it"
