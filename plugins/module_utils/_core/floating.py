# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Published ports on addresses that move along with the container, and the connections through them."""

from __future__ import annotations

import ipaddress
import typing as t

from .move import Facts, Move

OPTION = "handover_floating_addresses"


def _parsed(text: str) -> str:
    """An address as the kernel prints it; anything else as it is."""
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return text


def moving(move: Move) -> list[str]:
    """The floating addresses on which the container publishes a port."""
    floats = {_parsed(address) for address in move.floating_addresses}
    return sorted({_parsed(port["host_ip"]) for port in move.container.get("ports", []) if port["host_ip"]} & floats)


def _place(host: Facts, address: str) -> Facts | None:
    """Where a host has an address."""
    return next((each for each in host["addresses"] if each["address"] == address), None)


def _segment(move: Move, address: str, here: Facts) -> Facts | None:
    """An address of the destination's in the segment of an address of the source's, and so the interface for it."""
    own = ipaddress.ip_interface("{0}/{1}".format(address, here["prefix"])).network
    for each in move.there["host"]["addresses"]:
        network = ipaddress.ip_interface("{0}/{1}".format(each["address"], each["prefix"])).network
        if network.version == own.version and network.prefixlen < network.max_prefixlen and (network == own or ipaddress.ip_address(address) in network):
            return each
    return None


def places(move: Move) -> dict[str, list[dict[str, t.Any]]]:
    """Where the addresses are on the source, and where they go on the destination, in the form of a session's specification."""
    found: dict[str, list[dict[str, t.Any]]] = {"source": [], "destination": []}
    for address in moving(move) if move.known else []:
        here = _place(move.here["host"], address)
        there = _segment(move, address, here) if here else None
        if not here or not there:
            continue  # a check says so
        prefix = "{0}/{1}".format(address, here["prefix"])
        rest: dict[str, t.Any] = {"broadcast": here["broadcast"]} if here.get("broadcast") else {}
        if here.get("noprefixroute"):
            rest["no_prefix"] = True
        label = {"label": here["label"]} if here.get("label", here["interface"]) != here["interface"] else {}
        found["source"].append({"address": prefix, "interface": here["interface"], **rest, **label})
        found["destination"].append({"address": prefix, "interface": there["interface"], **rest})
    return found


def carried(move: Move) -> dict[str, int]:
    """How many of the container's connections come through floating addresses and live on, by its own address.

    Peers on one of the two hosts, or on its own network, reach it by another way.
    """
    floats = set(moving(move))
    if not floats:
        return {}
    near = {address["address"] for _name, host in move.hosts for address in host["addresses"]}
    networks = [ipaddress.ip_network(subnet) for network in move.container["networks"] for subnet in network["subnets"]]
    found: dict[str, int] = {}
    for peer in move.container.get("peers", []):
        if not _all_float(move, floats, peer):
            continue
        other = ipaddress.ip_address(peer["peer"])
        if peer["peer"] not in near and not any(other in network for network in networks):
            found[peer["address"]] = found.get(peer["address"], 0) + peer["count"]
    return found


def _all_float(move: Move, floats: t.Container[str], peer: Facts) -> bool:
    """Whether a connection to a port of the container's can only have come through a floating address."""
    version = ipaddress.ip_address(peer["address"]).version
    ways = [port for port in move.container["ports"] if port["container_port"] == peer["port"] and port["protocol"] == "tcp"]
    ways = [port for port in ways if not port["host_ip"] or ipaddress.ip_address(port["host_ip"]).version == version]
    return bool(ways) and all(_parsed(port["host_ip"]) in floats for port in ways)


def _option(move: Move) -> t.Iterator[str]:
    for text in move.floating_addresses:
        try:
            ipaddress.ip_address(text)
        except ValueError:
            yield "{0} has {1}, which is no address: write each alone, without a prefix, as in 192.0.2.50".format(OPTION, text)


def obstacles(move: Move, engine: str, others: t.Collection[Facts]) -> t.Iterator[str]:
    """Why they cannot move along. `others` are containers of the source's, each with the addresses that it publishes ports on."""
    yield from _option(move)
    for address in moving(move):
        here, there = _place(move.here["host"], address), _place(move.there["host"], address)
        if here is None:
            yield "{0} publishes ports on {1}, which {2} does not have: add it there to the interface of the segment".format(
                move.workload, address, move.source
            )
            continue
        if there is not None:
            yield "{0} publishes ports on {1}, which is on {2} of {3} already, too: remove it there".format(
                move.workload, address, there["interface"], move.destination
            )
        elif _segment(move, address, here) is None:
            yield "{0} has no interface in the segment of {1}/{2}, on which {3} publishes ports: give one an address of that segment".format(
                move.destination, address, here["prefix"], move.workload
            )
        yield from _would_take_along(move, here)
        yield from _others_on(move, address, others)
        yield from _hosts(move, address, engine)


def _would_take_along(move: Move, here: Facts) -> t.Iterator[str]:
    """The kernel removes the secondary addresses of a subnet with its first one."""
    own = ipaddress.ip_interface("{0}/{1}".format(here["address"], here["prefix"])).network
    if here.get("secondary") or own.version == 6:
        return
    for each in move.here["host"]["addresses"]:
        same = each["interface"] == here["interface"] and each["prefix"] == here["prefix"] and each["address"] != here["address"]
        if same and ipaddress.ip_address(each["address"]) in own:
            yield "{0} is the first address of its subnet on {1} of {2}, and {3} would go with it: add it after that one, or as {0}/32".format(
                here["address"], here["interface"], move.source, each["address"]
            )
            return


def _others_on(move: Move, address: str, others: t.Iterable[Facts]) -> t.Iterator[str]:
    for each in others:
        if each["name"] != move.container["name"] and address in map(_parsed, each.get("published_on", [])):
            yield "{0} publishes ports on {1} too, which would leave {2} with {3}: give each container an address of its own".format(
                each["name"], address, move.source, move.workload
            )


def _hosts(move: Move, address: str, engine: str) -> t.Iterator[str]:
    for name, host in move.hosts:
        file = host.get("configured_addresses", {}).get(address)
        if file:
            yield (
                "{0} is in {1} of {2}, which would bring it up there at each boot, wherever {3} is: take it out of that file, since it is brought up "
                "on the host that {3} has come to whenever {3} starts there".format(address, file, name, move.workload)
            )
        flows = host["pcopy"].get("flows")
        if flows and not flows["ok"] and move.live:
            yield "connections through {0} cannot be carried by {1}: {2}".format(address, name, flows["text"])
    version = str(ipaddress.ip_address(address).version)
    if not move.there["host"].get("binds_anywhere", {}).get(version, True):
        yield (
            "{3} on {0} could not reserve the ports of {1} before {1} is there, neither now nor at a boot: set net.ipv{2}.ip_nonlocal_bind=1 there, "
            "in a file of /etc/sysctl.d".format(move.destination, address, version, engine)
        )
