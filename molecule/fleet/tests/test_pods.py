# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A pod of which a member requires another moves by its name as one, live and offline.

In the order of this file: each test finds the pod where the one before it left it.
"""

from __future__ import annotations

import json
import os
import typing as t
from pathlib import Path

import pytest
from hosts import Hosts

POD = "front"
IMAGE = "localhost/handover/tools:lab"
MEMBERS = {"front-db", "front-web"}
COMMANDS = (
    f"podman pod create --name {POD} --label of=pods --hostname front --infra-image {IMAGE} --infra-command 'sleep 1000000'",
    f"podman run --detach --name front-db --pod {POD} --stop-signal 9 --volume front-db:/data {IMAGE} sh -c 'echo kept >/layer; exec sleep 1000000'",
    f"podman run --detach --name front-web --pod {POD} --stop-signal 9 --requires front-db --volume front-web:/srv {IMAGE} "
    "sh -c 'echo here >/srv/file; exec sleep 1000000'",
    f"podman create --name front-job --pod {POD} {IMAGE} true",
)


class Pod:
    """The pod on the first two hosts."""

    def __init__(self, fleet: Hosts) -> None:
        self.fleet = fleet
        self.first, self.second = fleet.names[:2]

    def make(self) -> None:
        for command in COMMANDS:
            self.fleet.hosts[self.first].check_output(command)

    def remove(self) -> None:
        for host in (self.fleet.hosts[self.first], self.fleet.hosts[self.second]):
            host.run(f"podman pod rm --force --time=0 --ignore {POD}; podman volume rm --force front-db front-web")

    def move(self, here: str, there: str, **more: t.Any) -> None:
        status, text = self.fleet.play("migrate", handover_workload=POD, handover_source=here, handover_destination=there, **more)
        assert status == 0, text[-4000:]
        assert self.on(here) == {}
        on = self.on(there)
        assert {name for name, state in on.items() if state == "running"} == MEMBERS and "front-job" in on
        host = self.fleet.hosts[there]
        assert host.check_output("podman exec front-db cat /layer; podman exec front-web cat /srv/file").split() == ["kept", "here"]
        # podman knows who requires whom.
        db, web = json.loads(host.check_output("podman inspect front-db front-web"))
        assert db["Id"] in web["Dependencies"] and db["Id"] not in db["Dependencies"]

    def on(self, host: str) -> dict[str, str]:
        listed = self.fleet.hosts[host].check_output("podman ps --all --format '{{.Names}} {{.State}}'").splitlines()
        return {name: state for name, state in (line.split() for line in listed) if name.startswith("front-")}


@pytest.fixture(scope="module")
def pod() -> t.Iterator[Pod]:
    made = Pod(Hosts(Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "reports"))
    try:
        made.make()
        yield made
    finally:
        made.remove()


def test_it_moves_live(pod: Pod) -> None:
    # A tmpfs lives as long as the container's processes do.
    pod.fleet.hosts[pod.first].check_output("podman exec front-web touch /dev/shm/lives")
    pod.move(pod.first, pod.second)
    pod.fleet.hosts[pod.second].check_output("podman exec front-web ls /dev/shm/lives")


def test_it_moves_whole(pod: Pod) -> None:
    pod.move(pod.second, pod.first, migrate_mode="offline")
    host = pod.fleet.hosts[pod.first]
    (inspect,) = json.loads(host.check_output(f"podman pod inspect {POD}"))
    assert (inspect["Labels"], inspect["Hostname"]) == ({"of": "pods"}, "front")
    # Their namespaces are shared as before.
    assert host.check_output("podman exec front-db hostname; podman exec front-web hostname").split() == ["front", "front"]
    host.check_output(f"podman pod stop --time 0 {POD} && podman pod start {POD}")
    assert set(pod.on(pod.first)) == {*MEMBERS, "front-job"}
