# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Podman on this host.

A container that a handover holds frozen keeps its lock, and every podman command that wants that lock waits. So each
question here has a short time limit of its own; `Held` is raised where podman did not answer within it.
"""

from __future__ import annotations

import json
import os
import typing as t
from dataclasses import dataclass

from .._core.runtime import Completed, HandoverError, Runtime
from .create_command import CommandError, Grammar
from .help_texts import remembered

# podman answers within a fraction of a second, on a busy host within a few.
ANSWER_SECONDS = 15.0
# For one of many, where it is enough to know that it is held.
SHORT_SECONDS = 3.0
# In podman's own order.
HELPER_DIRECTORIES = ("/usr/local/libexec/podman", "/usr/local/lib/podman", "/usr/libexec/podman", "/usr/lib/podman")


class Held(HandoverError):
    """podman did not answer about this container: something holds it."""


def network_backend(info: t.Mapping[str, t.Any]) -> dict[str, str]:
    """Which program makes podman's networks, and where it is: older versions of podman do not tell, but look in these places."""
    of_host = info.get("host") or {}
    backend = of_host.get("networkBackend", "")
    places = [os.path.join(directory, backend) for directory in HELPER_DIRECTORIES if backend]
    found = next((place for place in places if os.access(place, os.X_OK)), "")
    return {"backend": backend, "path": (of_host.get("networkBackendInfo") or {}).get("path") or found}


@dataclass(frozen=True)
class Podman:
    """The podman of this host's root."""

    runtime: Runtime

    @property
    def path(self) -> str:
        return self.runtime.tool("podman", "podman")

    def run(self, *arguments: str, timeout: float | None = None) -> Completed:
        return self.runtime.run([self.path, *arguments], timeout=timeout)

    def containers(self) -> list[dict[str, t.Any]]:
        """All containers; answered without their locks."""
        return self._documents("ps", "--all", "--pod", "--format", "json")

    def remains(self, containers: t.Iterable[t.Mapping[str, t.Any]]) -> list[dict[str, t.Any]]:
        """What podman's storage still has of others than these, its own containers: their making or removal was cut off, and their names are taken.

        The working containers of buildah are others', and stay.
        """
        known = {each["Id"] for each in containers}
        stored = self._documents("ps", "--all", "--external", "--format", "json")
        return [each for each in stored if each["Id"] not in known and each.get("Command") == ["storage"]]

    def remove_remains(self, name: str) -> None:
        """The storage counts how often they are mounted, and nobody has lowered that: so by force."""
        self.run("rm", "--force", "--ignore", name)

    def pods(self, names: t.Iterable[str]) -> list[dict[str, t.Any]]:
        """These pods in full."""
        return [pod for name in names for pod in _listed(self._answer("pod", "inspect", name))]

    def has(self, kind: str, name: str) -> bool:
        """Whether it has a pod or a network of that name."""
        return self.runtime.run([self.path, kind, "exists", name], accept=(0, 1), timeout=ANSWER_SECONDS).rc == 0

    def inspect(self, container: str) -> dict[str, t.Any]:
        """One container in full; waits for its lock, and so not for long."""
        before = self.runtime.remaining()
        try:
            return self._documents("container", "inspect", container)[0]
        except HandoverError as exc:
            if before - self.runtime.remaining() >= ANSWER_SECONDS - 1:
                raise Held("podman does not answer about {0}: it is being checkpointed, restored or held".format(container)) from exc
            raise

    def inspect_many(self, containers: t.Sequence[str]) -> list[dict[str, t.Any]]:
        """These containers in full. If podman has to wait for one of them, they are asked one by one, and without those that are held."""
        if not containers:
            return []
        try:
            return self._documents("container", "inspect", *containers)
        except HandoverError:
            return [document for each in containers for document in self._unless_held(each)]

    def _unless_held(self, container: str) -> list[dict[str, t.Any]]:
        try:
            completed = self.run("container", "inspect", container, timeout=SHORT_SECONDS)
            return json.loads(completed.stdout or "[]")
        except (HandoverError, ValueError):
            return []

    def secrets(self) -> list[str]:
        """Names of the secrets that podman keeps."""
        return sorted(self.run("secret", "ls", "--format", "{{.Name}}", timeout=ANSWER_SECONDS).stdout.split())

    def defined_networks(self) -> list[dict[str, t.Any]]:
        """All networks, without their containers."""
        return self._documents("network", "ls", "--format", "json")

    def networks(self) -> list[dict[str, t.Any]]:
        """All networks, with their containers; without that where podman would have to wait for a held container to tell it."""
        listed = self.defined_networks()
        try:
            return self._documents("network", "inspect", *[network["name"] for network in listed]) if listed else []
        except HandoverError:
            return listed

    def images(self) -> list[dict[str, t.Any]]:
        return self._documents("image", "ls", "--all", "--no-trunc", "--format", "json")

    def manifest_type(self, image: str) -> str:
        """The format that an image is kept in, which podman save should write: only so it keeps its ID."""
        return str(self._documents("image", "inspect", image)[0].get("ManifestType") or "")

    def volumes(self) -> list[dict[str, t.Any]]:
        """All volumes; `volume ls` answers as `volume inspect` does."""
        return self._documents("volume", "ls", "--format", "json")

    def users_of_volume(self, name: str) -> list[str]:
        """Names of the containers that have this volume, whether they run or not."""
        return self.run("ps", "--all", "--filter", "volume=" + name, "--format", "{{.Names}}", timeout=ANSWER_SECONDS).stdout.split()

    def info(self) -> dict[str, t.Any]:
        return self._answer("info", "--format", "json")

    def root(self) -> str:
        """The folder in which it keeps its containers and its book of them."""
        return str((self.info().get("store") or {}).get("graphRoot") or "")

    def root_of(self, inspect: t.Mapping[str, t.Any]) -> str:
        """The same by the place of one of its containers: podman takes longer to say it than for any other answer."""
        below = os.path.join((inspect.get("GraphDriver") or {}).get("Name", "") + "-containers", inspect["Id"], "userdata")
        root, found, rest = (inspect.get("StaticDir") or "").rpartition("/" + below)
        return root if root and found and not rest else self.root()

    def grammars(self) -> tuple[Grammar, Grammar, Grammar]:
        """Of the global options, of `run`, and of `create`."""
        try:
            run, create, podman = (
                Grammar.from_help(text) for text in remembered(self.path, lambda: [self.run(*verb, "--help").stdout for verb in (("run",), ("create",), ())])
            )
            return podman, run, create
        except CommandError as exc:
            raise HandoverError("{0} on this host".format(exc)) from exc

    def pod_grammar(self) -> Grammar:
        """Of `pod create`."""
        try:
            return Grammar.from_help(self.run("pod", "create", "--help").stdout)
        except CommandError as exc:
            raise HandoverError("{0} on this host".format(exc)) from exc

    def _documents(self, *arguments: str) -> list[dict[str, t.Any]]:
        return self._answer(*arguments) or []

    def _answer(self, *arguments: str) -> t.Any:
        completed = self.run(*arguments, timeout=ANSWER_SECONDS)
        try:
            return json.loads(completed.stdout or "null")
        except ValueError as exc:
            raise HandoverError("podman {0} answered something that is not JSON: {1}".format(arguments[0], exc)) from exc


def _listed(answer: t.Any) -> list[dict[str, t.Any]]:
    """podman 4 answers with the one pod that was asked for, podman 5 with a list of it."""
    return answer if isinstance(answer, list) else [answer] if answer else []
