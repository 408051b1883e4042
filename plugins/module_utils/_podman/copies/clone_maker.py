# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Makes a clone on this host from a plan, and removes one."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ..._core import host
from ..._core.clones import Record
from ..._core.room import look_for_room
from ..._core.runtime import HandoverError
from ..._core.snapshot_records import Snapshots
from .. import clone_plan, memory_files, plain_volumes, workload
from ..address_probe import in_use
from ..clone import LABEL, CloneError
from ..create_command import CommandError
from ..halted import go_on
from ..podman import Podman
from .clone_parts import CUT_OFF, Maker, configuration_of, disks_of, forget, have_image_volumes, lay, look_at_devices, look_at_places
from .snapshot_disks import SnapshotDisks


class CloneMaker(Maker):
    """One clone."""

    def __init__(self, module: AnsibleModule) -> None:
        super().__init__(module)
        self.podman = Podman(self.runtime)

    # present

    def _present(self) -> Record:
        origin = "{0}@{1}".format(self.params["workload"], self.params["snapshot"])
        record = self.clones.read(self.name)
        if record is not None and record["whole"]:
            return self._as_it_is(record, origin)
        snapshots = Snapshots(self.params["root"], self.params["workload"])
        snapshot = snapshots.read(self.params["snapshot"])
        configuration = configuration_of(snapshots, snapshot["name"])
        again = self.name == configuration["name"]
        self._demand_own(again, origin, snapshot)
        files = disks_of(self.runtime, snapshots, snapshot)
        if record is not None:
            self.reasons.append(CUT_OFF.format(self.name))
            if not self.module.check_mode:
                self._undo(record)
        try:
            here, folders = self._here(record), snapshot.get("folders") or []
            planned = clone_plan.plan(configuration, snapshot["volumes"], self.name, self.params["addresses"], here, folders)
            self.command = clone_plan.command(configuration, planned, origin, self._image(configuration["image"]), self.podman.grammars())
        except (CloneError, CommandError) as exc:
            raise HandoverError(str(exc)) from exc
        look_at_devices(self.params["workload"], configuration.get("devices") or [])
        look_at_places(self.name, planned.volumes, record)
        self._look_around(planned)
        look_for_room(self.params["workload"], files.need(snapshot), os.path.dirname(planned.volumes[0]["image"]) if planned.volumes else self.params["root"])
        self.left_out = list(planned.left_out)
        self.reasons.append("there is no container named {0}".format(self.name))
        mine = {"name": self.name, "origin": origin, "volumes": list(planned.volumes), "podman_volumes": [each["name"] for each in planned.podman_volumes]}
        if self.module.check_mode:
            return {**mine, "whole": False}
        self.clones.write(self.name, {**mine, "whole": False})
        try:
            self._make(planned, snapshot, files)
            if again:
                # From here on its volumes are those of the container itself: a later run may not clear them up, whatever becomes of this one.
                self.clones.forget(self.name)
            self._create(planned, snapshot, files)
            if not again:
                self._start()
        except BaseException:
            # The error that led here is the one to report. What cannot be removed now is removed by the next run.
            with contextlib.suppress(HandoverError, OSError):
                self._undo(mine)
            raise
        if again:
            self._start()  # it may have written when this fails
        else:
            self.clones.write(self.name, {**mine, "whole": True})
        return {**mine, "whole": True}

    def _here(self, record: Record | None) -> clone_plan.Here:
        """The host. In check mode what a killed run has left is there still, and is no obstacle."""
        listed = self.podman.containers()
        known = {each["Name"]: each for each in self.podman.inspect_many([each["Id"] for each in listed])}
        ours = {volume["podman_volume"] for volume in record["volumes"]} | set(record["podman_volumes"]) if record else set()
        addresses = self.runtime.run_json([self.runtime.tool("ip", "iproute2"), "-json", "address"]) or []
        return clone_plan.Here(
            containers=[known.get(name, {"Name": name}) for each in listed for name in each.get("Names") or [] if not self._left(known.get(name), record)],
            networks=self.podman.networks(),
            volumes={volume["Name"] for volume in self.podman.volumes()} - ours,
            addresses=[each["address"] for each in host.parse_addresses(addresses)],
        )

    def _image(self, image: t.Mapping[str, t.Any]) -> str:
        for present in self.podman.images():
            if present["Id"] == image["id"]:
                return image["name"] if image["name"] in (present.get("Names") or []) else image["id"]
        raise HandoverError("the image {0} ({1}) is not on this host any more: bring it back with podman load".format(image["name"], image["id"][:12]))

    def _look_around(self, planned: clone_plan.Plan) -> None:
        """On networks that lead out of the host podman does not know which addresses are in use."""
        networks = {network["name"]: network for network in self.podman.networks()}
        for attachment in planned.networks:
            network = networks[attachment.network]
            interface = network.get("network_interface") or host.gateway_interface()
            for address in attachment.addresses if workload.is_shared(network) else ():
                if in_use(interface, ipaddress.ip_address(address)):
                    raise HandoverError(
                        "the address {0} is in use on the segment of {1}, where a machine answers for it: give the clone another".format(address, interface)
                    )

    def _make(self, planned: clone_plan.Plan, snapshot: t.Mapping[str, t.Any], files: SnapshotDisks) -> None:
        lay(self.runtime, files, snapshot, planned.volumes)
        have_image_volumes(self.module, planned.volumes, "mounted")
        for volume in planned.podman_volumes:
            options = ["--opt={0}={1}".format(key, value) for key, value in sorted(volume["options"].items())]
            labels = ["--label={0}={1}".format(key, value) for key, value in sorted(volume["labels"].items())]
            self.podman.run("volume", "create", "--driver=" + volume["driver"], *options, *labels, volume["name"])
        places = self._places(planned)
        for volume in planned.plain:
            files.fill(snapshot, volume["of"], places[volume["name"]])

    def _places(self, planned: clone_plan.Plan) -> dict[str, str]:
        """Where podman has its volumes."""
        return {volume["Name"]: volume["Mountpoint"] for volume in self.podman.volumes()} if planned.plain else {}

    def _create(self, planned: clone_plan.Plan, snapshot: t.Mapping[str, t.Any], files: SnapshotDisks) -> None:
        self.podman.run(*self.command)
        places = self._places(planned)
        with plain_volumes.kept([places[volume["name"]] for volume in planned.plain]):
            # Only one that was readied once can be restored into.
            if planned.plain or self.params["memory"]:
                self.podman.run("init", self.name)
                self.podman.run("container", "cleanup", self.name)
        self._bring_memory(memory_files.sources(files.snapshots.path(snapshot["name"]), self._facts()))

    def _facts(self) -> dict[str, t.Any]:
        return workload.facts_of(self.podman.inspect(self.name), ())

    def _start(self) -> None:
        if self.params["start"] is False:
            return
        if not self.params["memory"]:
            self.podman.run("start", self.name)
            return
        try:
            go_on(self.runtime, self.name, self._facts())
        except HandoverError as exc:
            raise HandoverError(
                "{0} is there with the disks of its backup, and does not run on from its memory: {1}: start it anew (podman start {0})".format(self.name, exc)
            ) from exc

    # absent

    def _absent(self) -> None:
        record, container = self.clones.read(self.name), self._container()
        if record is None:
            if container is not None:
                raise HandoverError("{0} is no clone of a snapshot below {1}: remove it with podman".format(self.name, self.params["root"]))
            return
        if container is not None and not self._is_ours(container, record):
            raise HandoverError("the container {0} is another than the clone of {1}: remove it first".format(self.name, record["origin"]))
        self.reasons.append("there is a clone {0} of {1}".format(self.name, record["origin"]))
        if not self.module.check_mode:
            self._undo(record)

    def _undo(self, record: Record) -> None:
        """Nothing is left of it. Another container of the name stays."""
        container = self._container()
        if container is not None and self._is_ours(container, record):
            # Of one that ends by itself podman may remove the container first. --volumes is about those without a name.
            self.podman.run("stop", "--ignore", self.name)
            self.podman.run("rm", "--ignore", "--volumes", self.name)
        defined = {volume["Name"] for volume in self.podman.volumes()}
        for name in record["podman_volumes"]:
            if name in defined:
                self.podman.run("volume", "rm", name)
        have_image_volumes(self.module, record["volumes"], "absent")
        forget(self.clones, self.name, record)

    # The container

    def _container(self) -> dict[str, t.Any] | None:
        listed = workload.find(self.podman.containers(), self.name)
        return None if listed is None else self.podman.inspect(listed["Id"])

    def _left(self, container: t.Mapping[str, t.Any] | None, record: Record | None) -> bool:
        return container is not None and record is not None and container["Name"] == self.name and self._is_ours(container, record)

    def _is_there(self, record: Record) -> bool:
        container = self._container()
        return container is not None and self._is_ours(container, record)

    def _is_ours(self, container: t.Mapping[str, t.Any], record: Record) -> bool:
        return ((container.get("Config") or {}).get("Labels") or {}).get(LABEL) == record["origin"]

    def _addresses(self) -> list[str]:
        container = self._container()
        found = workload.networks_of(container, ()) if container else []
        return [address for each in found for address in (each["ip"], each["ip6"]) if address]
