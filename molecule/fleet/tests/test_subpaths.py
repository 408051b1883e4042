# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A container that mounts folders and files of its volumes' insides moves live, there and back, with a plain volume and with an image volume.

In the order of this file: each test finds the container where the one before it left it.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
import typing as t

import pytest
from hosts import ANSIBLE_PLAYBOOK, CHECKOUT, INVENTORY, said
from pair import Pair
from turns import in_turn

pytestmark = in_turn(2, of=3)

NAME, PLAIN, IMAGE_VOLUME = "drawer", "drawer-plain", "drawer-image"
IMAGE = "localhost/handover/tools:lab"
MOUNTED = f"/var/lib/handover/mnt/{IMAGE_VOLUME}"
PLACES = {"/deep": (PLAIN, "a/b"), "/etc/drawer.conf": (PLAIN, "conf/drawer.conf"), "/beats": (IMAGE_VOLUME, "of/beats")}
COMMAND = (
    f"podman create --name {NAME} --network none --stop-signal 9 --volume {PLAIN}:/whole "
    + " ".join(f"--mount type=volume,src={volume},dst={place},subpath={below}" for place, (volume, below) in PLACES.items())
    + f" {IMAGE} sh -c 'exec 9</etc/drawer.conf; (i=0; while :; do i=$((i+1)); echo $i >>/deep/count; sleep 0.05; done) & "
    "exec heartbeat -file /beats/beat -every 5ms'"
)


class Drawer(Pair):
    """The container on the first two hosts."""

    NAME = NAME

    def volume(self, host: str, **options: t.Any) -> None:
        asked = {"name": IMAGE_VOLUME, "podman_volume": IMAGE_VOLUME, **options}
        words = [f"--inventory={INVENTORY}", "--module-name=livefleet.handover.image_volume", "--args", json.dumps(asked), host]
        environment = {**os.environ, "ANSIBLE_CONFIG": str(CHECKOUT / "ansible.cfg")}
        answer = subprocess.run([str(ANSIBLE_PLAYBOOK.parent / "ansible"), *words], cwd=CHECKOUT, env=environment, capture_output=True, text=True, check=False)
        assert answer.returncode == 0, answer.stdout

    def make(self) -> None:
        self.volume(self.first, state="mounted", size="64M")
        host = self.on(self.first)
        host.check_output(f"podman volume create {PLAIN}")
        root = host.check_output(f"podman volume inspect {PLAIN} --format '{{{{.Mountpoint}}}}'")
        host.check_output(f"mkdir -p {root}/a/b {root}/conf {MOUNTED}/of/beats && echo kept >{root}/conf/drawer.conf && ln -s b {root}/a/link")
        host.check_output(COMMAND)
        host.check_output(f"podman start {NAME}")

    def remove(self) -> None:
        for name in (self.first, self.second):
            self.on(name).run(f"podman rm --force --time=0 --ignore {NAME} {NAME}-linked; podman volume rm --force {PLAIN}")
            self.volume(name, state="absent", force=True)

    def begins_again(self, home: str) -> None:
        """It is started as podman starts it, and writes from the beginning."""
        host = self.on(home)
        root = host.check_output(f"podman volume inspect {PLAIN} --format '{{{{.Mountpoint}}}}'")
        host.check_output(f"podman stop --time=0 {NAME} && rm -f {root}/a/b/count {MOUNTED}/of/beats/* && podman start {NAME}")
        time.sleep(1)

    def is_whole(self, home: str) -> None:
        """It has not missed a beat, and what it mounts is the inside of its volumes."""
        host = self.on(home)
        beats = json.loads(host.check_output(f"podman exec {NAME} heartbeat -gaps /beats/beat"))
        assert (beats["missed"], beats["broken"]) == (0, 0)
        numbers = host.check_output(f"podman exec {NAME} cat /whole/a/b/count").split()
        assert numbers == [str(number) for number in range(1, len(numbers) + 1)]
        assert host.check_output(f"podman exec {NAME} sh -c 'cat /etc/drawer.conf /whole/conf/drawer.conf'").split() == ["kept", "kept"]
        inside = host.check_output(f"podman exec {NAME} stat -c %d:%i /deep /whole/a/b /etc/drawer.conf /whole/conf/drawer.conf /beats").split()
        assert (inside[0], inside[2]) == (inside[1], inside[3])
        assert inside[4].partition(":")[2] == host.check_output(f"stat -c %i {MOUNTED}/of/beats")
        (shown,) = json.loads(host.check_output(f"podman inspect {NAME}"))
        assert {mount["Destination"]: mount.get("SubPath", "") for mount in shown["Mounts"]} == {
            "/whole": "", **{place: below for place, (_volume, below) in PLACES.items()}
        }  # fmt: skip


@pytest.fixture(scope="module")
def drawer() -> t.Iterator[Drawer]:
    yield from Drawer.on_the_fleet()


def test_a_place_behind_a_symbolic_link_is_refused(drawer: Drawer) -> None:
    host = drawer.on(drawer.first)
    host.check_output(f"podman run --detach --name {NAME}-linked --network none --mount type=volume,src={PLAIN},dst=/x,subpath=a/link {IMAGE} sleep 1000000")
    try:
        status, text = drawer.fleet.play(
            "migrate", handover_workload=f"{NAME}-linked", handover_source=drawer.first, handover_destination=drawer.second,
            handover_ignore_checks=["required_by"],
        )  # fmt: skip
    finally:
        host.check_output(f"podman rm --force --time=0 {NAME}-linked")
    assert status != 0
    wanted = f"{NAME}-linked mounts a/link of the volume {PLAIN} on /x, which is neither a folder nor a file there, or is reached by a symbolic link"
    assert wanted in said(text), text[-3000:]


def test_it_moves_live_there_and_back(drawer: Drawer) -> None:
    for there in (drawer.second, drawer.first):
        status, text = drawer.move(there)
        assert status == 0, text[-4000:]
        drawer.is_whole(there)
        drawer.begins_again(there)
        drawer.is_whole(there)


def test_it_moves_offline(drawer: Drawer) -> None:
    status, text = drawer.move(drawer.second, migrate_mode="offline")
    assert status == 0, text[-4000:]
    assert drawer.on(drawer.second).check_output(f"podman exec {NAME} cat /etc/drawer.conf") == "kept"
