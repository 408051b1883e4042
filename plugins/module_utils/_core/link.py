# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The way from the source to the destination: the address to listen at, and how fast it is."""

from __future__ import annotations

import ipaddress

from .move import Facts, Move


def listen_address(plan: Move, wanted: str = "") -> str | None:
    """Where the destination is to listen, on a port of its own choice: the wanted address, else one in a subnet that both hosts are in."""
    theirs = plan.there["host"]["addresses"]
    if wanted:
        chosen = [address for address in theirs if address["address"] == wanted]
    else:
        ours = [ipaddress.ip_address(address["address"]) for address in plan.here["host"]["addresses"]]
        chosen = sorted(theirs, key=lambda each: not any(own in _subnet(each) for own in ours))
    if not chosen:
        return None
    address = chosen[0]["address"]
    return "[{0}]:0".format(address) if ":" in address else "{0}:0".format(address)


# Where the kernel does not say how fast a link is.
USUAL_MBITS = 1000


def link_rate(plan: Move, listen: str) -> int:
    """Bytes per second of the slower of the links over which the hosts talk to each other."""
    there = [address for address in plan.there["host"]["addresses"] if listen.rpartition(":")[0].strip("[]") == address["address"]]
    here = [address for address in plan.here["host"]["addresses"] if there and ipaddress.ip_address(address["address"]) in _subnet(there[0])]
    speeds = [address.get("speed") or USUAL_MBITS for address in here[:1] + there]
    return min(speeds or [USUAL_MBITS]) * 125000


def _subnet(address: Facts) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    return ipaddress.ip_network("{address}/{prefix}".format(**address), strict=False)
