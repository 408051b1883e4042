# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Makes a container of Docker's again from a copy, where it is no more: with its name, its addresses, and the files of the copy."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ..._core import host
from ..._core.clones import Clones, Record
from ..._core.disk_store import check_name
from ..._core.placement import DOCKER
from ..._core.room import look_for_room
from ..._core.runtime import HandoverError, Runtime
from ..._core.snapshot_records import Snapshots
from ..._core.step import in_turn
from ..._docker import facts as facts_of
from ..._docker.api import Docker
from ..._podman import clone_plan, plain_volumes, workload
from ..._podman.address_probe import in_use
from ..._podman.copies.clone_parts import CUT_OFF, OWN_NAME, configuration_of, disks_of, forget, have_image_volumes, look_at_places
from ..._podman.copies.snapshot_disks import SnapshotDisks
from ..steps import STEPS
from .docker_engine import DockerEngine

Document = t.Mapping[str, t.Any]


class DockerMaker:
    """One container. Until it is whole nothing starts it: it has no restart policy, and it is made when all its files are there."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.params = module.params
        self.name: str = module.params["name"]
        check_name("name", self.name)
        self.runtime = Runtime(module, module.params["timeout"])
        self.docker = Docker(self.runtime)
        self.clones = Clones(module.params["root"])
        self.reasons: list[str] = []
        self.left_out: list[str] = []
        self.addresses: list[str] = []

    def run(self) -> dict[str, t.Any]:
        """Makes it, or removes what a killed run has left of it."""
        with self.clones.held(self.name):
            made = {"present": self._present, "absent": self._absent}[self.params["state"]]()
        return {
            "changed": bool(self.reasons), "reasons": self.reasons, "clone": made, "command": "", "left_out": self.left_out,
            "addresses": self.addresses, "lines": [],
        }  # fmt: skip

    def _present(self) -> Record:
        snapshots = Snapshots(self.params["root"], self.params["workload"])
        snapshot = snapshots.read(self.params["snapshot"])
        configuration = configuration_of(snapshots, snapshot["name"])
        self._demand_itself(configuration)
        files = disks_of(self.runtime, snapshots, snapshot)
        record = self.clones.read(self.name)
        if record is not None:
            self.reasons.append(CUT_OFF.format(self.name))
            if not self.module.check_mode:
                self._undo(record)
                record = None
        plain = {folder["name"] for folder in snapshot.get("folders") or []}
        images = [clone_plan.volume_of(volume, "") for volume in snapshot["volumes"]]
        self._look_at_container(configuration, record)
        self._look_at_networks(configuration)
        volumes = list(self._volumes(configuration, plain, record))
        look_at_places(self.name, images, record)
        look_for_room(self.params["workload"], files.need(snapshot), os.path.dirname(images[0]["image"]) if images else self.params["root"])
        self.left_out = list(clone_plan.not_there(configuration, plain))
        self.addresses = [address for network in configuration["networks"] for address in (network["ip"], network["ip6"]) if address]
        self.reasons.append("there is no container named {0}".format(self.name))
        origin = "{0}@{1}".format(self.params["workload"], snapshot["name"])
        named = [volume["Name"] for volume in volumes]
        made = {"name": self.name, "origin": origin, "driver": DOCKER, "volumes": images, "docker_volumes": named, "whole": False}
        if self.module.check_mode:
            return made
        self.clones.write(self.name, made)
        try:
            self._make(configuration, snapshot, files, images, volumes)
        except BaseException:
            # The error that led here is the one to report. What cannot be removed now is removed by the next run.
            with contextlib.suppress(HandoverError, OSError):
                self._undo(made)
            raise
        # From here on its volumes are those of the container itself: a later run may not clear them up, whatever becomes of this one.
        self.clones.forget(self.name)
        self._step(state="settled", restart_policy=configuration["restart_policy"])
        if self.params["start"] is not False:
            self._step(state="started")
        return {**made, "whole": True}

    def _demand_itself(self, configuration: Document) -> None:
        if self.name != configuration["name"]:
            raise HandoverError(
                "{0} is a container of Docker's, and none is made of it under another name: where it is lost, bring it back under its own with the playbook "
                "backup_restore and without handover_clone, or mount the copy and take its files".format(self.params["workload"])
            )
        if not self.params["own_name"]:
            raise HandoverError(OWN_NAME.format(self.name))
        if self.params["addresses"]:
            raise HandoverError(
                "{0} is a container of Docker's, and comes back with the addresses that it had: leave handover_addresses away".format(self.name)
            )
        if self.params["memory"]:
            DockerEngine(self.runtime).look_for_memory(self.name)
        if configuration.get("unaccounted"):
            raise HandoverError(
                "{0} has {1}, which is not known here: make it by what made it first, and go back to the backup then".format(
                    self.name, ", ".join(configuration["unaccounted"])
                )
            )

    def _look_at_container(self, configuration: Document, record: Record | None) -> None:
        if workload.find(DockerEngine(self.runtime).listed(), self.name) is not None and record is None:
            raise HandoverError("there is a container named {0} on this host: go back to the copy with it, or remove it".format(self.name))
        image = configuration["image"]
        if image["id"] not in {present["Id"] for present in self.docker.images()}:
            raise HandoverError(
                "the image {0} ({1}) is not on this host: bring it here with docker save and docker load".format(image["name"], image["id"][:19])
            )

    def _look_at_networks(self, configuration: Document) -> None:
        known = {network["Name"]: network for network in self.docker.networks()}
        for had in configuration["networks"]:
            network = known.get(had["name"])
            if network is None:
                raise HandoverError("Docker has no network named {0} on this host, which {1} was on: make it as it was".format(had["name"], self.name))
            was, now = ((kind, ", ".join(subnets)) for kind, subnets in ((had["driver"], had["subnets"]), (network["Driver"], facts_of.subnets_of(network))))
            if was != now:
                raise HandoverError(
                    "the network {0} of Docker's is another than {1} was on ({2} {3}, and {4} {5} now): make it as it was".format(
                        had["name"], self.name, *was, *now
                    )
                )
            if had["shared"] and not (had["ip"] or had["ip6"]):
                raise HandoverError(
                    "{0} had no fixed address on the network {1}, where Docker does not know which are free: make it by what made it first, and go back "
                    "to the backup then".format(self.name, had["name"])
                )
            taken = {address.partition("/")[0] for each in (network.get("Containers") or {}).values() for address in (each["IPv4Address"], each["IPv6Address"])}
            parent = (network.get("Options") or {}).get("parent") or host.gateway_interface()
            for address in filter(None, (had["ip"], had["ip6"])):
                if address in taken or had["shared"] and in_use(parent, ipaddress.ip_address(address)):
                    raise HandoverError("the address {0} of {1} is in use on the network {2}: see who has it".format(address, self.name, had["name"]))

    def _volumes(self, configuration: Document, plain: t.Collection[str], record: Record | None) -> t.Iterator[dict[str, t.Any]]:
        """Docker's volumes that are to be made, as its API takes them: the plain ones of the copy, and further names for image volumes."""
        known = {volume["Name"]: volume for volume in self.docker.volumes()}
        ours = set(record["docker_volumes"]) if record else set()
        for mount in configuration["mounts"]:
            name, there = mount["name"], known.get(mount["name"])
            if mount["type"] == "bind" and not mount["image_volume"] and not os.path.lexists(mount["source"]):
                raise HandoverError("{0} mounts {1}, which is not on this host: bring it here".format(self.name, mount["source"]))
            if mount["type"] != "volume" or name in ours and there is not None:
                continue
            if there is None and name not in plain and not mount["image_volume"]:
                raise HandoverError("Docker has no volume named {0} on this host, and the copy has none of its files: make it".format(name))
            if there is not None and name in plain:
                raise HandoverError("Docker has a volume named {0} on this host: {1}".format(name, clone_plan.WAY_OUT[True]))
            wanted = {"Name": name, "Driver": mount["volume"]["driver"], "DriverOpts": mount["volume"]["options"], "Labels": mount["volume"]["labels"]}
            if there is None:
                yield wanted
            elif (there["Driver"], there.get("Options") or {}) != (wanted["Driver"], wanted["DriverOpts"]):
                raise HandoverError("the volume {0} of Docker's is another than {1} had: remove it, or make it as it was".format(name, self.name))

    def _make(
        self, configuration: Document, snapshot: Document, files: SnapshotDisks, images: t.Sequence[Document], volumes: t.Sequence[Document]
    ) -> None:
        for image in images:
            os.makedirs(os.path.dirname(image["image"]), mode=0o700, exist_ok=True)
            files.lay(snapshot, image["of"], image["image"])
        have_image_volumes(self.module, images, "mounted")
        for volume in volumes:
            self.docker.post("volumes", "create", body=volume)
        places = {volume["Name"]: volume["Mountpoint"] for volume in self.docker.volumes()}
        plain = [folder["name"] for folder in snapshot.get("folders") or []]
        for name in plain:
            files.fill(snapshot, name, places[name])
        with plain_volumes.kept([places[name] for name in plain]):
            self._step(state="prepared", source=configuration)

    def _step(self, **options: t.Any) -> None:
        result = in_turn(self.module, STEPS, [{"docker_workload": {"name": self.name, **options}}])
        if "msg" in result:
            raise HandoverError(result["msg"])

    # absent

    def _absent(self) -> None:
        record = self.clones.read(self.name)
        if record is not None:
            self.reasons.append(CUT_OFF.format(self.name))
            if not self.module.check_mode:
                self._undo(record)

    def _undo(self, record: Record) -> None:
        """Nothing is left of it."""
        listed = workload.find(DockerEngine(self.runtime).listed(), self.name)
        if listed is not None:
            if listed["State"] != "created":
                raise HandoverError("the container {0} has run, and is another than a run that was cut off had made: remove it first".format(self.name))
            self.docker.delete("containers", listed["Id"])
        for name in record["docker_volumes"]:
            self.docker.delete("volumes", name)
        have_image_volumes(self.module, record["volumes"], "absent")
        forget(self.clones, self.name, record)
