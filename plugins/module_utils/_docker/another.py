# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A container of Docker's as another one beside it, with a name, volumes, addresses and labels of its own: pure functions of its inspect."""

from __future__ import annotations

import copy
import ipaddress
import posixpath
import typing as t

from .._core.runtime import HandoverError
from .facts import NO_NETWORKS, SHORT_ID, Document, subnets_of

# Labels by which other programs take it for theirs, and would stop or remove the other with it.
_CLAIMS = ("com.docker.compose.", "com.docker.stack.", "com.docker.swarm.")
# The longest name of a host.
_HOST_NAME = 63


def another(
    inspect: Document, name: str, replaced: t.Mapping[str, str], addresses: t.Mapping[str, t.Sequence[str]], label: tuple[str, str]
) -> dict[str, t.Any]:
    """The inspect of the other.

    `replaced` has its volumes, and the places of the host that it mounts, for those of the first; `addresses` are those that it asks for, by network.
    """
    found = copy.deepcopy(dict(inspect))
    first = inspect["Name"].lstrip("/")
    config, host = found["Config"], found["HostConfig"]
    mode = host.get("NetworkMode") or ""
    if mode.startswith(("host", "container:")):
        raise HandoverError(
            "{0} is on the network of {1} (--network {2}), and the clone would have the same address: a clone needs a container with a network of "
            "its own".format(first, "its host" if mode == "host" else "another container", mode)
        )
    found["Name"] = "/" + name
    # One that was given may stand in the files, as the node names of a cluster do.
    if config.get("Hostname") == inspect["Id"][:SHORT_ID]:
        config["Hostname"] = name[:_HOST_NAME]
    labels = {key: value for key, value in (config.get("Labels") or {}).items() if not key.startswith(_CLAIMS)}
    config["Labels"] = {**labels, label[0]: label[1]}
    host.update(PortBindings={}, PublishAllPorts=False)
    host["Binds"] = [":".join([place_of(bind.split(":")[0], replaced), *bind.split(":")[1:]]) for bind in host.get("Binds") or []] or None
    for mount in [*(host.get("Mounts") or []), *found["Mounts"]]:
        for key in ("Source", "Name"):
            if mount.get(key):
                mount[key] = place_of(mount[key], replaced)
    endpoints = (found.get("NetworkSettings") or {}).get("Networks") or {}
    for network, endpoint in endpoints.items():
        given = {"IPv{0}Address".format(ipaddress.ip_address(text).version): text for text in addresses.get(network, ())}
        endpoints[network] = {key: endpoint[key] for key in ("DriverOpts", "GwPriority") if endpoint.get(key)}
        if given and network not in NO_NETWORKS:
            endpoints[network]["IPAMConfig"] = given
    return found


def addresses_by_network(name: str, networks: t.Sequence[Document], known: t.Mapping[str, Document], wanted: t.Sequence[str]) -> dict[str, list[str]]:
    """Each address at the network of whose subnets it is. On a segment that other hosts are on Docker does not know which are free."""
    found: dict[str, list[str]] = {}
    left = [_parsed(text) for text in wanted]
    for network in networks:
        subnets = [ipaddress.ip_network(text) for text in subnets_of(known[network["name"]])]
        mine = [address for address in left if any(address in subnet for subnet in subnets)]
        left = [address for address in left if address not in mine]
        lacking = [str(subnet) for subnet in subnets if network["shared"] and subnet.version not in {address.version for address in mine}]
        if lacking:
            raise HandoverError(
                "the network {0} leads out of this host, where Docker does not know which addresses are free: name one for the clone in {1}".format(
                    network["name"], ", ".join(lacking)
                )
            )
        found[network["name"]] = [str(address) for address in mine]
    if left:
        raise HandoverError("{0} is in no network of {1}: name an address of one of them".format(left[0], name))
    return found


def shared_with_it(inspect: Document, replaced: t.Mapping[str, str]) -> t.Iterator[str]:
    """What both of them would write to."""
    for mount in inspect.get("Mounts") or []:
        source = mount.get("Name") or mount.get("Source") or ""
        if mount.get("RW", True) and mount.get("Type") in ("bind", "volume") and place_of(source, replaced) == source:
            yield source


def _parsed(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    try:
        return ipaddress.ip_address(text)
    except ValueError as exc:
        raise HandoverError("{0} is no address: name one, as 10.88.0.50".format(text)) from exc


def place_of(source: str, replaced: t.Mapping[str, str]) -> str:
    """What the other has for a volume's name, or for a path of the host at or below one that is replaced."""
    path = posixpath.normpath(source) if source.startswith("/") else source
    for one, other in replaced.items():
        if path == one:
            return other
        if one.startswith("/") and path.startswith(one + "/"):
            return other + path[len(one) :]
    return source
