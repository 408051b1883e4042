# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The conditions before a container of Docker's is moved with its memory that are Docker's own. CRIU's are told beside them, see _drivers."""

from __future__ import annotations

import typing as t

from .._core import floating, move_checks, network_checks
from .._core.move import Move
from . import gate, networks

OFFLINE_CURE = "or use migrate_mode=offline"
# Docker keeps /dev/shm on the host then, where CRIU takes it for a part of the host.
SHM_OF_THE_HOST = "shareable"


def _unseen(move: Move) -> t.Iterator[str]:
    """Without a look at them nothing is known of what CRIU would refuse."""
    if "pids" not in move.container:
        yield "the processes of {0} on {1} could not be looked at: {2}".format(
            move.workload, move.source, "; ".join(move.here["problems"]) or "they are the host's, so move it with migrate_mode=offline"
        )


def _experimental(move: Move) -> t.Iterator[str]:
    for name, host in move.hosts:
        if not host["docker"]["experimental"]:
            yield 'Docker on {0} restores no container: set "experimental": true in /etc/docker/daemon.json there and restart it, {1}'.format(
                name, OFFLINE_CURE
            )


def _user_namespaces(move: Move) -> t.Iterator[str]:
    for name, host in move.hosts:
        if host["docker"]["userns"]:
            yield "Docker on {0} gives its containers user namespaces (userns-remap), and they are not carried live: move {1} with migrate_mode=offline".format(
                name, move.workload
            )


def _init(move: Move) -> t.Iterator[str]:
    if move.container["init"]:
        yield "{0} was created with --init, whose program Docker mounts from {1} and CRIU cannot mount again: create it without --init, {2}".format(
            move.workload, move.source, OFFLINE_CURE
        )


def _shared_memory(move: Move) -> t.Iterator[str]:
    if move.container["namespaces"]["IPC"] == SHM_OF_THE_HOST:
        yield "{0} has its /dev/shm on {1} for others to share (--ipc shareable), which CRIU does not carry: create it with --ipc private, {2}".format(
            move.workload, move.source, OFFLINE_CURE
        )


def _connections(move: Move) -> t.Iterator[str]:
    cure = "put it on a macvlan or ipvlan network, or publish its ports on an address that floats ({0})".format(floating.OPTION)
    carried = floating.carried(move)
    for address, count in networks.carried(move).items():
        carried[address] = carried.get(address, 0) + count
    yield from move_checks.connections(move, cure, carried)


def _drawn_ports(move: Move) -> t.Iterator[str]:
    """Clients of a program that runs on know the port that it has now."""
    if move.container["drawn_ports"]:
        yield (
            "{0} publishes {1} on a port of {2} that Docker draws at each start, and would have another on {3}: "
            "publish it on a port of your choice, {4}".format(
                move.workload, ", ".join(move.container["drawn_ports"]), move.source, move.destination, OFFLINE_CURE
            )
        )


def _begun_elsewhere(move: Move) -> t.Iterator[str]:
    """Connections over a bridge of the host's own, whose packets the destination's firewall sees."""
    beside = networks.carried(move)
    for network in move.container["networks"]:
        number = sum(beside.get(address, 0) for address in (network["ip"], network["ip6"]) if address)
        yield from network_checks.begun_elsewhere(move, network, number, "podman's or a firewall's")


def _own_network(move: Move) -> t.Iterator[str]:
    if move.container["own_network"]:
        yield (
            "{0} has made {1} in its network namespace, and nothing makes it on {2} before its sockets are restored: "
            "have Docker make it (docker network create), {3}".format(move.workload, ", ".join(move.container["own_network"]), move.destination, OFFLINE_CURE)
        )


def _cgroups(move: Move) -> t.Iterator[str]:
    if move.container["divided"]:
        yield "{0} has made cgroups below its own, as systemd does, and under Docker they are not made again: move it with migrate_mode=offline".format(
            move.workload
        )
    elif not move.container["cgroup"]:
        yield "{0} has no cgroup of the second version of its own on {1} that can be frozen: boot {1} with that version alone, {2}".format(
            move.workload, move.source, OFFLINE_CURE
        )
    for name, host in move.hosts:
        if host["criu"]["version"] and host["criu"]["manage_cgroups"] != "ignore":
            yield "CRIU on {0} would put {1} into the cgroup that it had, where Docker does not find its processes: {2}".format(name, move.workload, gate.CURE)


def _memory_by_itself(move: Move) -> t.Iterator[str]:
    if move.lazy_pages:
        yield "migrate_lazy_pages carries the memory of podman's containers alone, and {0} is Docker's: move it without migrate_lazy_pages".format(
            move.workload
        )


def _silence(move: Move) -> t.Iterator[str]:
    for name, host in move.hosts if move.container["networks"] else []:
        silence = host["pcopy"].get("silence")
        if silence and not silence["ok"]:
            yield "a workload's network cannot be kept silent on {0}: {1}".format(name, silence["text"])


# Cannot be ignored.
BASICS: dict[str, t.Callable[[Move], t.Iterator[str]]] = {"processes": _unseen}

CHECKS: dict[str, t.Callable[[Move], t.Iterator[str]]] = {
    "experimental": _experimental,
    "user_namespace": _user_namespaces,
    "init": _init,
    "shared_memory": _shared_memory,
    "drawn_ports": _drawn_ports,
    "connections": _connections,
    "begun_elsewhere": _begun_elsewhere,
    "own_network": _own_network,
    "cgroups": _cgroups,
    "memory_options": _memory_by_itself,
    "silence": _silence,
}
