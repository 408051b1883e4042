# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a container keeps its memory and connections while its plain volume becomes an image volume, before anything is touched.

Those who ask are the checks of a move that are about a dump, and of a snapshot with memory: the container comes back on the same host.
"""

from __future__ import annotations

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ..._core.databases import open_databases
from ..._core.move import LIVE
from ..._core.room import look_for_room
from ..._core.runtime import HandoverError
from ..._core.step import in_turn
from .. import workload
from ..podman import Podman
from ..preflight import container, criu, processes, state
from ..preflight.plan import Check, Facts, Plan
from ..steps.table import STEPS
from .memory_in_place import why_halted
from .memory_left import places_of


def _multicast(plan: Plan) -> t.Iterator[str]:
    """CRIU does not join the groups again, neither here nor after a move."""
    if plan.container.get("multicast"):
        yield "{0} has joined multicast groups on {1}, in which it would not be when podman has made its network anew: ".format(
            plan.workload, ", ".join(plan.container["multicast"])
        )


def _own_tables(plan: Plan) -> t.Iterator[str]:
    """A move takes them along; here podman makes the network anew, as for a rollback."""
    if plan.container.get("own_tables"):
        yield "{0} has the nftables table {1} in its network namespace, which podman makes anew: ".format(
            plan.workload, ", ".join(plan.container["own_tables"])
        )


_ROWS: tuple[tuple[t.Mapping[str, Check], tuple[str, ...]], ...] = (
    (container.CHECKS, ("devices", "namespaces")),
    (state.CHECKS, ("conmon", "pod", "required_by", "own_mounts", "tmpfs_attributes", "layer_watches", "own_network")),
    (criu.CHECKS, ("criu", "criu_sockets", "network_lock")),
)
CHECKS: dict[str, Check] = {
    **{name: checks[name] for checks, names in _ROWS for name in names}, "own_tables": _own_tables, "multicast": _multicast,
}  # fmt: skip


def misfits(name: str, asked: Facts) -> list[str]:
    """Why it cannot be dumped and restored, each reason without its way out; `asked` is what workload_info says of it."""
    here = {"host": asked["host"], "workload": asked["workload"]}
    plan = Plan(name, asked["host"]["name"], asked["host"]["name"], LIVE, here, here)
    found = [sentence.partition(": ") for names in (CHECKS, processes.CHECKS) for check in names.values() for sentence in check(plan)]
    # Those of a process begin with the container that cannot be dumped.
    return list(dict.fromkeys(more.partition(": ")[0] if head.startswith(name + " cannot be dumped") else head for head, _colon, more in found))


def _with_databases(inspect: Facts, volume: str) -> str:
    found = open_databases(inspect["State"]["Pid"], places_of(inspect, volume))
    return "it has SQLite's files open ({0}), which it knows by their inodes, and those change".format(", ".join(found)) if found else ""


def why_unkept(module: AnsibleModule, podman: Podman, volume: str, name: str, unit: str, service: Facts) -> str:
    """Why the memory of a container that runs cannot be kept; empty: it can."""
    if unit and not service.get("adoption"):
        return "its unit {0} could not take it over again: use a quadlet without Notify=".format(unit)
    inspect = podman.inspect(name)
    why = why_halted(podman, workload.facts_of(inspect, ())) or _with_databases(inspect, volume)
    if why:
        return why
    asked = in_turn(module, STEPS, [{"workload_info": {"workload": name}}])
    if "msg" in asked:
        raise HandoverError(asked["msg"])
    found = asked["last"]["workload_info"]
    return "; ".join([*misfits(name, found), *_without_room(found["workload"])])


def _without_room(container: Facts) -> t.Iterator[str]:
    """CRIU lays the dump down beside the container."""
    try:
        look_for_room("the memory of " + container["name"], container["memory"], container["static_dir"])
    except HandoverError as exc:
        yield str(exc).partition(": ")[0]
