# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The plan of a clone: volumes, networks and a command of its own, or the reason why there can be none.

A clone with the container's own name is the container itself, made again from a backup where it is no more: it has all that was its own.

Nothing in here touches the host. The configuration is that of the moment of the snapshot, as workload_info returned it; `Here` is the host as it is now.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import posixpath
import typing as t
from dataclasses import dataclass, field

from .clone import LABEL, CloneError, cloned, is_origin, unclaimed
from .create_command import Attachment, Grammar, Identity, parse, twin, unsupported
from .workload import asked, identity_of, is_shared

Document = t.Mapping[str, t.Any]
Address = t.Union[ipaddress.IPv4Address, ipaddress.IPv6Address]


# Where a volume's place is taken. That of the container itself may have newer data than the backup.
WAY_OUT = {
    False: "give the clone another name, or remove that one",
    True: "make the container on it by what made it first, and go back to the backup then, or give a new container another name",
}


@dataclass(frozen=True)
class Here:
    """What the host has that a clone could collide with."""

    containers: t.Sequence[Document] = ()  # in full
    networks: t.Sequence[Document] = ()  # as podman shows them
    volumes: t.Collection[str] = ()  # names of podman's
    addresses: t.Collection[str] = ()  # of the host itself


@dataclass(frozen=True)
class Plan:
    """What is made for a clone."""

    name: str
    volumes: tuple[dict[str, t.Any], ...]  # image volumes, each with the name of the one that it is a copy of
    podman_volumes: tuple[dict[str, t.Any], ...]  # that are folders of those, or plain ones with the name of the one that each is a copy of
    networks: tuple[Attachment, ...]
    left_out: tuple[str, ...]
    names: t.Mapping[str, str] = field(default_factory=dict)  # of volumes, and mount points: the container's → the clone's
    places: t.Mapping[str, str] = field(default_factory=dict)  # where plain volumes without a name in the command are mounted → the clone's

    @property
    def plain(self) -> list[dict[str, t.Any]]:
        """The plain volumes."""
        return [volume for volume in self.podman_volumes if volume.get("of")]


def plan(
    configuration: Document, volumes: t.Sequence[Document], name: str, addresses: t.Sequence[str], here: Here, folders: t.Sequence[Document] = ()
) -> Plan:
    """The plan, or a CloneError with the first reason against it. `folders` are the plain volumes that the snapshot has."""
    original = configuration["name"]
    again = name == original
    if any(container.get("Name") == name for container in here.containers):
        raise CloneError("there is a container named {0} on this host: give the clone another name, or remove that one".format(name))
    if configuration.get("userns"):
        raise CloneError(
            "{0} has a user namespace of its own ({1}), and the clone would have other numbers than the files have: create it without --userns, "
            "--uidmap and --gidmap, and take another snapshot".format(original, configuration["userns"])
        )
    prefix = "" if again else name + "-"
    images = tuple(volume_of(volume, prefix) for volume in volumes)
    made, names = _podman_volumes(configuration["mounts"], images, prefix)
    plain, places = _plain_volumes(configuration["mounts"], [folder["name"] for folder in folders], prefix)
    made, names = (*made, *plain.values()), {**names, **{of: volume["name"] for of, volume in plain.items()}}
    for each in (*(image["podman_volume"] for image in images), *(volume["name"] for volume in made)):
        if each and each in here.volumes:
            raise CloneError("podman has a volume named {0} on this host: {1}".format(each, WAY_OUT[again]))
    networks = tuple(_networks(configuration, addresses, here, again))
    missing = not_there(configuration, plain) if again else _left_out(configuration, plain)
    return Plan(name, images, made, networks, tuple(missing), names, places)


def command(configuration: Document, planned: Plan, origin: str, image: str, grammars: t.Sequence[Grammar]) -> list[str]:
    """The arguments of `podman` that create the clone; `origin` says of which snapshot it is one."""
    podman, run, create = grammars
    parsed = parse(configuration["create_command"], podman, run | create)
    reason = unsupported(parsed)
    if reason:
        raise CloneError("{0} cannot be created again: {1}".format(configuration["name"], reason))
    first = identity_of(configuration, image)
    label = ("label", "{0}={1}".format(LABEL, origin))
    if planned.name == first.name:
        # Of two labels of one name podman takes the last: it may have been made again before.
        options = [option for option in parsed.options if option != ("cgroups", "split") and not (option[0] == "label" and is_origin(option[1] or ""))]
        own = dataclasses.replace(first, networks=planned.networks, volumes=planned.places)
        return twin(dataclasses.replace(parsed, options=(label, *options)), own, create)
    mine = cloned(parsed, planned.names)
    identity = Identity(
        name=planned.name,
        image=image,
        # One that was given may stand in the files, as the node names of a cluster do. Any other is drawn.
        hostname=first.hostname if parsed.values("hostname") else None,
        networks=planned.networks,
        environment=first.environment,
        labels=unclaimed(first.labels),
        settings=first.settings,
        volumes=planned.places,
        made_by_unit=first.made_by_unit,
    )
    return twin(dataclasses.replace(mine, options=(label, *mine.options)), identity, create)


