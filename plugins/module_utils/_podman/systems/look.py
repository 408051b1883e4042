# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A look at a host on which containers with a whole system are to be: only reads."""

from __future__ import annotations

import ipaddress
import json
import os
import typing as t

from ..._core import container_unit, inits, units
from ..._core.host import read_text
from ..._core.runtime import HandoverError, Runtime
from .. import address_probe, service_files, workload
from ..host_offer import HostOffer
from ..podman import Podman
from ..sessions import ROOT
from ..volume import IMAGE_ROOT
from .made import networks_of
from .request import ABSENT, Request

Facts = t.Mapping[str, t.Any]

_CONTROLLERS = "/sys/fs/cgroup/cgroup.controllers"


class Look:
    """The facts about this host, and about each container that is asked for."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.podman = Podman(runtime)
        self.problems: list[str] = []

    def facts(self, requests: t.Sequence[Request]) -> dict[str, t.Any]:
        """All that the plan asks for."""
        has_podman = self.runtime.find("podman") is not None
        containers, networks, images, volumes = (
            (self._ask(question, []) for question in (self.podman.containers, self.podman.networks, self.podman.images, self.podman.volumes))
            if has_podman else ([], [], [], [])
        )  # fmt: skip
        offer = HostOffer(self.runtime, self.podman, {"images": IMAGE_ROOT, "sessions": ROOT}, self._ask)
        host = {**offer.host(), "podman": offer.engine(containers, networks, images, volumes, ())}
        host["cgroup"] = 2 if os.path.exists(_CONTROLLERS) else 1
        host["controllers"] = read_text(_CONTROLLERS).split() if host["cgroup"] == 2 else os.listdir("/sys/fs/cgroup")
        return {
            "host": host,
            "problems": self.problems,
            "containers": {request["name"]: self._container(request, workload.find(containers, request["name"]), host) for request in requests},
        }

    def _ask(self, question: t.Callable[[], t.Any], otherwise: t.Any) -> t.Any:
        """The answer, or the default; the reason is kept."""
        try:
            return question()
        except HandoverError as exc:
            self.problems.append(str(exc))
            return otherwise

    def _container(self, request: Request, listed: Facts | None, host: Facts) -> dict[str, t.Any]:
        name = request["name"]
        inspect = self._ask(lambda: self.podman.inspect(name), {}) if listed else {}
        own = container_unit.name_of(name)
        found: dict[str, t.Any] = {
            "exists": listed is not None,
            # podman does not answer about one that a handover holds.
            "held": listed is not None and not inspect,
            "running": listed is not None and listed.get("State") == "running",
            "labels": (inspect.get("Config") or {}).get("Labels") or {},
            "mounts": workload.mounts_of(inspect),
            "units": [unit for unit in units.units_of("podman", name, inspect.get("Id") or name) if unit != own],
            "unit": os.path.exists(os.path.join(container_unit.FOLDER, own)),
            "left": os.path.exists(os.path.join(container_unit.FOLDER, own + service_files.ASIDE)),
            "volumes": {each["name"]: self._users(each["name"], name) for each in request["volumes"]},
            "image": {},
            "in_use": [],
        }
        if request["state"] == ABSENT:
            mine = [mount["name"] for mount in found["mounts"] if mount["type"] == "volume"]
            found["volumes"].update({volume: self._users(volume, name) for volume in mine})
        elif not found["exists"] and request["image"]:
            found["image"] = self._image(request["image"], request["archive"] or "")
            found["in_use"] = self._in_use(request, host)
        return found

    def _users(self, volume: str, container: str) -> list[str]:
        """The other containers that have a volume."""
        return [each for each in self._ask(lambda: self.podman.users_of_volume(volume), []) if each != container]

    def _image(self, name: str, archive: str) -> dict[str, t.Any]:
        """An image of this host's, and the root file system in it."""
        found = {"there": False, "archive": bool(archive) and os.path.isfile(archive)}
        path = self.runtime.find("podman")
        if path is None or self.runtime.run([path, "image", "exists", name], accept=(0, 1)).rc:
            return found
        folder = self.runtime.run([path, "image", "mount", name]).stdout.strip()
        try:
            root = inits.look_at(self.runtime, folder)
        finally:
            self.runtime.run([path, "image", "unmount", name], accept=range(256))
        inspect = json.loads(self.runtime.run([path, "image", "inspect", name]).stdout)[0]
        entrypoint = (inspect.get("Config") or {}).get("Entrypoint") or []
        return {**found, "there": True, "init": inits.init_of(root), "entrypoint": entrypoint, "manifest": inspect.get("ManifestType") or ""}

    def _in_use(self, request: Request, host: Facts) -> list[str]:
        """Addresses that another machine answers for on the segment of their network."""
        parents = {network["name"]: network["parent"] for network in host["podman"]["networks"] if network["shared"]}
        found = []
        for network in networks_of(request):
            parent = parents.get(network["name"], "")
            for text in filter(None, (network["ip"], network["ip6"])):
                address = _address(text)
                if address and parent in host["interfaces"] and self._answers(parent, address):
                    found.append(text)
        return found

    def _answers(self, interface: str, address: address_probe.Address) -> bool:
        return bool(self._ask(lambda: address_probe.in_use(interface, address), False))


def _address(text: str) -> address_probe.Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
