# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The addresses that a container keeps.

Docker gives a container on a bridge another address at each start, unless one was asked for. One that moves live keeps what it has: its twin asks for
that, as `docker run --ip` does, and so does the container from then on. Docker fixes addresses only in a subnet that was given to a network.
"""

from __future__ import annotations

import typing as t
from dataclasses import replace

from .._core.move import Facts, Move
from .live import OFFLINE_CURE

# Its subnet may be given, and it fixes no address all the same.
DEFAULT_BRIDGE = "bridge"

_ANOTHER_NETWORK = "put it on a network made by `docker network create --subnet`"
_FAMILIES = (("4", "ip", "own_ip", "IPv4Address"), ("6", "ip6", "own_ip6", "IPv6Address"))


def kept(move: Move) -> Move:
    """A live move, whose container has its addresses on bridges as those that it keeps."""
    networks = [{**network, **_asked(network)} for network in move.container["networks"]]
    return replace(move, here={**move.here, "workload": {**move.container, "networks": networks}})


def _asked(network: Facts) -> dict[str, str]:
    """The addresses on a bridge for which the twin asks beside those that were asked for."""
    if network["shared"] or network["name"] == DEFAULT_BRIDGE:
        return {}
    return {asked: network[own] for _version, asked, own, _key in _FAMILIES if network[own] and not network[asked]}


def in_request(move: Move) -> dict[str, dict[str, str]]:
    """By network, the addresses for which the twin asks in addition, as Docker's API takes them."""
    if not (move.live and move.container["running"]):
        return {}
    keys = {asked: key for _version, asked, _own, key in _FAMILIES}
    found = {network["name"]: {keys[name]: address for name, address in _asked(network).items()} for network in move.container["networks"]}
    return {name: addresses for name, addresses in found.items() if addresses}


def drawn_again(move: Move) -> t.Iterator[str]:
    """Networks on which Docker would draw it another address at its start. A running program and its peers know the one that it has."""
    for network in move.container["networks"]:
        if move.live and move.container["running"] and not (network["ip"] or network["ip6"]):
            cure = _ANOTHER_NETWORK if network["name"] == DEFAULT_BRIDGE else "create it with `docker run --ip`"
            yield "{0} has no fixed address on the network {1}, and would get another on {2} while it runs: {3}, {4}".format(
                move.workload, network["name"], move.destination, cure, OFFLINE_CURE
            )


def fixed_address(move: Move) -> t.Iterator[str]:
    """Networks on which it cannot keep its address."""
    yield from drawn_again(move)
    docker = move.there["host"]["docker"]
    # Of one with other subnets it is said that those differ.
    alike = {(network["name"], *network["subnets"]) for network in docker["networks"]}
    # One that nobody is on is made again, as it is and with its subnet given.
    users = {network["name"]: sorted({each["container"] for each in network["taken"]}) for network in docker["networks"]}
    for network in move.container["networks"]:
        drawn = docker.get("drawn_subnets", {}).get(network["name"], ()) if (network["name"], *network["subnets"]) in alike else ()
        for version, asked, _own, _key in _FAMILIES:
            if network[asked] and version in drawn and users[network["name"]]:
                yield (
                    "{0} keeps the address {1}, and Docker on {2} fixes none in the IPv{3} subnet of its network {4}, which it has drawn itself and {5} is on: "
                    "make that network anew there, with the same subnet by `docker network create --subnet`".format(
                        move.workload, network[asked], move.destination, version, network["name"], ", ".join(users[network["name"]])
                    )
                )


def _gateway(move: Move) -> t.Iterator[str]:
    """It keeps its routes, too. Where none was asked for, Docker takes the first address of its range, and may not tell which that is."""
    here, there = ({each["address"] for each in host["addresses"]} for _name, host in move.hosts)
    alike = {(network["name"], *network["subnets"]): network for network in move.there["host"]["docker"]["networks"]}
    for network in move.container["networks"] if move.live and move.container["running"] else []:
        other = alike.get((network["name"], *network["subnets"]))
        # Gateways that Docker tells are compared with all else of the networks.
        if network["shared"] or other is None or any(each["gateway"] for each in (other.get("definition") or {}).get("subnets", [])):
            continue
        for gateway in network["gateways"]:
            if gateway in here and gateway not in there:
                yield (
                    "{0} leaves its network {1} by {2}, which is not the gateway of {1} on {3}: make that network again there with "
                    "`docker network create --gateway {2}`, {4}".format(move.workload, network["name"], gateway, move.destination, OFFLINE_CURE)
                )


def told(move: Move) -> t.Iterator[str]:
    """The addresses that become fixed ones."""
    for name, addresses in in_request(move).items():
        yield "{0} keeps {1} on the network {2}, from now on as by `docker run --ip`".format(move.workload, " and ".join(addresses.values()), name)


CHECKS: dict[str, t.Callable[[Move], t.Iterator[str]]] = {"fixed_address": fixed_address, "gateway": _gateway}
