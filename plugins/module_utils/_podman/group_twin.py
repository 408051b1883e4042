# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Containers of this host that move as one: made as another host's twins, started, removed."""

from __future__ import annotations

import contextlib
import json
import typing as t

from ansible.module_utils.basic import AnsibleModule

from .._core import bind_places
from .._core.parts import NETWORK, POD, Parts
from .._core.runtime import HandoverError
from . import inode_flags, workload
from .create_command import CommandError, Grammar, parse, twin
from .essence import essence, first_difference, of_twin
from .group_facts import essence_of_member, pod_facts
from .group_readied import CONTINUE, STOP, Readied, set_exit_policy
from .groups import names_by_id
from .pod_command import pod_twin
from .podman import Held, Podman
from .surroundings import Surroundings
from .twin_init import Initialisation

Facts = t.Mapping[str, t.Any]

# The container that has podman fill new volumes from an image. A twin cannot be readied for that: it would start the containers that it depends on.
STAND_IN = "handover-stand-in"


class Group:
    """The members of one workload, and their pods."""

    def __init__(self, module: AnsibleModule, podman: Podman, params: t.Mapping[str, t.Any], reasons: list[str]) -> None:
        self.module = module
        self.podman = podman
        self.params = params
        self.name: str = params["name"]
        self.reasons = reasons

    def run(self) -> dict[str, t.Any]:
        """Brings it to the state asked for."""
        states = {"prepared": self._prepare, "started": self._start, "settled": self._settle, "absent": self._remove}
        return states[self.params["state"]]()

    # prepared

    def _prepare(self) -> dict[str, t.Any]:
        source, planned = self.params["source"], self.params["planned"]
        members = [member for member in source["members"] if not member["infra"]]
        present = [each["name"] for each in members if workload.find(self.podman.containers(), each["name"])]
        volumes = workload.missing_volumes(source["mounts"], {volume["Name"] for volume in self.podman.volumes()})
        if present and len(present) < len(members):
            raise HandoverError("{0} of {1} {2} on this host already: remove it".format(", ".join(present), self.name, "is" if len(present) == 1 else "are"))
        changed = [self.name] if planned and bool(present) == planned["made"] else []
        if planned and not present:
            changed += sorted(set(volumes) ^ set(planned["volumes"]))
        if changed:
            raise HandoverError("podman's {0} on this host changed since the move was planned: move it again".format(", ".join(changed)))
        if not present:
            self.reasons += ["podman has no volume named {0}".format(name) for name in volumes]
            self.reasons.append("there is no {0} here".format(self.name))
            if self.module.check_mode:
                return {"command": [], "volumes": sorted(volumes), "workload": {}}
            around = Surroundings(self.podman, self.name, self.reasons)
            networks = around.missing(list({each["name"]: each for member in source["members"] for each in member["networks"]}.values()), planned)
            try:
                around.make(networks, [])
                self._make(source, members, volumes, (planned or {}).get("folders") or [])
                if planned and planned["restored"]:
                    Readied(self.module, self.podman).run(source, planned["exiting"])
            except HandoverError:
                self._undo(source, members, volumes, (planned or {}).get("folders") or [])
                with contextlib.suppress(HandoverError):
                    around.withdraw([each["name"] for each in networks])
                raise
        elif planned and planned["restored"] and not self.module.check_mode:
            Readied(self.module, self.podman).run(source, planned["exiting"])
        return {"command": [], "volumes": [] if present else sorted(volumes), "workload": self._verified(source, members)}

    def _make(self, source: Facts, members: t.Sequence[Facts], volumes: t.Mapping[str, Facts], folders: t.Sequence[str]) -> None:
        podman, run, create = self.podman.grammars()
        bind_places.make(folders, source["mounts"])
        for name, volume in volumes.items():
            self._make_volume(name, volume)
        for pod in source["pods"]:
            infra = next((member for member in source["members"] if member["id"] == pod["infra"]), None)
            self.podman.run(*self._of(pod["name"], pod_twin, pod, infra, podman, self.podman.pod_grammar()))
        for member in members:
            image = self._image(member["image"])
            later = bool(self.params["planned"]) and member["name"] in self.params["planned"]["requirements"]
            command = self._of(member["name"], self._twin_of, {**member, "requires_later": later}, image, podman, run, create)
            self._fill_volumes(member, image)
            self.podman.run(*command)

    @staticmethod
    def _twin_of(member: Facts, image: str, podman: Grammar, run: Grammar, create: Grammar) -> list[str]:
        return twin(parse(member["create_command"], podman, run | create), workload.identity_of(member, image), create)

    def _of(self, name: str, command: t.Callable[..., list[str]], *arguments: t.Any) -> list[str]:
        try:
            return command(*arguments)
        except CommandError as exc:
            raise HandoverError("{0} cannot be created again here: {1}".format(name, exc)) from exc

    def _image(self, image: Facts) -> str:
        for present in self.podman.images():
            if present["Id"] == image["id"]:
                return str(image["name"] if image["name"] in (present.get("Names") or []) else image["id"])
        raise HandoverError("the image {0} ({1}) is not on this host: bring it here with podman save and podman load".format(image["name"], image["id"][:12]))

    def _make_volume(self, name: str, volume: Facts) -> None:
        argv = ["volume", "create", "--driver=" + (volume["driver"] or "local")]
        argv += ["--opt={0}={1}".format(key, value) for key, value in sorted(volume["options"].items())]
        argv += ["--label={0}={1}".format(key, value) for key, value in sorted(volume["labels"].items())]
        self.podman.run(*argv, name)

    def _fill_volumes(self, member: Facts, image: str) -> None:
        """podman fills a volume that is used for the first time from the image: now, under a cover that goes again, and not over what is carried."""
        mounts = [mount for mount in member["mounts"] if mount["type"] == "volume"]
        if not mounts:
            return
        self.podman.run("rm", "--force", "--ignore", "--volumes=false", STAND_IN)
        volumes = ["--volume={0}:{1}".format(mount["name"], mount["destination"]) for mount in mounts]
        self.podman.run("create", "--pull=never", "--network=none", "--name=" + STAND_IN, *volumes, image, "true")
        try:
            Initialisation(self.podman.runtime, self.podman, STAND_IN).run({"mounts": mounts, "networks": []})
        finally:
            self.podman.run("rm", "--force", "--ignore", "--volumes=false", STAND_IN)

    def _verified(self, source: Facts, members: t.Sequence[Facts]) -> dict[str, t.Any]:
        """The facts about the twins, which are the same as their originals."""
        pods = self.podman.pods(pod["name"] for pod in source["pods"])
        here = [pod_facts(pod) for pod in pods]
        for wanted, found in zip(source["pods"], here):
            held = {"ExitPolicy": CONTINUE} if wanted["name"] in (self.params["planned"] or {}).get("exiting", ()) else {}
            self._same("the pod {0}".format(wanted["name"]), {**wanted["essence"], **held}, found["essence"])
        inspects = [self.podman.inspect(each["name"]) for each in members]
        others = names_by_id(inspects, pods)
        facts = []
        for pod in here:
            infra = [self.podman.inspect(pod["infra"])] if pod["infra"] else []
            for inspect in infra:
                wanted = next(member for member in source["members"] if member["infra"] and member["pod_name"] == pod["name"])
                self._same("the infra container of {0}".format(pod["name"]), wanted["essence"], essence_of_member(essence(inspect), others, True))
                facts.append({**workload.facts_of(inspect, self.podman.networks()), "infra": True})
        for wanted, inspect in zip(members, inspects):
            if (inspect.get("State") or {}).get("Running"):
                raise HandoverError("{0} runs on this host already: it must not run twice".format(wanted["name"]))
            self._same(wanted["name"], of_twin(wanted), essence_of_member(essence(inspect), others, False))
            facts.append({**workload.facts_of(inspect, self.podman.networks()), "infra": False})
        mounts = {(mount["type"], mount["name"], mount["source"]): mount for each in facts for mount in each["mounts"]}
        nothing = {key: "" for key in ("id", "upper_dir", "static_dir", "checkpoint_dir", "shm_dir")}
        return {"exists": True, "held": False, "name": self.name, "members": facts, "mounts": list(mounts.values()), **nothing}

    def _same(self, name: str, wanted: Facts, found: Facts) -> None:
        difference = first_difference(wanted, found)
        if difference is not None:
            raise HandoverError(
                "{0} would not be the same here: {1} is {2} on the source and {3} on this host".format(
                    name, difference[0], json.dumps(difference[1]), json.dumps(difference[2])
                )
            )

    def _undo(self, source: Facts, members: t.Sequence[Facts], volumes: t.Iterable[str], folders: t.Iterable[str]) -> None:
        """Leaves nothing half made; the error that led here is the one to report."""
        for member in reversed(members):
            with contextlib.suppress(HandoverError):
                self.podman.run("rm", "--force", "--ignore", "--volumes=false", member["name"])
        for pod in source["pods"]:
            with contextlib.suppress(HandoverError):
                self.podman.run("pod", "rm", "--force", "--ignore", pod["name"])
        for name in volumes:
            with contextlib.suppress(HandoverError):
                self.podman.run("volume", "rm", name)
        with contextlib.suppress(HandoverError):
            bind_places.remove(folders)

    # started

    def _start(self) -> dict[str, t.Any]:
        listed = self.podman.containers()
        for name in self.params["members"]:
            existing = workload.find(listed, name)
            if existing is None:
                raise HandoverError("there is no container named {0} on this host, so it cannot be started".format(name))
            if existing.get("State") != "running":
                self.reasons.append("{0} is {1}".format(name, existing.get("State")))
                if not self.module.check_mode:
                    self.podman.run("start", existing["Id"])
        return {}

    # settled

    def _settle(self) -> dict[str, t.Any]:
        """What was made for the move is this host's from now on. Its pods end as they did on the source, and its members require the same others."""
        for pod in self.podman.pods(self.params["exiting"]):
            if pod.get("ExitPolicy") != STOP:
                self.reasons.append("the pod {0} does not end with the last of its members".format(pod["Name"]))
                if not self.module.check_mode:
                    set_exit_policy(self.podman, pod, STOP)
        listed = self.podman.containers()
        for name, others in self.params["requirements"].items():
            member = workload.find(listed, name)
            if member:
                Surroundings(self.podman, name, self.reasons).require(self.podman.inspect(member["Id"]), others, self.module.check_mode)
        if not self.module.check_mode:
            Parts().keep(self.name, (NETWORK, POD))
        return {}

    # absent

    def _remove(self) -> dict[str, t.Any]:
        listed = self.podman.containers()
        found = [each for each in (workload.find(listed, name) for name in reversed(self.params["members"])) if each]
        running = [each for each in found if each.get("State") in ("running", "paused", "stopping")]
        if running and self.params["running"] == "refuse":
            raise HandoverError(
                "{0} of {1} runs on this host, so nothing of it is removed: stop it first if that is meant".format(workload.name_of(running[0], ""), self.name)
            )
        pods = sorted({each["PodName"] for each in listed if each.get("PodName") in self.params["pods"]})
        strangers = sorted(
            workload.name_of(each, "") for each in listed
            if each.get("PodName") in pods and not each.get("IsInfra") and workload.name_of(each, "") not in self.params["members"]
        )  # fmt: skip
        if strangers:
            raise HandoverError("the pod {0} has got another member since, {1}: remove that first".format(", ".join(pods), ", ".join(strangers)))
        volumes = {volume["Name"]: volume for volume in self.podman.volumes() if volume["Name"] in self.params["volumes"]}
        left = self.podman.remains(listed)
        remains = [each for each in (workload.find(left, name) for name in self.params["members"]) if each]
        self.reasons += ["there is a container named {0}".format(workload.name_of(each, "")) for each in found]
        self.reasons += ["a removal of {0} was cut off, and podman's storage still has it".format(workload.name_of(each, "")) for each in remains]
        self.reasons += ["there is a pod named {0}".format(name) for name in pods]
        self.reasons += ["podman has a volume named {0}".format(name) for name in volumes]
        self.reasons += ["{0} is there".format(path) for path in bind_places.to_put_aside(self.params["aside"])]
        if self.module.check_mode:
            return {}
        for each in found:
            with contextlib.suppress(Held):
                inode_flags.unlock(workload.facts_of(self.podman.inspect(each["Id"]), ())["upper_dir"])
            force = ["--force", "--time=0"] if self.params["running"] == "kill" else []
            self.podman.run("rm", "--ignore", *force, each["Id"])
        for each in remains:
            self.podman.remove_remains(each["Id"])
        for name in pods:
            # Its infra container runs as long as the pod is there.
            self.podman.run("pod", "rm", "--force", "--time=0", "--ignore", name)
        for name, volume in volumes.items():
            inode_flags.unlock("" if volume.get("Options") else volume.get("Mountpoint") or "")
            self.podman.run("volume", "rm", name)
        bind_places.put_aside(self.params["aside"])
        bind_places.remove(self.params["folders"])
        Surroundings(self.podman, self.name, self.reasons).withdraw(**(self.params["around"] or {}))
        return {}
