# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Makes a container of Docker's from a copy: again, where it is no more, or another one beside it."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ..._core import host
from ..._core.clones import Record
from ..._core.placement import DOCKER
from ..._core.room import look_for_room
from ..._core.runtime import HandoverError
from ..._core.snapshot_records import Snapshots
from ..._core.step import in_turn
from ..._docker import facts as facts_of
from ..._docker.another import addresses_by_network, another, place_of, shared_with_it
from ..._docker.api import Docker
from ..._docker.checks import STOPPED
from ..._podman import clone_plan, memory_files, plain_volumes, workload
from ..._podman.address_probe import in_use
from ..._podman.clone import LABEL
from ..._podman.copies.clone_parts import CUT_OFF, Maker, configuration_of, disks_of, forget, have_image_volumes, lay, look_at_devices, look_at_places
from ..._podman.copies.snapshot_disks import SnapshotDisks
from ..steps import STEPS
from .docker_engine import DockerEngine

Document = t.Mapping[str, t.Any]


class DockerMaker(Maker):
    """One container. Until it is whole nothing starts it: it has no restart policy, and it is made when all its files are there."""

    def __init__(self, module: AnsibleModule) -> None:
        super().__init__(module)
        self.docker = Docker(self.runtime)
        self.addresses: list[str] = []

    def _addresses(self) -> list[str]:
        return self.addresses

    def _present(self) -> Record:
        snapshots = Snapshots(self.params["root"], self.params["workload"])
        snapshot = snapshots.read(self.params["snapshot"])
        origin = "{0}@{1}".format(self.params["workload"], snapshot["name"])
        record = self.clones.read(self.name)
        if record is not None and record["whole"]:
            return self._as_it_is(record, origin)
        configuration = configuration_of(snapshots, snapshot["name"])
        again = self.name == configuration["name"]
        self._demand_own(again, origin, snapshot)
        self._demand_possible(configuration, again)
        files = disks_of(self.runtime, snapshots, snapshot)
        if record is not None:
            self.reasons.append(CUT_OFF.format(self.name))
            if not self.module.check_mode:
                self._undo(record)
                record = None
        prefix = "" if again else self.name + "-"
        images = [clone_plan.volume_of(volume, prefix) for volume in snapshot["volumes"]]
        plain = {folder["name"]: prefix + folder["name"] for folder in snapshot.get("folders") or []}
        self._look_at_container(configuration, record)
        if not again:
            configuration = self._another(configuration, images, plain, origin)
        self._look_at_networks(configuration)
        volumes = list(self._volumes(configuration, plain.values(), record))
        look_at_places(self.name, images, record)
        look_for_room(self.params["workload"], files.need(snapshot), os.path.dirname(images[0]["image"]) if images else self.params["root"])
        if again:
            self.left_out = list(clone_plan.not_there(configuration, plain))
        self.addresses = [address for network in configuration["networks"] for address in (network["ip"], network["ip6"]) if address]
        self.reasons.append("there is no container named {0}".format(self.name))
        named = [volume["Name"] for volume in volumes]
        made = {"name": self.name, "origin": origin, "driver": DOCKER, "volumes": images, "docker_volumes": named, "whole": False}
        if self.module.check_mode:
            return made
        self.clones.write(self.name, made)
        try:
            self._make(configuration, snapshot, files, images, volumes, plain)
            if not again:
                self._begin(configuration)
        except BaseException:
            # The error that led here is the one to report. What cannot be removed now is removed by the next run.
            with contextlib.suppress(HandoverError, OSError):
                self._undo(made)
            raise
        if again:
            # From here on its volumes are those of the container itself: a later run may not clear them up, whatever becomes of this one.
            self.clones.forget(self.name)
            self._begin(configuration)
        else:
            self.clones.write(self.name, {**made, "whole": True})
        return {**made, "whole": True}

    def _begin(self, configuration: Document) -> None:
        starts = self.params["start"] is not False
        try:
            if starts and self.params["memory"]:
                engine = DockerEngine(self.runtime)
                engine.run_on(self.name, engine.container(self.name))
        finally:
            self._step(state="settled", restart_policy=configuration["restart_policy"])
        if starts:
            self._step(state="started")

    def _demand_possible(self, configuration: Document, again: bool) -> None:
        if again and self.params["addresses"]:
            raise HandoverError(
                "{0} is a container of Docker's, and comes back with the addresses that it had: leave handover_addresses away".format(self.name)
            )
        if self.params["memory"]:
            DockerEngine(self.runtime).look_for_restore(self.name)
        if configuration.get("unaccounted"):
            raise HandoverError(
                "{0} has {1}, which is not known here: make it by what made it first, and go back to the backup then".format(
                    self.params["workload"], ", ".join(configuration["unaccounted"])
                )
            )
        if not again:
            look_at_devices(self.params["workload"], configuration["devices"])

    def _another(self, configuration: Document, images: t.Sequence[Document], plain: t.Mapping[str, str], origin: str) -> dict[str, t.Any]:
        """The facts of the clone, in the form of those of the container."""
        replaced = {**plain, **{image["place"]: image["mountpoint"] for image in images}}
        bound = [mount for mount in configuration["mounts"] if mount["type"] == "volume" and mount["image_volume"]]
        replaced.update({mount["name"]: "{0}-{1}".format(self.name, mount["name"]) for mount in bound})
        for source in shared_with_it(configuration["inspect"], replaced):
            raise HandoverError(
                "{0} is no part of the snapshot, and the clone would write to it, too: mount it read-only in the container, or put it in a volume of its "
                "own".format(source)
            )
        networks = self.docker.networks()
        known = {network["Name"]: network for network in networks}
        self._demand_networks(configuration, known)
        addresses = addresses_by_network(self.params["workload"], configuration["networks"], known, self.params["addresses"])
        inspect = another(configuration["inspect"], self.name, replaced, addresses, (LABEL, origin))
        ports = facts_of.published_by(configuration["inspect"])
        self.left_out = ["port {0} of the host, which is {1}'s".format(port, self.params["workload"]) for port in ports]
        found = {**configuration, **facts_of.facts_of(inspect, networks), "inspect": inspect, "essence": facts_of.essence(inspect)}
        for first, mount in zip(configuration["mounts"], found["mounts"]):
            volume, directory = first["volume"], first["directory_volume"]
            device = ((volume or {}).get("options") or {}).get("device") or ""
            if device:
                volume = {**volume, "options": {**volume["options"], "device": place_of(device, replaced)}}
            mount.update(volume=volume, directory_volume={**directory, "name": mount["name"]} if directory else None, image_volume=first["image_volume"])
        return found

    def _look_at_container(self, configuration: Document, record: Record | None) -> None:
        if workload.find(DockerEngine(self.runtime).listed(), self.name) is not None and record is None:
            way = "go back to the copy with it, or remove it" if self.name == self.params["workload"] else "give the clone another name, or remove that one"
            raise HandoverError("there is a container named {0} on this host: {1}".format(self.name, way))
        image = configuration["image"]
        if image["id"] not in {present["Id"] for present in self.docker.images()}:
            raise HandoverError(
                "the image {0} ({1}) is not on this host: bring it here with docker save and docker load".format(image["name"], image["id"][:19])
            )

    def _look_at_networks(self, configuration: Document) -> None:
        known = {network["Name"]: network for network in self.docker.networks()}
        self._demand_networks(configuration, known)
        for had in configuration["networks"]:
            network = known[had["name"]]
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

    def _demand_networks(self, configuration: Document, known: t.Container[str]) -> None:
        for network in configuration["networks"]:
            if network["name"] not in known:
                raise HandoverError(
                    "Docker has no network named {0} on this host, which {1} was on: make it as it was".format(network["name"], self.params["workload"])
                )

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
                raise HandoverError("Docker has a volume named {0} on this host: {1}".format(name, clone_plan.WAY_OUT[self.name == self.params["workload"]]))
            wanted = {"Name": name, "Driver": mount["volume"]["driver"], "DriverOpts": mount["volume"]["options"], "Labels": mount["volume"]["labels"]}
            if there is None:
                yield wanted
            elif (there["Driver"], there.get("Options") or {}) != (wanted["Driver"], wanted["DriverOpts"]):
                raise HandoverError("the volume {0} of Docker's is another than {1} had: remove it, or make it as it was".format(name, self.name))

    def _make(
        self, configuration: Document, snapshot: Document, files: SnapshotDisks, images: t.Sequence[Document], volumes: t.Sequence[Document],
        plain: t.Mapping[str, str],
    ) -> None:  # fmt: skip
        lay(self.runtime, files, snapshot, images)
        have_image_volumes(self.module, images, "mounted")
        for volume in volumes:
            self.docker.post("volumes", "create", body=volume)
        places = {volume["Name"]: volume["Mountpoint"] for volume in self.docker.volumes()}
        for of, name in plain.items():
            files.fill(snapshot, of, places[name])
        with plain_volumes.kept([places[name] for name in plain.values()]):
            self._step(state="prepared", source=configuration)
        self._bring_memory(memory_files.sources(files.snapshots.path(snapshot["name"]), DockerEngine(self.runtime).container(self.name)))

    def _step(self, **options: t.Any) -> None:
        result = in_turn(self.module, STEPS, [{"docker_workload": {"name": self.name, **options}}])
        if "msg" in result:
            raise HandoverError(result["msg"])

    # absent

    def _absent(self) -> None:
        record = self.clones.read(self.name)
        if record is not None:
            self.reasons.append("there is a clone {0} of {1}".format(self.name, record["origin"]) if record["whole"] else CUT_OFF.format(self.name))
            if not self.module.check_mode:
                self._undo(record)

    def _undo(self, record: Record) -> None:
        """Nothing is left of it. Another container of the name stays."""
        listed = workload.find(DockerEngine(self.runtime).listed(), self.name)
        if listed is not None and not self._is_there(record) and (record["whole"] or listed["State"] != "created"):
            raise HandoverError("the container {0} is another than the clone of {1}: remove it first".format(self.name, record["origin"]))
        if listed is not None:
            if listed["State"] not in STOPPED:
                self.runtime.run([self.runtime.tool("docker", "docker"), "stop", listed["Id"]])
            self.docker.delete("containers", listed["Id"])
        for name in record["docker_volumes"]:
            self.docker.delete("volumes", name)
        have_image_volumes(self.module, record["volumes"], "absent")
        forget(self.clones, self.name, record)

    def _is_there(self, record: Record) -> bool:
        listed = workload.find(DockerEngine(self.runtime).listed(), self.name)
        inspect = self.docker.inspect(listed["Id"]) if listed else None
        return ((inspect or {}).get("Config", {}).get("Labels") or {}).get(LABEL) == record["origin"]
