# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One container of this host: made as another's twin, started, settled, removed."""

from __future__ import annotations

import contextlib
import json
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ..._core import bind_places
from ..._core.parts import NETWORK, POD, Parts
from ..._core.runtime import HandoverError, Runtime, shown
from ..._core.step import Step
from .. import inode_flags, root_volume, workload
from ..book import started_at
from ..create_command import CommandError, parse, twin
from ..essence import essence, first_difference, of_twin
from ..group_facts import essence_of_member
from ..group_twin import Group
from ..groups import names_by_id
from ..health_check import HealthTimer
from ..podman import Held, Podman
from ..surroundings import Surroundings
from ..twin_init import Initialisation


class PodmanWorkload:
    """One container of this host."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.params = module.params
        self.name: str = module.params["name"]
        self.runtime = Runtime(module, module.params["timeout"])
        self.podman = Podman(self.runtime)
        self.reasons: list[str] = []

    def run(self) -> dict[str, t.Any]:
        """Brings it to the state asked for."""
        if self.params["members"] or (self.params["source"] or {}).get("members"):
            group = Group(self.module, self.podman, self.params, self.reasons)
            result = group.run()
            return dict(result, changed=bool(self.reasons), reasons=self.reasons)
        states = {"prepared": self._prepare, "started": self._start, "settled": self._settle, "absent": self._remove}
        result = states[self.params["state"]]()
        return dict(result, changed=bool(self.reasons), reasons=self.reasons)

    # prepared

    def _prepare(self) -> dict[str, t.Any]:
        source = self.params["source"]
        image = root_volume.path_of(source) or self._image(source["image"])
        command = self._command(source, image)
        existing = workload.find(self.podman.containers(), self.name)
        volumes = self._missing_volumes(source["mounts"])
        folders = (self.params["planned"] or {}).get("folders") or []
        self._as_planned(existing, volumes)
        if existing is not None:
            # Made by an earlier run, or by another program: only an equal of the source is accepted.
            inspect = self.podman.inspect(existing["Id"])
            self._verify(source, inspect)
            return self._result(inspect, command, [])

        for name in volumes:
            self.reasons.append("podman has no volume named {0}".format(name))
        self.reasons.append("there is no container named {0}".format(self.name))
        if self.module.check_mode:
            return {"command": shown(command), "volumes": sorted(volumes), "workload": {}}
        made: list[str] = []
        around = Surroundings(self.podman, self.name, self.reasons)
        networks = around.missing(source["networks"], self.params["planned"])
        pods = source.get("in_pods") or []
        initialisation = Initialisation(self.runtime, self.podman, self.name)
        try:
            around.make(networks, pods)
            bind_places.make(folders, source["mounts"])
            for name, volume in volumes.items():
                self._make_volume(name, volume)
                made.append(name)
            inspect = initialisation.run(source, command)
            self._verify(source, inspect)
            initialisation.mount_shared_memory(inspect)
            self._note_start(source, inspect)
        except HandoverError:
            self._undo(made, folders)
            with contextlib.suppress(HandoverError):
                around.withdraw([each["name"] for each in networks], [each["name"] for each in pods])
            raise
        return self._result(inspect, command, made)

    def _image(self, image: t.Mapping[str, t.Any]) -> str:
        """How to call the image here: by its name where that means the same image, else by its ID."""
        for present in self.podman.images():
            if present["Id"] == image["id"]:
                return image["name"] if image["name"] in (present.get("Names") or []) else image["id"]
        raise HandoverError("the image {0} ({1}) is not on this host: bring it here with podman save and podman load".format(image["name"], image["id"][:12]))

    def _command(self, source: t.Mapping[str, t.Any], image: str) -> list[str]:
        podman, run, create = self.podman.grammars()
        try:
            return twin(parse(source["create_command"], podman, run | create), workload.identity_of(source, image), create)
        except CommandError as exc:
            raise HandoverError("{0} cannot be created again here: {1}".format(self.name, exc)) from exc

    def _missing_volumes(self, mounts: t.Sequence[t.Mapping[str, t.Any]]) -> dict[str, t.Mapping[str, t.Any]]:
        """Volumes to make, by name; one that exists with other options is refused."""
        defined = {volume["Name"]: volume.get("Options") or {} for volume in self.podman.volumes()}
        missing = workload.missing_volumes(mounts, defined)
        for mount in mounts:
            name, volume = mount["name"], mount["volume"]
            if mount["type"] == "volume" and volume is not None and name not in missing and defined[name] != volume["options"]:
                raise HandoverError(
                    "podman has another volume named {0} on this host ({1}): remove it with `podman volume rm {0}`".format(
                        name, json.dumps(defined[name], sort_keys=True)
                    )
                )
        return missing

    def _as_planned(self, existing: t.Mapping[str, t.Any] | None, volumes: t.Iterable[str]) -> None:
        """Everything recorded as made by this move is removed if it is undone: nothing foreign may be among it."""
        planned = self.params["planned"]
        if planned is None:
            return
        changed = [self.name] if (existing is None) != planned["made"] else []
        if existing is None:
            changed += sorted(set(volumes) ^ set(planned["volumes"]))
        if changed:
            raise HandoverError(
                "what podman has on this host of {0} is not what was there when the move was planned: see who makes or removes it here, "
                "then move it again".format(", ".join(changed))
            )

    def _make_volume(self, name: str, volume: t.Mapping[str, t.Any]) -> None:
        argv = ["volume", "create", "--driver=" + (volume["driver"] or "local")]
        argv += ["--opt={0}={1}".format(key, value) for key, value in sorted(volume["options"].items())]
        argv += ["--label={0}={1}".format(key, value) for key, value in sorted(volume["labels"].items())]
        self.podman.run(*argv, name)

    def _verify(self, source: t.Mapping[str, t.Any], inspect: t.Mapping[str, t.Any]) -> None:
        if (inspect.get("State") or {}).get("Running"):
            raise HandoverError("{0} runs on this host already: it must not run twice".format(self.name))
        found = essence(inspect)
        if source.get("wave"):
            found = essence_of_member(found, names_by_id([inspect], self.podman.pods(pod["name"] for pod in source["in_pods"])), False)
        difference = first_difference(of_twin(source), found)
        if difference is not None:
            raise HandoverError(
                "{0} would not be the same here: {1} is {2} on the source and {3} on this host".format(
                    self.name, difference[0], json.dumps(difference[1]), json.dumps(difference[2])
                )
            )

    def _result(self, inspect: t.Mapping[str, t.Any], command: list[str], volumes: list[str]) -> dict[str, t.Any]:
        facts = {"exists": True, "held": False, **workload.facts_of(inspect, self.podman.defined_networks())}
        return {"command": shown(command), "volumes": volumes, "workload": facts}

    def _note_start(self, source: t.Mapping[str, t.Any], inspect: t.Mapping[str, t.Any]) -> None:
        """One that is restored keeps the time at which it was started; podman itself notes only its own starts."""
        if not source.get("running") or not source.get("started"):
            return
        passed = bool((source.get("health_check") or {}).get("startup_passed"))
        why = started_at(self.podman.root_of(inspect), inspect["Id"], source["started"], passed)
        if why:
            self.module.warn("`podman ps` will not tell since when {0} runs here: {1}".format(self.name, why))

    def _undo(self, volumes: t.Iterable[str], folders: t.Iterable[str]) -> None:
        """Leaves nothing half made; the error that led here is the one to report."""
        with contextlib.suppress(HandoverError):
            self.podman.run("rm", "--force", "--ignore", "--volumes=false", self.name)
        for name in volumes:
            with contextlib.suppress(HandoverError):
                self.podman.run("volume", "rm", name)
        with contextlib.suppress(HandoverError):
            bind_places.remove(folders)

    # started

    def _start(self) -> dict[str, t.Any]:
        existing = workload.find(self.podman.containers(), self.name)
        if existing is None:
            raise HandoverError("there is no container named {0} on this host, so it cannot be started".format(self.name))
        if existing.get("State") != "running":
            self.reasons.append("{0} is {1}".format(self.name, existing.get("State")))
            if not self.module.check_mode:
                self.podman.run("start", existing["Id"])
        return {}

    # settled

    def _settle(self) -> dict[str, t.Any]:
        existing = workload.find(self.podman.containers(), self.name)
        # What was made for the move is this host's from now on.
        if not self.module.check_mode:
            Parts().keep(self.name, (NETWORK, POD))
        if existing is not None and self.params["requires"]:
            around = Surroundings(self.podman, self.name, self.reasons)
            missing = around.require(self.podman.inspect(existing["Id"]), self.params["requires"], self.module.check_mode)
            if missing:
                self.module.warn("{0} requires {1}, which is not on this host: move it here, too".format(self.name, ", ".join(missing)))
        if existing is None or existing.get("State") != "running":
            return {}
        inspect = self.podman.inspect(existing["Id"])
        timer = HealthTimer(self.runtime, existing["Id"])
        if self.module.check_mode:
            self.reasons += timer.missing(self.podman, inspect)
        else:
            self.reasons += timer.make(self.podman, inspect, self.params["health"])
        return {}

    # absent

    def _remove(self) -> dict[str, t.Any]:
        listed = self.podman.containers()
        existing = workload.find(listed, self.name)
        remains = workload.find(self.podman.remains(listed), self.name) if existing is None else None
        if remains is not None:
            self.reasons.append("a removal of {0} was cut off, and podman's storage still has it".format(self.name))
        if existing is not None:
            if existing.get("State") in ("running", "paused", "stopping") and self.params["running"] == "refuse":
                raise HandoverError("{0} is {1} on this host, so it is not removed: stop it first if that is meant".format(self.name, existing["State"]))
            self.reasons.append("there is a container named {0}, which is {1}".format(self.name, existing.get("State")))
        volumes = {volume["Name"]: volume for volume in self.podman.volumes() if volume["Name"] in self.params["volumes"]}
        self.reasons += ["podman has a volume named {0}".format(name) for name in volumes]
        self.reasons += ["{0} is there".format(path) for path in bind_places.to_put_aside(self.params["aside"])]
        if self.module.check_mode:
            return {}
        around = Surroundings(self.podman, self.name, self.reasons)
        if existing is not None:
            force = ["--force", "--time=0"] if self.params["running"] == "kill" else []
            # podman does not answer about one that is held.
            with contextlib.suppress(Held):
                inspect = self.podman.inspect(existing["Id"])
                inode_flags.unlock(workload.facts_of(inspect, ())["upper_dir"])
                around.let_go(inspect, self.params["beside"])
            # One that podman removes by itself may be gone by now.
            self.podman.run("rm", "--ignore", *force, existing["Id"])
            HealthTimer(self.runtime, existing["Id"]).remove()
        if remains is not None:
            self.podman.remove_remains(remains["Id"])
        for name, volume in volumes.items():
            inode_flags.unlock("" if volume.get("Options") else volume.get("Mountpoint") or "")  # one with options is bound to a folder that stays
            self.podman.run("volume", "rm", name)
        if workload.find(self.podman.containers(), self.name) is not None:
            raise HandoverError("podman has removed {0}, and there is one again: something on this host makes it anew".format(self.name))
        bind_places.put_aside(self.params["aside"])
        bind_places.remove(self.params["folders"])
        around.withdraw(**self.params["around"])
        around.leave(self.params["pods"])
        return {}


STEP = Step(
    arguments={
        "name": {"type": "str", "required": True},
        "state": {"type": "str", "choices": ["prepared", "started", "settled", "absent"], "required": True},
        "source": {"type": "dict"},
        "health": {"type": "dict", "default": {}},
        "planned": {
            "type": "dict",
            "options": {
                "made": {"type": "bool", "required": True},
                "volumes": {"type": "list", "elements": "str", "required": True},
                "folders": {"type": "list", "elements": "str", "default": []},
                "secrets": {"type": "list", "elements": "str", "default": [], "no_log": False},
                "restored": {"type": "bool", "default": False},
                "exiting": {"type": "list", "elements": "str", "default": []},
                "requirements": {"type": "dict", "default": {}},
                "networks": {"type": "list", "elements": "str", "default": []},
                "pods": {"type": "list", "elements": "str", "default": []},
            },
        },
        "members": {"type": "list", "elements": "str", "default": []},
        "pods": {"type": "list", "elements": "str", "default": []},
        "exiting": {"type": "list", "elements": "str", "default": []},
        "requirements": {"type": "dict", "default": {}},
        "requires": {"type": "list", "elements": "str", "default": []},
        "beside": {"type": "list", "elements": "str", "default": []},
        "around": {
            "type": "dict",
            "default": {},
            "options": {"networks": {"type": "list", "elements": "str", "default": []}, "pods": {"type": "list", "elements": "str", "default": []}},
        },
        "volumes": {"type": "list", "elements": "str", "default": []},
        "aside": {"type": "list", "elements": "str", "default": []},
        "folders": {"type": "list", "elements": "str", "default": []},
        "running": {"type": "str", "choices": ["refuse", "kill"], "default": "refuse"},
        "timeout": {"type": "int", "default": 120},
    },
    required_if=[("state", "prepared", ["source"])],
    run=lambda module: PodmanWorkload(module).run(),
)
