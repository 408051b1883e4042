# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The networks of podman's that a container of OpenVZ is attached to: each keeps its name, its MAC address and its addresses.

Addresses of IP_ADDRESS belong to venet0, those of NETIF to their interface. podman gives a container one address of each subnet of a network.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
import typing as t

VENET = "venet0"
Network = t.Mapping[str, t.Any]


def interfaces_of(container: t.Mapping[str, t.Any]) -> list[dict[str, t.Any]]:
    """All interfaces, venet0 first."""
    addresses = container.get("addresses")
    found = [{"name": VENET, "addresses": addresses, "mac": _own_mac(addresses[0])}] if addresses else []
    # libvzctl may have an entry of it among the others, without its addresses.
    return [*found, *(each for each in container.get("interfaces", []) if each["name"] != VENET)]


def _own_mac(address: str) -> str:
    """venet has none. One that stays the same lets neighbours find the container at once after a start."""
    return "02" + hashlib.sha256(address.encode()).hexdigest()[:10]


def choices(container: t.Mapping[str, t.Any], chosen: t.Mapping[str, str]) -> tuple[dict[str, t.Any], dict[str, str], list[str]]:
    """The container and the chosen networks, where a choice may say addresses, too, as in `lan:ip=10.0.0.5,ip6=fd00::5`; and the sentences why not.

    OpenVZ often does not know those of an interface of NETIF: they are in the container's own files alone.
    """
    said = {name: str(choice).partition(":")[::2] for name, choice in chosen.items()}
    known = [each["name"] for each in interfaces_of(container)]
    problems = [f"import_openvz_networks: the container has no interface {name}, but {' and '.join(known) or 'none'}" for name in said if name not in known]
    if said.get(VENET, ("", ""))[1]:
        problems.append(f"import_openvz_networks, {VENET}: its addresses are those of IP_ADDRESS: leave them out here")
    found = []
    for interface in container.get("interfaces", []):
        own = list(interface["addresses"])
        for word in filter(None, said.get(interface["name"], ("", ""))[1].split(",")):
            key, _equals, address = word.partition("=")
            try:
                own += [str(ipaddress.ip_address(address))] if key in ("ip", "ip6") else []
                fault = "" if key in ("ip", "ip6") else "it is none of ip and ip6"
            except ValueError as exc:
                fault = str(exc)
            if fault:
                problems.append(f"import_openvz_networks, {interface['name']}: {word!r}: {fault}: say it as in lan:ip=10.0.0.5")
        found.append({**interface, "addresses": own})
    return {**container, "interfaces": found}, {name: network for name, (network, _more) in said.items()}, problems


def options(container: t.Mapping[str, t.Any], networks: t.Sequence[Network], chosen: t.Mapping[str, str]) -> tuple[list[str], list[str]]:
    """podman's options, and the sentences why one of them cannot be had."""
    found: list[str] = []
    problems: list[str] = []
    for interface in interfaces_of(container):
        network, problem = _network_of(interface, networks, chosen)
        if problem:
            problems.append(problem)
        elif network:
            found.append("--network={0}:{1}".format(network["name"], ",".join(_settings(interface))))
    return found or ["--network=none"], problems


def unasked(container: t.Mapping[str, t.Any], networks: t.Sequence[Network], chosen: t.Mapping[str, str]) -> list[str]:
    """Subnets of these networks in which podman chooses an address itself, as it does in each where none is given."""
    found = []
    for interface in interfaces_of(container):
        network, _problem = _network_of(interface, networks, chosen)
        if not network:
            continue
        for subnet in _subnets(network):
            if not any(address in subnet for address in _addresses(interface)):
                found.append(f"{interface['name']} gets an address of podman's choice in {subnet}, too: it is in the network {network['name']}")
    return found


def _settings(interface: t.Mapping[str, t.Any]) -> list[str]:
    said = []
    for address in _addresses(interface):
        said.append("{0}={1}".format("ip6" if address.version == 6 else "ip", address))
    if interface.get("mac"):
        said.append("mac=" + ":".join(re.findall("..", interface["mac"].replace(":", "").lower())))
    return [*said, "interface_name=" + interface["name"]]


def _addresses(interface: t.Mapping[str, t.Any]) -> list[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    return [ipaddress.ip_interface(each).ip for each in interface.get("addresses", [])]


def _subnets(network: Network) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    return [ipaddress.ip_network(each["subnet"]) for each in network.get("subnets") or [] if each.get("subnet")]


def _gateway_fault(interface: t.Mapping[str, t.Any], network: Network) -> str:
    """podman's routes are those of the network."""
    there = [each["gateway"] for each in network.get("subnets") or [] if each.get("gateway")]
    for key in ("gateway", "gateway6"):
        wanted = interface.get(key)
        if wanted and not ipaddress.ip_address(wanted).is_unspecified and wanted not in there:
            has = f"the gateway {' and '.join(there)}" if there else "no gateway"
            return f"{interface['name']}: its gateway is {wanted}, and the network {network['name']} there has {has}: make one with --gateway {wanted}"
    return ""


def _network_of(interface: t.Mapping[str, t.Any], networks: t.Sequence[Network], chosen: t.Mapping[str, str]) -> tuple[Network | None, str]:
    name, addresses = interface["name"], _addresses(interface)
    said = ", ".join(map(str, addresses))
    if name in chosen:
        fitting = [each for each in networks if each["name"] == chosen[name]]
        if not fitting:
            return None, f"{name}: podman has no network {chosen[name]} there: make it, or name another in import_openvz_networks"
    elif not addresses:
        return None, f"{name} has no address here: name a network for it, as in import_openvz_networks: {{{name}: 'lan:ip=10.0.0.5'}}"
    else:
        fitting = [each for each in networks if all(any(address in subnet for subnet in _subnets(each)) for address in addresses)]
    if not fitting:
        return None, f"{name}: no network of podman's there has {said}: make one (podman network create --driver macvlan --subnet …)"
    if len(fitting) > 1:
        names = " and ".join(each["name"] for each in fitting)
        return None, f"{name}: the networks {names} there have {said}: choose one, as in import_openvz_networks: {{{name}: {fitting[0]['name']}}}"
    for subnet in _subnets(fitting[0]):
        inside = [str(address) for address in addresses if address in subnet]
        if len(inside) > 1:
            return None, f"{name}: podman gives a container one address of {subnet}, and not {' and '.join(inside)}: leave all but one to other containers"
    problem = _gateway_fault(interface, fitting[0])
    if problem:
        return None, problem
    outside = [str(address) for address in addresses if not any(address in subnet for subnet in _subnets(fitting[0]))]
    if outside:
        return None, f"{name}: {', '.join(outside)} is in no subnet of the network {fitting[0]['name']} there"
    return fitting[0], ""
