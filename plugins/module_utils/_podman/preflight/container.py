# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The container's own obstacles to a move."""

from __future__ import annotations

import typing as t

from ..._core import floating, kernel_devices, move_checks
from . import wave
from .plan import IGNORE, STOPPED, Check, Plan

# By podman's state: the way from there to one in which the container can move.
_START = "start it there first, as there is no memory to hand over, or move it as it is with migrate_mode=offline"
_WAY_TO_MOVE = {**{state: _START for state in STOPPED}, "paused": "unpause it there first with `podman unpause {0}`"}
_NAMESPACES = (("network", "network_mode"), ("process", "pid_mode"), ("IPC", "ipc_mode"), ("host name's", "uts_mode"))


def way_to_move(state: str, name: str) -> str:
    """What makes a container of that state one that can move."""
    return _WAY_TO_MOVE.get(state, "start it or stop it there first").format(name)


def _not_running(plan: Plan) -> t.Iterator[str]:
    # Of members the check of all of them tells.
    if plan.in_group or plan.container["running"] or (plan.container["state"] in STOPPED and not plan.live):
        return
    yield "{0} is {1} on {2} and not running: {3}".format(
        plan.workload,
        plan.container["state"],
        plan.source,
        way_to_move(plan.container["state"], plan.workload),
    )


def _create_command(plan: Plan) -> t.Iterator[str]:
    if plan.container.get("pod") and not plan.in_group and not plan.in_wave:
        return  # all of this follows from the pod, which is told
    if plan.container["cannot_recreate"]:
        yield "{0} cannot be created again on {1}: {2}: make it with podman run or podman create, by itself".format(
            plan.workload, plan.destination, plan.container["cannot_recreate"]
        )
    elif plan.in_group or plan.container.get("together"):
        return  # what it needs moves with it, or is told
    elif plan.container["dependencies"] and not any(plan.container[mode].startswith("container:") for _what, mode in _NAMESPACES):
        yield "{0} needs another container ({1}), which would stay behind: create it without that".format(
            plan.workload, ", ".join(_name_of(plan, each) for each in plan.container["dependencies"])
        )


def _name_of(plan: Plan, identifier: str) -> str:
    """How podman on the source calls another container."""
    names = [each["name"] for each in plan.here["host"]["podman"]["containers"] if each["id"].startswith(identifier[:12])]
    return names[0] if names else identifier[:12]


def _create_options(plan: Plan) -> t.Iterator[str]:
    known = plan.there["host"]["podman"].get("create_options", [])
    missing = [name for name in plan.container.get("create_options", []) if name not in known]
    if known and missing:
        yield "{0} was created with {1}, which podman create on {2} does not know: install the podman of {3} there, or create {0} without".format(
            plan.workload, ", ".join("--" + name for name in missing), plan.destination, plan.source
        )


def _files(plan: Plan) -> t.Iterator[str]:
    for file in plan.container.get("files", []):
        yield (
            "{0} was created with {1}, a file of {2} that {3} would read anew: "
            "put the same file there, and list the check 'files_named' in {4}".format(plan.workload, file, plan.source, plan.destination, IGNORE)
        )


def _engine_defaults(plan: Plan) -> t.Iterator[str]:
    here, there = (host["podman"].get("defaults", {}) for _name, host in plan.hosts)
    other = sorted(key for key in {*here, *there} if here.get(key) != there.get(key))
    if other:
        yield (
            "podman's containers.conf gives containers other defaults on {0} than on {1} ({2}), so {3} would not be the same there: "
            "write the same, or list the check 'engine_defaults' in {4} if {3} depends on none of them".format(
                plan.source, plan.destination, ", ".join(other), plan.workload, IGNORE
            )
        )


def _devices(plan: Plan) -> t.Iterator[str]:
    hardware = [path for path in plan.container["devices"] if path not in kernel_devices.NUMBERS]
    if hardware:
        yield "{0} has devices of {1} ({2}), which cannot move: create it without --device".format(plan.workload, plan.source, ", ".join(hardware))
    there = plan.there["host"].get("kernel_devices", [])
    for path in (path for path in plan.container["devices"] if path in kernel_devices.NUMBERS and path not in there):
        yield "{0} has the device {1}, which {2} lacks: load its module there with `modprobe {3}`".format(
            plan.workload, path, plan.destination, kernel_devices.MODULES[path]
        )


def _namespaces(plan: Plan) -> t.Iterator[str]:
    for what, mode in _NAMESPACES:
        value = plan.container[mode]
        if plan.container.get("pod") and not plan.in_group and not plan.in_wave:
            return
        if value.startswith("container:") and (plan.in_group or plan.container.get("together")):
            continue  # of one that moves along
        if value == "host" or value.startswith(("container:", "ns:")):
            yield "{0} uses the {1} namespace of {2} and not one of its own ({3}), which cannot move: create it without that".format(
                plan.workload,
                what,
                "the host" if value == "host" else "another container",
                "container:" + _name_of(plan, value[len("container:") :]) if value.startswith("container:") else value,
            )


def _connections(plan: Plan) -> t.Iterator[str]:
    if plan.live:
        cure = "put it on a network that both hosts are on (macvlan, or an unmanaged bridge), or publish its ports on an address that floats ({0})"
        carried = floating.carried(plan)
        for address, count in wave.carried(plan).items():
            carried[address] = carried.get(address, 0) + count
        yield from move_checks.connections(plan, cure.format(floating.OPTION), carried)


CHECKS: dict[str, Check] = {
    "running": _not_running,
    "create_command": _create_command,
    "create_options": _create_options,
    "files_named": _files,
    "engine_defaults": _engine_defaults,
    "devices": _devices,
    "namespaces": _namespaces,
    "connections": _connections,
}
