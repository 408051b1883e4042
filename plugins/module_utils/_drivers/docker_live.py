# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A container of Docker's that is to move with its memory: the facts that the kernel has of it, and the conditions that are CRIU's and no engine's.

CRIU dumps and restores Docker's containers as it does podman's, so podman's wing knows what it refuses.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import typing as t

from .._core import floating_look, host
from .._core.move import Move
from .._core.runtime import HandoverError, Runtime
from .._docker.live import CHECKS as OF_DOCKER, OFFLINE_CURE
from .._podman import container_facts, processes, task_facts
from .._podman.host_offer import CONFIGURATION_ANNOTATION, CRIU_CONFIGURATION, ghost_limit
from .._podman.own_network import OwnNetwork
from .._podman.preflight import cpu, criu, databases, hosts, options, processes as of_processes, room, state, told as podman_told
from .._podman.preflight.networks import carries

Document = t.Mapping[str, t.Any]

# Docker's embedded DNS server is reached by these.
OF_RESOLVER = "the table ip nat of iptables"

# Of one that does not run; the table of the driver reads these of any.
STILL: Document = {"cgroup": "", "interfaces": [], "throttle": {"cgroup": "", "why": "it does not run"}}


def _mtu(move: Move) -> t.Iterator[str]:
    """A container keeps the MTU that it has, and packets that its new network does not carry would be lost without a word."""
    there = {network["name"]: network for network in move.there["host"]["docker"]["networks"]}
    for network in move.container["networks"]:
        interface, mtu = move.container["mtus"].get(network["ip"] or network["ip6"], ("", 0))
        name, most = carries(move.there["host"], there[network["name"]]) if network["name"] in there else ("", 0)
        if most and mtu > most:
            yield "the interface {0} of {1} has an MTU of {2}, and {3} on {4}, where its network {5} is, carries {6}: raise that there, {7}".format(
                interface, move.workload, mtu, name, move.destination, network["name"], most, OFFLINE_CURE
            )


# In the order in which an operator reads them.
CHECKS: dict[str, t.Callable[[t.Any], t.Iterator[str]]] = {
    **OF_DOCKER,
    **{name: state.CHECKS[name] for name in ("own_mounts", "tmpfs_attributes", "layer_watches", "huge_pages", "multicast")},
    **of_processes.CHECKS,
    **databases.CHECKS,
    "memory": room.CHECKS["memory"],
    "cpu": cpu.CHECKS["cpu"],
    **{name: hosts.CHECKS[name] for name in ("seccomp", "action_script")},
    **criu.CHECKS,
    "auto_converge": options.CHECKS["auto_converge"],
    "mtu": _mtu,
}

TOLD: dict[str, t.Callable[[t.Any], t.Iterator[str]]] = {"affinity": podman_told.TOLD["affinity"]}


def told(move: Move) -> list[str]:
    """The sentences about a move with its memory."""
    return [sentence for tell in TOLD.values() for sentence in tell(move)] if move.known else []


def running(runtime: Runtime, facts: Document, inspect: Document) -> dict[str, t.Any]:
    """The facts about one that runs; of one that has the host's processes in it nothing is asked."""
    pid, identifier = facts["pid"], facts["id"]
    if container_facts.shares_host_processes(pid):
        return {}
    criu_options = host.parse_criu_configuration(host.read_text(CRIU_CONFIGURATION))
    found = processes.processes_of(pid, ghost_limit(criu_options))
    entered = container_facts.entered(pid, found.pids)
    mounts = container_facts.mounts_of(pid)
    tmpfs = container_facts.own_tmpfs(mounts, pid)
    cgroup = host.freezable_cgroup(pid, identifier, criu_options)
    annotations = (inspect.get("HostConfig") or {}).get("Annotations") or {}
    return {
        "pids": list(found.pids),
        "memory": found.memory + sum(each["size"] for each in tmpfs),
        "obstacles": [dataclasses.asdict(obstacle) for obstacle in dumped(found.obstacles, entered)],
        "seccomp_filter": any(host.has_seccomp_filter(each) for each in found.pids),
        "own_mounts": ["{0} ({1})".format(mount.place, mount.fstype) for mount in container_facts.own_mounts(mounts, _configured(facts["bundle"]))],
        "tmpfs": tmpfs,
        "layer_watches": container_facts.layer_watches(found.pids, mounts),
        "entered": entered,
        "huge_pages": container_facts.huge_pages(found.pids),
        "connections": host.connections(pid),
        "peers": floating_look.peers(host.established(pid)),
        "multicast": task_facts.multicast_groups(pid),
        "cgroup": cgroup,
        "divided": host.divided_cgroup(pid, identifier, cgroup),
        "throttle": host.limitable_cgroup(pid, identifier),
        "criu_configuration": annotations.get(CONFIGURATION_ANNOTATION, CRIU_CONFIGURATION),
        "interfaces": _interfaces(facts["networks"]),
        "own_network": _own_network(runtime, pid, facts["networks"]),
        "mtus": OwnNetwork(runtime, pid).mtus_by_address(),
        "pinned": task_facts.pinned(found.pids),
    }


def dumped(obstacles: t.Iterable[processes.Obstacle], entered: t.Sequence[Document], proc: str = "/proc") -> list[processes.Obstacle]:
    """Those of the processes that a dump holds. One on its way into the container has left some of the host's namespaces, and none of those of
    docker exec is dumped: they are told. A health check may have ended since."""
    strangers = {each["pid"] for each in entered}
    return [each for each in obstacles if each.pid not in strangers and os.path.exists(os.path.join(proc, str(each.pid)))]


def _configured(bundle: str) -> set[str]:
    path = os.path.join(bundle, "config.json")
    try:
        return container_facts.configured_places(json.loads(host.read_text(path) or "{}"))
    except ValueError as exc:
        raise HandoverError("the OCI configuration {0} is no JSON: {1}".format(path, exc)) from exc


def _interfaces(networks: t.Sequence[Document]) -> list[str]:
    """Docker's names for its interfaces."""
    return ["eth{0}".format(number) for number in range(len(networks))]


def _own_network(runtime: Runtime, pid: int, networks: t.Sequence[Document]) -> list[str]:
    """What the container has made in its network namespace."""
    own = OwnNetwork(runtime, pid)
    left = own.left_behind({"lo", *_interfaces(networks)})
    return [each for each in left if each != OF_RESOLVER or not resolver_alone(own.tables()[1])]


def resolver_alone(ruleset: str) -> bool:
    """Whether all that iptables keeps there is Docker's own way to its answers for names, which it makes again on each host."""
    table = re.search(r"^table ip nat \{\n(.*?)^\}", ruleset, re.MULTILINE | re.DOTALL)
    rules = re.findall(r"^\t\t(?!type )(.+)$", table.group(1), re.MULTILINE) if table else []
    return all(re.match(r"ip [ds]addr 127\.0\.0\.11 .*(?: jump DOCKER_\w+| dnat to 127\.0\.0\.11:\d+| snat to :53)$", rule) for rule in rules)
