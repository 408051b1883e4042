# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The conditions on the networks of a container that hold for every engine: of one that the move makes on the destination, and of connections whose
both ends move.

Networks are an engine's facts about a host: by name, with subnets, `taken` addresses, and whether a move on its way has `claimed` one.
"""

from __future__ import annotations

import ipaddress
import typing as t

from .move import Facts, Move

Networks = t.Sequence[Facts]


def to_make(mine: t.Iterable[Facts], there: Networks) -> list[str]:
    """Those that the destination lacks, or that another move on its way has made there: the last that is taken back removes them."""
    lasting = {network["name"] for network in there if not network.get("claimed")}
    return sorted({network["name"] for network in mine} - lasting)


def differs(move: Move, name: str, found: tuple[str, str, str] | None) -> t.Iterator[str]:
    """`found`: how the thing is called in which the network is another over there, and how it is on both hosts."""
    if found:
        what, mine, theirs = found
        yield "the network {0} is not the same on both hosts: its {1} is {2} on {3} and {4} on {5}: remove it on {5}, and the move makes it there".format(
            name, what, mine, move.source, theirs, move.destination
        )


def in_use(move: Move, name: str, subnet: str, engine: str, networks: Networks, by_host: bool = True) -> t.Iterator[str]:
    """Who on the destination has addresses of a subnet that is to be made there; the host's own do no harm to one that leads out of it."""
    wanted = ipaddress.ip_network(subnet, strict=False)
    for each in move.there["host"]["addresses"] if by_host else []:
        own = ipaddress.ip_interface("{0}/{1}".format(each["address"], each["prefix"])).network
        if own.version == wanted.version and own.overlaps(wanted):
            yield "the network {0} cannot be made on {1}: its subnet {2} holds addresses of the interface {3} there: give {0} another subnet".format(
                name, move.destination, wanted, each["interface"]
            )
            return
    for other in networks:
        theirs = [ipaddress.ip_network(text, strict=False) for text in other["subnets"]]
        if any(each.version == wanted.version and each.overlaps(wanted) for each in theirs):
            yield "the network {0} cannot be made on {1}: {2}'s network {3} there has its subnet {4}: give one of them another".format(
                name, move.destination, engine, other["name"], wanted
            )
            return


def carried_beside(move: Move, networks: Networks) -> dict[str, int]:
    """How many of its connections are with those that move beside it, by its own address: they are there when it is. `networks` of the source."""
    names = set(move.beside)
    theirs = {each["address"] for network in networks for each in network.get("taken", []) if each["container"] in names}
    found: dict[str, int] = {}
    for peer in move.container.get("peers", []):
        if peer["peer"] in theirs:
            found[peer["address"]] = found.get(peer["address"], 0) + peer["count"]
    return found


def begun_elsewhere(move: Move, network: Facts, number: int, whose: str) -> t.Iterator[str]:
    """`number` connections over a bridge, whose packets the destination's firewall sees: `whose` rules."""
    if number and network["driver"] == "bridge" and not move.there["host"].get("takes_over", True):
        yield (
            "{0} has {1} TCP {2} open over the network {3}, and {4} calls all packets of one invalid that did not begin there, which {5} rules drop: "
            "set net.netfilter.nf_conntrack_tcp_loose=1 on {4}".format(
                move.workload, number, "connection" if number == 1 else "connections", network["name"], move.destination, whose
            )
        )
