# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The networks that a container's twin is on, on this host: made where they are missing, and removed again if the move is taken back."""

from __future__ import annotations

import contextlib
import functools
import typing as t

from .._core.parts import DOCKER_NETWORK, Parts
from .._core.runtime import HandoverError
from .api import Docker
from .facts import name_of
from .network_twin import definition, difference, request

Document = t.Mapping[str, t.Any]

# Docker's words about a network whose subnet it has drawn.
_DRAWN = "user configured subnets"


class Surroundings:
    """Of one container."""

    def __init__(self, docker: Docker, name: str, reasons: list[str], parts: Parts | None = None) -> None:
        self.docker = docker
        self.name = name
        self.reasons = reasons
        self.parts = parts or Parts()

    def missing(self, networks: t.Sequence[Document], planned: Document | None) -> list[Document]:
        """The networks that the move makes, of those that the twin is on."""
        wanted = [network for network in networks if network.get("definition")]
        if planned is not None:
            return [network for network in wanted if network["name"] in planned.get("networks", ())]
        there = {network["Name"] for network in self.docker.networks()}
        return [network for network in wanted if network["name"] not in there]

    def make(self, networks: t.Sequence[Document]) -> None:
        """Makes what is missing. What another move on its way has made is this one's as well."""
        if not networks:
            return
        with self.parts.alone():
            for network in networks:
                name, wanted = network["name"], network["definition"]
                make = functools.partial(self.docker.post, "networks", "create", body=request(name, wanted))
                if self.parts.need(DOCKER_NETWORK, name, self.name, self._find(name) is not None, make):
                    self.reasons.append("Docker has no network named {0}".format(name))
                self._same(name, wanted)

    def _find(self, name: str) -> dict[str, t.Any] | None:
        return next((each for each in self.docker.networks() if each["Name"] == name), None)

    def _same(self, name: str, wanted: Document) -> None:
        here = definition(self._find(name) or {})
        mine, theirs = (", ".join(sorted(each["subnet"] for each in network.get("subnets", []))) for network in (wanted, here))
        found = ("set of subnets", mine, theirs) if mine != theirs else difference(wanted, here)
        if found:
            raise HandoverError("the network {0} would not be the same here: its {1} is {2} on the source and {3} on this host".format(name, *found))

    def create(self, body: Document) -> str:
        """Makes the twin, and tells its ID. Docker grants an address only on a network whose subnet was given. One of which it was drawn, as compose's
        is where the project was begun, is made again as it is, with its subnet given."""
        networks = list(body["NetworkingConfig"]["EndpointsConfig"])
        create = functools.partial(self.docker.post, "containers", "create", body=body, name=self.name)
        try:
            return create()["Id"]
        except HandoverError as exc:
            _drawn(networks, exc)
        with self.parts.alone():
            for _number in networks:
                # Another move of the project may have been here just now, so it is asked again.
                try:
                    return create()["Id"]
                except HandoverError as exc:
                    for name in _drawn(networks, exc):
                        self._name_subnets(name)
            return create()["Id"]

    def _name_subnets(self, name: str) -> None:
        network = self._find(name)
        wanted = definition(network or {})
        if not network or not wanted:
            raise HandoverError("{0} cannot keep its address on the network {1} of Docker's on this host: connect it to another".format(self.name, name))
        users = self._users(network)
        if users:
            raise HandoverError(
                "{0} cannot keep its address on the network {1}: Docker on this host has drawn its subnet, and grants no address there, and {2} there "
                "keeps it from being made again: remove it, or create the network with --subnet {3}".format(
                    self.name, name, ", ".join(users), " --subnet ".join(each["subnet"] for each in wanted["subnets"])
                )
            )
        self.reasons.append("Docker has drawn the subnet of the network {0}".format(name))
        self.docker.delete("networks", network["Id"])
        self.docker.post("networks", "create", body=request(name, wanted))

    def _users(self, network: Document) -> list[str]:
        """The containers that know the network by its ID: those on it, and those that were when they ran."""
        found = set()
        for each in self.docker.containers():
            known = ((each.get("NetworkSettings") or {}).get("Networks") or {}).values()
            modes = {(each.get("HostConfig") or {}).get("NetworkMode"), *((endpoint or {}).get("NetworkID") for endpoint in known)}
            if network["Id"] in modes:
                found.add(name_of(each))
        return sorted({*found, *(each.get("Name") or "" for each in (network.get("Containers") or {}).values())})

    def withdraw(self, networks: t.Iterable[str] = ()) -> None:
        """Removes what this move has made, unless another needs it."""
        names = list(networks)
        if not names:
            return
        with self.parts.alone():
            for name in names:
                if self.parts.release(DOCKER_NETWORK, name, self.name):
                    self.reasons.append("the network {0} was made for it".format(name))
                    # One that another container has come to be on stays: Docker does not remove it.
                    with contextlib.suppress(HandoverError):
                        self.docker.delete("networks", name)


def _drawn(networks: t.Iterable[str], refused: HandoverError) -> list[str]:
    """Those of the networks that Docker names as ones whose subnet it has drawn; what it refused for another reason is refused."""
    found = [name for name in networks if _DRAWN in str(refused) and "network {0}:".format(name) in str(refused)]
    if not found:
        raise refused
    return found
