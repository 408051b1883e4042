#!/usr/bin/python

# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: podman_workload

short_description: Prepare a podman container's twin, start a container, or remove one

version_added: 0.1.0

description:
  - On the destination of a move, creates the container that its memory and files will be restored into, and verifies that it
    equals the one on the source in everything that matters. It is not started.
  - On either side, removes a container that does not run.

extends_documentation_fragment:
  - livefleet.handover._attributes

attributes:
  check_mode:
    support: full
    details:
      - Whether the twin equals the source's container can be seen only once it exists.
  diff_mode:
    support: none
  idempotent:
    support: full

options:
  name:
    description:
      - Name of the container.
    type: str
    required: true
  state:
    description:
      - With V(prepared) the container exists, equals O(source) and has never run here. The podman volumes that it names exist,
        bound to the mount points of their image volumes, which are not mounted yet. Those that are plain directories are empty.
      - With V(started) the container runs. It is for one that a boot of its host has ended.
      - With V(settled) a container that runs has the timer of its health check, which podman makes for one that it starts, and not
        for one that it restores.
      - With V(absent) no container of this name exists, nor the volumes listed in O(volumes).
    type: str
    choices: [prepared, started, settled, absent]
    required: true
  source:
    description:
      - For O(state=prepared), the C(workload) that M(livefleet.handover.workload_info) returned on the source.
    type: dict
  health:
    description:
      - For O(state=settled), what the health checks had found on the source, as M(livefleet.handover.workload_info) returned it there as
        C(workload.health_check.results). They go on with that.
    type: dict
    default: {}
  planned:
    description:
      - For O(state=prepared), the planned parts, as M(livefleet.handover.preflight) returned them as C(twin). If it is something else
        by now, the task fails and nothing is made. Not checked if not given.
    type: dict
    suboptions:
      made:
        description:
          - Whether the container is to be made, and is not there yet.
        type: bool
        required: true
      volumes:
        description:
          - Names of the podman volumes that are to be made, and are not there yet.
        type: list
        elements: str
        required: true
      folders:
        description:
          - Paths of bind mounts, and of folders above them, that are to be made empty, the deepest first.
        type: list
        elements: str
        default: []
      secrets:
        description:
          - Names of secrets that M(livefleet.handover.podman_secrets) makes before.
        type: list
        elements: str
        default: []
  volumes:
    description:
      - For O(state=absent), names of podman volumes to remove with the container. Of an image volume only
        the definition goes, and its content is not touched; one that is a plain directory goes with all that is in it.
    type: list
    elements: str
    default: []
  aside:
    description:
      - For O(state=absent), files and folders that the container mounted by their paths and that have moved. Each is renamed to its
        path and C(.migrated), never over anything.
    type: list
    elements: str
    default: []
  folders:
    description:
      - For O(state=absent), paths that were made for the container and go again as far as they are empty, the deepest first.
    type: list
    elements: str
    default: []
  running:
    description:
      - For O(state=absent), the behaviour if the container runs. With V(refuse) the task fails and nothing is changed.
      - With V(kill) it is killed.
    type: str
    choices: [refuse, kill]
    default: refuse
  timeout:
    description:
      - Seconds that the whole module may take.
    type: int
    default: 120

requirements:
  - podman on the host
  - iproute2 on the host, for a container on a network that leads out of the host (macvlan, ipvlan, unmanaged bridge)

author:
  - The Handover maintainers (@livefleet)
"""

EXAMPLES = r"""
- name: Look at the shop
  livefleet.handover.workload_info:
    workload: shop
  register: here

- name: Prepare its twin on the destination
  livefleet.handover.podman_workload:
    name: shop
    state: prepared
    source: "{{ here.workload }}"
  delegate_to: node2

- name: Start the shop again after its host was restarted
  livefleet.handover.podman_workload:
    name: shop
    state: started

- name: Remove the shop from where it was, now that it has moved
  livefleet.handover.podman_workload:
    name: shop
    state: absent
"""

RETURN = r"""
reasons:
  description: Why something was changed, or in check mode would be. One sentence for each step, in order.
  returned: success
  type: list
  elements: str
  sample:
    - podman has no volume named pgdata
    - there is no container named shop
command:
  description: The arguments with which the container was made.
  returned: when O(state=prepared)
  type: list
  elements: str
  sample: [create, --pull=never, --name=shop, --hostname=5a3e7d04f11b, "--network=lan:ip=10.213.0.50,mac=02:00:0a:d5:00:32", localhost/shop:1]
volumes:
  description: The podman volumes that were made, or in check mode would be.
  returned: when O(state=prepared)
  type: list
  elements: str
  sample: [pgdata]
workload:
  description: The container as it is now, as M(livefleet.handover.workload_info) describes it. Empty in check mode where it does not exist.
  returned: when O(state=prepared)
  type: dict
  sample:
    exists: true
    running: false
    name: shop
    state: created
    upper_dir: /var/lib/containers/storage/overlay/aa6f3de687c5/diff
    static_dir: /var/lib/containers/storage/overlay-containers/53f0c023e73d/userdata
