# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A network of podman's as it has to be on both hosts, the command that makes it, and in what two of them differ. Pure functions."""

from __future__ import annotations

import re
import typing as t

Document = t.Mapping[str, t.Any]

# Of a network's inspect, the values that define it, and how a sentence calls each.
_SAME = {
    "driver": "driver", "subnets": "set of subnets", "internal": "word internal", "dns": "name server", "options": "set of options",
    "routes": "set of routes", "ipam": "IPAM driver",
}  # fmt: skip
# Each host's own: the check `mtu` compares what it carries.
_OF_THE_HOST = frozenset(("mtu",))
# How podman names an interface that nobody has named.
_DRAWN = re.compile("podman[0-9]+")


def definition(network: Document) -> dict[str, t.Any]:
    """A network, from podman's list."""
    interface = network.get("network_interface") or ""
    return {
        "driver": network.get("driver") or "",
        "subnets": [
            {"subnet": each["subnet"], "gateway": each.get("gateway") or "", "range": _range(each.get("lease_range") or {})}
            for each in network.get("subnets") or []
        ],
        "routes": [
            ",".join(str(each[key]) for key in ("destination", "gateway", "metric") if each.get(key)) for each in network.get("routes") or []
        ],
        "internal": bool(network.get("internal")),
        "ipv6": bool(network.get("ipv6_enabled")),
        "dns": bool(network.get("dns_enabled")),
        "dns_servers": list(network.get("network_dns_servers") or []),
        "ipam": (network.get("ipam_options") or {}).get("driver") or "",
        "options": dict(network.get("options") or {}),
        "labels": dict(network.get("labels") or {}),
        "interface": "" if _DRAWN.fullmatch(interface) else interface,
    }


def _range(lease: Document) -> str:
    return "{0}-{1}".format(lease["start_ip"], lease["end_ip"]) if lease.get("start_ip") and lease.get("end_ip") else ""


def create_words(name: str, wanted: Document) -> list[str]:
    """The arguments of `podman` that make it."""
    words = ["network", "create", "--driver=" + wanted["driver"]]
    if wanted["ipam"] and wanted["ipam"] != "host-local":
        words.append("--ipam-driver=" + wanted["ipam"])
    for subnet in wanted["subnets"]:
        words.append("--subnet=" + subnet["subnet"])
        # podman reads these as belonging to the subnet before them.
        words += ["--gateway=" + subnet["gateway"]] if subnet["gateway"] else []
        words += ["--ip-range=" + subnet["range"]] if subnet["range"] else []
    flags = {"--ipv6": wanted["ipv6"], "--internal": wanted["internal"], "--disable-dns": not wanted["dns"]}
    words += [flag for flag, whether in flags.items() if whether]
    words += ["--dns=" + server for server in wanted["dns_servers"]]
    words += ["--route=" + route for route in wanted["routes"]]
    words += ["--interface-name=" + wanted["interface"]] if wanted["interface"] else []
    words += ["--opt={0}={1}".format(key, value) for key, value in sorted(wanted["options"].items())]
    words += ["--label={0}={1}".format(key, value) for key, value in sorted(wanted["labels"].items())]
    return [*words, name]


def difference(here: Document, there: Document) -> tuple[str, str, str] | None:
    """(its name, on the source, over there) of the first thing in which two networks differ that a container could notice."""
    for key, what in _SAME.items():
        mine, theirs = _said(key, here), _said(key, there)
        if mine != theirs:
            return what, mine, theirs
    return None


def _said(key: str, wanted: Document) -> str:
    value = wanted[key]
    if key == "subnets":
        return ", ".join(sorted(each["subnet"] + (" with the gateway " + each["gateway"] if each["gateway"] else "") for each in value)) or "none"
    if key == "options":
        return ", ".join("{0}={1}".format(name, text) for name, text in sorted(value.items()) if name not in _OF_THE_HOST) or "none"
    if key == "routes":
        return "; ".join(sorted(value)) or "none"
    return ("on" if value else "off") if isinstance(value, bool) else str(value or "none")
