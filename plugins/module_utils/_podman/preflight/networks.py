# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The container's networks, addresses and ports on the destination."""

from __future__ import annotations

import typing as t

from ..._core import network_checks, published
from ..network_twin import difference
from . import wave
from .plan import Check, Facts, Plan


def _networks(plan: Plan) -> t.Iterator[str]:
    known = {network["name"]: network for network in plan.there["host"]["podman"]["networks"]}
    for network in plan.container["networks"]:
        other = known.get(network["name"])
        if other is None:
            yield from _cannot_make(plan, network)
        elif other["driver"] != network["driver"]:
            yield "the network {0} is made by the driver {1} on {2} and by {3} on {4}: create it with the same driver".format(
                network["name"], network["driver"], plan.source, other["driver"], plan.destination
            )
        elif sorted(other["subnets"]) != sorted(network["subnets"]):
            yield "the network {0} is {1} on {2} and {3} on {4}, so {5} could not keep its address: create it with the same subnet".format(
                network["name"],
                ", ".join(network["subnets"]) or "without a subnet",
                plan.source,
                ", ".join(other["subnets"]) or "without a subnet",
                plan.destination,
                plan.workload,
            )
        elif network["shared"] and not other["shared"]:
            yield (
                "the network {0} leads out of {1} and is a bridge of {2} alone, where nobody outside would reach {3}: create it there on the bridge that "
                "the segment is attached to, with --opt mode=unmanaged and --interface-name".format(
                    network["name"], plan.source, plan.destination, plan.workload
                )
            )
        elif other["shared"] and other["parent"] and other["parent"] not in plan.there["host"]["interfaces"]:
            yield "podman on {0} has the network {1} on the interface {2}, which is not there: make it, with a port on the segment of {3}".format(
                plan.destination, network["name"], other["parent"], plan.source
            )
        elif not network["shared"]:
            here, there = network.get("definition"), other.get("definition")
            yield from network_checks.differs(plan, network["name"], difference(here, there) if here and there else None)


def _cannot_make(plan: Plan, network: Facts) -> t.Iterator[str]:
    """Why the move does not make a network that the destination lacks."""
    wanted = network.get("definition") or {}
    if not wanted or network["shared"] and not wanted["interface"]:
        yield "podman on {0} has no network named {1}, which {2} is on: create it there with the driver {3} and the subnet {4}".format(
            plan.destination, network["name"], plan.workload, network["driver"], ", ".join(network["subnets"]) or "of the source"
        )
        return
    if network["shared"] and wanted["interface"] not in plan.there["host"]["interfaces"]:
        yield "podman on {0} has no network named {1}, which {2} is on, and {0} has no interface {3} to make it on: create it there".format(
            plan.destination, network["name"], plan.workload, wanted["interface"]
        )
    for text in () if network["shared"] else network["subnets"]:
        yield from network_checks.in_use(plan, network["name"], text, "podman", plan.there["host"]["podman"]["networks"])


def to_make(plan: Plan) -> list[str]:
    """The networks that the move makes on the destination."""
    mine = [network for each in plan.members or [plan.container] for network in each.get("networks", [])]
    return network_checks.to_make(mine, plan.there["host"]["podman"]["networks"])


def _mtu(plan: Plan) -> t.Iterator[str]:
    """A container keeps the MTU that it has, and what is larger than its new network carries would be lost without a word."""
    networks = {network["name"]: network for network in plan.there["host"]["podman"]["networks"]}
    for network in plan.container["networks"] if plan.live else []:
        mtu, other = plan.container.get("mtus", {}).get(network["interface"], 0), networks.get(network["name"])
        name, most = carries(plan.there["host"], other) if other else ("", 0)
        if most and mtu > most:
            yield (
                "the interface {0} of {1} has an MTU of {2}, and {3} on {4}, where its network {5} is, carries {6}: raise that there, "
                "or lower the MTU of {1} with `nsenter --net={7} ip link set {0} mtu {6}` on {8}".format(
                    network["interface"],
                    plan.workload,
                    mtu,
                    name,
                    plan.destination,
                    network["name"],
                    most,
                    plan.container.get("network_namespace") or "NAMESPACE",
                    plan.source,
                )
            )


def carries(host: Facts, network: Facts) -> tuple[str, int]:
    """By which interface a network leads out of a host, and the largest packet that it carries; 0 where that is not known."""
    mtus = host.get("mtus", {})
    name = network["parent"] if network["parent"] in mtus else host.get("gateway_interface", "")
    if network["driver"] == "bridge" and network["parent"] not in mtus and network.get("mtu"):
        return "the option mtu of the network", network["mtu"]
    return name, mtus.get(name, 0)


def _begun_elsewhere(plan: Plan) -> t.Iterator[str]:
    """Connections over bridges, whose packets the destination's firewall sees."""
    beside = wave.carried(plan) if plan.live else {}
    for network in plan.container["networks"] if plan.live else []:
        counted = plan.container["connections"] if network["shared"] else beside
        number = sum(counted.get(address, 0) for address in (network["ip"], network["ip6"]) if address)
        yield from network_checks.begun_elsewhere(plan, network, number, "podman's")


def _addresses(plan: Plan) -> t.Iterator[str]:
    own = {address["address"] for address in plan.there["host"]["addresses"]}
    networks = {network["name"]: network for network in plan.there["host"]["podman"]["networks"]}
    for network in plan.container["networks"]:
        taken = {each["address"]: each["container"] for each in networks.get(network["name"], {}).get("taken", [])}
        for address in filter(None, (network["ip"], network["ip6"])):
            if address in own:
                yield "{0} has the address {1}, which is also an address of {2} itself: give one of them another".format(
                    plan.workload, address, plan.destination
                )
            elif address in taken:
                yield "{0} has the address {1}, which the container {2} on {3} uses: give one of them another".format(
                    plan.workload, address, taken[address], plan.destination
                )


CHECKS: dict[str, Check] = {
    "networks": _networks,
    "mtu": _mtu,
    "begun_elsewhere": _begun_elsewhere,
    "addresses": _addresses,
    "ports": published.ports,
}