"""

import contextlib
import json
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._core.runtime import HandoverError, Runtime
from ..module_utils._podman import bind_places, inode_flags, workload
from ..module_utils._podman.book import started_at
from ..module_utils._podman.create_command import CommandError, parse, twin
from ..module_utils._podman.essence import essence, first_difference
from ..module_utils._podman.health_check import HealthTimer
from ..module_utils._podman.podman import Held, Podman
from ..module_utils._podman.twin_init import Initialisation


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
        states = {"prepared": self._prepare, "started": self._start, "settled": self._settle, "absent": self._remove}
        result = states[self.params["state"]]()
        return dict(result, changed=bool(self.reasons), reasons=self.reasons)

    # prepared

    def _prepare(self) -> dict[str, t.Any]:
        source = self.params["source"]
        image = self._image(source["image"])
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
            return {"command": command, "volumes": sorted(volumes), "workload": {}}
        made: list[str] = []
        initialisation = Initialisation(self.runtime, self.podman, self.name)
        try:
            bind_places.make(folders, source["mounts"])
            for name, volume in volumes.items():
                self._make_volume(name, volume)
                made.append(name)
            self.podman.run(*command)
            inspect = initialisation.run(source)
            self._verify(source, inspect)
            initialisation.mount_shared_memory(inspect)
            self._note_start(source, inspect)
        except HandoverError:
            self._undo(made, folders)
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
        wanted = dict(source["essence"])
        if (source.get("service") or {}).get("made_by_unit"):
            # The unit removes it by its own command. A restore that is begun again would be none if podman did so, too.
            wanted["HostConfig.AutoRemove"] = False
        difference = first_difference(wanted, essence(inspect))
        if difference is not None:
            raise HandoverError(
                "{0} would not be the same here: {1} is {2} on the source and {3} on this host".format(
                    self.name, difference[0], json.dumps(difference[1]), json.dumps(difference[2])
                )
            )

    def _result(self, inspect: t.Mapping[str, t.Any], command: list[str], volumes: list[str]) -> dict[str, t.Any]:
        facts = {"exists": True, "held": False, **workload.facts_of(inspect, self.podman.networks())}
        return {"command": command, "volumes": volumes, "workload": facts}

    def _note_start(self, source: t.Mapping[str, t.Any], inspect: t.Mapping[str, t.Any]) -> None:
        """One that is restored keeps the time at which it was started; podman itself notes only its own starts."""
        if not source.get("running") or not source.get("started"):
            return
        passed = bool((source.get("health_check") or {}).get("startup_passed"))
        why = started_at(self.podman.root(), inspect["Id"], source["started"], passed)
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
        existing = workload.find(self.podman.containers(), self.name)
        if existing is not None:
            if existing.get("State") in ("running", "paused", "stopping") and self.params["running"] == "refuse":
                raise HandoverError("{0} is {1} on this host, so it is not removed: stop it first if that is meant".format(self.name, existing["State"]))
            self.reasons.append("there is a container named {0}, which is {1}".format(self.name, existing.get("State")))
        volumes = {volume["Name"]: volume for volume in self.podman.volumes() if volume["Name"] in self.params["volumes"]}
        self.reasons += ["podman has a volume named {0}".format(name) for name in volumes]
        self.reasons += ["{0} is there".format(path) for path in bind_places.to_put_aside(self.params["aside"])]
        if self.module.check_mode:
            return {}
        if existing is not None:
            force = ["--force", "--time=0"] if self.params["running"] == "kill" else []
            # podman does not answer about one that is held.
            with contextlib.suppress(Held):
                inode_flags.unlock(workload.facts_of(self.podman.inspect(existing["Id"]), ())["upper_dir"])
            # One that podman removes by itself may be gone by now.
            self.podman.run("rm", "--ignore", *force, existing["Id"])
            HealthTimer(self.runtime, existing["Id"]).remove()
        for name, volume in volumes.items():
            inode_flags.unlock("" if volume.get("Options") else volume.get("Mountpoint") or "")  # one with options is bound to a folder that stays
            self.podman.run("volume", "rm", name)
        if workload.find(self.podman.containers(), self.name) is not None:
            raise HandoverError("podman has removed {0}, and there is one again: something on this host makes it anew".format(self.name))
        bind_places.put_aside(self.params["aside"])
        bind_places.remove(self.params["folders"])
        return {}


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
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
                },
            },
            "volumes": {"type": "list", "elements": "str", "default": []},
            "aside": {"type": "list", "elements": "str", "default": []},
            "folders": {"type": "list", "elements": "str", "default": []},
            "running": {"type": "str", "choices": ["refuse", "kill"], "default": "refuse"},
            "timeout": {"type": "int", "default": 120},
        },
        required_if=[("state", "prepared", ["source"])],
        supports_check_mode=True,
    )
    try:
        module.exit_json(**PodmanWorkload(module).run())
    except HandoverError as exc:
        module.fail_json(msg=str(exc))


if __name__ == "__main__":
    main()
