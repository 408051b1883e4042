# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The networks of a container of Docker's: on both hosts the same, and its addresses free."""

from __future__ import annotations

import typing as t

from .._core import network_checks
from .._core.move import Facts, Move
from .facts import SHARED_DRIVERS
from .network_twin import BRIDGE_NAME, difference

# Of a bridge each host has its own, and nothing outside knows the container by its address there.
MOVABLE = (*SHARED_DRIVERS, "bridge")


def _networks(move: Move) -> t.Iterator[str]:
    there = {network["name"]: network for network in move.there["host"]["docker"]["networks"]}
    for network in move.container["networks"]:
        other = there.get(network["name"])
        if network["driver"] not in MOVABLE:
            yield "{0} is on the network {1} of the driver {2}, and only {3} can move with it: connect it to one of these".format(
                move.workload, network["name"], network["driver"] or "of no name", ", ".join(MOVABLE)
            )
        elif other is None:
            yield from _cannot_make(move, network)
            yield from _own_address(move, network)
        elif other["driver"] != network["driver"]:
            yield "the network {0} is made by the driver {1} on {2} and by {3} on {4}: create it with the same driver".format(
                network["name"], network["driver"], move.source, other["driver"], move.destination
            )
        elif other["subnets"] != network["subnets"] and (network["shared"] or network["ip"] or network["ip6"]):
            yield "the network {0} is {1} on {2} and {3} on {4}, so {5} could not keep its address: create it with the same subnet".format(
                network["name"], ", ".join(network["subnets"]), move.source, ", ".join(other["subnets"]), move.destination, move.workload
            )
        elif other["parent"] and other["parent"].partition(".")[0] not in move.there["host"]["interfaces"]:
            yield "Docker on {0} has the network {1} on the interface {2}, which is not there: make it, with a port on the segment of {3}".format(
                move.destination, network["name"], other["parent"], move.source
            )
        elif network["shared"]:
            yield from _own_address(move, network)
        else:
            here, over_there = network.get("definition"), other.get("definition")
            yield from network_checks.differs(move, network["name"], difference(here, over_there) if here and over_there else None)


def _own_address(move: Move, network: Facts) -> t.Iterator[str]:
    if network["shared"] and not (network["ip"] or network["ip6"]):
        yield "{0} has no fixed address on the network {1}, and others know it there by the one that it has: create it with `docker run --ip`".format(
            move.workload, network["name"]
        )


def _cannot_make(move: Move, network: Facts) -> t.Iterator[str]:
    """Why the move does not make a network that the destination lacks."""
    wanted, there = network.get("definition") or {}, move.there["host"]
    parent = (wanted.get("options") or {}).get("parent") or ""
    if not wanted or network["shared"] and not parent:
        yield "Docker on {0} has no network named {1}, which {2} is on: create it there with the driver {3} and the subnet {4}".format(
            move.destination, network["name"], move.workload, network["driver"], ", ".join(network["subnets"]) or "of the source"
        )
        return
    if network["shared"]:
        yield from _parent_taken(move, network, parent)
    name = wanted["options"].get(BRIDGE_NAME)
    if name and name in there["interfaces"]:
        yield "the network {0} cannot be made on {1}: it is to be on the bridge {2}, and an interface of that name is there: remove it".format(
            network["name"], move.destination, name
        )
    for subnet in network["subnets"]:
        yield from network_checks.in_use(move, network["name"], subnet, "Docker", there["docker"]["networks"], by_host=not network["shared"])


def _parent_taken(move: Move, network: Facts, parent: str) -> t.Iterator[str]:
    """Docker makes the interface of a VLAN where there is none, and one network alone on each."""
    if parent.partition(".")[0] not in move.there["host"]["interfaces"]:
        yield "Docker on {0} has no network named {1}, which {2} is on, and {0} has no interface {3} to make it on: create it there".format(
            move.destination, network["name"], move.workload, parent
        )
    for other in move.there["host"]["docker"]["networks"]:
        if other["parent"] == parent:
            yield "the network {0} cannot be made on {1}: Docker's network {2} there is on its interface {3}: remove that, or give it the name {0}".format(
                network["name"], move.destination, other["name"], parent
            )


def to_make(move: Move) -> list[str]:
    """The networks that the move makes on the destination."""
    return network_checks.to_make((each for each in move.container["networks"] if each.get("definition")), move.there["host"]["docker"]["networks"])


def carried(move: Move) -> dict[str, int]:
    """How many of its connections are with those that move beside it, by its own address."""
    return network_checks.carried_beside(move, move.here["host"]["docker"]["networks"])


def _addresses(move: Move) -> t.Iterator[str]:
    own = {address["address"] for address in move.there["host"]["addresses"]}
    networks = {network["name"]: network for network in move.there["host"]["docker"]["networks"]}
    for network in move.container["networks"]:
        taken = {each["address"]: each["container"] for each in networks.get(network["name"], {}).get("taken", [])}
        for address in filter(None, (network["ip"], network["ip6"])):
            if address in own:
                yield "{0} has the address {1}, which is also an address of {2} itself: give one of them another".format(
                    move.workload, address, move.destination
                )
            elif address in taken:
                yield "{0} has the address {1}, which the container {2} on {3} uses: give one of them another".format(
                    move.workload, address, taken[address], move.destination
                )


CHECKS: dict[str, t.Callable[[Move], t.Iterator[str]]] = {
    "networks": _networks,
    "addresses": _addresses,
}
