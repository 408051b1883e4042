# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A pod moves live, there and back: a client's connection and one between its members live on, no line is lost, and it is a pod as before.

In the order of this file: each test finds the pod where the one before it left it. Faults in such a move are in tests/faults/test_pod.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import typing as t
from pathlib import Path

import pytest
from hosts import CHECKOUT, Hosts, answers, said

sys.path.insert(0, str(CHECKOUT / "tests" / "clients"))
import processor

POD, DB, WEB, JOB = "quick", "quick-db", "quick-web", "quick-job"
IMAGE = "localhost/handover/tools:lab"
PORT, INNER = 7000, 5432
CRIU = "/etc/criu/runc.conf"
COMMANDS = (
    f"podman pod create --name {POD} --network lan --hostname quick --exit-policy=stop --infra-image {IMAGE} --infra-command 'sleep 1000000'",
    f"podman run --detach --name {DB} --pod {POD} --stop-signal 9 --volume quick-db:/data {IMAGE} "
    f"sh -c 'nc -ll -p {INNER} -e cat & exec heartbeat -file /data/beats -every 5ms'",
    f"podman run --detach --name {WEB} --pod {POD} --stop-signal 9 --volume quick-web:/srv --volume quick-db:/shared:ro {IMAGE} "
    f"sh -c 'sleep 1; i=0; (while :; do i=$((i+1)); echo $i; sleep 0.1; done) | nc 127.0.0.1 {INNER} >/srv/echo & exec nc -ll -p {PORT} -e cat'",
    f"podman create --name {JOB} --pod {POD} {IMAGE} true",
)
# Of the first process of a container, its namespaces that members of a pod have in common, and its own.
COMMON, OWN = ("ipc", "net", "uts"), ("cgroup", "mnt", "pid")


class Pod:
    """The pod, and a client outside of both hosts."""

    def __init__(self, fleet: Hosts) -> None:
        self.fleet = fleet
        self.names = fleet.names[:2]
        self.client: subprocess.Popen[str] | None = None
        self.processor: dict[str, float] = {}  # the share of each of its programs, when it was looked at last

    def on(self, name: str) -> t.Any:
        return self.fleet.hosts[name]

    def other(self, name: str) -> str:
        return next(each for each in self.names if each != name)

    def make(self) -> None:
        for command in COMMANDS:
            self.on(self.names[0]).check_output(command)

    def remove(self) -> None:
        if self.client is not None:
            self.client.kill()
        for name in self.names:
            self.on(name).run(f"podman pod rm --force --time=0 --ignore {POD} narrow; podman volume rm --force quick-db quick-web")

    def states(self, name: str) -> dict[str, str]:
        listed = self.on(name).check_output("podman ps --all --format '{{.Names}} {{.State}}'").splitlines()
        return {member: state for member, state in (line.split() for line in listed) if member.startswith("quick-")}

    def home(self) -> str:
        """The one host that has it, with all that ran."""
        (home,) = [name for name in self.names if self.states(name)]
        assert {member for member, state in self.states(home).items() if state == "running"} == {DB, WEB}
        assert JOB in self.states(home)
        return home

    def move(self, here: str, **more: t.Any) -> tuple[int, str]:
        return self.fleet.play("migrate", handover_workload=POD, handover_source=here, handover_destination=self.other(here), **more)

    def namespaces(self, home: str, container: str) -> dict[str, str]:
        pid = self.on(home).check_output(f"podman inspect {container} --format '{{{{.State.Pid}}}}'")
        return {kind: self.on(home).check_output(f"readlink /proc/{pid}/ns/{kind}") for kind in (*COMMON, *OWN)}

    def infra(self, home: str) -> str:
        inspected = json.loads(self.on(home).check_output(f"podman pod inspect {POD}"))
        return str((inspected[0] if isinstance(inspected, list) else inspected)["InfraContainerID"])

    def connect(self, home: str) -> None:
        address = self.on(home).check_output(f"podman exec {WEB} hostname -i").split()[0]
        answers(address, PORT)
        words = [sys.executable, str(CHECKOUT / "tests/clients/echo.py"), str(PORT), address]
        self.client = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        time.sleep(2)
        assert self.client.poll() is None

    def disconnect(self) -> dict[str, t.Any]:
        client, self.client = self.client, None
        assert client is not None
        client.terminate()
        (told,) = json.loads(client.communicate(timeout=90)[0]).values()
        return told

    def circling(self, home: str) -> list[str]:
        """Programs of its members that use much more of a processor than when it was looked at last."""
        cgroup = self.on(home).check_output(f"podman inspect {DB} --format '{{{{.State.CgroupPath}}}}'")
        before, self.processor = self.processor, json.loads(self.on(home).check_output(processor.command(f"/sys/fs/cgroup{os.path.dirname(cgroup)}")))
        return processor.circling(before, self.processor)

    def nothing_is_lost(self, home: str) -> None:
        beats = self.on(home).check_output(f"podman exec {DB} heartbeat -gaps /data/beats")
        assert '"missed":0' in beats.replace(" ", "") and '"broken":0' in beats.replace(" ", ""), beats
        before, seen = (self.on(home).check_output(f"podman exec {WEB} tail -n 1 {file}") for file in ("/srv/echo", "/shared/beats"))
        time.sleep(1)
        assert self.on(home).check_output(f"podman exec {WEB} tail -n 1 /shared/beats") != seen, "the volume of two members is not one"
        echoed = self.on(home).check_output(f"podman exec {WEB} cat /srv/echo").split()
        assert echoed == [str(number) for number in range(1, len(echoed) + 1)]
        assert len(echoed) > int(before), "the connection between the members stands still"


