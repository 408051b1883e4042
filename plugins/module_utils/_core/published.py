# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The ports that a container publishes on its host: whether the other host has them for it."""

from __future__ import annotations

import ipaddress
import typing as t

from . import floating
from .move import Facts, Move


def ports(move: Move) -> t.Iterator[str]:
    """Those that would not be found on the destination, or cannot be published there."""
    moving = floating.moving(move)
    there = {address["address"] for address in move.there["host"]["addresses"]}
    for port in move.container["ports"]:
        address = port["host_ip"]
        if address and not _everywhere(address) and address not in there and address not in moving:
            yield (
                "{0} publishes port {1}/{2} on {3}, an address of {4} that {5} does not have: publish it on all addresses, "
                "or list the address in {6} if it is that port's alone".format(
                    move.workload, port["host_port"], port["protocol"], address, move.source, move.destination, floating.OPTION
                )
            )
        elif any(_collide(used, port) for used in move.there["host"]["listening"]):
            yield "{0} publishes port {1}/{2}, on which something on {3} listens already: stop that first".format(
                move.workload, port["host_port"], port["protocol"], move.destination
            )


def _collide(used: Facts, port: Facts) -> bool:
    """Whether a program that listens has the port."""
    if str(used["port"]) != port["host_port"] or used["protocol"] != port["protocol"]:
        return False
    return not port["host_ip"] or used["address"] in (port["host_ip"], "0.0.0.0", "::") or _unspecified(port["host_ip"])


def _unspecified(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_unspecified
    except ValueError:
        return False


def _everywhere(address: str) -> bool:
    """Whether each host has it."""
    return _unspecified(address) or ipaddress.ip_address(address).is_loopback