def volume_of(volume: Document, prefix: str) -> dict[str, t.Any]:
    """An image volume, and that of which it is a copy."""
    own = prefix + volume["name"]
    return {
        "of": volume["name"],
        "name": own,
        "image": posixpath.join(posixpath.dirname(volume["image"]), prefix + posixpath.basename(volume["image"])),
        "mountpoint": posixpath.join(posixpath.dirname(volume["mountpoint"]), prefix + posixpath.basename(volume["mountpoint"])),
        "fstype": volume["fstype"],
        "podman_volume": "",
        "discard": "discard" in (volume.get("options") or "").split(","),
        "place": volume["mountpoint"],
    }


def _podman_volumes(mounts: t.Sequence[Document], images: t.Sequence[dict[str, t.Any]], prefix: str) -> tuple[tuple[dict[str, t.Any], ...], dict[str, str]]:
    """podman's volumes that are folders of the image volumes, or further names for them; and the clone's name for each volume and mount point."""
    own = {image["place"]: image for image in images}
    names = {image["place"]: image["mountpoint"] for image in images}
    made = []
    for mount in mounts:
        below = mount["image_volume"]
        if mount["type"] != "volume" or not below or below["mountpoint"] not in own or mount["name"] in names:
            continue
        image = own[below["mountpoint"]]
        names[mount["name"]] = prefix + mount["name"]
        if mount["directory"] == image["place"] and not image["podman_volume"]:
            image["podman_volume"] = names[mount["name"]]
            continue
        device = image["mountpoint"] + mount["directory"][len(image["place"]) :]
        volume = mount["volume"] or {}
        made.append(
            {
                "name": names[mount["name"]],
                "driver": volume.get("driver") or "local",
                "options": {**(volume.get("options") or {}), "device": device},
                "labels": volume.get("labels") or {},
            }
        )
    return tuple(made), names


def _plain_volumes(mounts: t.Sequence[Document], taken: t.Collection[str], prefix: str) -> tuple[dict[str, dict[str, t.Any]], dict[str, str]]:
    """podman's plain volumes that the snapshot has, each as a new one; and where those are mounted that have no name in the command."""
    made: dict[str, dict[str, t.Any]] = {}
    places = {}
    for mount in mounts:
        if mount["name"] not in taken:
            continue
        anonymous = (mount.get("directory_volume") or {}).get("anonymous")
        own = prefix + (mount["name"][:12] if anonymous and prefix else mount["name"])
        made[mount["name"]] = {"of": mount["name"], "name": own, "driver": "local", "options": {}, "labels": (mount["volume"] or {}).get("labels") or {}}
        if anonymous:
            places[mount["destination"]] = own
    return made, places


# Networks and addresses


def _networks(configuration: Document, addresses: t.Sequence[str], here: Here, again: bool) -> t.Iterator[Attachment]:
    name, mode = configuration["name"], configuration.get("network_mode", "")
    if not again and mode.startswith(("host", "container:", "ns:")):
        raise CloneError(
            "{0} is on the network of {1} (--network {2}), and the clone would have the same address: a clone needs a container with a network of "
            "its own".format(name, "its host" if mode == "host" else "another container or namespace", mode)
        )
    known = {network["name"]: network for network in here.networks}
    wanted = [_parsed(address) for address in addresses] or (_own(configuration, known) if again else [])
    _see_if_free(wanted, here)
    for attached in configuration["networks"]:
        network = known.get(attached["name"])
        if network is None:
            raise CloneError("podman has no network named {0} any more, which {1} was on: make it again".format(attached["name"], name))
        subnets = [ipaddress.ip_network(subnet["subnet"]) for subnet in network.get("subnets") or []]
        chosen: dict[int, Address] = {address.version: address for address in wanted if any(address in subnet for subnet in subnets)}
        wanted = [address for address in wanted if address not in chosen.values()]
        _see_if_enough(attached, network, subnets, chosen)
        yield Attachment(attached["name"], tuple(str(chosen[version]) for version in sorted(chosen)), attached["mac"] if again else "", attached["interface"])
    if wanted:
        known_subnets = ", ".join(subnet["subnet"] for attached in configuration["networks"] for subnet in known[attached["name"]].get("subnets") or [])
        raise CloneError(
            "{0} is an address too many, or in no network of {1}: {2}".format(
                wanted[0], name, "name one of each of {0}".format(known_subnets) if known_subnets else "it has none with addresses"
            )
        )