@pytest.fixture(scope="module")
def pod() -> t.Iterator[Pod]:
    made = Pod(Hosts(Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "reports"))
    try:
        made.remove()  # what a run has left that was killed
        made.make()
        yield made
    finally:
        made.remove()


def test_there_and_back(pod: Pod) -> None:
    pod.connect(pod.home())
    for _each in range(2):
        here = pod.home()
        before = [pod.namespaces(here, member)["uts"] == pod.namespaces(here, pod.infra(here))["uts"] for member in (DB, WEB)]
        status, text = pod.move(here)
        assert status == 0, text[-4000:]
        there = pod.home()
        assert there != here
        infra, members = pod.namespaces(there, pod.infra(there)), [pod.namespaces(there, member) for member in (DB, WEB)]
        assert all(member[kind] == infra[kind] for member in members for kind in COMMON), (infra, members)
        assert all(members[0][kind] != members[1][kind] for kind in OWN), members
        assert before == [True, True]
        pod.nothing_is_lost(there)
        assert pod.circling(there) == []
        assert pod.on(there).check_output(f"podman exec {WEB} hostname") == "quick"
        assert pod.on(there).check_output(f"podman pod inspect {POD} --format '{{{{.ExitPolicy}}}}'") == "stop"
        assert pod.on(here).check_output("ls /run/handover/gates /run/handover/silent 2>/dev/null | grep -v : | xargs") == ""
    told = pod.disconnect()
    assert told["answers"] > 1000 and "error" not in told, told


@pytest.mark.parametrize("who", ["one member cannot be restored", "a member was started meanwhile"])
def test_a_move_that_fails_leaves_all_where_they_are(pod: Pod, who: str) -> None:
    here = pod.home()
    pod.connect(here)
    # CRIU is told something that it does not understand; or the job runs that was not to be dumped.
    plant, mend, host = {
        "one member cannot be restored": (f"echo planted-by-a-test >> {CRIU}", f"sed -i /^planted-by-a-test$/d {CRIU}", pod.other(here)),
        "a member was started meanwhile": (
            f"systemd-run --quiet --collect sh -c 'until ls /var/lib/handover/sessions/*/journal; do sleep 0.2; done; podman start {JOB}'", "true", here,
        ),
    }[who]  # fmt: skip
    if host == here:
        pod.on(here).check_output(f"podman rm --force {JOB}; podman create --name {JOB} --pod {POD} {IMAGE} sleep 1000000")
    pod.on(host).check_output(plant)
    try:
        status, text = pod.move(here)
    finally:
        pod.on(host).check_output(mend)
    assert status != 0
    assert "quick was not moved" in said(text) and f"runs on {here} as before" in said(text), text[-4000:]
    pod.on(here).run(f"podman stop --time=0 {JOB}")
    assert pod.home() == here
    pod.nothing_is_lost(here)
    assert pod.disconnect()["answers"] > 100


def test_it_is_a_pod_as_before(pod: Pod) -> None:
    status, text = pod.move(pod.home())
    assert status == 0, text[-4000:]
    home = pod.home()
    host = pod.on(home)
    assert len(host.check_output(f"podman pod ps --filter name={POD} --format '{{{{.Name}}}}'").splitlines()) == 1
    host.check_output(f"podman restart --time=0 {WEB}")
    host.check_output(f"podman pod stop --time=0 {POD} && podman pod start {POD}")
    assert {member for member, state in pod.states(home).items() if state == "running"} >= {DB, WEB}
    host.check_output(f"podman stop --time=0 {JOB}")
    assert host.check_output(f"podman exec {WEB} hostname") == "quick"
    assert host.run(f"podman exec {DB} ip address show dev eth0").rc == 0
    # It is heard: no silence came with the start.
    pod.connect(home)
    assert pod.disconnect()["answers"] > 100


def test_what_its_members_share_and_criu_does_not_restore_is_refused(pod: Pod) -> None:
    home = pod.home()
    host = pod.on(home)
    pid = host.check_output(f"podman inspect {DB} --format '{{{{.State.Pid}}}}'")
    made = host.check_output(f"nsenter --target {pid} --ipc ipcmk --semaphore 1")
    status, text = pod.move(home)
    assert status != 0
    assert "quick has semaphores of System V in the IPC namespace that its members share, which CRIU does not restore" in said(text)
    host.check_output(f"nsenter --target {pid} --ipc ipcrm --semaphore-id {made.split()[-1]}")
    host.check_output(f"podman pod create --name narrow --share ipc,net,pid,uts --infra-image {IMAGE} --infra-command 'sleep 1000000'")
    host.check_output(f"podman run --detach --name narrow-one --pod narrow --stop-signal 9 {IMAGE} sleep 1000000")
    status, text = pod.fleet.play("migrate", handover_workload="narrow", handover_source=home, handover_destination=pod.other(home))
    assert status != 0
    assert "as its members share a namespace that CRIU cannot restore them into (pid): move it with -e migrate_mode=offline" in said(text)
    assert pod.home() == home
