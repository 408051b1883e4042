# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A container of Docker's and its host, as a move has to know them."""

from __future__ import annotations

import functools
import os
import typing as t

from .._core import host, units
from .._core.parts import DOCKER_NETWORK, Parts
from .._core.runtime import HandoverError, Runtime
from . import facts as facts_of, gate, recorded
from .api import SOCKET, Docker
from .inventory import unaccounted
from .network_twin import definition
from .twin import ANONYMOUS

Document = t.Mapping[str, t.Any]
Documents = t.List[t.Dict[str, t.Any]]


class Look:
    """The answers of the daemon on this host."""

    def __init__(self, runtime: Runtime, word: str) -> None:
        self.runtime = runtime
        self.word = word
        self.docker = Docker(runtime)
        self.installed = os.path.exists(SOCKET)
        self.problems: list[str] = []

    def of(self, word: str) -> Look:
        """The same for another container; what cannot be learned stands with the rest."""
        other = Look(self.runtime, word)
        other.problems = self.problems
        return other

    def listed(self) -> Documents:
        """All containers, each with its name as it is written elsewhere."""
        return [{**each, "Names": [facts_of.name_of(each)]} for each in (self.ask(self.docker.containers, []) if self.installed else [])]

    def brief(self) -> dict[str, t.Any]:
        """Whether it is there and runs."""
        return self._brief(facts_of.resolve(self.ask(self.docker.containers, []) if self.installed else [], self.word))

    def whole(self) -> tuple[dict[str, t.Any], dict[str, t.Any]]:
        """The container, and this host's offer to one."""
        questions = (self.docker.containers, self.docker.networks, self.docker.images, self.docker.volumes)
        containers, networks, images, volumes = (self.ask(question, []) if self.installed else [] for question in questions)
        return self._workload(containers, networks, images, volumes), self._offer(containers, networks, images, volumes)

    def ask(self, question: t.Callable[[], t.Any], otherwise: t.Any) -> t.Any:
        """The answer, or the default; the reason is kept."""
        try:
            return question()
        except HandoverError as exc:
            self.problems.append(str(exc))
            return otherwise

    def _brief(self, listed: Document | None) -> dict[str, t.Any]:
        if listed is None:
            return {"exists": False, "running": False, "held": False, "name": self.word, "pod_members": []}
        state = listed.get("State") or ""
        return {"exists": True, "running": state == "running", "held": False, "name": facts_of.name_of(listed), "id": listed["Id"], "state": state}

    def _workload(self, containers: Documents, networks: Documents, images: Documents, volumes: Documents) -> dict[str, t.Any]:
        listed = facts_of.resolve(containers, self.word)
        brief = self._brief(listed)
        inspect = self.ask(lambda: self.docker.inspect(listed["Id"]), None) if listed else None
        if inspect is None:
            return {**brief, "units": self._units(brief["name"], brief["name"])}
        inspect = facts_of.with_network_named(inspect, networks)
        facts = {**brief, **facts_of.facts_of(inspect, networks), "essence": facts_of.essence(inspect), "inspect": inspect}
        known = {volume["Name"]: volume for volume in volumes}
        for mount in facts["mounts"]:
            mount.update(self._volume(mount, known.get(mount["name"]), containers, facts["id"]))
        others = self._others(containers, inspect["Id"])
        facts.update(
            unaccounted=unaccounted(inspect),
            required_by=facts_of.needed_by(inspect, others),
            beside=[{"name": each["Name"].lstrip("/"), "published_on": facts_of.published_on(each)} for each in others],
            layer=host.allocated(facts["upper_dir"]) if facts["upper_dir"] else 0,
            memory=0,
            units=self._units(facts["name"], facts["id"]),
            project_units=self.ask(lambda: units.project_units(self.runtime, (inspect.get("Config") or {}).get("Labels") or {}), []),
        )
        facts["bundle_seen"] = _bundle_of(facts["pid"]) if facts["running"] else ""
        facts["log"]["size"] = host.allocated(facts["log"]["path"]) if facts["log"]["path"] else 0
        facts["image"].update(_image(facts["image"], images))
        return facts

    def _units(self, name: str, identifier: str) -> list[str]:
        """The units of systemd that start a container of this name, and do or will at the next boot."""
        starting = units.units_of("docker", name, identifier)
        return self.ask(lambda: units.acting(self.runtime, starting), []) if starting else []

    def _others(self, containers: Documents, identifier: str) -> Documents:
        """The other containers, as the daemon's list does not tell all that they have in common with one."""
        known = (self.ask(functools.partial(self.docker.inspect, each["Id"]), None) for each in containers if each["Id"] != identifier)
        return [each for each in known if each is not None]

    def _volume(self, mount: Document, volume: Document | None, containers: Documents, identifier: str) -> dict[str, t.Any]:
        """The volume of a mount, and the plain folder of Docker's that this is, if it is one."""
        if mount["type"] != "volume" or volume is None:
            return {"volume": None, "directory_volume": None}
        labels, options = volume.get("Labels") or {}, volume.get("Options") or {}
        found: dict[str, t.Any] = {"driver": volume.get("Driver") or "", "options": options, "labels": labels}
        if found["driver"] != "local" or options:
            return {"volume": found, "directory_volume": None}
        users = (each for each in containers if any(used.get("Name") == mount["name"] for used in each.get("Mounts") or []))
        directory = {
            "name": mount["name"],
            "path": mount["source"],
            "size": host.allocated(mount["source"]),
            "anonymous": ANONYMOUS in labels,
            "shared_with": sorted(facts_of.name_of(each) for each in users if each["Id"] != identifier),
        }
        return {"volume": found, "directory_volume": directory}

    def _offer(self, containers: Documents, networks: Documents, images: Documents, volumes: Documents) -> dict[str, t.Any]:
        info = (self.ask(lambda: self.docker.get("info"), {}) if self.installed else {}) or {}
        root = info.get("DockerRootDir") or ""
        return {
            "installed": self.installed,
            "path": self.runtime.find("docker") or "",
            "version": host.parse_version(info.get("ServerVersion") or ""),
            "experimental": bool(info.get("ExperimentalBuild")),
            "userns": any("name=userns" in option for option in info.get("SecurityOptions") or []),
            "storage_driver": info.get("Driver") or "",
            "store": host.place(root) if root else {"path": "", "free": 0, "device": 0},
            "gate": gate.obstacle() if self.installed else "",
            "runtimes": sorted(name for name, runtime in (info.get("Runtimes") or {}).items() if (runtime or {}).get("path") == "runc"),
            "containers": [{"name": facts_of.name_of(each), "id": each["Id"], "state": each.get("State") or ""} for each in containers],
            "networks": [
                {
                    "name": each["Name"],
                    "driver": each.get("Driver") or "",
                    "subnets": facts_of.subnets_of(each),
                    "parent": (each.get("Options") or {}).get("parent") or "",
                    "mtu": facts_of.mtu_of(each),
                    "taken": _taken(each),
                    "definition": definition(each),
                    "claimed": Parts().claimed(DOCKER_NETWORK, each["Name"]),
                }
                for each in networks
            ],
            "drawn_subnets": recorded.drawn_subnets(root, {each["Name"]: each["Id"] for each in networks}) if root else {},
            "images": [{"id": image["Id"], "names": image.get("RepoTags") or []} for image in images],
            "volumes": sorted(volume["Name"] for volume in volumes),
        }


def _bundle_of(pid: int) -> str:
    """The bundle of a container that runs: its shim works in it."""
    try:
        with open("/proc/{0}/stat".format(pid), encoding="utf-8", errors="replace") as stat:
            parent = stat.read().rpartition(")")[2].split()[1]
        return os.readlink("/proc/{0}/cwd".format(parent))
    except (OSError, IndexError):
        return ""


def _image(image: Document, images: Documents) -> dict[str, t.Any]:
    """How large the image is, and whether its name still means it."""
    listed = next((each for each in images if each["Id"] == image["id"]), {})
    return {"size": listed.get("Size") or 0, "named": image["name"] in (listed.get("RepoTags") or [])}


def _taken(network: Document) -> list[dict[str, str]]:
    """Addresses that containers have on this network."""
    return [
        {"address": address.partition("/")[0], "container": each.get("Name") or ""}
        for each in (network.get("Containers") or {}).values()
        for address in (each.get("IPv4Address"), each.get("IPv6Address"))
        if address
    ]