def _own(configuration: Document, known: t.Mapping[str, Document]) -> list[Address]:
    """The addresses that it asks for itself, and those by which others outside the host know it."""
    asked_for = addresses_of({"Config": {"CreateCommand": configuration["create_command"]}})
    had = [(attached["name"], text) for attached in configuration["networks"] for text in (attached["ip"], attached["ip6"]) if text]
    return [_parsed(text) for network, text in had if _parsed(text) in asked_for or is_shared(known.get(network, {}))]


def _parsed(text: str) -> Address:
    try:
        return ipaddress.ip_address(text)
    except ValueError as exc:
        raise CloneError("{0} is no address: name one, as 10.88.0.50".format(text)) from exc


def _see_if_free(wanted: t.Sequence[Address], here: Here) -> None:
    taken = {ipaddress.ip_address(address): "this host" for address in here.addresses}
    for network in here.networks:
        taken.update((ipaddress.ip_address(subnet["gateway"]), "the gateway of the network " + network["name"])
                     for subnet in network.get("subnets") or [] if subnet.get("gateway"))  # fmt: skip
    for container in here.containers:
        taken.update((address, "the container " + container["Name"]) for address in addresses_of(container))
    for address in wanted:
        if address in taken:
            raise CloneError("the address {0} is that of {1}: give the clone another".format(address, taken[address]))


def addresses_of(container: Document) -> set[Address]:
    """The addresses that a container has, and those that it will ask for when it is started."""
    words = list((container.get("Config") or {}).get("CreateCommand") or [])
    found = [value for option in ("ip", "ip6") for value in asked(words, option)]
    given = [part for option in ("network", "net") for value in asked(words, option) for part in value.partition(":")[2].split(",")]
    found += [part.partition("=")[2] for part in given if part.startswith(("ip=", "ip6="))]
    for endpoint in ((container.get("NetworkSettings") or {}).get("Networks") or {}).values():
        found += [endpoint.get("IPAddress") or "", endpoint.get("GlobalIPv6Address") or ""]
    addresses = set()
    for text in found:
        try:
            addresses.add(ipaddress.ip_address(text))
        except ValueError:  # an option's value that podman itself refused, or none
            continue
    return addresses


def _see_if_enough(attached: Document, network: Document, subnets: t.Sequence[t.Any], chosen: t.Mapping[int, Address]) -> None:
    """On a network that leads out of the host podman would draw an address that may be in use elsewhere."""
    if not is_shared(network):
        return
    for version in sorted({subnet.version for subnet in subnets} - set(chosen)):
        raise CloneError(
            "the network {0} leads out of this host, where podman does not know which addresses are free: name one for the clone in {1}".format(
                attached["name"], ", ".join(str(subnet) for subnet in subnets if subnet.version == version)
            )
        )


def _left_out(configuration: Document, plain: t.Collection[str]) -> t.Iterator[str]:
    name = configuration["name"]
    for port in configuration["ports"]:
        yield "port {0}/{1} of the host, which is {2}'s".format(port["host_port"] or port["container_port"], port["protocol"], name)
    for mount in configuration["mounts"]:
        if (mount.get("directory_volume") or {}).get("anonymous") and mount["name"] not in plain:
            yield "the files of {0}, which are no part of a snapshot: the clone has an empty volume there".format(mount["destination"])
    if (configuration.get("service") or {}).get("unit"):
        yield "the unit {0}: podman starts the clone".format(configuration["service"]["unit"])


def not_there(configuration: Document, plain: t.Collection[str]) -> t.Iterator[str]:
    """Of a container that is made again."""
    for mount in configuration["mounts"]:
        if not mount["image_volume"] and not mount.get("read_only") and mount["name"] not in plain:
            yield "the files of {0}, which are in no volume of its own: the container has those of this host".format(mount["destination"])
    if (configuration.get("service") or {}).get("unit"):
        yield "the unit {0}: podman starts the container".format(configuration["service"]["unit"])
