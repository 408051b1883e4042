# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a container's twin needs around it on this host: networks, and the pod of a project whose containers move each by itself."""

from __future__ import annotations

import contextlib
import json
import typing as t

from .._core.parts import NETWORK, POD, Parts
from .._core.runtime import HandoverError
from .create_command import CommandError
from .essence import first_difference
from .group_facts import pod_facts
from .network_twin import create_words, definition, difference
from .pod_command import pod_twin
from .podman import Podman
from .requirements import release, require

Facts = t.Mapping[str, t.Any]
Planned = t.Optional[Facts]


class Surroundings:
    """Of one workload."""

    def __init__(self, podman: Podman, name: str, reasons: list[str], parts: Parts | None = None) -> None:
        self.podman = podman
        self.name = name
        self.reasons = reasons
        self.parts = parts or Parts()

    def missing(self, networks: t.Sequence[Facts], planned: Planned) -> list[Facts]:
        """The networks that the move makes, of those that the twin is on."""
        wanted = [network for network in networks if network.get("definition")]
        if planned is not None:
            return [network for network in wanted if network["name"] in planned.get("networks", ())]
        there = {network["name"] for network in self.podman.defined_networks()}
        return [network for network in wanted if network["name"] not in there]

    def make(self, networks: t.Sequence[Facts], pods: t.Sequence[Facts]) -> None:
        """Makes what is missing. What another move on its way has made is this one's as well."""
        if not networks and not pods:
            return
        with self.parts.alone():
            for network in networks:
                self._make(NETWORK, network["name"], create_words(network["name"], network["definition"]))
                self._same_network(network)
            for pod in pods:
                podman, _run, _create = self.podman.grammars()
                try:
                    words = pod_twin(pod, None, podman, self.podman.pod_grammar())
                except CommandError as exc:
                    raise HandoverError("the pod {0} cannot be made again here: {1}".format(pod["name"], exc)) from exc
                self._make(POD, pod["name"], words)
                self._same_pod(pod)

    def _make(self, kind: str, name: str, words: t.Sequence[str]) -> None:
        if self.parts.need(kind, name, self.name, self.podman.has(kind, name), lambda: self.podman.run(*words)):
            self.reasons.append("there is no {0} named {1}".format(kind, name))

    def _same_network(self, network: Facts) -> None:
        here = next(each for each in self.podman.defined_networks() if each["name"] == network["name"])
        found = difference(network["definition"], definition(here))
        if found:
            raise HandoverError("the network {0} would not be the same here: its {1} is {2} on the source and {3} on this host".format(network["name"], *found))

    def _same_pod(self, pod: Facts) -> None:
        (here,) = [pod_facts(each) for each in self.podman.pods([pod["name"]])]
        found = first_difference(pod["essence"], here["essence"])
        if found:
            raise HandoverError(
                "the pod {0} would not be the same here: {1} is {2} on the source and {3} on this host".format(
                    pod["name"], found[0], json.dumps(found[1]), json.dumps(found[2])
                )
            )

    def withdraw(self, networks: t.Sequence[str] = (), pods: t.Sequence[str] = ()) -> None:
        """Removes what this move has made, unless another needs it."""
        if not networks and not pods:
            return
        with self.parts.alone():
            for name in pods:
                if self.parts.release(POD, name, self.name):
                    self.reasons.append("the pod {0} was made for it".format(name))
                    self.podman.run("pod", "rm", "--ignore", name)
            for name in networks:
                if self.parts.release(NETWORK, name, self.name) and self.podman.has(NETWORK, name):
                    self.reasons.append("the network {0} was made for it".format(name))
                    # One that another container has come to be on stays: podman does not remove it.
                    with contextlib.suppress(HandoverError):
                        self.podman.run("network", "rm", name)

    def leave(self, pods: t.Iterable[str]) -> None:
        """Removes pods in which nothing is any more, when the last of them has left."""
        listed = self.podman.containers()
        for name in pods:
            if not any(each.get("PodName") == name for each in listed) and self.podman.has(POD, name):
                self.reasons.append("nothing is left in the pod {0}".format(name))
                self.podman.run("pod", "rm", "--ignore", name)

    def let_go(self, inspect: Facts, beside: t.Container[str]) -> None:
        """None of those that have left beside it requires it any more: podman would not remove it."""
        listed = self.podman.containers()
        others = {each["Id"] for each in listed if any(name in beside for name in each.get("Names") or [])}
        if not others:
            return
        why = release(self.podman.root_of(inspect), inspect["Id"], others)
        if why:
            raise HandoverError("{0} cannot be removed before those that require it: {1}: remove them first, then run the move again".format(self.name, why))

    def require(self, inspect: Facts, names: t.Sequence[str], check: bool) -> list[str]:
        """The twin requires the others as its original did. Names of those that are not here."""
        ids = {name: each["Id"] for each in self.podman.containers() for name in each.get("Names") or [] if name in names}
        written, why = require(self.podman.root_of(inspect), inspect["Id"], ids, write=not check)
        if why:
            raise HandoverError("podman on this host cannot be told that {0} requires {1}: {2}".format(self.name, ", ".join(sorted(ids)), why))
        self.reasons += ["{0} does not require {1} yet".format(self.name, name) for name in written]
        return sorted(set(names) - set(ids))
