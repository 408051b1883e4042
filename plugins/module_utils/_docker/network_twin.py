# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A network of Docker's as it has to be on both hosts, the request that makes it, and in what two of them differ. Pure functions."""

from __future__ import annotations

import typing as t

Document = t.Mapping[str, t.Any]

# Docker has these from its start, each host its own.
BUILT_IN = frozenset(("bridge", "host", "none"))
BRIDGE_NAME = "com.docker.network.bridge.name"
# Each host's own: the check `mtu` compares what it carries, and newer daemons write the versions of IP among the options, too.
_OF_THE_HOST = frozenset(
    (BRIDGE_NAME, "com.docker.network.driver.mtu", "com.docker.network.enable_ipv4", "com.docker.network.enable_ipv6", "parent")
)


def definition(network: Document) -> dict[str, t.Any]:
    """A network, from Docker's own description; nothing of one that no host makes again."""
    made_from = (network.get("ConfigFrom") or {}).get("Network") or ""
    if network.get("Name") in BUILT_IN or network.get("Scope") not in (None, "", "local") or network.get("Ingress") or made_from:
        return {}
    ipam = network.get("IPAM") or {}
    return {
        "driver": network.get("Driver") or "",
        "subnets": [
            {
                "subnet": each["Subnet"],
                "gateway": (each.get("Gateway") or "").partition("/")[0],
                "range": each.get("IPRange") or "",
                "aside": dict(each.get("AuxiliaryAddresses") or {}),
            }
            for each in ipam.get("Config") or []
            if each.get("Subnet")
        ],
        "ipam": ipam.get("Driver") or "",
        "ipam_options": dict(ipam.get("Options") or {}),
        "internal": bool(network.get("Internal")),
        "attachable": bool(network.get("Attachable")),
        "ipv4": bool(network.get("EnableIPv4", True)),
        "ipv6": bool(network.get("EnableIPv6")),
        "options": dict(network.get("Options") or {}),
        "labels": dict(network.get("Labels") or {}),
    }


def request(name: str, wanted: Document) -> dict[str, t.Any]:
    """The body of POST /networks/create. All subnets are named in it: on a network whose subnet Docker has drawn no address can be asked for."""
    subnets = [
        {"Subnet": each["subnet"], "Gateway": each["gateway"], "IPRange": each["range"], "AuxiliaryAddresses": each["aside"]} for each in wanted["subnets"]
    ]
    body = {
        "Name": name,
        # Docker before 25 makes a second one of the name without it.
        "CheckDuplicate": True,
        "Driver": wanted["driver"],
        "Internal": wanted["internal"],
        "Attachable": wanted["attachable"],
        "EnableIPv6": wanted["ipv6"],
        "IPAM": {
            "Driver": wanted["ipam"] or "default",
            "Options": wanted["ipam_options"],
            "Config": [{key: value for key, value in each.items() if value} for each in subnets],
        },
        "Options": wanted["options"],
        "Labels": wanted["labels"],
    }
    # A daemon that does not know the word has IPv4 in all of them.
    return body if wanted["ipv4"] else {**body, "EnableIPv4": False}


def difference(here: Document, there: Document) -> tuple[str, str, str] | None:
    """(its name, on the source, over there) of the first thing in which two networks differ that a container could notice. Their drivers and subnets
    are compared elsewhere: not every move needs the same subnets."""
    for what, mine, theirs in (
        ("gateway", *_gateways(here, there)),
        ("word internal", *(("on" if each["internal"] else "off") for each in (here, there))),
        ("IPAM driver", *(each["ipam"] or "default" for each in (here, there))),
        ("set of options", *(_options(each) for each in (here, there))),
    ):
        if mine != theirs:
            return what, mine, theirs
    return None


def _gateways(here: Document, there: Document) -> tuple[str, str]:
    """Of the subnets that both have. Where none was asked for, older daemons do not tell which one Docker took."""
    mine, theirs = ({each["subnet"]: each["gateway"] for each in network["subnets"]} for network in (here, there))
    both = sorted(subnet for subnet, gateway in mine.items() if gateway and theirs.get(subnet))
    return ", ".join(mine[subnet] for subnet in both), ", ".join(theirs[subnet] for subnet in both)


def _options(network: Document) -> str:
    return ", ".join("{0}={1}".format(name, text) for name, text in sorted(network["options"].items()) if name not in _OF_THE_HOST) or "none"
