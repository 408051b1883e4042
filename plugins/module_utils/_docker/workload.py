# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One container of Docker's on this host: made as another's twin, started, settled, removed."""

from __future__ import annotations

import contextlib
import json
import typing as t

from ansible.module_utils.basic import AnsibleModule

from .._core import bind_places
from .._core.parts import DOCKER_NETWORK, Parts
from .._core.runtime import HandoverError, Runtime
from .._core.step import Step
from . import facts as facts_of
from .api import Docker
from .surroundings import Surroundings
from .twin import request

Document = t.Mapping[str, t.Any]


class DockerWorkload:
    """One container of this host."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.params = module.params
        self.name: str = module.params["name"]
        self.docker = Docker(Runtime(module, module.params["timeout"]))
        self.reasons: list[str] = []

    def run(self) -> dict[str, t.Any]:
        """Brings it to the state asked for."""
        states = {"prepared": self._prepare, "started": self._start, "settled": self._settle, "absent": self._remove}
        result = states[self.params["state"]]()
        return dict(result, changed=bool(self.reasons), reasons=self.reasons)

    def _here(self) -> dict[str, t.Any] | None:
        """The container of this name."""
        found = next((each for each in self.docker.containers() if facts_of.name_of(each) == self.name), None)
        return self.docker.inspect(found["Id"]) if found else None

    # prepared

    def _prepare(self) -> dict[str, t.Any]:
        source = self.params["source"]
        volumes = {mount["name"]: mount["volume"] for mount in source["mounts"] if mount["directory_volume"]}
        there = {volume["Name"] for volume in self.docker.volumes()}
        missing = [name for name in sorted(volumes) if name not in there]
        existing = self._here()
        self._as_planned(existing, missing)
        if existing is not None:
            # Made by an earlier run, or by another program: only an equal of the source is accepted.
            self._verify(source, existing)
            return self._result(existing, [])
        around = Surroundings(self.docker, self.name, self.reasons)
        networks = around.missing(source["networks"], self.params["planned"])
        self.reasons += ["Docker has no volume named {0}".format(name) for name in missing]
        self.reasons.append("there is no container named {0}".format(self.name))
        if self.module.check_mode:
            return {"volumes": missing, "workload": {}}
        drivers = {network["name"]: network["driver"] for network in source["networks"]}
        body = request(source["inspect"], self._image(source["image"]), drivers, self._kept())
        made: list[str] = []
        folders = (self.params["planned"] or {}).get("folders") or []
        try:
            around.make(networks)
            bind_places.make(folders, source["mounts"])
            for name in missing:
                volume = volumes[name]
                self.docker.post("volumes", "create", body={"Name": name, "Driver": volume["driver"], "Labels": volume["labels"]})
                made.append(name)
            inspect = self.docker.inspect(around.create(body)) or {}
            self._verify(source, inspect)
        except HandoverError:
            self._undo(made, folders)
            with contextlib.suppress(HandoverError):
                around.withdraw([network["name"] for network in networks])
            raise
        return self._result(inspect, made)

    def _kept(self) -> t.Mapping[str, t.Mapping[str, str]]:
        """By network, the addresses that it keeps though none was asked for."""
        return (self.params["planned"] or {}).get("addresses") or {}

    def _image(self, image: Document) -> str:
        """How to call the image here: by its name where that means the same image, else by its ID."""
        for present in self.docker.images():
            if present["Id"] == image["id"]:
                return image["name"] if image["name"] in (present.get("RepoTags") or []) else image["id"]
        raise HandoverError("the image {0} ({1}) is not on this host: bring it here with docker save and docker load".format(image["name"], image["id"][:19]))

    def _as_planned(self, existing: Document | None, missing: t.Sequence[str]) -> None:
        """Everything recorded as made by this move is removed if it is undone: nothing foreign may be among it."""
        planned = self.params["planned"]
        if planned is None:
            return
        changed = [self.name] if (existing is None) != planned["made"] else []
        if existing is None:
            changed += sorted(set(missing) ^ set(planned["volumes"]))
        if changed:
            raise HandoverError(
                "what Docker has on this host of {0} is not what was there when the move was planned: see who makes or removes it here, "
                "then move it again".format(", ".join(changed))
            )

    def _verify(self, source: Document, inspect: Document) -> None:
        if (inspect.get("State") or {}).get("Running"):
            raise HandoverError("{0} runs on this host already: it must not run twice".format(self.name))
        difference = facts_of.first_difference(source["essence"], facts_of.essence(inspect))
        if difference is not None:
            raise HandoverError(
                "{0} would not be the same here: {1} is {2} on the source and {3} on this host".format(
                    self.name, difference[0], json.dumps(difference[1]), json.dumps(difference[2])
                )
            )
        endpoints = (inspect.get("NetworkSettings") or {}).get("Networks") or {}
        for name, kept in self._kept().items():
            asked = endpoints[name].get("IPAMConfig") or {}
            if not kept.items() <= asked.items():
                raise HandoverError(
                    "{0} would not keep {1} on the network {2} here: remove it here, and move it again".format(self.name, " and ".join(kept.values()), name)
                )

    def _result(self, inspect: Document, volumes: list[str]) -> dict[str, t.Any]:
        return {"volumes": volumes, "workload": {"exists": True, "held": False, **facts_of.facts_of(inspect, self.docker.networks())}}

    def _undo(self, volumes: t.Iterable[str], folders: t.Iterable[str]) -> None:
        """Leaves nothing half made; the error that led here is the one to report."""
        with contextlib.suppress(HandoverError):
            self.docker.delete("containers", self.name)
        for name in volumes:
            with contextlib.suppress(HandoverError):
                self.docker.delete("volumes", name)
        with contextlib.suppress(HandoverError):
            bind_places.remove(folders)

    # started

    def _start(self) -> dict[str, t.Any]:
        existing = self._here()
        if existing is None:
            raise HandoverError("there is no container named {0} on this host, so it cannot be started".format(self.name))
        if not existing["State"]["Running"]:
            self.reasons.append("{0} is {1}".format(self.name, existing["State"]["Status"]))
            if not self.module.check_mode:
                self.docker.post("containers", existing["Id"], "start")
        return {}

    # settled

    def _settle(self) -> dict[str, t.Any]:
        """The helper puts the policy back as soon as the workload runs, and lets it run where that fails; here it is a failure."""
        # What was made for the move is this host's from now on.
        if not self.module.check_mode:
            Parts().keep(self.name, (DOCKER_NETWORK,))
        existing, wanted = self._here(), self.params["restart_policy"]
        if not wanted:
            return {}
        if existing is None:
            raise HandoverError("there is no container named {0} on this host, so its restart policy cannot be {1}".format(self.name, wanted))
        found = facts_of.restart_policy(existing)
        if found != wanted:
            self.reasons.append("the restart policy of {0} is {1} and not {2}".format(self.name, found, wanted))
            if not self.module.check_mode:
                self._have_policy(existing["Id"], wanted)
        return {}

    def _have_policy(self, identifier: str, wanted: str) -> None:
        said = ""
        try:
            self.docker.post("containers", identifier, "update", body={"RestartPolicy": facts_of.policy_of(wanted)})
        except HandoverError as exc:
            said = " ({0})".format(exc)
        found = facts_of.restart_policy(self.docker.inspect(identifier) or {})
        if found != wanted:
            raise HandoverError(
                "the restart policy of {0} was {1} before its move and is {2} now, and Docker does not change it{3}: "
                "run `docker update --restart={1} {0}` on this host".format(self.name, wanted, found, said)
            )

    # absent

    def _remove(self) -> dict[str, t.Any]:
        existing = self._here()
        if existing is not None:
            state = existing["State"]["Status"]
            if state not in ("created", "exited", "dead"):
                raise HandoverError("{0} is {1} on this host, so it is not removed: stop it first if that is meant".format(self.name, state))
            self.reasons.append("there is a container named {0}, which is {1}".format(self.name, state))
        there = {volume["Name"] for volume in self.docker.volumes()}
        volumes = [name for name in self.params["volumes"] if name in there]
        self.reasons += ["Docker has a volume named {0}".format(name) for name in volumes]
        self.reasons += ["{0} is there".format(path) for path in bind_places.to_put_aside(self.params["aside"])]
        if self.module.check_mode:
            return {}
        if existing is not None:
            self.docker.delete("containers", existing["Id"])
        for name in volumes:
            self.docker.delete("volumes", name)
        bind_places.put_aside(self.params["aside"])
        bind_places.remove(self.params["folders"])
        Surroundings(self.docker, self.name, self.reasons).withdraw(self.params["around"].get("networks") or ())
        return {}


STEP = Step(
    arguments={
        "name": {"type": "str", "required": True},
        "state": {"type": "str", "choices": ["prepared", "started", "settled", "absent"], "required": True},
        "source": {"type": "dict"},
        "planned": {
            "type": "dict",
            "options": {
                "made": {"type": "bool", "required": True},
                "volumes": {"type": "list", "elements": "str", "required": True},
                "folders": {"type": "list", "elements": "str", "default": []},
                "addresses": {"type": "dict"},
                "networks": {"type": "list", "elements": "str", "default": []},
                "secrets": {"type": "list", "elements": "str", "default": [], "no_log": False},
            },
        },
        "restart_policy": {"type": "str"},
        "volumes": {"type": "list", "elements": "str", "default": []},
        "aside": {"type": "list", "elements": "str", "default": []},
        "folders": {"type": "list", "elements": "str", "default": []},
        "members": {"type": "list", "elements": "str", "default": []},
        "pods": {"type": "list", "elements": "str", "default": []},
        "beside": {"type": "list", "elements": "str", "default": []},
        "requires": {"type": "list", "elements": "str", "default": []},
        "around": {
            "type": "dict",
            "default": {},
            "options": {"networks": {"type": "list", "elements": "str", "default": []}, "pods": {"type": "list", "elements": "str", "default": []}},
        },
        "timeout": {"type": "int", "default": 120},
    },
    required_if=[("state", "prepared", ["source"])],
    run=lambda module: DockerWorkload(module).run(),
)
